"""What units of Gaussian noise are worth, computed by the audit itself; for people, in floating point."""

from __future__ import annotations

from fractions import Fraction
from math import erfc, exp, pi, sqrt

_FAR = 8.0
_TERMS = 60


def mu_squared(epsilon: Fraction, delta: Fraction) -> float:
    """The square of the largest mu for which mu-GDP is (epsilon, delta)-private, by bisection."""
    low, high = 0.0, 2 * sqrt(2 * float(epsilon)) + 1
    for _ in range(200):
        mu = (low + high) / 2
        low, high = (mu, high) if _delta(float(epsilon), mu) <= float(delta) else (low, mu)
    return low * low


def _delta(epsilon: float, mu: float) -> float:
    """Phi(-a) - e^epsilon Phi(-b), where e^epsilon phi(b) is phi(a): no factor grows with epsilon."""
    if mu == 0:
        return 0.0
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    return erfc(a / sqrt(2)) / 2 - exp(-a * a / 2) / sqrt(2 * pi) * _mills(b)


def _mills(x: float) -> float:
    """Phi(-x) / phi(x) of a positive number; far out, where both vanish, by its continued fraction."""
    if x < _FAR:
        return erfc(x / sqrt(2)) / 2 / (exp(-x * x / 2) / sqrt(2 * pi))
    found = x
    for n in range(_TERMS, 0, -1):
        found = x + n / found
    return 1 / found
