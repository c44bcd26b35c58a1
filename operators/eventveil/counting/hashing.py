"""Where numbers of users begin in a table: nobody can choose some that fall together."""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

#: Secret, and odd where they multiply.
_FIRST, _SHIFT, _SECOND = (np.uint64(secrets.randbits(64) | odd) for odd in (1, 0, 1))
_HALF = np.uint64(32)


def scatter(numbers: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """64 bits for each number, of which the upper ones are good.

    One multiplication would do for most numbers, but some factors let those at equal distances fall together.
    """
    once = numbers * _FIRST + _SHIFT
    scattered: NDArray[np.uint64] = (once ^ once >> _HALF) * _SECOND
    return scattered
