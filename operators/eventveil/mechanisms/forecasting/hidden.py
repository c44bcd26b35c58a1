"""What is shown of columns that are no more than noise: nothing, or what is likely after all others.

Each of them drowns in the noise, all of them together may not: thousands of columns of five events each are
some 15,000 events, and zeros would lose them. Their levels are known to lie where levels of columns are
(``shrinkage``): each is shown at the median of what it may be, 0 where most columns like it are empty.

That is learned from the columns, so where little was learned it may be wrong, and zeros err less. They stay
where a column is likely below ``LEAST``; and in all of them where columns have less on average, or where the
mean is not ``CERTAIN`` standard deviations of its own above 0: because of noise, or because few columns hold
nearly everything. Where a day has its hours, a level is no guess of the count of an hour: there that is asked
of the columns that are no more than noise alone, and they are not to differ among each other by more than
``UNEVEN`` times their mean squared.
"""

from __future__ import annotations

from eventveil.mechanisms.arithmetic import Floats, total

FEWEST = 16
"""How many columns are needed to be certain of anything."""
LEAST, CERTAIN, UNEVEN = 1.0, 4.0, 2.0


def certain(levels: Floats) -> bool:
    """Whether columns hold something together; ``levels``: shape (columns,)."""
    if len(levels) < FEWEST:
        return False
    mean, spread = _mean_and_spread(levels)
    return mean >= LEAST and mean * mean * len(levels) >= CERTAIN * CERTAIN * spread


def alike(levels: Floats, noise: float) -> bool:
    """Whether columns, two at least, differ by little more than noise of this variance."""
    mean, spread = _mean_and_spread(levels)
    return spread - noise <= UNEVEN * mean * mean


def _mean_and_spread(levels: Floats) -> tuple[float, float]:
    mean = float(total(levels)) / len(levels)
    off = levels - mean
    return mean, float(total(off * off)) / (len(levels) - 1)
