"""How far predictions err over what the models say: learned from each publication, which is free.

A publication y of noise variance R tells of the prediction x that it replaces, which was said to err by V:
(y - x)^2 - R is the square of that error, in the mean. What all columns show together is compared with what
was said of them, each weighing by what can be seen of it behind the noise, and beside a prior that says V.

A column that is alone differs from no other: what it shows is taken in full, and the prior weighs less.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from eventveil.mechanisms.arithmetic import Floats, total

MEMORY = 0.98
"""What a publication leaves of the weight of those before it."""
PRIOR = 10.0
"""What is said weighs like this many columns of a publication without noise."""
PRIOR_ALONE = 4.0
"""The same of a column that is alone, which has one count in a publication."""
OUTLIER = 25.0
"""A squared difference counts as at most this many times its expectation."""
LEAST, MOST = 0.05, 20.0


class Calibration:
    """The ratio of squared errors that were seen to those that were said, both discounted sums.

    ``columns``: how many there are.
    """

    def __init__(self, columns: int) -> None:
        self._seen = self._said = 0.0
        self._alone = columns == 1

    @property
    def factor(self) -> float:
        """By what the variance of a prediction is to be multiplied.

        Columns differ, and the large ones show the most: half of the way, in logarithms, is right for more.
        """
        prior = PRIOR_ALONE if self._alone else PRIOR
        ratio = min(max((prior + self._seen) / (prior + self._said), LEAST), MOST)
        return ratio if self._alone else sqrt(ratio)

    def learn(self, off: Floats, said: Floats, noise: float) -> None:
        """Compare publications' differences from predictions with the variances that were said of these.

        ``off`` and ``said`` of the same shape, one number for each column asked; ``noise`` the variance of
        the publications' noise, above 0.
        """
        weight = said / (said + noise) ** 2
        seen = np.minimum(off * off, OUTLIER * (said + noise)) - noise
        self._seen = MEMORY * self._seen + float(total(weight * seen))
        self._said = MEMORY * self._said + float(total(weight * said))

    def snapshot(self) -> list[float]:
        """The state, for JSON."""
        return [self._seen, self._said]

    @classmethod
    def restored(cls, state: Any, columns: int) -> Calibration:
        """As it was at ``snapshot()``. ValueError unless it is two finite numbers, the second from 0 on."""
        fit = isinstance(state, list) and len(state) == 2 and all(type(one) is float for one in state)
        if not fit or not np.isfinite(state).all() or state[1] < 0:
            raise ValueError(f"calibration should be two finite numbers, not {state!r}")
        made = cls(columns)
        made._seen, made._said = state
        return made
