"""The exact privacy loss: transcripts of neighbouring streams, their likelihoods in closed form.

The mechanism is a black box. Its noise source writes down the scale it is asked for and answers so that a
chosen transcript comes out; the smallest test noise that makes it publish is found by bisection. So what is
bounded here is the likelihood under the code, with the discrete Laplace distribution known exactly.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import exp, inf, log, log1p

import numpy as np
import orjson
import pytest
from numpy.typing import NDArray

from eventveil.mechanisms.base import Counts, Mechanism
from eventveil.model.topology import Option
from eventveil.privacy.noise import NoiseSource
from tests.contract.noises import CASES, COLUMNS, HUGE, W_EVENT_CASES, ProbingNoise, RescaledNoise, make

pytestmark = pytest.mark.slow

EVERY_CASE = pytest.mark.parametrize("case", W_EVENT_CASES)
EPSILON = Fraction(3, 2)
FLOAT_ERROR = 1e-9  # logarithms of a few dozen factors, each exact to about 1e-15
VALUES = (-1, 4)  # releases that are looked at: below and above all counts in use
OTHERS = ((1, 0), (0, 2), (1, 1))  # counts of everybody else, per timestamp; further columns are empty
TIMESTAMPS = len(OTHERS)
LARGEST = 2**13  # test noise beyond which no decision depends on it
Visits = dict[int, tuple[int, ...]]  # timestamp: what one user adds to each column


@dataclass
class Outcome:
    """What a timestamp may do: its log-likelihood, and the state afterwards unless it is impossible."""

    likelihood: float
    state: bytes | None


class BlackBox:
    """A mechanism whose probabilities are measured.

    ``groups`` is the number of groups that decide for themselves, each with test noise of its own.
    """

    def __init__(self, mechanism: Mechanism, noise: ProbingNoise, groups: int = 1) -> None:
        self.mechanism, self._noise, self._groups = mechanism, noise, groups
        self.start = mechanism.snapshot()
        self._known: dict[tuple[bytes, bytes], list[Outcome]] = {}
        #: The smallest noise that made a group publish when what stood was as far away and as much was left,
        #: which is mostly that of this time; under the group alone, that of the last time, which is near.
        self._guesses: dict[object, int] = {}

    def outcomes(self, state: bytes, counts: Counts) -> list[Outcome]:
        """Every set of groups to publish, each with every output of its first columns, in a fixed order."""
        key = state, counts.tobytes()
        if key not in self._known:
            self._known[key] = self._outcomes(state, counts)
        return self._known[key]

    def _outcomes(self, state: bytes, counts: Counts) -> list[Outcome]:
        self._noise.counts = counts
        known = orjson.loads(state)
        like = str(known["ledger"]), np.abs(known["last"] - counts).tobytes()
        decisions = [self._decision(state, counts, group, like) for group in range(self._groups)]
        return [
            outcome
            for published in itertools.product((False, True), repeat=self._groups)
            for outcome in self._published(state, counts, published, decisions)
        ]

    def _published(
        self, state: bytes, counts: Counts, published: tuple[bool, ...], decisions: list[tuple[float, float]]
    ) -> Iterator[Outcome]:
        likelihood = sum(decision[chosen] for decision, chosen in zip(decisions, published, strict=True))
        if likelihood == -inf:
            yield Outcome(-inf, None)
            return
        test_noise = np.where(published, HUGE, -HUGE)
        # Noise is drawn for what is published alone, so the rest of a target does not matter.
        self._noise.target = np.full(len(counts), VALUES[0])
        chosen = self._step(state, counts, test_noise)
        free = np.flatnonzero(chosen)[:COLUMNS]
        for output in itertools.product(VALUES, repeat=len(free)):
            if any(value != VALUES[0] for value in output):  # the first output is that of the step above
                self._noise.target[free] = output
                self._step(state, counts, test_noise)
            mass = 0.0
            if chosen.any():
                assert self._noise.publish_scale is not None
                mass = _log_mass((self._noise.target - counts)[chosen], self._noise.publish_scale)
            yield Outcome(likelihood + mass, self.mechanism.snapshot())

    def _decision(
        self, state: bytes, counts: Counts, group: int, like: tuple[str, bytes]
    ) -> tuple[float, float]:
        """Log-probabilities of repeating and of publishing a group."""

        def publishes(noise: int) -> bool:
            test_noise = np.full(self._groups, -HUGE)
            test_noise[group] = noise
            return bool(self._step(state, counts, test_noise).any())

        high = self._guesses.get((group, like))
        if high is None or not publishes(high) or publishes(high - 1):
            if not publishes(HUGE):
                return 0.0, -inf
            if publishes(-HUGE):
                return -inf, 0.0
            high = least(publishes, self._guesses.get(group, 0))
        self._guesses[group] = self._guesses[group, like] = high
        scale = self._noise.test_scale
        assert scale is not None
        return _log_at_least(1 - high, scale), _log_at_least(high, scale)

    def _step(self, state: bytes, counts: Counts, test_noise: Counts) -> NDArray[np.bool_]:
        """The columns that are published."""
        self._noise.test_noise = test_noise
        self.mechanism.restore(state)
        fresh = self.mechanism.step(counts).fresh
        return self._noise.published_columns() & fresh


def least(holds: Callable[[int], bool], guess: int) -> int:
    """The smallest number for which ``holds``, as it does for all above: between two that are ever further
    apart, beginning at ``guess``, then by bisection."""
    high, low, step = guess, guess - 1, 1
    while not holds(high):
        low, high, step = high, high + step, 2 * step
        assert high <= LARGEST
    while holds(low):
        high, low, step = low, low - step, 2 * step
        assert low >= -LARGEST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _log_mass(values: Counts, scale: Fraction) -> float:
    """Log-probability that independent discrete Laplace variables have these values."""
    rate = float(1 / scale)
    constant = log(-np.expm1(-rate)) - log1p(exp(-rate))
    return float(len(values) * constant - rate * np.abs(values).sum())


def _log_at_least(threshold: int, scale: Fraction) -> float:
    """Log-probability that a discrete Laplace variable is at least ``threshold``."""
    rate = float(1 / scale)
    if threshold >= 1:
        return -rate * threshold - log1p(exp(-rate))
    return log1p(-exp(-rate * (1 - threshold)) / (1 + exp(-rate)))


def largest_loss(
    case: str,
    window: int,
    *users: Visits,
    sensitivity: int = 1,
    defect: Fraction | None = None,
    instead: Sequence[Visits] = (),
    columns: int = COLUMNS,
    by: type[Mechanism] | None = None,
    **options: Option,
) -> float:
    """The largest |log ratio| of a likelihood with one of the users' visits, and with that of ``instead``."""
    noise = ProbingNoise(columns)
    source: NoiseSource = noise if defect is None else RescaledNoise(noise, defect)
    mechanism = make(case, source, window, columns, sensitivity, EPSILON, by=by, **options)
    own = CASES[case][1].get("groups", options.get("groups", 1))
    box = BlackBox(mechanism, noise, int(own))
    return max(
        _largest_loss(box, visits, other, columns)
        for visits, other in zip(users, instead or [{}] * len(users), strict=True)
    )


def _largest_loss(box: BlackBox, visits: Visits, instead: Visits, columns: int) -> float:
    everybody_else = [np.array([*others, *(0,) * (columns - COLUMNS)]) for others in OTHERS]
    without, present = (
        [others + np.array(own.get(i, (0,) * columns)) for i, others in enumerate(everybody_else)]
        for own in (instead, visits)
    )
    largest = 0.0
    pending = [(0, box.start, 0.0)]
    while pending:
        i, state, loss = pending.pop()
        pairs = zip(box.outcomes(state, without[i]), box.outcomes(state, present[i]), strict=True)
        for one, other in pairs:
            assert one.state == other.state  # what the mechanism remembers is the transcript alone
            if one.state is None:
                continue
            now = loss + one.likelihood - other.likelihood
            largest = max(largest, abs(now))
            if i + 1 < TIMESTAMPS:
                pending.append((i + 1, one.state, now))
    return largest


def trajectories(columns: int = COLUMNS) -> Iterator[Visits]:
    """One user at two consecutive timestamps, in every pair of columns."""
    places = [tuple(int(here == column) for here in range(columns)) for column in range(columns)]
    for first, one, other in itertools.product((0, 1), places, places):
        yield {first: one, first + 1: other}


def spent(case: str) -> Fraction:
    """What two timestamps in a row spend: 1/2 + 1/4 + 1/8 for Budget Distribution, one of FAST's samples."""
    if case == "fast":
        return Fraction(1, 2)
    return Fraction(7, 8) if case.startswith("budget-distribution") else Fraction(1)


@EVERY_CASE
def test_a_transcript_tells_a_moving_user_s_presence_as_much_as_was_charged_and_no_more(case: str) -> None:
    loss = largest_loss(case, 2, *trajectories())
    assert loss <= EPSILON + FLOAT_ERROR
    assert loss == pytest.approx(float(EPSILON * spent(case)), abs=FLOAT_ERROR)


@EVERY_CASE
def test_half_the_noise_is_found_out(case: str) -> None:
    loss = largest_loss(case, 2, *trajectories(), defect=Fraction(1, 2))
    assert loss == pytest.approx(float(2 * EPSILON * spent(case)), abs=FLOAT_ERROR)


@EVERY_CASE
def test_a_user_in_three_timestamps_is_protected_by_a_window_of_three(case: str) -> None:
    visits = {0: (0, 1), 1: (1, 0), 2: (0, 1)}
    assert largest_loss(case, 3, visits) <= EPSILON + FLOAT_ERROR
    # A window of one protects single timestamps only: this user is beyond what it promises.
    assert largest_loss(case, 1, visits) > EPSILON + FLOAT_ERROR


@EVERY_CASE
def test_one_timestamp_is_protected_by_a_window_of_one(case: str) -> None:
    users = [{i: place} for i in range(3) for place in ((1, 0), (0, 1))]
    assert largest_loss(case, 1, *users) <= EPSILON + FLOAT_ERROR


@EVERY_CASE
def test_a_user_with_two_contributions_is_protected_by_a_sensitivity_of_two(case: str) -> None:
    users = [{first: (1, 1), first + 1: (2, 0)} for first in (0, 1)]
    assert largest_loss(case, 2, *users, sensitivity=2) <= EPSILON + FLOAT_ERROR
    assert largest_loss(case, 2, *users, sensitivity=1) > EPSILON * spent(case) + FLOAT_ERROR


@EVERY_CASE
def test_a_user_who_was_elsewhere_is_protected_by_twice_the_contributions(case: str) -> None:
    def loss(sensitivity: int) -> float:
        users: list[Visits] = [{first: (2, 0), first + 1: (0, 2)} for first in (0, 1)]
        instead: list[Visits] = [{first: (0, 2), first + 1: (2, 0)} for first in (0, 1)]
        return largest_loss(case, 2, *users, sensitivity=sensitivity, instead=instead)

    assert loss(4) <= EPSILON + FLOAT_ERROR
    # Without adjacency: substitute the sensitivity is the bound, and that is not enough.
    assert loss(2) > EPSILON * spent(case) + FLOAT_ERROR


@pytest.mark.parametrize("case", [case for case in W_EVENT_CASES if "groups" in case])
def test_contributions_spread_over_groups_cost_what_one_timestamp_is_charged(case: str) -> None:
    loss = largest_loss(case, 2, {0: (1, 1)}, sensitivity=2)
    assert loss == pytest.approx(float(EPSILON / 2), abs=FLOAT_ERROR)  # a quarter for tests, one to publish
    assert largest_loss(case, 2, {0: (1, 1), 1: (0, 2)}, sensitivity=2) <= EPSILON + FLOAT_ERROR


@pytest.mark.parametrize("samples", [1, 2])
def test_fast_protects_a_user_who_is_in_another_column_at_each_timestamp(samples: int) -> None:
    visits = {0: (1, 0, 0), 1: (0, 1, 0), 2: (0, 0, 1)}
    loss = largest_loss("fast", 3, visits, columns=3, max_samples=samples)
    # Half of epsilon for all samples of a block.
    assert loss == pytest.approx(float(EPSILON / 2), abs=FLOAT_ERROR)


@pytest.mark.parametrize(("window", "columns"), [(1, 3), (2, 5)])
@pytest.mark.parametrize("kind", ["budget-distribution", "budget-absorption"])
def test_a_shifted_budget_protects_a_moving_user_and_is_spent_where_it_was_shifted_to(
    kind: str, window: int, columns: int
) -> None:
    places = list(trajectories(columns))
    visits = [{0: one[0]} for one in places if 0 in one] if window == 1 else places
    loss = largest_loss(kind, window, *visits, columns=columns, shift="true")
    tests = Fraction(window, columns)
    publications = 1 - tests
    if kind == "budget-distribution":
        publications *= Fraction(3, 4) if window == 2 else Fraction(1, 2)
    assert loss == pytest.approx(float(EPSILON * (tests + publications)), rel=1e-5)  # whole units
    assert loss <= EPSILON + FLOAT_ERROR
