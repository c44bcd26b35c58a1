"""How many standard deviations an interval reaches.

Errors that are one Laplace number have heavier tails than a normal number, sums of many have not. Between the
two, the excess kurtosis of the sum, 3 for one and 3/n for n alike, decides, linearly: exact at both ends.
"""

from __future__ import annotations

from math import log, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from eventveil.read.problems import ReadingError

LAPLACE = 3.0
"""The excess kurtosis of a Laplace number."""


def quantile(level: float, kurtosis: NDArray[np.float64]) -> NDArray[np.float64]:
    """Half the length of an interval, in standard deviations, for an excess kurtosis in 0..3.

    ``level``: how often the interval is to cover. Raises ReadingError unless it lies between 0 and 1.
    """
    if not 0 < level < 1:
        raise ReadingError("level", f"{level} is not a share between 0 and 1", "Write 0.95 for 95 %")
    normal, laplace = NormalDist().inv_cdf((1 + level) / 2), -log(1 - level) / sqrt(2)
    return normal + (laplace - normal) * np.clip(kurtosis, 0, LAPLACE) / LAPLACE
