"""Paced: when it publishes, what it makes of what it published, and what state it takes back."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from eventveil.mechanisms.base import Counts, Mechanism
from eventveil.privacy.noise import SeededNoise
from tests.contract.noises import ZeroNoise, make

COLUMNS, EPSILON = 30, Fraction(1)


def released(mechanism: Mechanism, streams: Counts) -> tuple[Counts, list[int]]:
    """What is released, and the timestamps that are published."""
    releases = [mechanism.step(counts) for counts in streams]
    published = [i for i, release in enumerate(releases, 1) if release.fresh]
    return np.array([release.counts for release in releases]), published


def noisy(streams: Counts, window: int = 40, epsilon: Fraction = EPSILON) -> tuple[Counts, list[int]]:
    return released(make("paced", SeededNoise(1), window, streams.shape[1], epsilon=epsilon), streams)


def poisson(levels: Any, timestamps: int, columns: int = COLUMNS) -> Counts:
    return np.random.default_rng(5).poisson(levels, (timestamps, columns)).astype(np.int64)


def test_it_begins_with_quarters_of_the_budget() -> None:
    mechanism = make("paced", ZeroNoise(), 40, 2)
    releases = [mechanism.step(np.array([1000, 2000])) for _ in range(11)]
    assert [i for i, release in enumerate(releases, 1) if release.fresh] == [1, 11]
    assert {release.publish for release in releases} == {0, mechanism.units // 4}
    assert releases[10].counts.tolist() == [1000, 2000]


def test_counts_that_stay_are_published_once_in_a_window_and_the_more_accurately() -> None:
    counts, published = noisy(poisson(100, 800), epsilon=Fraction(1, 10))
    assert np.median(np.diff(published)) >= 20
    early, late = (np.abs(counts[part] - 100).mean() for part in (slice(0, 40), slice(760, 800)))
    assert late < early / 2


def test_counts_that_run_are_published_often() -> None:
    levels = 500 * np.exp(np.cumsum(np.random.default_rng(6).normal(0, 0.2, (400, COLUMNS)), axis=0))
    _, published = noisy(levels.astype(np.int64))
    assert np.median(np.diff(published)) == 1


def test_columns_that_do_not_rise_above_the_noise_are_zero_and_the_others_are_not() -> None:
    levels = np.where(np.arange(COLUMNS) < 20, 0.1, 300.0)
    counts, _ = noisy(poisson(levels, 400))
    assert np.count_nonzero(counts[100:, :20]) < 0.1 * counts[100:, :20].size
    assert np.abs(counts[100:, 20:] - 300).mean() < 30


def test_a_jump_is_followed_at_the_next_publication() -> None:
    streams = np.where(np.arange(400)[:, np.newaxis] < 200, 100, 5000) * np.ones((1, COLUMNS), np.int64)
    counts, published = noisy(streams)
    after = next(timestamp for timestamp in published if timestamp > 200)
    assert np.abs(counts[after:] - 5000).max() < 500


def test_one_column_and_a_window_of_one_are_possible() -> None:
    counts, published = noisy(np.full((20, 1), 700), window=1)
    assert published == list(range(1, 21))
    assert np.abs(counts - 700).max() < 20


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("level", [[1.0, 2.0]]),
        ("level", [[1e13, 2.0]] * 4),
        ("level", [[None, 2.0]] * 4),
        ("variance", [[0.0, 1.0]] * 4),
        ("score", "none"),
        ("worth", [1.0]),
        ("until_next", [1]),
        ("published", 9),
        ("interval", 0),
        ("interval", 12),
    ],
)
def test_a_state_that_cannot_be_is_refused(field: str, value: Any) -> None:
    mechanism = make("paced", SeededNoise(2), 6, 2)
    for _ in range(4):
        mechanism.step(np.array([50, 60]))
    before = mechanism.snapshot()
    with pytest.raises(ValueError, match=r"should|not one of"):
        mechanism.restore(json.dumps({**json.loads(before), field: value}).encode())
    assert mechanism.snapshot() == before
