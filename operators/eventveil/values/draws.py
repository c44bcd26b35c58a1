"""Unbounded discrete Laplace and one-sided geometric noise, made of what a ``NoiseSource`` gives.

A tree adds noise to sums that are not known yet, so it cannot clamp a noisy sum where the source saturates;
the noise itself has to be exact. Both helpers use that geometric tails have no memory:

* Given |x| >= S, the excess |x| - S of a discrete Laplace number of scale b is geometric,
  P(k) = (1 - q) q^k with q = e^(-1/b). So a saturated draw continues with such a number.
* Given x >= 0, a discrete Laplace number is geometric with the same q. So those that are negative are
  thrown away, each by its own value alone.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.privacy.noise import SATURATION, NoiseSource

Integers = NDArray[Any]  # int64, or Python integers as objects


def laplace(noise: NoiseSource, scale: Fraction, size: int) -> Integers:
    """``size`` independent draws with P(x) proportional to e^(-|x|/scale), of any magnitude.

    Raises ValueError if the source does not keep its promise.
    """
    draws = _checked(noise, scale, size)
    saturated = np.flatnonzero(np.abs(draws) == SATURATION)
    if not len(saturated):
        return draws
    exact = draws.astype(object)
    for index in saturated:
        excess = _one_geometric(noise, scale)
        exact[index] += excess if exact[index] > 0 else -excess
    return exact


def geometric(noise: NoiseSource, scale: Fraction, size: int) -> Integers:
    """``size`` independent draws with P(x) proportional to e^(-x/scale) for x >= 0, of any magnitude."""
    kept: Integers = np.empty(0, np.int64)
    while len(kept) < size:
        draws = laplace(noise, scale, 2 * (size - len(kept)) + 8)
        kept = np.concatenate([kept, draws[draws >= 0]])
    return kept[:size]


def _one_geometric(noise: NoiseSource, scale: Fraction) -> int:
    total = 0
    while True:
        draw = int(_checked(noise, scale, 1)[0])
        if draw >= 0:
            total += draw
            if draw < SATURATION:
                return total


def _checked(noise: NoiseSource, scale: Fraction, size: int) -> NDArray[np.int64]:
    draws = noise.discrete_laplace(scale, size)
    if draws.dtype != np.int64 or draws.shape != (size,) or np.any(np.abs(draws) > SATURATION):
        raise ValueError(f"a noise source should give {size} int64 within +-2**62")
    return draws
