"""Guesses of the next noisy sum from earlier ones: values inside a node are predicted, not measured.

**Guarantee.** None of its own: a function of noisy sums that are private already (post-processing).

**Source.** Wang et al. (CCS 2021), Section 3.5 and Appendix D: recent, mean, median, moving average,
exponential.

**Changed.** Predictions are integers, whole sums of a node rounded down. The first guess, half the threshold
for every value, counts only until a node is known; the printed mean and moving average keep it, and on skewed
streams it is far too high. The printed mean divides t + 1 terms by t. The median is of the last
MEDIAN_LENGTH nodes, so that state stays bounded; the printed one lacks the division by b^s. Exponential
smoothing starts at the first node and keeps its level in steps of 1/1024.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, cast

SmootherKind = Literal["recent", "mean", "median", "moving-average", "exponential"]
MEDIAN_LENGTH = 1024
_LEVEL = 1024


class Smoother(ABC):
    """Sees the noisy sum of every node, in order, and guesses the next."""

    @abstractmethod
    def observe(self, total: int) -> None:
        """A node ended with this noisy sum."""

    @abstractmethod
    def predict(self) -> int | None:
        """The sum of the next node; None before the first one ended."""

    @abstractmethod
    def snapshot(self) -> list[int]:
        """What it remembers."""

    @abstractmethod
    def restore(self, state: Sequence[int]) -> None:
        """Continue from ``snapshot()``; ValueError if it is none."""


class LastSums(Smoother):
    """A statistic of the last ``length`` sums: recent (1), median, moving average."""

    def __init__(self, length: int, middle: bool = False) -> None:
        self._sums: deque[int] = deque(maxlen=length)
        self._middle = middle

    def observe(self, total: int) -> None:
        """See ``Smoother``."""
        self._sums.append(total)

    def predict(self) -> int | None:
        """See ``Smoother``."""
        if not self._sums:
            return None
        if self._middle:
            ascending = sorted(self._sums)
            return (ascending[(len(ascending) - 1) // 2] + ascending[len(ascending) // 2]) // 2
        return sum(self._sums) // len(self._sums)

    def snapshot(self) -> list[int]:
        """See ``Smoother``."""
        return list(self._sums)

    def restore(self, state: Sequence[int]) -> None:
        """See ``Smoother``."""
        if len(state) > cast(int, self._sums.maxlen):
            raise ValueError(f"a smoother of {self._sums.maxlen} sums cannot have {len(state)}")
        self._sums.clear()
        self._sums.extend(state)


class Mean(Smoother):
    """The mean of all sums so far."""

    def __init__(self) -> None:
        self._total = self._count = 0

    def observe(self, total: int) -> None:
        """See ``Smoother``."""
        self._total += total
        self._count += 1

    def predict(self) -> int | None:
        """See ``Smoother``."""
        return self._total // self._count if self._count else None

    def snapshot(self) -> list[int]:
        """See ``Smoother``."""
        return [self._total, self._count]

    def restore(self, state: Sequence[int]) -> None:
        """See ``Smoother``."""
        if len(state) != 2 or state[1] < 0:
            raise ValueError("a mean has a total and a count")
        self._total, self._count = state


class Exponential(Smoother):
    """The last level and the newest sum, weighted 1 - alpha to alpha."""

    def __init__(self, alpha: Fraction) -> None:
        if not 0 < alpha <= 1:
            raise ValueError(f"alpha should lie in (0, 1], not {alpha}")
        self._alpha = alpha
        self._level: int | None = None

    def observe(self, total: int) -> None:
        """See ``Smoother``."""
        scaled = _LEVEL * total
        self._level = (
            scaled if self._level is None else self._level + int(self._alpha * (scaled - self._level))
        )

    def predict(self) -> int | None:
        """See ``Smoother``."""
        return None if self._level is None else self._level // _LEVEL

    def snapshot(self) -> list[int]:
        """See ``Smoother``."""
        return [] if self._level is None else [self._level]

    def restore(self, state: Sequence[int]) -> None:
        """See ``Smoother``."""
        if len(state) > 1:
            raise ValueError("exponential smoothing has one level")
        self._level = state[0] if state else None


def smoother(kind: SmootherKind, length: int, alpha: Fraction) -> Smoother:
    """``length`` is that of the moving average, in nodes, ``alpha`` the weight of the newest sum."""
    if length < 1:
        raise ValueError(f"the length of a moving average should be at least 1, not {length}")
    if kind == "recent":
        return LastSums(1)
    if kind == "mean":
        return Mean()
    if kind == "median":
        return LastSums(MEDIAN_LENGTH, middle=True)
    if kind == "moving-average":
        return LastSums(length)
    return Exponential(alpha)
