"""Which columns hold more than noise: how unlikely a level is if the column were empty.

Noise alone decides: counts that scatter are no reason to doubt that something is there. A level is a weighted
mean of noisy counts, as good as a mean of n = (noise variance of one) / (noise variance of the level) Laplace
numbers. Their Chernoff bound gives the z at which a normal number would be as unlikely: one Laplace number
of 4 standard deviations counts as 2.7.

*Cut.* Noise is as often negative as positive, so columns far below zero tell how many are far above it by
chance: the cut is the least z for which those below -z, and one more, are at most a tenth of those above z;
but never more than it takes for one of ``ODDS`` empty columns, times their number, to reach it. Of several
columns some are often empty; a column that is alone is there because somebody expects events in it, so for
that one ``ALONE`` takes the place of ``ODDS``: to be blind for a window is worse than to be wrong seldom.
That is so with Laplace noise. With normal noise every timestamp is published, so the question is asked each
time, and chance would be taken for a level many times as often: there it is ``ODDS`` for one column too.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.arithmetic import Floats, log, log_of

CUTS = np.arange(0, 6.25, 0.25)
FALSE_ALARMS = 0.1
ODDS = 1000.0
ALONE = 30.0
_SMALL = 1e-4
"""Below this the bound is that of a normal number."""


def sizes(levels: Floats, variances: Floats | float, noise: float, *, normal: bool = False) -> Floats:
    """Each level as a normal number that noise alone exceeds as seldom.

    ``variances`` are those of the levels of empty columns, ``noise`` that of one noisy count. ``normal``:
    noise is normal, not Laplace.
    """
    if normal:
        as_they_are: Floats = levels / np.sqrt(variances)
        return as_they_are
    one = np.abs(levels) / sqrt(noise / 2)
    # sqrt(1 + x^2) - 1, and log of twice that over x^2, without cancellation.
    rise = one * one / (np.sqrt(1 + one * one) + 1)
    shape = np.where(one > _SMALL, log(2 * rise / np.maximum(one * one, _SMALL**2)), 0.0)
    bound = np.maximum(2 * noise / variances * (rise + shape), 0.0)
    signed: Floats = np.sign(levels) * np.sqrt(bound)
    return signed


def above_cut(numbers: Floats, *, normal: bool = False) -> NDArray[np.bool_]:
    """The columns that are more than noise; ``normal`` as in ``sizes``."""
    odds = ODDS * len(numbers) if len(numbers) > 1 or normal else ALONE
    return above_chance(numbers, sqrt(2 * log_of(odds)))


def above_chance(numbers: Floats, highest: float) -> NDArray[np.bool_]:
    """The columns above the cut, which is at most ``highest``."""
    ranked = np.sort(numbers)
    below = np.searchsorted(ranked, -CUTS, "right")
    beyond = len(ranked) - np.searchsorted(ranked, CUTS, "left")
    enough = CUTS[below + 1 <= FALSE_ALARMS * beyond].tolist()
    above: NDArray[np.bool_] = numbers > min([*enough[:1], highest])
    return above
