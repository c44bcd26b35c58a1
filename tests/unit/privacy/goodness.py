"""Chi-square tests without a statistics library: p-values are closed sums for even degrees of freedom."""

from __future__ import annotations

from fractions import Fraction
from math import exp, log

import numpy as np
from numpy.typing import NDArray


def p_value(statistic: float, degrees: int) -> float:
    """The probability that chi-square with an even number of degrees of freedom exceeds ``statistic``."""
    assert degrees % 2 == 0
    half = statistic / 2
    terms = [1.0]
    for i in range(1, degrees // 2):
        terms.append(terms[-1] * half / i)
    return exp(log(sum(terms)) - half)


def edges(scale: Fraction) -> NDArray[np.int64]:
    """Starts of bins over the bulk, an even number of them: the two tails make it an odd number of bins."""
    reach = max(2, int(3 * scale))
    step = max(1, reach // 15)
    starts = np.arange(-reach, reach + 1, step)
    return starts if len(starts) % 2 == 0 else starts[:-1]


def binned(draws: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many draws fall below the first start, between two starts, and from the last start on."""
    return np.bincount(np.searchsorted(starts, draws, side="right"), minlength=len(starts) + 1)


def against_exact(draws: NDArray[np.int64], scale: Fraction) -> float:
    """p-value of the draws being discrete Laplace of this scale."""
    starts = edges(scale)
    below = np.array([_below(int(start), float(scale)) for start in starts])
    probabilities = np.diff(np.concatenate([[0.0], below, [1.0]]))
    expected = probabilities * len(draws)
    assert expected.min() >= 5
    statistic = float(((binned(draws, starts) - expected) ** 2 / expected).sum())
    return p_value(statistic, len(expected) - 1)


def against_each_other(one: NDArray[np.int64], other: NDArray[np.int64], scale: Fraction) -> float:
    """p-value of two samples of one size coming from one distribution; ``scale`` only chooses the bins."""
    assert len(one) == len(other)
    first, second = binned(one, edges(scale)), binned(other, edges(scale))
    assert (first + second).min() >= 10
    return p_value(float(((first - second) ** 2 / (first + second)).sum()), len(first) - 1)


def _below(start: int, scale: float) -> float:
    """The probability of a value below ``start``: q^(1 - start) / (1 + q) up to 0, with q = e^(-1/scale)."""
    q = exp(-1 / scale)
    return q ** (1 - start) / (1 + q) if start <= 0 else 1 - q**start / (1 + q)
