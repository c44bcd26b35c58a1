"""What is shown of columns that are no more than noise: nothing, or what they have in common.

Each of them drowns in the noise, all of them together may not: thousands of columns of five events each are
some 15,000 events, and zeros would lose them. Their long-run levels l, with noise of variance v, are taken
for draws around a common mean m with a variance b of their own: each is expected at m + b / (b + v) (l - m).

Zeros err less, a column at a time, if the columns have less than an event on average, or if few of them hold
nearly everything. So they stay where m is below ``LEAST``, where it is not ``CERTAIN`` standard deviations of
its own above 0, and where b is above ``UNEVEN`` m^2.
"""

from __future__ import annotations

import numpy as np

from eventveil.mechanisms.forecasting.arithmetic import Floats, total

FEWEST = 16
"""How many columns are needed to learn how they differ."""
LEAST, CERTAIN, UNEVEN = 1.0, 4.0, 2.0


def expected(levels: Floats, noise: float) -> Floats:
    """What columns are expected to hold, each; zeros where that is better.

    ``levels``: of the columns that are no more than noise, shape (columns,); ``noise``: what variance noise
    gives them.
    """
    number = len(levels)
    if number < FEWEST:
        return np.zeros(number)
    mean = float(total(levels)) / number
    off = levels - mean
    spread = float(total(off * off)) / (number - 1)
    own = max(spread - noise, 0.0)
    if mean < LEAST or mean * mean * number < CERTAIN * CERTAIN * spread or own > UNEVEN * mean * mean:
        return np.zeros(number)
    return np.maximum(mean + own / (own + noise) * off, 0.0)
