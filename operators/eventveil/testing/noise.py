"""No noise at all: what a mechanism does with counts, for tests of topologies.

Nothing here may reach a worker: ``eventveil test`` replays made-up events, connects to nothing and writes no
release anywhere.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from eventveil.model.errors import EventveilError

#: Only a mechanism that waits for noise other than 0 makes more requests in one timestamp.
_PATIENCE = 100_000


class NoiseNeeded(EventveilError):
    """A mechanism cannot continue without noise."""


class NoiseOff:
    """Answers every request with zeros, and samples exactly the expected share of events."""

    def __init__(self) -> None:
        self._requests = 0

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Zeros: int64 of shape (size,). Raises NoiseNeeded where nothing else is asked for any more."""
        self._requests += 1
        if self._requests > _PATIENCE:
            raise NoiseNeeded(
                f"it asked for noise {_PATIENCE:,} times in one timestamp, so it seems to wait for a number "
                "other than 0; test its stream without `released`, in a topology with another kind"
            )
        return np.zeros(size, np.int64)

    def rounded_normal(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        """Zeros, as of ``discrete_laplace``."""
        return self.discrete_laplace(sigma, size)

    def binomial(self, trials: NDArray[np.int64], rate: Fraction) -> NDArray[np.int64]:
        """The expected number of successes, to the nearest whole number."""
        shares = [(2 * number * rate.numerator + rate.denominator) // (2 * rate.denominator)
                  for number in trials.tolist()]  # fmt: skip
        return np.array(shares, np.int64)

    def next_timestamp(self) -> None:
        """Take note that a timestamp has been released."""
        self._requests = 0
