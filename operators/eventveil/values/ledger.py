"""The budget of a value stream: every position of the stream pays at most epsilon, and pays once.

Epsilon is ``units`` equal parts. A position is charged as part of one span of consecutive positions: those a
threshold is estimated from, or those of one chunk. Spans follow each other and never overlap, so by parallel
composition one value costs what its span was charged, at most epsilon. Asked before any noise is drawn.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from eventveil.model.durable import Natural
from eventveil.model.errors import BudgetExceeded

Purpose = Literal["threshold", "tree"]


class Charge(NamedTuple):
    """Positions ``start`` to ``stop`` - 1 (from 0) pay ``units`` each, for a threshold or for a tree."""

    purpose: Purpose
    start: Natural
    stop: Natural
    units: Natural


class PositionLedger:
    """Remembers how far the stream has been charged; that is all it takes to refuse a second charge."""

    def __init__(self, units: int, charged_until: int = 0) -> None:
        if units < 1 or charged_until < 0:
            raise ValueError(
                f"units should be positive and charged_until not negative: {units, charged_until}"
            )
        self.units, self.charged_until = units, charged_until

    def charge(self, charge: Charge) -> None:
        """Raises BudgetExceeded for a position that was charged before, or for more than all units."""
        if charge.start < self.charged_until or charge.stop <= charge.start:
            raise BudgetExceeded(
                f"positions {charge.start} to {charge.stop} for a {charge.purpose}, "
                f"but all before {self.charged_until} have paid already"
            )
        if not 1 <= charge.units <= self.units:
            raise BudgetExceeded(f"{charge.units} units for a {charge.purpose}: epsilon is {self.units}")
        self.charged_until = charge.stop
