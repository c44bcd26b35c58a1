"""Noise sources that script what a mechanism does, and how mechanisms are made in these tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from operators.mechanisms import KINDS
from operators.mechanisms.base import Mechanism
from operators.privacy.noise import NoiseSource
from operators.topology.model import MechanismSettings

HUGE = 2**61
COLUMNS = 2  # more than one, so that a draw of size 1 is always a test's


class ZeroNoise:
    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        return np.zeros(size, np.int64)


class ForcedNoise:
    """Makes tests come out as told, publications without noise; ``asked`` counts the tests."""

    def __init__(self, decisions: Iterable[bool]) -> None:
        self._decisions: Iterator[bool] = iter(decisions)
        self.asked = 0

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        if size > 1:
            return np.zeros(size, np.int64)
        self.asked += 1
        return np.array([HUGE if next(self._decisions) else -HUGE])


class ProbingNoise:
    """Publishes ``target`` whatever the true ``counts`` are, tests with ``test_noise``, remembers scales."""

    def __init__(self) -> None:
        self.counts = self.target = np.zeros(COLUMNS, np.int64)
        self.test_noise = 0
        self.test_scale: Fraction | None = None
        self.publish_scale: Fraction | None = None

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        if size == 1:
            self.test_scale = scale
            return np.array([self.test_noise])
        self.publish_scale = scale
        return self.target - self.counts


class WatchedNoise:
    """Passes on another source's noise and calls ``watch(scale, size)`` before every draw."""

    def __init__(self, source: NoiseSource, watch: Callable[[Fraction, int], None]) -> None:
        self._source, self._watch = source, watch

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        self._watch(scale, size)
        return self._source.discrete_laplace(scale, size)


class RescaledNoise:
    """A defect: noise of another scale than the mechanism asks for."""

    def __init__(self, source: NoiseSource, by: Fraction) -> None:
        self._source, self._by = source, by

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        return self._source.discrete_laplace(scale * self._by, size)


def settings(
    kind: str, window: int = 3, epsilon: Fraction = Fraction(1), factor: Fraction | None = None
) -> MechanismSettings:
    options = {} if factor is None else {"factor": factor}
    return MechanismSettings(kind, epsilon, str(epsilon), window, options=options)


def make(
    kind: str,
    noise: NoiseSource,
    window: int = 3,
    columns: int = COLUMNS,
    sensitivity: int = 1,
    epsilon: Fraction = Fraction(1),
) -> Mechanism:
    return KINDS[kind](settings(kind, window, epsilon), columns, sensitivity, noise)


def spends(mechanism: Mechanism, timestamps: int) -> list[tuple[int, int]]:
    """Test and publish units of so many timestamps of zero counts."""
    zeros = np.zeros(COLUMNS, np.int64)
    releases = [mechanism.step(zeros) for _ in range(timestamps)]
    return [(release.test, release.publish) for release in releases]


def largest_window(spent: list[tuple[int, int]], window: int) -> int:
    """The most that any ``window`` consecutive timestamps spent; the plain definition."""
    totals = [test + publish for test, publish in spent]
    return max(sum(totals[start : start + window]) for start in range(len(totals)))
