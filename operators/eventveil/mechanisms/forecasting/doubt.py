"""What a column may hold though it is shown as 0: where noise is large, more than models say.

A column that does not rise above the noise has a level of about 0, often below. To a season that is a prior
of next to no variance, and models with it soon weigh the most: they predict nothing, and are right as far as
can be seen. But of a level only this is known: a mean of n noisy counts, it errs by what noise and counts
scatter. It cannot be below 0, which leaves half of the square of that to either side. Counts have a season or
bursts around it that nobody has seen: they are taken to scatter by as much as they are, beside Poisson
scatter. What was learned of a column's errors so far makes that larger, never smaller: of skewed counts most
publications meet a small one.

A column that is not seen may also have moved. A mean of all noisy counts tells of all of the past, and counts
that grew from nothing stay hidden in it for many windows. So the same is asked of a filter whose level moves
(``levels.MOVING``), and the larger of both counts. Where noise is large, that filter averages as long.

*Several columns* tell of each other (``shrinkage``): how large levels may be that noise hides, in the mean
square. That is what is said of those shown as 0, in place of what models say. It is right for all of them
together, and of the few large ones among many that are empty too little: what counts scatter by is taken
twice, for a season of their own and for bursts, and the whole is ``SKEWED`` times as much, as such counts
are further out than normal numbers. Where the columns share a profile it goes up and down as that does.
"""

from __future__ import annotations

import numpy as np

from eventveil.mechanisms.arithmetic import Floats

ABOVE = 0.5
"""The part of the variance of a level that lies above it."""
SKEWED = 1.5
_STEPS = 3


def of_counts(levels: Floats, noise: float, one: float) -> Floats:
    """The mean squares of counts around 0, for levels of the variance ``noise`` if there were nothing.

    ``one``: the variance of the noise of one count, 0 if it is not known; both above 0.
    """
    looks = max(one / noise, 1.0)
    seen = np.maximum(levels, 0.0)
    known = seen * seen + ABOVE * noise
    squares: Floats = known
    for _ in range(_STEPS):  # what counts scatter by makes levels uncertain, in a share that falls with looks
        squares = known + _scatter(squares) / (looks + 1)
    return squares + _scatter(squares)


def of_levels(squares: Floats, height: float) -> Floats:
    """The mean squares of counts around 0, for levels that have the mean squares ``squares``.

    ``height``: how high counts are at the moment, 1 being their level; at least 0.
    """
    seen = squares * (height * height)
    for _ in range(2):
        seen = seen + _scatter(seen)
    return SKEWED * seen


def _scatter(squares: Floats) -> Floats:
    scatter: Floats = squares + np.sqrt(squares)
    return scatter
