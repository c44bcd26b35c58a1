"""Value streams as a topology has them, and what becomes of their values."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from eventveil.model.topology import ReadingStream, ValueMechanism, ValueSource
from eventveil.privacy.noise import NoiseSource, SeededNoise
from eventveil.tasks.values import PerturberState, StreamPerturber
from eventveil.values.kinds import build

INSTANCE = "0" * 32
TOPS = {"held": 10, "chunk": 16, "fanout": 4, "smoothed": 0}
PAK = {"held": 10, "chunk": 16, "delta": Fraction(1, 1000)}


def readings(kind: str = "tops", name: str = "minutes", **options: Any) -> ReadingStream:
    """A stream that holds back 10 values and has chunks of 16."""
    options = {**(TOPS if kind == "tops" else PAK), **options}
    mechanism = ValueMechanism(kind, Fraction(1), "1.0", options)
    source = ValueSource("values", "/value", max_bytes=100)
    return ReadingStream(name, source, 200, Fraction(1, 2), "0.5", mechanism, f"{name}.sink")


def perturber(
    stream: ReadingStream,
    state: PerturberState | None = None,
    noise: NoiseSource | None = None,
    *,
    seeded: bool = False,
) -> StreamPerturber:
    """One partition of it, number 1, from the beginning or a state on."""
    mechanism = build(stream, noise or SeededNoise(5))
    return StreamPerturber(stream, mechanism, state or PerturberState(INSTANCE, 1, 0), seeded=seeded)


def event(value: object) -> bytes:
    """The bytes of an event."""
    return f'{{"value": {value}}}'.encode()
