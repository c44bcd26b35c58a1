"""Counts that are not negative, from those that noise may have made so.

**What is done.** Each release is projected: of all vectors of numbers that are at least 0 and have the same
sum as the release, the nearest one in squared distance is taken. It is max(count - s, 0) with one s for all
columns of a release (Duchi et al., "Efficient Projections onto the l1-Ball", ICML 2008). It is computed from
the release alone, so it costs no budget. Where the sum itself is negative, all are 0.

**Bias.** The sum over all columns is as unbiased as before. Small columns gain and large ones lose: noise
below 0 is taken away from the columns near 0, and everybody else pays the same s for it. So a sum over *some*
columns, or of one column over many releases, is biased, most where most columns are near 0. Add up first and
project then, or add up the releases as they are; a single release is nearer to the truth in squared distance,
if its sum was right.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def non_negative(counts: NDArray[Any]) -> NDArray[np.float64]:
    """The projection of each row, float64 of the same shape (T, d)."""
    found = counts.astype(np.float64)
    for at in np.flatnonzero((counts < 0).any(axis=1)):
        found[at] = _projected(found[at])
    return found


def _projected(row: NDArray[np.float64]) -> NDArray[np.float64]:
    total = row.sum()
    if total <= 0:
        return np.zeros_like(row)
    descending = np.sort(row)[::-1]
    shifts = (np.cumsum(descending) - total) / np.arange(1, len(row) + 1)
    shift = shifts[np.flatnonzero(descending > shifts)[-1]]
    projected: NDArray[np.float64] = np.maximum(row - shift, 0)
    return projected
