"""AdaPub's idea: columns that look alike are published as the mean of their group (Wang et al., 2019).

**As printed** groups are found by hashing what was released before, which costs nothing, and each group's sum
is published; that is sound. Published implementations leave the grouping out.

**Here** every column is published with noise, at each timestamp with epsilon/w or once a window with all of
it, and the mean over a group is computed from that: its noise is that of a published sum times the square
root of the group's size, but which groups there are may be chosen afterwards. Groups are made of what was
released: of levels, averages of noisy counts with a memory of ``MEMORY`` publications. Those in the same
interval of one standard deviation of a level's noise are a group.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from benchmarks.utility.contenders import Counts, Noise, Reals
from eventveil.mechanisms.forecasting import pace

MEMORY = 8
KEPT = 1 - 1 / MEMORY


def always(counts: Counts, epsilon: Fraction, window: int, noise: Noise) -> Reals:
    """Published at each timestamp. See ``Peer``."""
    return _grouped(counts, window / epsilon, 1, noise)


def sampled(
    counts: Counts, epsilon: Fraction, window: int, noise: Noise, periods: tuple[int, ...] = ()
) -> Reals:
    """Published once a window, or up to half as long after it where a window aliases with ``periods``.

    See ``Peer``.
    """
    return _grouped(counts, 1 / epsilon, pace.unaliased(window, periods), noise)


def _grouped(counts: Counts, scale: Fraction, interval: int, noise: Noise) -> Reals:
    columns = counts.shape[1]
    levels, weight = np.zeros(columns), 0.0
    released = np.empty(counts.shape)
    for timestamp, row in enumerate(counts):
        if timestamp % interval:
            released[timestamp] = released[timestamp - 1]
            continue
        noisy = row + noise.discrete_laplace(scale, columns)
        weight = KEPT * weight + 1
        levels = levels + (noisy - levels) / weight
        released[timestamp] = _means(
            noisy.astype(float), levels, float(scale) * (2 / min(weight, MEMORY)) ** 0.5
        )
    return released


def _means(noisy: Reals, levels: Reals, width: float) -> Reals:
    """Each column's noisy count replaced by the mean of its group."""
    order = np.argsort(levels, kind="stable")
    bins = np.floor((levels[order] - levels[order[0]]) / width).astype(np.int64)
    starts = np.flatnonzero(np.diff(bins, prepend=-1))
    sizes = np.diff(np.append(starts, len(order)))
    means = np.empty(len(order))
    means[order] = np.repeat(np.add.reduceat(noisy[order], starts) / sizes, sizes)
    return means
