"""A span of values in the ledger, as an audit or a take-over reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eventveil.model.durable import is_version

_PURPOSES = ("threshold", "tree")
_REQUIRED = ("stream", "partition", "purpose", "start", "stop", "spent", "units", "instance")


@dataclass(frozen=True, slots=True)
class Span:
    """Positions ``start`` to ``stop`` - 1 of a partition of a value stream paid ``spent`` of ``units`` each.

    ``units`` make up epsilon. ``purpose`` is ``threshold`` for values held back, ``tree`` for a chunk.
    ``version`` is that of Eventveil which has charged them; None if that is not recorded.
    """

    stream: str
    partition: int
    purpose: str
    start: int
    stop: int
    spent: int
    units: int
    instance: str
    version: str | None = None

    @classmethod
    def read(cls, fields: Mapping[str, Any] | None) -> Span | None:
        """The span in the fields of a ledger record, its types and signs checked; None if there is none."""
        told = fields or {}
        try:
            span = cls(**{name: told[name] for name in _REQUIRED}, version=told.get("eventveil"))
        except KeyError:
            return None
        if "eventveil" in told and not is_version(span.version):
            return None
        numbers = (span.partition, span.start, span.stop, span.spent, span.units)
        sound = all(type(number) is int and 0 <= number < 2**63 for number in numbers)
        texts = all(type(text) is str for text in (span.stream, span.purpose, span.instance))
        return span if sound and texts and span.purpose in _PURPOSES and span.start < span.stop else None
