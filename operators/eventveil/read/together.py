"""How much the counts of a group of columns move together, learned from its releases.

For kinds that release count + noise and repeat it. From one fresh release to the next, a column has moved by
a variance m, which the error of the last repeat says. If nothing moved together the sum over the group would
have moved by the sum of m, if everything did by the square of the sum of root m. Where in between it is, is
seen in how far the released sums differ, once the noise of both is taken off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from eventveil.read.releases import Releases

Floats = NDArray[np.float64]
PRIOR = 3.0
"""What is assumed weighs like this many stretches without noise, of fully correlated columns."""
OUTLIER = 25.0
"""A squared difference counts as at most this many times its expectation."""


def correlation(releases: Releases, places: Sequence[int], assumed: float) -> float:
    """From 0 to 1: how much the columns at ``places`` move together; ``assumed`` if nothing is seen of it."""
    heads = np.flatnonzero(releases.fresh)
    last, heads = heads[1:] - 1, heads[:-1]
    repeated = last > heads
    heads, last = heads[repeated], last[repeated]
    if not len(heads):
        return assumed
    errors, sums = releases.errors[:, places] ** 2, releases.counts[:, places].sum(axis=1)
    moved = np.maximum(errors[last] - errors[heads], 0.0)
    apart = moved.sum(axis=1)
    together = np.sqrt(moved).sum(axis=1) ** 2 - apart
    noise = (errors[heads] + errors[last + 1]).sum(axis=1)
    expected = noise + apart + assumed * together
    known = np.isfinite(expected) & (expected > 0)
    if not known.any():
        return assumed
    expected, noise, apart, together = (one[known] for one in (expected, noise, apart, together))
    differences = (sums[last + 1] - sums[heads])[known].astype(np.float64) ** 2
    seen = np.minimum(differences, OUTLIER * expected) - noise - apart
    weight = 1 / expected**2
    found = (weight * together * seen).sum() + PRIOR * assumed
    return float(min(max(found / ((weight * together * together).sum() + PRIOR), 0.0), 1.0))
