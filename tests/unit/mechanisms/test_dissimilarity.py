from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from eventveil.mechanisms.base import COLUMN_LIMIT, RELEASE_LIMIT, Counts, Mechanism
from eventveil.mechanisms.dissimilarity import LEAST_OFFER
from eventveil.mechanisms.registry import KINDS, build
from tests.contract.noises import COLUMNS, ProbingNoise, Scripted, ZeroNoise, attach, make, settings

TESTED = pytest.mark.parametrize("kind", ["budget-distribution", "budget-absorption"])
WINDOW = 3
# The first offer is a quarter of the budget for one and one share, a sixth, for the other.
FIRST_SCALE = {"budget-distribution": 4, "budget-absorption": 6}


def first(kind: str, counts: list[int], test_noise: int, factor: Fraction | None = None) -> bool:
    """Whether the first timestamp is published."""
    noise = ProbingNoise()
    noise.test_noise = test_noise
    mechanism = attach(build(settings(kind, WINDOW, factor=factor), COLUMNS, 1, noise))
    return mechanism.step(np.array(counts)).fresh


@TESTED
def test_a_dissimilarity_equal_to_the_error_of_a_publication_is_not_enough(kind: str) -> None:
    threshold = COLUMNS * FIRST_SCALE[kind]
    assert not first(kind, [threshold, 0], test_noise=0)
    assert first(kind, [threshold, 1], test_noise=0)


@TESTED
def test_the_noise_of_the_test_counts(kind: str) -> None:
    threshold = COLUMNS * FIRST_SCALE[kind]
    assert first(kind, [threshold, 0], test_noise=1)
    assert not first(kind, [threshold, 1], test_noise=-1)


@TESTED
@pytest.mark.parametrize("factor", [Fraction(2), Fraction(1, 3), Fraction(15, 14)])
def test_the_factor_multiplies_the_threshold_exactly(kind: str, factor: Fraction) -> None:
    threshold = factor * COLUMNS * FIRST_SCALE[kind]
    below = threshold.numerator // threshold.denominator
    assert not first(kind, [below, 0], 0, factor)
    assert first(kind, [below, 1], 0, factor)


@TESTED
@pytest.mark.parametrize(("above", "fresh"), [(0, False), (1, True)])
def test_differences_in_both_directions_add_up(kind: str, above: int, fresh: bool) -> None:
    second_scale = {"budget-distribution": 8, "budget-absorption": 6}[kind]
    noise = ProbingNoise()
    mechanism = make(kind, noise, WINDOW)
    noise.counts, noise.target, noise.test_noise = np.array([0, 0]), np.array([60, 0]), 2**61
    assert mechanism.step(noise.counts).fresh
    # The release is (60, 0); the counts (0, 60) are 120 away, though their sum is the same.
    noise.counts, noise.test_noise = np.array([0, 60]), COLUMNS * second_scale - 120 + above
    assert mechanism.step(noise.counts).fresh == fresh


@TESTED
def test_the_scale_of_the_test_is_two_windows_of_sensitivity_over_epsilon(kind: str) -> None:
    noise = ProbingNoise()
    make(kind, noise, 7, sensitivity=3, epsilon=Fraction(1, 5)).step(np.array([0, 0]))
    assert noise.test_scale == 2 * 7 * 3 * 5


@TESTED
def test_the_largest_possible_dissimilarity_does_not_overflow(kind: str) -> None:
    class LowestNoise(Scripted):
        def test(self, scale: Fraction, size: int) -> Counts:
            return np.zeros(size, np.int64)

        def publication(self, scale: Fraction, size: int) -> Counts:
            return np.full(size, -(2**62))

    mechanism = make(kind, LowestNoise(), 1, COLUMN_LIMIT)
    counts = np.full(COLUMN_LIMIT, RELEASE_LIMIT)
    assert mechanism.step(counts).counts[0] == -RELEASE_LIMIT
    # Every column is now 2^41 away: 2^61 together.
    assert mechanism.step(counts).fresh


@TESTED
@pytest.mark.parametrize("factor", [Fraction(0), Fraction(-1)])
def test_a_factor_that_is_not_positive_is_refused(kind: str, factor: Fraction) -> None:
    with pytest.raises(ValueError, match="factor should be above 0"):
        build(settings(kind, factor=factor), COLUMNS, 1, ZeroNoise())


@TESTED
def test_a_state_with_another_factor_is_refused(kind: str) -> None:
    one = build(settings(kind, factor=Fraction(1)), COLUMNS, 1, ZeroNoise())
    two = build(settings(kind, factor=Fraction(2)), COLUMNS, 1, ZeroNoise())
    with pytest.raises(ValueError, match="belongs to"):
        two.restore(one.snapshot())


@TESTED
def test_a_factor_of_one_is_the_default(kind: str) -> None:
    explicit = build(settings(kind, factor=Fraction(1)), COLUMNS, 1, ZeroNoise())
    assert explicit.snapshot() == make(kind, ZeroNoise()).snapshot()


@TESTED
def test_an_epsilon_at_which_nothing_could_ever_be_published_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="too small"):
        make(kind, ZeroNoise(), epsilon=Fraction(1, 10**20))


def test_a_threshold_beyond_the_range_of_the_noise_raises_the_least_offer() -> None:
    def least(epsilon: Fraction) -> int:
        mechanism: Mechanism = make("budget-distribution", ZeroNoise(), epsilon=epsilon)
        offer = mechanism._least_offer  # type: ignore[attr-defined]  # no release can show it
        assert isinstance(offer, int)
        assert COLUMNS * Fraction(mechanism.units, offer) / epsilon <= 2**61
        return offer

    assert least(Fraction(1)) == LEAST_OFFER
    assert least(Fraction(1, 10**15)) > LEAST_OFFER


def test_only_the_kinds_with_a_test_take_a_factor() -> None:
    tested = {*FIRST_SCALE, "retroactive-grouping"}
    assert {kind for kind in KINDS if "factor" in KINDS[kind].options} == tested
