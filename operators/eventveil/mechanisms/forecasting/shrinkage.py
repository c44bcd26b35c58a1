"""What many columns tell of each: levels are drawn towards where levels are.

A level is a long mean of noisy counts, whose noise has a known variance, the same for all columns. Where a
hundred columns hold 4 to 6 events, one that seems to hold 9 more likely holds less: what is expected depends
on how levels are distributed. That is learned from the levels themselves, by expectation and maximisation on
a grid (the estimate of Kiefer and Wolfowitz, for an empirical Bayes rule as of Robbins), in units of the
noise's standard deviation. Levels above ``HIGHEST`` of these are left as they are, for noise hardly matters
there; from ``FADING`` on the correction fades out.

Only noise is taken away, not scatter or movement, so that a correction is never too large for want of knowing
these. It is a function of noisy counts that were published, like all of the forecast.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from eventveil.mechanisms.forecasting.arithmetic import Floats, exp, total
from eventveil.mechanisms.forecasting.hidden import FEWEST

HIGHEST, FADING = 16.0, 12.0
STEP = 0.25
"""Of the grid of levels, in standard deviations of the noise."""
LOWEST_SEEN, STEP_SEEN = -8.0, 0.125
"""Levels are counted in bins of this width."""
ROUNDS = 10
SMOOTHING = 0.5
"""What is added to the number of columns at each level of the grid: none is thought impossible."""
_GRID = STEP * np.arange(round(HIGHEST / STEP) + 1)
_SEEN = LOWEST_SEEN + STEP_SEEN * np.arange(round((HIGHEST - LOWEST_SEEN) / STEP_SEEN) + 1)
_FADED = ((HIGHEST - _SEEN) / (HIGHEST - FADING)).clip(0.0, 1.0)
_LIKELIHOOD = exp(-((_GRID[:, np.newaxis] - _SEEN) ** 2) / 2)
"""Of what is seen, for each level: shape (levels, bins)."""


def corrections(levels: Floats, noise: float) -> Floats:
    """What to add to each level, shape (columns,); ``noise``: the variance that noise alone gives them.

    Zeros where there are less than ``FEWEST`` columns to learn from.
    """
    deviation = sqrt(noise)
    if not deviation:
        return np.zeros(len(levels))
    places = levels / (deviation * STEP_SEEN)
    places -= LOWEST_SEEN / STEP_SEEN
    places.clip(0, len(_SEEN) - 1, out=places)
    columns = np.bincount((places + 0.5).astype(np.int64), minlength=len(_SEEN)).astype(np.float64)
    columns[-1] = 0  # and all that is higher
    if total(columns) < FEWEST:
        return np.zeros(len(levels))
    off = deviation * _FADED * (_expected(columns) - _SEEN)
    below = places.astype(np.int64)
    places -= below
    places *= np.append(np.diff(off), 0.0)[below]
    places += off[below]
    return places


def _expected(columns: Floats) -> Floats:
    """The expected level where ``columns`` columns were seen, of each bin."""
    weights = np.full(len(_GRID), 1 / len(_GRID))
    for _ in range(ROUNDS):
        joint = _LIKELIHOOD * weights[:, np.newaxis]
        share = columns / total(joint)
        found = total((joint * share).T.copy()) + SMOOTHING
        weights = found / float(total(found))
    joint = _LIKELIHOOD * weights[:, np.newaxis]
    expected: Floats = total(joint * _GRID[:, np.newaxis]) / total(joint)
    return expected
