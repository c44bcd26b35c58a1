"""Noise sources that script what a mechanism does, and how mechanisms are made in these tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.base import Counts, Mechanism
from eventveil.mechanisms.contract.privacy import Target
from eventveil.mechanisms.dissimilarity import DissimilarityMechanism
from eventveil.mechanisms.registry import KINDS
from eventveil.model.topology import MechanismSettings, Option
from eventveil.privacy.noise import NoiseSource, NormalSource

HUGE = 2**61
COLUMNS = 2
HORIZON = 100

#: Everything that has to keep the contract: a name, the kind, its options. With two columns, two groups are
#: one column each, so that a user who moves between columns moves between groups.
CASES: dict[str, tuple[str, Mapping[str, Option]]] = {
    **{kind: (kind, {}) for kind in KINDS},
    **{
        f"{kind} {name}": (kind, options)
        for kind in ("budget-distribution", "budget-absorption")
        for name, options in {
            "groups": {"groups": 2},
            "groups anew each time, shift": {"groups": 2, "regroup": 1, "shift": "true"},
        }.items()
    },
    "seasonal periods": ("seasonal", {"periods": "3,8"}),
    "totals": ("totals", {"blocks": "3,6"}),
}


class ZeroNoise:
    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        return np.zeros(size, np.int64)


class Scripted:
    """Answers tests and publications apart; ``make`` tells it whose noise it is.

    A test comes before its timestamp's publication is charged, a publication after it.
    """

    mechanism: Any

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        if self.mechanism._ledger.current.publish == 0:
            return self.test(scale, size)
        return self.publication(scale, size)

    def rounded_normal(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        return self.discrete_laplace(sigma, size)

    def test(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        raise NotImplementedError

    def publication(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        return np.zeros(size, np.int64)

    def published_columns(self) -> NDArray[np.bool_]:
        """Those that the publication which is being drawn has noise for."""
        if isinstance(self.mechanism, DissimilarityMechanism):
            return self.mechanism._groups.columns_of(self.mechanism._moved)
        return np.ones(self.mechanism._columns, np.bool_)


class ForcedNoise(Scripted):
    """Makes tests come out as told, for all groups or for each; publications without noise.

    ``asked`` counts the tests.
    """

    def __init__(self, decisions: Iterable[bool | tuple[bool, ...]]) -> None:
        self._decisions: Iterator[bool | tuple[bool, ...]] = iter(decisions)
        self.asked = 0

    def test(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        self.asked += 1
        return np.broadcast_to(np.where(next(self._decisions), HUGE, -HUGE), size)


class ProbingNoise(Scripted):
    """Publishes ``target`` whatever the true ``counts`` are, tests with ``test_noise``, remembers scales."""

    def __init__(self, columns: int = COLUMNS) -> None:
        self.counts = self.target = np.zeros(columns, np.int64)
        self.test_noise: int | Counts = 0
        self.test_scale: Fraction | None = None
        self.publish_scale: Fraction | None = None

    def test(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        self.test_scale = scale
        return np.broadcast_to(np.asarray(self.test_noise, np.int64), size)

    def publication(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        self.publish_scale = scale
        return (self.target - self.counts)[self.published_columns()]


class WatchedNoise(Scripted):
    """Passes on another source's noise and calls ``watch(scale, is_test)`` before every draw."""

    def __init__(self, source: NoiseSource, watch: Callable[[Fraction, bool], None]) -> None:
        self._source, self._watch = source, watch

    def test(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        self._watch(scale, True)
        return self._source.discrete_laplace(scale, size)

    def publication(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        self._watch(scale, False)
        return self._source.discrete_laplace(scale, size)


class RescaledNoise:
    """A defect: noise of another scale than the mechanism asks for."""

    def __init__(self, source: NoiseSource, by: Fraction) -> None:
        self._source, self._by = source, by

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        return self._source.discrete_laplace(scale * self._by, size)

    def rounded_normal(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        assert isinstance(self._source, NormalSource)
        return self._source.rounded_normal(sigma * self._by, size)


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

    def rounded_normal(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        return self.discrete_laplace(sigma, size)


def kind_of(case: str) -> type[Mechanism]:
    """The class of a case, or of a kind."""
    return KINDS[CASES[case][0]]


W_EVENT_KINDS = sorted(kind for kind in KINDS if KINDS[kind].level == "w-event")
W_EVENT_CASES = sorted(case for case in CASES if kind_of(case).level == "w-event")


def settings(
    case: str,
    window: int = 3,
    epsilon: Fraction = Fraction(1),
    factor: Fraction | None = None,
    **options: Option,
) -> MechanismSettings:
    kind, own = CASES.get(case, (case, {}))
    factors = {} if factor is None else {"factor": factor}
    return MechanismSettings(kind, epsilon, str(epsilon), window, options={**own, **factors, **options})


def columns_of(case: str) -> int:
    """The columns of the tests; mechanisms at user level take one."""
    return 1 if kind_of(case).level == "user" else COLUMNS


def make(
    case: str,
    noise: NoiseSource,
    window: int = 3,
    columns: int | None = None,
    sensitivity: int = 1,
    epsilon: Fraction = Fraction(1),
    horizon: int = HORIZON,
    *,
    by: type[Mechanism] | None = None,
    **options: Option,
) -> Mechanism:
    """A mechanism of a case; ``by`` replaces its class by a broken one.

    ``window`` is for w-event mechanisms, ``horizon`` for those at user level.
    """
    extent = {"w-event": window, "event": 1, "user": horizon}[kind_of(case).level]
    described = settings(case, extent, epsilon, **options)
    return attach((by or kind_of(case))(described, columns or columns_of(case), sensitivity, noise))


def eager() -> NoiseSource:
    """Noise with which a mechanism publishes whenever it can."""
    return ForcedNoise(itertools.repeat(True))


def attach(mechanism: Mechanism, noise: NoiseSource | None = None) -> Mechanism:
    """Tell scripted noise, new or old, whose it is."""
    anybody: Any = mechanism
    anybody._noise = source = noise or getattr(anybody, "_noise", None)
    while source is not None:
        if isinstance(source, Scripted):
            source.mechanism = mechanism
        source = getattr(source, "_source", None)
    return mechanism


def spends(mechanism: Mechanism, timestamps: int) -> list[tuple[int, int]]:
    """Test and publish units of this many timestamps of zero counts."""
    zeros = np.zeros(mechanism._columns, np.int64)  # type: ignore[attr-defined]  # every w-event kind has them
    releases = [mechanism.step(zeros) for _ in range(timestamps)]
    return [(release.test, release.publish) for release in releases]


def largest_window(spent: list[tuple[int, int]], window: int) -> int:
    """The most that any ``window`` consecutive timestamps spent; the plain definition."""
    totals = [test + publish for test, publish in spent]
    return max(sum(totals[start : start + window]) for start in range(len(totals)))
