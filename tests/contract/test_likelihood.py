"""The exact privacy loss: transcripts of neighbouring streams, their likelihoods in closed form.

The mechanism is a black box. Its noise source writes down the scale it is asked for and answers so that a
chosen transcript comes out; the smallest test noise that makes it publish is found by bisection. So what is
bounded here is the likelihood under the code, with the discrete Laplace distribution known exactly.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import exp, inf, log, log1p

import numpy as np
import pytest

from operators.mechanisms.base import Counts, Mechanism
from operators.privacy.noise import NoiseSource
from tests.contract.noises import COLUMNS, W_EVENT_KINDS, ProbingNoise, RescaledNoise, make

EVERY_KIND = pytest.mark.parametrize("kind", W_EVENT_KINDS)
EPSILON = Fraction(3, 2)
FLOAT_ERROR = 1e-9  # logarithms of a few dozen factors, each exact to about 1e-15
VALUES = (-1, 1, 4)  # releases that are looked at: below, between and above all counts in use
OUTPUTS = [np.array(output) for output in itertools.product(VALUES, repeat=COLUMNS)]
OTHERS = ((1, 0), (0, 2), (1, 1))  # counts of everybody else, per timestamp
Visits = dict[int, tuple[int, ...]]  # timestamp: what one user adds to each column


@dataclass
class Outcome:
    """What a timestamp may do: its log-likelihood, and the state afterwards unless it is impossible."""

    likelihood: float
    state: bytes | None


class BlackBox:
    """A mechanism whose probabilities are measured."""

    def __init__(self, kind: str, window: int, sensitivity: int, defect: Fraction | None) -> None:
        self._noise = ProbingNoise()
        source: NoiseSource = self._noise if defect is None else RescaledNoise(self._noise, defect)
        self.mechanism: Mechanism = make(kind, source, window, sensitivity=sensitivity, epsilon=EPSILON)

    def outcomes(self, state: bytes, counts: Counts) -> list[Outcome]:
        """Repetition, then each of OUTPUTS, in this order."""
        self._noise.counts = counts
        publishes, repeats = self._decision(state, counts)
        repeated = not self._step(state, counts, -(2**61))
        outcomes = [Outcome(repeats, self.mechanism.snapshot() if repeated else None)]
        for output in OUTPUTS:
            self._noise.target = output
            if self._step(state, counts, 2**61):
                assert self._noise.publish_scale is not None
                likelihood = publishes + _log_mass(output - counts, self._noise.publish_scale)
                outcomes.append(Outcome(likelihood, self.mechanism.snapshot()))
            else:
                outcomes.append(Outcome(-inf, None))
        return outcomes

    def _decision(self, state: bytes, counts: Counts) -> tuple[float, float]:
        """Log-probabilities of publishing and of repeating."""
        if not self._step(state, counts, 2**61):
            return -inf, 0.0
        if self._step(state, counts, -(2**61)):
            return 0.0, -inf
        low, high = -(2**12), 2**12  # repeats at low, publishes at high
        assert not self._step(state, counts, low)
        assert self._step(state, counts, high)
        while high - low > 1:
            middle = (low + high) // 2
            if self._step(state, counts, middle):
                high = middle
            else:
                low = middle
        scale = self._noise.test_scale
        assert scale is not None
        return _log_at_least(high, scale), _log_at_least(1 - high, scale)

    def _step(self, state: bytes, counts: Counts, test_noise: int) -> bool:
        self._noise.test_noise = test_noise
        self.mechanism.restore(state)
        return self.mechanism.step(counts).fresh


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
    kind: str,
    window: int,
    visits: Visits,
    sensitivity: int = 1,
    defect: Fraction | None = None,
    instead: Visits | None = None,
) -> float:
    """The largest |log ratio| of a likelihood with one user's visits, and with those ``instead``."""
    box = BlackBox(kind, window, sensitivity, defect)
    without, present = (
        [others + np.array(own.get(i, (0,) * COLUMNS)) for i, others in enumerate(OTHERS)]
        for own in (instead or {}, visits)
    )
    largest = 0.0
    pending = [(0, box.mechanism.snapshot(), 0.0)]
    while pending:
        i, state, loss = pending.pop()
        pairs = zip(box.outcomes(state, without[i]), box.outcomes(state, present[i]), strict=True)
        for one, other in pairs:
            assert one.state == other.state  # what the mechanism remembers is the transcript alone
            if one.state is None:
                continue
            now = loss + one.likelihood - other.likelihood
            largest = max(largest, abs(now))
            if i + 1 < len(OTHERS):
                pending.append((i + 1, one.state, now))
    return largest


def trajectories() -> Iterator[Visits]:
    """One user at two consecutive timestamps, in every pair of columns."""
    places = [(1, 0), (0, 1)]
    for first, one, other in itertools.product((0, 1), places, places):
        yield {first: one, first + 1: other}


# What two publications in a row spend, tests included: all of it, or 1/2 + 1/4 + 1/8 for Budget Distribution.
SPENT = {"budget-distribution": Fraction(7, 8)}


@EVERY_KIND
def test_a_transcript_tells_a_moving_user_s_presence_as_much_as_was_charged_and_no_more(kind: str) -> None:
    loss = max(largest_loss(kind, 2, visits) for visits in trajectories())
    assert loss <= EPSILON + FLOAT_ERROR
    assert loss == pytest.approx(float(EPSILON * SPENT.get(kind, 1)), abs=FLOAT_ERROR)


@EVERY_KIND
def test_half_the_noise_is_found_out(kind: str) -> None:
    loss = max(largest_loss(kind, 2, visits, defect=Fraction(1, 2)) for visits in trajectories())
    assert loss > EPSILON * 3 / 2


@EVERY_KIND
def test_a_user_in_three_timestamps_is_protected_by_a_window_of_three(kind: str) -> None:
    visits = {0: (0, 1), 1: (1, 0), 2: (0, 1)}
    assert largest_loss(kind, 3, visits) <= EPSILON + FLOAT_ERROR
    # A window of one protects single timestamps only: this user is beyond what it promises.
    assert largest_loss(kind, 1, visits) > EPSILON + FLOAT_ERROR


@EVERY_KIND
def test_one_timestamp_is_protected_by_a_window_of_one(kind: str) -> None:
    losses = [largest_loss(kind, 1, {i: place}) for i in range(3) for place in ((1, 0), (0, 1))]
    assert max(losses) <= EPSILON + FLOAT_ERROR


@EVERY_KIND
def test_a_user_with_two_contributions_is_protected_by_a_sensitivity_of_two(kind: str) -> None:
    visits = {1: (1, 1), 2: (2, 0)}
    assert largest_loss(kind, 2, visits, sensitivity=2) <= EPSILON + FLOAT_ERROR
    assert largest_loss(kind, 2, visits, sensitivity=1) > EPSILON + FLOAT_ERROR


@EVERY_KIND
def test_a_user_who_was_elsewhere_is_protected_by_twice_the_contributions(kind: str) -> None:
    visits: Visits = {1: (2, 0), 2: (0, 2)}
    instead: Visits = {1: (0, 2), 2: (2, 0)}
    assert largest_loss(kind, 2, visits, sensitivity=4, instead=instead) <= EPSILON + FLOAT_ERROR
    # Without adjacency: substitute the sensitivity is the bound, and that is not enough.
    assert largest_loss(kind, 2, visits, sensitivity=2, instead=instead) > EPSILON + FLOAT_ERROR
