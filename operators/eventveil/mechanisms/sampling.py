"""Sampling for a noisy count: which rate, what noise, and why the best rate is always 1.

Each event is kept with probability ``rate``; the kept ones are counted and get discrete Laplace noise of
scale 1 / e', e' = ln(1 + (e^e - 1) / rate); the estimate is (kept + noise) / rate.

**Guarantee.** The noisy count of kept events is e-differentially private for one event, e k for a user's k
events of one timestamp. *Proof*: with noise of scale 1 / e' the count is e'-private in the kept events, and
sampling amplifies that to ln(1 + rate (e^e' - 1)) = e (N. Li, W. Qardaji, D. Su, AsiaCCS 2012, Theorem 1;
here for adding or removing an event). k events compose. Dividing by the rate is post-processing.

Not as printed by Chen et al. (CIKM 2015, Algorithm 2), who add noise of scale 1 / e' *after* dividing by the
rate: an event that is kept moves that quotient by 1 / rate, so the noise is too small by the factor 1 / rate,
and the monitor really costs ln(1 + rate (e^(e' / rate) - 1)), many times e for small rates.

The expected squared error is N (1 - rate) / rate (sampling) + 2 / (rate e')^2 (noise) for N events. Both
terms fall as the rate rises: rate e' = rate ln(1 + a / rate) increases in the rate. So the best rate of any
grid is its largest, 1: sampling with sound noise never helps.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_GRID = 2**32  # irrational scales are rounded up to multiples of 1 / _GRID


class Thinner(Protocol):
    """A noise source that can also sample events."""

    def binomial(self, trials: NDArray[np.int64], rate: Fraction) -> NDArray[np.int64]:
        """For each number of events, how many of them are kept; exact."""


def scale_at(rate: Fraction, epsilon: Fraction) -> Fraction:
    """Noise scale 1 / e' for kept events, rounded up, so that an event costs at most ``epsilon``."""
    if rate == 1:
        return 1 / epsilon
    with localcontext() as context:
        context.prec = 80
        gain = (_decimal(epsilon).exp() - 1) / _decimal(rate)
        inner = (1 + gain).ln() * (1 - Decimal(10) ** -40)  # far more than all roundings together
        return Fraction(int(Decimal(_GRID) / inner) + 1, _GRID)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)
