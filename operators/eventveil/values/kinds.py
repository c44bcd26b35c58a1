"""The kinds for value streams by their name in a topology, and how one is made of a stream's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eventveil.privacy.noise import NoiseSource
from eventveil.values.pak import Pak, PakSettings
from eventveil.values.stream import ValueStream
from eventveil.values.tops import Tops, TopsSettings

if TYPE_CHECKING:  # eventveil.topology checks settings with this module
    from eventveil.model.topology import ReadingStream

VALUE_KINDS: Mapping[str, type[ValueStream]] = {kind.kind: kind for kind in (Tops, Pak)}


def build(stream: ReadingStream, noise: NoiseSource) -> ValueStream:
    """The state machine of one partition of a stream. Raises ValueError for settings it cannot honour."""
    mechanism = stream.mechanism
    settings: dict[str, Any] = {
        "epsilon": mechanism.epsilon, "maximum": stream.maximum, **mechanism.options
    }  # fmt: skip
    if mechanism.kind == Tops.kind:
        return Tops(TopsSettings(**settings), noise)
    return Pak(PakSettings(**settings), noise)
