"""The windows that straddle a change of terms, summed up in terms of epsilon."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from math import lcm

from eventveil.privacy.audit.charges import Charges, WindowSums
from eventveil.privacy.changes import Change, Crossing, Terms


class Straddling:
    """The windows across one of ``changes``, of which the last one has just been met.

    Sums are kept as integers, in a unit that divides every ledger unit that was in force.
    """

    def __init__(self, crossing: Crossing, changes: Sequence[Change], charges: Charges) -> None:
        self.until = crossing.until
        units = [(0, changes[0].before.unit), *((one.start, one.after.unit) for one in changes)]
        self._scale = lcm(*(unit.denominator for _, unit in units))
        self._limit = crossing.epsilon * self._scale
        self._sums = WindowSums(crossing.window)
        begin = bisect_left(charges.timestamps, changes[-1].start - crossing.window + 1)
        for timestamp, spend in zip(charges.timestamps[begin:], charges.spends[begin:], strict=True):
            unit = next(unit for start, unit in reversed(units) if start <= timestamp)
            self._sums.add(timestamp, self._whole(spend * unit))

    def add(self, timestamp: int, spend: int, terms: Terms) -> bool:
        """Whether a spend of the next timestamp keeps the window that ends there within the limit.

        Nothing spent is always within: nothing could be done about what was spent before the change.
        """
        spent = self._sums.add(timestamp, self._whole(spend * terms.unit))
        return spend == 0 or spent <= self._limit

    def _whole(self, amount: Fraction) -> int:
        return int(amount * self._scale)
