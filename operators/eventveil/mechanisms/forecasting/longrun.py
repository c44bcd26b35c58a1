"""The long-run level of every column: a discounted mean of its noisy counts, and what noise makes of it."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.arithmetic import Floats, power
from eventveil.mechanisms.forecasting.regression import Weighting
from eventveil.mechanisms.packing import packed, unpacked


class LongRun:
    """Means of noisy counts, each weighted by its accuracy. ``kept``: what a timestamp leaves of the past."""

    def __init__(self, columns: int, kept: float) -> None:
        self._kept = kept
        self._sum = np.zeros(columns)
        self._weight = self._noise = 0.0
        self._weighting = Weighting()

    @property
    def begun(self) -> bool:
        """Whether there was a count."""
        return bool(self._weight)

    @property
    def level(self) -> Floats:
        """The means; zeros before the first count."""
        return self._sum / self._weight if self._weight else self._sum

    @property
    def empty(self) -> float:
        """The variance of ``level`` if columns were empty; after the first count."""
        return self._noise / (self._weight * self._weight)

    def learn(self, noisy: Floats, noise: float, scatter: float, gap: int) -> None:
        """Take in a noisy count a column; ``scatter``: the largest that any of them is expected to have."""
        left, variance = self._weighting.learn(noise, scatter, power(self._kept, gap))
        self._weight = left * self._weight + 1 / variance
        self._noise = left * left * self._noise + noise / (variance * variance)
        self._sum *= left
        self._sum += noisy / variance

    def grown(self, levels: Floats) -> LongRun:
        """One for further columns as well, whose counts were these so far."""
        other = copy(self)
        other._sum = np.concatenate([self._sum, levels * self._weight])
        return other

    def kept(self, some: NDArray[np.bool_]) -> LongRun:
        """One for some of the columns."""
        other = copy(self)
        other._sum = self._sum[some]
        return other

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON-able data."""
        shared = [self._weight, self._noise, *self._weighting.snapshot()]
        return {"sum": packed(self._sum), "shared": packed(np.array(shared))}

    def restored(self, state: object) -> LongRun:
        """One like this that continues from ``snapshot()``; ValueError if it is no such state."""
        if not isinstance(state, dict) or set(state) != {"sum", "shared"}:
            raise ValueError("long-run levels should have sum and shared")
        other = LongRun(len(self._sum), self._kept)
        other._sum = unpacked(state["sum"], self._sum.shape, "sum")
        shared = unpacked(state["shared"], (4,), "shared").tolist()
        if min(shared) < 0:
            raise ValueError("weights and variances should not be negative")
        other._weight, other._noise, other._weighting.noise, other._weighting.scatter = shared
        return other
