from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from itertools import repeat
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventveil.mechanisms import sampling
from eventveil.mechanisms.base import RELEASE_LIMIT
from eventveil.mechanisms.event_level import GRID
from eventveil.privacy.noise import SeededNoise
from tests.contract.noises import WatchedNoise, ZeroNoise, make


class Scripted:
    """Noise from a list; sampling keeps every event."""

    def __init__(self, *values: int) -> None:
        self.values = [*values, *repeat(0, 99)]
        self.scales: list[Fraction] = []

    def discrete_laplace(self, scale: Fraction, size: int) -> np.ndarray:
        self.scales.append(scale)
        return np.array([self.values.pop(0) for _ in range(size)], np.int64)

    def binomial(self, trials: np.ndarray, rate: Fraction) -> np.ndarray:
        return trials.copy()


def test_a_release_is_the_sum_over_the_window_fewer_at_the_beginning() -> None:
    mechanism = make("time-unit", ZeroNoise(), columns=1, span=3)
    sums = [mechanism.step(np.array([count])).counts[0] for count in (1, 10, 100, 1000, 10_000)]
    assert sums == [1, 11, 111, 1110, 11_100]


def test_the_limit_of_a_timestamp_and_of_a_window_is_kept() -> None:
    mechanism = make("time-unit", ZeroNoise(), columns=1, span=4096)
    for _ in range(4):
        assert mechanism.step(np.array([RELEASE_LIMIT])).counts[0] == RELEASE_LIMIT


def test_the_example_of_the_paper() -> None:
    """Figure 2: 5 published, 75 published, then a group of 2, then one of 4."""
    mechanism = make("retroactive-grouping", ZeroNoise(), columns=1, factor=Fraction(100))
    counts = [5, 75, 74, 72, 73, 75, 71, 74]
    released = [int(mechanism.step(np.array([count])).counts[0]) for count in counts]
    #           5  75  |passive, group (74 + 72) / 2|  three passive, (73 + 75 + 71 + 74) / 4 = 73.25
    assert released == [5, 75, 75, 73, 73, 73, 73, 73]
    newest = mechanism._units[-1]  # type: ignore[attr-defined]
    assert newest.tolist() == [73 * GRID + GRID // 4]


def test_groups_double_up_to_the_grid_and_their_means_stay_exact() -> None:
    mechanism = make("retroactive-grouping", ZeroNoise(), columns=1)
    published = []
    for i in range(1, 5000):
        before = mechanism._wanted[0]  # type: ignore[attr-defined]
        mechanism.step(np.array([7]))
        if mechanism._sizes[0] == 0 and i > 1:  # type: ignore[attr-defined]
            published.append(int(before))
    assert published == [2**j for j in range(1, 10)] + [1024] * 3


def test_columns_decide_for_themselves() -> None:
    mechanism = make("retroactive-grouping", ZeroNoise(), columns=2)
    mechanism.step(np.array([5, 5]))
    assert mechanism.step(np.array([5, 500])).counts.tolist() == [5, 500]
    assert mechanism._sizes.tolist() == [1, 0]  # type: ignore[attr-defined]


def test_the_threshold_is_the_variance_of_a_publication_times_factor() -> None:
    """Scale 2 for publications, so a squared change of 2 * 2^2 * factor is published."""
    for factor, change, moves in [(2, 4, True), (2, 3, False), (Fraction(9, 8), 3, True)]:
        mechanism = make(
            "retroactive-grouping", ZeroNoise(), columns=1, share=Fraction(1, 2), factor=Fraction(factor)
        )
        mechanism.step(np.array([10]))
        assert mechanism.step(np.array([10 + change])).counts[0] == (10 + change if moves else 10)


# Sampling


@given(st.integers(0, 10**9), st.floats(1e-3, 30))
def test_the_best_sampling_rate_is_always_one(events: int, epsilon: float) -> None:
    rates = np.arange(1, 101) / 100
    errors = events * (1 - rates) / rates + 2 / (rates * np.log1p(np.expm1(epsilon) / rates)) ** 2
    assert np.argmin(errors) == 99


def test_the_rate_of_the_printed_formula_is_another_one() -> None:
    """Noise 2 / e'^2 without 1 / rate^2, as in the paper: sampling half of five events looks worth it."""
    rates = np.arange(1, 101) / 100
    printed = 5 * (1 - rates) / rates + 2 / np.log1p(np.expm1(0.01) / rates) ** 2
    assert np.argmin(printed) < 50


@given(
    rate=st.integers(1, 100).map(lambda percent: Fraction(percent, 100)),
    epsilon=st.fractions(Fraction(1, 1000), 20, max_denominator=1000),
)
def test_the_scale_at_a_rate_never_costs_more_than_epsilon(rate: Fraction, epsilon: Fraction) -> None:
    inner = float(1 / sampling.scale_at(rate, epsilon))
    cost = np.log1p(float(rate) * np.expm1(inner))
    assert cost == pytest.approx(float(epsilon), rel=1e-6)
    exact = np.log1p(np.expm1(float(epsilon)) / float(rate))
    assert inner <= exact * (1 + 1e-12)


def distribution(events: int, rate: float, scale: float, unscaled: bool) -> np.ndarray:
    """Probabilities of the estimate times the rate (unscaled: of the estimate) at -40..80, exactly."""
    kept = np.array([1.0])
    for _ in range(events):
        kept = np.convolve(kept, [1 - rate, rate])
    values = np.arange(-40, 81)
    step = round(1 / rate) if unscaled else 1
    mass = np.tanh(1 / (2 * scale)) * np.exp(-np.abs(values[:, None] - step * np.arange(len(kept))) / scale)
    result: np.ndarray = mass @ kept
    return result


@pytest.mark.parametrize("rate", [Fraction(1, 2), Fraction(1, 4), Fraction(1, 10)])
def test_sampled_counts_cost_what_is_charged_and_unscaled_ones_many_times_that(rate: Fraction) -> None:
    epsilon = Fraction(1, 2)
    scale = float(sampling.scale_at(rate, epsilon))
    losses = {
        unscaled: np.abs(
            np.log(
                distribution(6, float(rate), scale, unscaled) / distribution(5, float(rate), scale, unscaled)
            )
        ).max()
        for unscaled in (False, True)
    }
    assert losses[False] <= epsilon + 1e-9
    assert losses[False] > epsilon * 0.9
    assert losses[True] > 2 * epsilon


class Thinned:
    """Keeps as many events as it is told, answers with the noise that it is told, remembers the scale."""

    kept = noise = 0
    scale = Fraction(1)

    def discrete_laplace(self, scale: Fraction, size: int) -> np.ndarray:
        self.scale = scale
        return np.full(size, self.noise)

    def binomial(self, trials: np.ndarray, rate: Fraction) -> np.ndarray:
        return np.full(len(trials), self.kept)


@pytest.mark.parametrize("rate", [Fraction(1, 2), Fraction(1, 4)], ids=str)
def test_a_sampled_monitor_costs_what_it_is_charged(rate: Fraction) -> None:
    """The exact distribution of the estimate, over all numbers of kept events and all noise within reach."""
    epsilon, events, reach = Fraction(4), 3, 40
    noise = Thinned()
    monitor: Any = make("retroactive-grouping", noise, columns=1, epsilon=epsilon, sampling=rate)

    def distribution(count: int) -> Counter[int]:
        found: Counter[int] = Counter()
        for noise.kept, noise.noise in itertools.product(range(count + 1), range(-reach, reach + 1)):
            estimate = int(monitor._estimate(np.array([count]))[0])
            kept = math.comb(count, noise.kept) * rate**noise.kept * (1 - rate) ** (count - noise.kept)
            ratio = math.exp(-1 / noise.scale)
            found[estimate] += float(kept) * (1 - ratio) / (1 + ratio) * ratio ** abs(noise.noise)
        return found

    fewer, more = distribution(events), distribution(events + 1)
    within = sorted(fewer)[events + 1 : -events - 1]  # further out, noise beyond the reach would add to it
    loss = max(abs(math.log(fewer[estimate] / more[estimate])) for estimate in within)
    charged = float(epsilon * monitor._test / monitor.units)
    assert charged * 0.9 < loss <= charged + 1e-9


def test_the_monitor_adds_noise_to_the_kept_events_before_it_divides_by_the_rate() -> None:
    noise = Scripted(0, 3)
    mechanism = make(
        "retroactive-grouping", noise, columns=1, sampling=Fraction(1, 4), epsilon=Fraction(2), sensitivity=3
    )
    mechanism.step(np.array([0]))
    estimate = []
    original = mechanism._estimate  # type: ignore[attr-defined]
    mechanism._estimate = lambda counts: estimate.append(original(counts)) or estimate[-1]  # type: ignore[attr-defined]
    mechanism.step(np.array([5]))
    assert estimate[0].tolist() == [(5 + 3) * 4 * GRID]
    test = mechanism._test  # type: ignore[attr-defined]
    per_event = Fraction(2) * test / mechanism.units / 3
    assert noise.scales[1] == sampling.scale_at(Fraction(1, 4), per_event)


def test_sampling_with_a_real_source_of_noise_runs_and_is_restored() -> None:
    one = make("retroactive-grouping", SeededNoise(4), sampling=Fraction(1, 10), span=3)
    noise = SeededNoise(4)
    other = make("retroactive-grouping", noise, sampling=Fraction(1, 10), span=3)
    for i in range(30):
        counts = np.array([100 * (i % 7), 5])
        expected = one.step(counts).counts.tolist()
        assert other.step(counts).counts.tolist() == expected
        state = other.snapshot()
        other = make("retroactive-grouping", noise, sampling=Fraction(1, 10), span=3)
        other.restore(state)


def test_every_timestamp_is_charged_whether_it_is_published_now_or_later() -> None:
    mechanism = make("retroactive-grouping", WatchedNoise(ZeroNoise(), lambda scale, size: None))
    releases = [mechanism.step(np.array([3, 3])) for _ in range(9)]
    assert {release.test + release.publish for release in releases[1:]} == {mechanism.units}
    assert releases[0].test == 0
    assert all(release.window_spent <= mechanism.units for release in releases)
