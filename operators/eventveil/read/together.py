"""How much the columns of a group move together, or predictions of them err together: learned from releases.

*Kinds that release count + noise* and repeat it (``correlation``). From one fresh release to the next, a
column has moved by a variance m, which the error of the last repeat says. If nothing moved together the sum
over the group would have moved by the sum of m, if everything did by the square of the sum of root m. Where
in between it is, is seen in how far the released sums differ, once the noise of both is taken off.

*Kinds that filter* (``of_predictions``). Columns that share a day and a week are predicted too high or too
low together, and the next publication corrects them. Where the error of a column falls from e to f, its
release jumps by 1 - (f/e)^2 of what the prediction erred by, and by as much of the noise. Noise is
independent between columns, so in products of the jumps of two columns only the error that they share
remains. By how much counts rise at that hour in any case is seen a day before and after (a week, where
timestamps are days), if nothing was published there, and is taken off. A column that is released as 0 before
and after says nothing. Where every other timestamp is published, or more of them, nothing is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from eventveil.topology.periods import DAY, WEEK

if TYPE_CHECKING:
    from eventveil.read.releases import Releases

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
PRIOR = 3.0
"""What is assumed weighs like this many stretches without noise, of fully correlated columns."""
OUTLIER = 25.0
"""A squared difference counts as at most this many times its expectation."""
PRIOR_OF_JUMPS = 20.0
"""The same as ``PRIOR``, of publications: of two columns the jumps say little."""
LEAST_SEEN = 0.1
"""Where less of all publications can be judged, these are of odd times, and say little of the others."""
_ROUNDS = 3
"""What a jump says depends on what is expected of it, and so on what is sought."""


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


def season(interval: int) -> int:
    """The shortest season that counts of timestamps of ``interval`` ms may have, in ms."""
    return DAY if 2 * interval <= DAY else WEEK


def of_predictions(releases: Releases, places: Sequence[int], assumed: float) -> float:
    """From 0 to 1: how much predictions of the columns at ``places`` err together.

    ``assumed`` if nothing is seen of it.
    """
    counts = releases.counts[:, places].astype(np.float64)
    at, usual = _steps_of_the_season(releases, counts)
    if len(at) < LEAST_SEEN * np.count_nonzero(releases.fresh):
        return assumed
    rows = at[:, np.newaxis]
    before, after = releases.errors[rows - 1, places] ** 2, releases.errors[rows, places] ** 2
    with np.errstate(invalid="ignore", divide="ignore"):
        gain = np.maximum(1 - after / before, 0.0)
    shown = (counts[at] > 0) | (counts[at - 1] > 0)
    jumps = np.where(shown, counts[at] - counts[at - 1] - usual, 0.0)
    # Of a jump, what the prediction has erred by; the rest is noise.
    most = np.where(shown, gain * np.sqrt(before), 0.0)
    own, together = (jumps**2).sum(axis=1), most.sum(axis=1) ** 2 - (most**2).sum(axis=1)
    apart = np.where(shown, gain * before, 0.0).sum(axis=1)
    known = np.isfinite(own) & np.isfinite(apart) & (together > 0)
    squares, own, together, apart = (one[known] for one in (jumps.sum(axis=1) ** 2, own, together, apart))
    found = assumed
    for _ in range(_ROUNDS):
        expected = apart + found * together
        seen = np.minimum(squares, OUTLIER * expected) - np.minimum(own, OUTLIER * apart)
        weight = 1 / expected**2
        weighed = (weight * together * seen).sum() + PRIOR_OF_JUMPS * assumed
        found = weighed / ((weight * together * together).sum() + PRIOR_OF_JUMPS)
        found = float(min(max(found, 0.0), 1.0))
    return found


def _steps_of_the_season(releases: Releases, counts: Floats) -> tuple[Places, Floats]:
    """Where publications lie of which that is known, and by how much releases rise there without one."""
    follows = np.zeros(len(releases), np.bool_)
    follows[1:] = (np.diff(releases.timestamps) == 1) & (np.diff(releases.part_of) == 0)
    quiet = follows & ~releases.fresh
    quiet[1:] &= ~releases.fresh[:-1]
    at = np.flatnonzero(follows & releases.fresh)
    away = max(1, round(season(releases.interval) / releases.interval))
    rises, number = np.zeros((len(at), counts.shape[1])), np.zeros(len(at))
    for sought in (releases.timestamps[at] - away, releases.timestamps[at] + away):
        row = np.searchsorted(releases.timestamps, sought).clip(1, len(releases) - 1)
        some = quiet[row] & (releases.timestamps[row] == sought)
        rises[some] += counts[row[some]] - counts[row[some] - 1]
        number += some
    there = number > 0
    return at[there], rises[there] / number[there, np.newaxis]
