"""PeGaSus: noisy counts, averaged over groups of timestamps that look alike (Chen et al., CCS 2017).

**As printed** it is event-level: epsilon protects one timestamp. With epsilon/w in its place it is w-event
private, because neighbours differ in w timestamps, one after the other. Its grouper (Algorithm 3) charges a
sparse vector of epsilon_g to a count, but a count that closes a group is looked at twice, by the last test of
that group and by those of the next: 5/4 epsilon_g. Counts get 4/5 of the budget, groups the rest.

**Sound version.** The grouper's noise is 5/4 of the printed one. Its threshold is 5 times the scale of a
count's noise, as printed. All columns at once: a user is in one column at a timestamp. A group ends after
``LONGEST`` timestamps, a public constant, so that its deviation can be computed from a bounded past.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from benchmarks.utility.contenders import Counts, Noise, Reals

LONGEST = 48
COUNTS, GROUPS = Fraction(4, 5), Fraction(1, 5)
TWICE = Fraction(5, 4)


def pegasus(counts: Counts, epsilon: Fraction, window: int, noise: Noise) -> Reals:
    """See ``Peer``."""
    columns, share = counts.shape[1], epsilon / window
    scale, grouping = 1 / (COUNTS * share), TWICE / (GROUPS * share)
    limit = 5 * float(scale)
    starts = np.zeros(columns, np.int64)
    bars = limit + noise.discrete_laplace(4 * grouping, columns)
    sums, released = np.zeros(columns), np.empty(counts.shape)
    for timestamp, row in enumerate(counts):
        past = counts[max(0, timestamp - LONGEST + 1) : timestamp + 1]
        moved = _deviation(past, starts - max(0, timestamp - LONGEST + 1))
        noisy = moved + noise.discrete_laplace(8 * grouping, columns)
        closed = (noisy >= bars) | (timestamp - starts >= LONGEST)
        starts = np.where(closed, timestamp, starts)
        bars = np.where(closed, limit + noise.discrete_laplace(4 * grouping, columns), bars)
        sums = np.where(closed, 0, sums) + row + noise.discrete_laplace(scale, columns)
        released[timestamp] = sums / (timestamp - starts + 1)
    return released


def _deviation(past: Counts, starts: Counts) -> Reals:
    """Sum over the group of |count - mean of the group|, by column; ``starts``: its first row in ``past``."""
    inside = np.arange(len(past))[:, np.newaxis] >= starts
    means = (past * inside).sum(axis=0) / np.maximum(inside.sum(axis=0), 1)
    deviations: Reals = (np.abs(past - means) * inside).sum(axis=0)
    return deviations
