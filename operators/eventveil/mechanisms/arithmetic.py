"""Arithmetic with the same bits on every machine.

IEEE 754 fixes the results of +, -, *, /, square roots and roundings, and no more: exponentials, logarithms
and cosines of a library differ in their last bit with the processor, sums and matrix products with the order
that it prefers. These here are made of the former, in an order that is written down. They are accurate to
about 1e-10, which is far more than what they are used for needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import factorial

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LN2 = 0.69314718055994530942
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_PER_LN2 = 1.44269504088896338700
_HALF_PI = 1.57079632679489661923
_EXP = [1 / factorial(n) for n in range(9, -1, -1)]
_LOG = [2 / n for n in range(11, 0, -2)]
_ROOT_HALF = int(np.array(0.70710678118654752440).view(np.int64))
_LEAST = -700.0


def exp(exponents: Floats) -> Floats:
    """e to these powers, which may not exceed 700; 0 would be e^-700 at least."""
    rest = np.maximum(exponents, _LEAST)
    twos = rest * _PER_LN2
    np.rint(twos, out=twos)
    rest -= twos * _LN2_HIGH
    rest -= twos * _LN2_LOW
    powers = twos.astype(np.int64)
    powers += 1023
    powers <<= 52
    powered = _polynomial(_EXP, rest)
    powered *= powers.view(np.float64)
    return powered


def log(numbers: Floats) -> Floats:
    """Natural logarithms of positive numbers, not below 1e-300."""
    bits = np.asarray(numbers, np.float64).view(np.int64)
    twos = bits - _ROOT_HALF
    twos >>= 52  # so that the rest lies between root 1/2 and root 2
    rest = (bits - (twos << 52)).view(np.float64)
    ratio = rest - 1
    rest += 1
    ratio /= rest
    logarithms = _polynomial(_LOG, ratio * ratio)
    logarithms *= ratio
    logarithms += twos * _LN2
    return logarithms


def exp_of(exponent: float) -> float:
    """e to one power."""
    return float(exp(np.array([exponent]))[0])


def log_of(number: float) -> float:
    """The natural logarithm of one positive number."""
    return float(log(np.array([number]))[0])


@lru_cache(maxsize=8192)
def turn(part: int, whole: int) -> tuple[float, float]:
    """Cosine and sine of ``part`` / ``whole`` of a turn, ``whole`` above 0."""
    quarters = (8 * part + whole) // (2 * whole)
    angle = _HALF_PI * ((4 * part - quarters * whole) / whole)
    square = angle * angle
    cosine, sine = 1.0, 1.0
    for n in range(16, 0, -2):
        cosine = 1 - cosine * square / (n * (n - 1))
        sine = 1 - sine * square / (n * (n + 1))
    sine *= angle
    for _ in range(quarters % 4):
        cosine, sine = -sine, cosine
    return cosine, sine


def power(base: float, exponent: int) -> float:
    """``base`` to a whole power, at least 0."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


def total(numbers: Floats) -> Floats:
    """The sum over the first axis: the second half is added to the first, again and again."""
    left = len(numbers)
    half = (left + 1) // 2
    sums, rest = numbers[:half].copy(), numbers[half:]
    while left > 1:
        first = sums[: left - half]
        first += rest
        left, half = half, (half + 1) // 2
        rest = sums[half:left]
    whole: Floats = sums[0]
    return whole


def inverses(matrices: Floats, sizes: Sequence[int]) -> list[Floats]:
    """The inverses of symmetric positive definite matrices, shape (m, n, n), by Gauss and Jordan.

    Nothing beyond the first k rows and columns changes what becomes of these in the first k steps. So the
    inverses of leading blocks come on the way: for each of ``sizes``, ascending, those of shape
    (m, size, size).
    """
    result, found = matrices.copy(), []
    for k in range(sizes[-1]):
        pivot = 1 / result[:, k, k, np.newaxis]
        row, column = result[:, k] * pivot, result[:, :, k].copy()
        result -= column[:, :, np.newaxis] * row[:, np.newaxis]
        result[:, k], result[:, :, k] = row, -column * pivot
        result[:, k, k] = pivot[:, 0]
        if k + 1 in sizes:
            found.append(result[:, : k + 1, : k + 1].copy())
    return found


def _polynomial(coefficients: list[float], at: Floats) -> Floats:
    """The highest power's coefficient comes first."""
    result: Floats = coefficients[0] * at
    for coefficient in coefficients[1:-1]:
        result += coefficient
        result *= at
    result += coefficients[-1]
    return result
