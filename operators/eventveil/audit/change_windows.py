"""The windows that straddle a change of terms, summed up in terms of epsilon."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import lcm

from eventveil.audit.charges import Charges, WindowSums
from eventveil.formats.change import Change, ChangeLimit, Terms


class ChangeWindows:
    """The windows across one of ``changes``, of which the last one begins other terms.

    ``charges`` has all that was charged before that one; what it has of later timestamps is left out.
    Sums are kept as integers, in a unit that divides every ledger unit that was in force.
    """

    def __init__(self, limit: ChangeLimit, changes: Sequence[Change], charges: Charges) -> None:
        self.until = limit.until
        units = [(0, changes[0].before.unit), *((one.start, one.after.unit) for one in changes)]
        self._scale = lcm(*(unit.denominator for _, unit in units))
        self._limit = limit.epsilon * self._scale
        self._sums = WindowSums(limit.window)
        begin = bisect_left(charges.timestamps, changes[-1].start - limit.window + 1)
        end = bisect_left(charges.timestamps, changes[-1].start)
        for timestamp, spend in zip(charges.timestamps[begin:end], charges.spends[begin:end], strict=True):
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


def exceeding(limit: ChangeLimit, changes: Sequence[Change], charges: Charges) -> Iterator[int]:
    """The timestamps at which windows across the last change end that exceed the limit, all charges known."""
    windows = ChangeWindows(limit, changes, charges)
    begin = bisect_left(charges.timestamps, changes[-1].start)
    end = bisect_left(charges.timestamps, windows.until)
    for timestamp, spend in zip(charges.timestamps[begin:end], charges.spends[begin:end], strict=True):
        if not windows.add(timestamp, spend, changes[-1].after):
            yield timestamp
