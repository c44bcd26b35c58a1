"""A span of values in the ledger, as an audit or a take-over reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from eventveil.model.durable import Natural, Program


class Span(msgspec.Struct, frozen=True, rename={"version": "eventveil"}):
    """Positions ``start`` to ``stop`` - 1 of a partition of a value stream paid ``spent`` of ``units`` each.

    ``units`` make up epsilon. ``purpose`` is ``threshold`` for values held back, ``tree`` for a chunk.
    ``version`` is that of Eventveil which has charged them; None if that is not recorded.
    """

    stream: str
    partition: Natural
    purpose: Literal["threshold", "tree"]
    start: Natural
    stop: Natural
    spent: Natural
    units: Natural
    instance: str
    version: Program | None = None

    @classmethod
    def read(cls, fields: Mapping[str, Any] | None) -> Span | None:
        """The span in the fields of a ledger record, its types and signs checked; None if there is none."""
        told = fields or {}
        try:
            span = msgspec.convert(told, cls)
        except msgspec.ValidationError:
            return None
        unsaid = span.version is None and "eventveil" in told
        return None if unsaid or span.start >= span.stop else span
