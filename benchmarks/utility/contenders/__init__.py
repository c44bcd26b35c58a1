"""Mechanisms of others for w-event privacy, in sound versions: benchmark code, not part of the product.

Each module says what its printed form spends. All take counts to which a user adds at most 1 a timestamp, in
one column, and spend at most epsilon in any ``window`` consecutive timestamps.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Reals = NDArray[np.float64]


class Noise(Protocol):
    """Where noise comes from; see ``benchmarks.utility.measuring.AheadNoise``."""

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Independent draws."""


class Peer(Protocol):
    """Releases for all timestamps of a stream, computed one after the other."""

    def __call__(self, counts: Counts, epsilon: Fraction, window: int, noise: Noise) -> Reals:
        """An array of the shape of ``counts``."""
