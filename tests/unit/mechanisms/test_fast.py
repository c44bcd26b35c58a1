"""FAST: when it samples, what its filter makes of the samples, and what state it takes back."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from eventveil.mechanisms.base import Counts
from eventveil.privacy.noise import SeededNoise
from tests.contract.noises import ZeroNoise, make


def sampled(streams: list[Counts], window: int, **options: Any) -> list[int]:
    """The timestamps that are sampled without noise."""
    mechanism = make("fast", ZeroNoise(), window, len(streams[0]), **options)
    return [i for i, counts in enumerate(streams, 1) if mechanism.step(counts).fresh]


def constant(level: int, timestamps: int) -> list[Counts]:
    return [np.array([level, level])] * timestamps


def test_the_first_sample_is_released_as_it_is_and_repeated_until_the_next() -> None:
    mechanism = make("fast", ZeroNoise(), 8, max_samples=2)
    releases = [mechanism.step(np.array([70 + i, 80])) for i in range(4)]
    assert [release.fresh for release in releases] == [True, False, False, False]
    assert releases[3].counts.tolist() == [70, 80]


def test_a_sample_costs_the_half_of_the_budget_over_the_samples_of_a_block() -> None:
    mechanism = make("fast", ZeroNoise(), 10, max_samples=3, sensitivity=2, epsilon=Fraction(1, 2))
    assert mechanism.step(np.array([1, 2])).publish == mechanism.units // 2 // 3
    assert mechanism.guarantee.best_scale == mechanism.guarantee.worst_scale == pytest.approx(2 * 2 * 2 * 3)


def test_a_quarter_of_the_window_is_sampled_unless_it_is_told_otherwise() -> None:
    mechanism = make("fast", ZeroNoise(), 40)
    assert mechanism.step(np.array([1, 2])).publish == mechanism.units // 2 // 10


def test_the_second_sample_corrects_the_first_by_the_kalman_gain() -> None:
    mechanism = make("fast", ZeroNoise(), 2, max_samples=2, drift=3)
    mechanism.step(np.array([100, 0]))
    noise = 2 * 4**2  # two samples of a quarter of epsilon: scale 4
    gain = (noise + 9) / (noise + 9 + noise)
    expected = [round(100 + gain * 50), round(gain * 10)]
    assert mechanism.step(np.array([150, 10])).counts.tolist() == expected


def test_constant_counts_lengthen_the_interval_and_a_jump_shortens_it() -> None:
    quiet = sampled(constant(1000, 200), 40, max_samples=10)
    assert quiet[:2] == [1, 5]
    gaps = np.diff(quiet)
    assert (np.diff(gaps) >= 0).all()
    assert gaps[-1] > 20
    busy = sampled([np.array([1000 * i, 1000 * i]) for i in range(200)], 40, max_samples=10)
    assert len(busy) > 2 * len(quiet)
    assert 1 in np.diff(busy)


def test_a_block_has_no_more_samples_than_it_may_have() -> None:
    busy = sampled([np.array([10_000 * i * i, 0]) for i in range(400)], 40, max_samples=10)
    for start in range(0, 400, 40):
        assert sum(start < timestamp <= start + 40 for timestamp in busy) <= 10
    assert sum(timestamp <= 40 for timestamp in busy) == 10


def test_with_periods_busy_counts_are_sampled_at_all_hours_of_the_day() -> None:
    busy = [np.array([1000 * (i % 24) ** 2, 0]) for i in range(24 * 24)]
    by_itself = {timestamp % 24 for timestamp in sampled(busy, 24)}
    assert len(by_itself) < 12
    told = sampled(busy, 24, periods="24,168")
    assert {timestamp % 24 for timestamp in told} == set(range(24))
    for start in range(0, len(busy), 24):
        assert sum(start < timestamp <= start + 24 for timestamp in told) <= 6


def test_the_expected_error_is_right_where_the_filter_believes_in_steps_that_are_too_small() -> None:
    season = [np.array([10_000 + 1500 * (i % 7 > 4)]) for i in range(1500)]
    mechanism = make("fast", SeededNoise(3), 24, 1, epsilon=Fraction(1, 10), periods="7")
    releases = [mechanism.step(counts) for counts in season]
    within = [
        abs(release.counts[0] - counts[0]) <= 1.96 * float(np.asarray(release.error)[0])
        for release, counts in zip(releases, season, strict=True)
    ]
    assert np.mean(within[96:]) >= 0.9


def test_the_error_is_averaged_over_columns() -> None:
    one_moves = [np.array([1000 * i] + [1000] * 9) for i in range(100)]
    all_move = [np.full(10, 1000 * i) for i in range(100)]
    none_moves = [np.full(10, 1000)] * 100
    counts = [len(sampled(each, 20, max_samples=10)) for each in (none_moves, one_moves, all_move)]
    assert counts == sorted(counts)
    assert counts[0] < counts[2]


@pytest.mark.parametrize(
    "options",
    [
        {"max_samples": 0},
        {"max_samples": 4},
        {"max_samples": 1.0},
        {"drift": Fraction(0)},
        {"drift": Fraction(-1)},
    ],
    ids=str,
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"expected a (whole )?number"):
        make("fast", ZeroNoise(), 3, **options)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("estimate", [1.0]),
        ("estimate", [1.0, 2]),
        ("estimate", [1.0, None]),
        ("estimate", [1.0, 1e13]),
        ("variance", -1.0),
        ("variance", "1"),
        ("sampled", 9),
        ("sampled", -1),
        ("taken", 3),
        ("taken", True),
        ("interval", 0.5),
        ("interval", 1e9),
        ("errors", [0.1] * 6),
        ("errors", [-0.1]),
        ("errors", [None]),
    ],
)
def test_a_state_that_cannot_be_is_refused(field: str, value: Any) -> None:
    mechanism = make("fast", SeededNoise(2), 6, max_samples=2)
    for counts in constant(50, 4):
        mechanism.step(counts)
    before = mechanism.snapshot()
    with pytest.raises(ValueError, match="should"):
        mechanism.restore(json.dumps({**json.loads(before), field: value}).encode())
    assert mechanism.snapshot() == before
