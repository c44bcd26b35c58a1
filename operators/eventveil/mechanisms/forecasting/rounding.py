"""Whole numbers out of what is expected, such that sums stay right.

The median of Poisson numbers with mean m is nearly floor(m + 1/3): the count that errs least. Released
everywhere, these add up to too little: a column of 0.6 would be 0 at every timestamp. What is missing or too
much, at a timestamp and at those before, is put where it costs the least accuracy: one more where a mean is
nearest to it, one less where a mean was rounded up the furthest. Columns that expect less than ``SMALL`` stay
at 0, because there one more would err more often than not. Where counts scatter phi times as much as Poisson
numbers, as negative binomial ones do, zeros are likelier: up to (phi - 1) / log phi times ``SMALL``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.arithmetic import Floats, total

SMALL = 0.5
MOST = 1.0
"""What is owed is at most this much for each column that is shown."""


class Rounding:
    """``owed``: how much earlier releases lack, all columns together; negative if they have too much."""

    def __init__(self) -> None:
        self.owed = 0.0

    def whole(self, mean: Floats, phi: Floats) -> Floats:
        """Whole numbers, not negative; ``mean`` is 0 where 0 is released, and may be negative elsewhere."""
        rarer = (2 * np.sqrt(phi) + (1 + phi) / 2) / 3  # nearly (phi - 1) / log phi
        rounded = np.where(mean >= 2 / 3 * rarer, np.floor(np.maximum(mean, 0.0) + 1 / 3), 0.0)
        missing = self.owed + float(total(mean - rounded))
        steps = int(missing)
        changed = self._change(mean, mean >= SMALL * rarer, rounded, steps) if steps else 0
        bound = MOST * max(1, int(np.count_nonzero(mean)))
        self.owed = min(max(missing - changed, -bound), bound)
        return rounded

    @staticmethod
    def _change(mean: Floats, enough: NDArray[np.bool_], rounded: Floats, steps: int) -> int:
        """Raise or lower ``rounded`` by ``steps`` in all, each column by one at most; how many it were."""
        near = (mean - rounded) / np.sqrt(np.maximum(mean, 0.5))
        up = steps > 0
        some = np.flatnonzero((rounded >= 1) | enough if up else rounded >= 1)
        chosen = some[_least(-near[some] if up else near[some], abs(steps))]
        rounded[chosen] += 1 if up else -1
        return len(chosen) if up else -len(chosen)


def _least(numbers: Floats, size: int) -> NDArray[np.int64]:
    """Where the ``size`` least numbers are, the first ones of equals; all, if there are fewer."""
    if size >= len(numbers):
        return np.arange(len(numbers))
    bar = np.partition(numbers, size - 1)[size - 1]
    less, equal = np.flatnonzero(numbers < bar), np.flatnonzero(numbers == bar)
    return np.concatenate([less, equal[: size - len(less)]])
