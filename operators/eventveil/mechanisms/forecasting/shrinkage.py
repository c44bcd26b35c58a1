"""What many columns tell of each: levels are drawn towards where levels are.

A level is a weighted mean of noisy counts, whose noise has a known law, the same for all columns. Where a
hundred columns hold 4 to 6 events, one that seems to hold 9 more likely holds less: what is expected depends
on how levels are distributed. That is learned from the levels themselves, by expectation and maximisation on
a grid (the estimate of Kiefer and Wolfowitz, for an empirical Bayes rule as of Robbins), in units of the
noise's standard deviation. Levels above ``HIGHEST`` of these are left as they are, for noise hardly matters
there; from ``FADING`` on the correction fades out.

*The law of noise.* A mean of n equal Laplace numbers has a density that is a polynomial times e^-|x|. It is
sharper in the middle and heavier in the tails than a normal one, which takes its place from ``NORMAL`` on.

Only noise is taken away, not scatter or movement, so that a correction is never too large for lack of knowing
these. It is a function of noisy counts that were published, like all of the forecast.
"""

from __future__ import annotations

from functools import lru_cache
from math import sqrt
from typing import NamedTuple

import numpy as np

from eventveil.mechanisms.arithmetic import Floats, exp, total

FEWEST = 16
"""How many columns are needed to learn how they differ."""
HIGHEST, FADING = 16.0, 12.0
LOWEST_SEEN, STEP_SEEN = -8.0, 0.125
"""Levels are counted in bins of this width."""
ROUNDS = 20
PRIOR = 0.5
"""What is added to the number of columns, over the whole grid: no level is thought impossible."""
NORMAL = 5
"""From this many noisy counts on, the noise of their mean counts as normal."""
_POLYNOMIALS = ((1.0,), (1.0, 1.0), (1.0, 3.0, 3.0), (1.0, 6.0, 15.0, 15.0))
_GRID = np.concatenate([np.arange(10) / 20, np.arange(5, 20) / 10, np.arange(8, 65) / 4])
"""Levels, in standard deviations of the noise; finer where they are small."""
_SQUARES = (_GRID * _GRID)[:, np.newaxis]
_SEEN = LOWEST_SEEN + STEP_SEEN * np.arange(round((HIGHEST - LOWEST_SEEN) / STEP_SEEN) + 1)
_FADED = ((HIGHEST - _SEEN) / (HIGHEST - FADING)).clip(0.0, 1.0)
_WIDTHS = np.diff(np.append(_GRID, HIGHEST + 0.25)) / (1 + _GRID)
_FLAT = _WIDTHS / float(total(_WIDTHS))
"""The first guess of how levels are distributed."""


class Expected(NamedTuple):
    """Of each column's level, shape (columns,): what it may be, in the ``mean`` and the ``median``.

    ``squares``: the mean of its square, for levels up to ``FADING`` standard deviations of the noise.
    """

    mean: Floats
    median: Floats
    squares: Floats


def expected(levels: Floats, noise: float, looks: int) -> Expected | None:
    """What levels are, given all of them; None where there are less than ``FEWEST`` to learn from.

    ``levels``: shape (columns,); ``noise``: the variance that noise alone gives each of them; ``looks``: how
    many noisy counts would have as much, from 1 on.
    """
    deviation = sqrt(noise)
    if not deviation:
        return None
    places = levels / (deviation * STEP_SEEN)
    places -= LOWEST_SEEN / STEP_SEEN
    places.clip(0, len(_SEEN) - 1, out=places)
    columns = np.bincount((places + 0.5).astype(np.int64), minlength=len(_SEEN)).astype(np.float64)
    columns[-1] = 0  # and all that is higher
    if total(columns) < FEWEST:
        return None
    below = places.astype(np.int64)
    places -= below
    mean, median, squares = (_between(one, below, places) for one in _learned(columns, looks))
    return Expected(levels + deviation * mean, levels + deviation * median, noise * squares)


def _between(off: Floats, below: np.ndarray[tuple[int], np.dtype[np.int64]], part: Floats) -> Floats:
    """Interpolated between a bin and the next one."""
    between: Floats = part * np.append(np.diff(off), 0.0)[below]
    between += off[below]
    return between


def _learned(columns: Floats, looks: int) -> tuple[Floats, Floats, Floats]:
    """For a level of each bin, where ``columns`` columns were seen: what to add to it, and its square.

    What to add for the mean and for the median; the mean square.
    """
    likelihood, weights = _likelihood(min(looks, NORMAL)), _FLAT
    for _ in range(ROUNDS):
        joint = likelihood * weights[:, np.newaxis]
        joint *= columns / total(joint)
        found = total(joint.T) + PRIOR * _FLAT
        weights = found / float(total(found))
    joint = likelihood * weights[:, np.newaxis]
    joint /= total(joint)
    mean = total(joint * _GRID[:, np.newaxis])
    squares = total(joint * _SQUARES)
    return _FADED * (mean - _SEEN), _FADED * (_medians(joint) - _SEEN), squares


def _medians(chances: Floats) -> Floats:
    """The levels that are exceeded in half of the cases; ``chances``: of each level, by bin."""
    below, reached = np.zeros(len(_SEEN), np.int64), np.zeros(len(_SEEN))
    for chance in chances[:-1]:
        reached += chance
        below += reached < 0.5
    medians: Floats = _GRID[below]
    return medians


@lru_cache(maxsize=NORMAL)
def _likelihood(looks: int) -> Floats:
    """Of what is seen, for each level of the grid, but for a factor: shape (levels, bins)."""
    off: Floats = np.abs(_GRID[:, np.newaxis] - _SEEN)
    if looks >= NORMAL:
        return exp(-off * off / 2)
    off *= sqrt(2 * looks)
    density: Floats = np.zeros(off.shape)
    for coefficient in _POLYNOMIALS[looks - 1]:
        density *= off
        density += coefficient
    density *= exp(-off)
    return density
