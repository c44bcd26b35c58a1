"""Noise sources that script what a mechanism does, and how mechanisms are made in these tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from operators.mechanisms import KINDS
from operators.mechanisms.base import Counts, Mechanism
from operators.privacy.noise import NoiseSource
from operators.topology.model import MechanismSettings, Option

HUGE = 2**61
COLUMNS = 2  # more than one, so that a draw of size 1 is always a test's in w-event mechanisms
HORIZON = 100
W_EVENT_KINDS = sorted(kind for kind in KINDS if KINDS[kind].level == "w-event")


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


class Target(np.ndarray):
    """Noise that turns whatever it is added to into the target, and hands the true values to ``seen``."""

    seen: Callable[[Counts], None]

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [one.view(np.ndarray) if isinstance(one, Target) else one for one in inputs]
        if ufunc is np.add and method == "__call__":
            true = next(one for one in inputs if not isinstance(one, Target))
            self.seen(np.broadcast_to(true, self.shape).copy())
            return self.view(np.ndarray).copy()
        return getattr(ufunc, method)(*plain, **options)


class ObservedNoise:
    """Lets every noisy value come out as ``targets`` says; ``draws`` holds scale, true values and outcome.

    A mechanism adds its noise to true values, and this noise sees them: so the likelihood of a transcript is
    known exactly, whatever the values are that the mechanism draws from.
    """

    def __init__(self, targets: Callable[[int], Counts]) -> None:
        self.targets = targets
        self.draws: list[tuple[Fraction, Counts, Counts]] = []

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        target = np.array(self.targets(size), np.int64).view(Target)
        outcome = np.array(target)
        target.seen = lambda true: self.draws.append((scale, true, outcome))
        return target


def settings(
    kind: str,
    window: int = 3,
    epsilon: Fraction = Fraction(1),
    factor: Fraction | None = None,
    **options: Option,
) -> MechanismSettings:
    if factor is not None:
        options["factor"] = factor
    return MechanismSettings(kind, epsilon, str(epsilon), window, options=options)


def columns_of(kind: str) -> int:
    """The columns of the tests; mechanisms at user level take one."""
    return 1 if KINDS[kind].level == "user" else COLUMNS


def make(
    kind: str,
    noise: NoiseSource,
    window: int = 3,
    columns: int | None = None,
    sensitivity: int = 1,
    epsilon: Fraction = Fraction(1),
    horizon: int = HORIZON,
    **options: Option,
) -> Mechanism:
    """``window`` is for w-event mechanisms, ``horizon`` for those at user level."""
    extent = {"w-event": window, "event": 1, "user": horizon}[KINDS[kind].level]
    made = settings(kind, extent, epsilon, **options)
    return KINDS[kind](made, columns or columns_of(kind), sensitivity, noise)


def eager(kind: str) -> NoiseSource:
    """Noise with which a mechanism publishes whenever it can."""
    return ForcedNoise(itertools.repeat(True)) if kind in W_EVENT_KINDS else ZeroNoise()


def spends(mechanism: Mechanism, timestamps: int) -> list[tuple[int, int]]:
    """Test and publish units of so many timestamps of zero counts."""
    zeros = np.zeros(COLUMNS, np.int64)
    releases = [mechanism.step(zeros) for _ in range(timestamps)]
    return [(release.test, release.publish) for release in releases]


def largest_window(spent: list[tuple[int, int]], window: int) -> int:
    """The most that any ``window`` consecutive timestamps spent; the plain definition."""
    totals = [test + publish for test, publish in spent]
    return max(sum(totals[start : start + window]) for start in range(len(totals)))
