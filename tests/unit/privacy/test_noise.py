"""The sampler against its exact distribution; that these tests can fail is tested too."""

from __future__ import annotations

from fractions import Fraction
from math import exp

import numpy as np
import opendp.prelude as dp
import pytest
from numpy.typing import NDArray

from eventveil.privacy import noise
from eventveil.privacy.noise import SATURATION, SeededNoise, SystemNoise
from tests.unit.privacy.goodness import against_each_other, against_exact, p_value

DRAWS = 200_000
PLAUSIBLE = 1e-3  # for fixed seeds: chosen once, never again at random
IMPOSSIBLE = 1e-9
SCALES = [Fraction(1, 3), Fraction(1, 2), Fraction(7, 3), Fraction(10), Fraction(1000, 3), Fraction(10_000)]
HUGE_NUMERATOR = Fraction(7 * 2**60 + 1, 3 * 2**60)  # close to 7/3
HUGE_DENOMINATOR = Fraction(2**200, 3 * 2**190 + 1)  # close to 1024/3


def opendp_draws(scale: float, size: int) -> NDArray[np.int64]:
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    return np.array(dp.m.make_laplace(*space, scale=scale)([0] * size), np.int64)


@pytest.mark.parametrize("scale", [*SCALES, HUGE_NUMERATOR, HUGE_DENOMINATOR], ids=str)
def test_draws_have_the_exact_distribution(scale: Fraction) -> None:
    assert against_exact(SeededNoise(1).discrete_laplace(scale, DRAWS), scale) > PLAUSIBLE


@pytest.mark.parametrize("wrong", [Fraction(9, 10), Fraction(11, 10)], ids=str)
@pytest.mark.parametrize("scale", [Fraction(7, 3), Fraction(10), HUGE_NUMERATOR], ids=str)
def test_a_scale_that_is_wrong_by_a_tenth_is_found_out(scale: Fraction, wrong: Fraction) -> None:
    assert against_exact(SeededNoise(1).discrete_laplace(scale * wrong, DRAWS), scale) < IMPOSSIBLE


@pytest.mark.parametrize("defect", ["zero twice", "no sign", "odd values missing"])
def test_a_defective_distribution_is_found_out(defect: str) -> None:
    scale = Fraction(7, 3)
    draws = SeededNoise(2).discrete_laplace(scale, DRAWS)
    if defect == "zero twice":
        draws = np.concatenate([draws, draws[draws == 0]])
    elif defect == "no sign":
        draws = np.abs(draws)
    else:
        draws = draws // 2 * 2
    assert against_exact(draws, scale) < IMPOSSIBLE


def test_the_operating_system_s_noise_has_the_exact_distribution() -> None:
    draws = SystemNoise().discrete_laplace(Fraction(10), DRAWS)
    assert against_exact(draws, Fraction(10)) > 1e-6  # fails once in a million runs


def test_the_operating_system_s_noise_does_not_repeat_itself() -> None:
    one, other = (SystemNoise().discrete_laplace(Fraction(1000), 100).tolist() for _ in range(2))
    assert one != other


@pytest.mark.parametrize(("ours", "theirs"), [(Fraction(5, 2), 2.5), (Fraction(10), 10.0)])
def test_the_sampler_agrees_with_that_of_opendp(ours: Fraction, theirs: float) -> None:
    reference = opendp_draws(theirs, DRAWS)
    assert against_each_other(SeededNoise(5).discrete_laplace(ours, DRAWS), reference, ours) > 1e-6
    for wrong in (Fraction(9, 10), Fraction(11, 10)):
        off = SeededNoise(5).discrete_laplace(ours * wrong, DRAWS)
        assert against_each_other(off, reference, ours) < IMPOSSIBLE


def test_the_p_values_of_the_test_itself_are_right() -> None:
    # Two degrees of freedom: e^(-x/2). Others from a table of the chi-square distribution.
    assert p_value(3.0, 2) == pytest.approx(exp(-1.5))
    assert p_value(9.488, 4) == pytest.approx(0.05, abs=1e-4)
    assert p_value(37.566, 20) == pytest.approx(0.01, abs=1e-4)


def test_the_same_seed_gives_the_same_noise_on_every_machine() -> None:
    source = SeededNoise(2013)
    assert source.discrete_laplace(Fraction(10), 8).tolist() == [0, 30, -16, -18, -12, -22, 31, -7]
    assert source.discrete_laplace(Fraction(2**70, 2**60 + 1), 4).tolist() == [2958, -3219, 900, -1180]
    assert source.discrete_laplace(Fraction(1000, 3), 6).tolist() == [33, -182, 77, -250, 51, 169]


def test_seeds_differ_by_their_sign_too() -> None:
    one, other = (SeededNoise(seed).discrete_laplace(Fraction(1000), 20).tolist() for seed in (7, -7))
    assert one != other


def test_consecutive_draws_are_independent() -> None:
    draws = SeededNoise(6).discrete_laplace(Fraction(7, 3), DRAWS)
    positive = draws[draws != 0] > 0
    agreements = int((positive[1:] == positive[:-1]).sum())
    assert abs(agreements - len(positive) / 2) < 4 * (len(positive) / 4) ** 0.5


@pytest.mark.parametrize("size", [0, 1, 7])
@pytest.mark.parametrize(
    "scale", [Fraction(1, 10**30), Fraction(3), HUGE_NUMERATOR, Fraction(2**100)], ids=str
)
def test_any_size_comes_as_int64(scale: Fraction, size: int) -> None:
    draws = SeededNoise(8).discrete_laplace(scale, size)
    assert draws.dtype == np.int64
    assert draws.shape == (size,)


def test_a_vanishing_scale_adds_nothing() -> None:
    assert not SeededNoise(9).discrete_laplace(Fraction(1, 2**80), 1000).any()


def test_magnitudes_beyond_the_limit_saturate_and_never_wrap_around() -> None:
    draws = SeededNoise(10).discrete_laplace(Fraction(2**90), 1000)
    assert set(draws.tolist()) == {SATURATION, -SATURATION}
    edge = SeededNoise(10).discrete_laplace(Fraction(2**60), 1000)
    assert np.abs(edge).max() == SATURATION  # e^-4 of them are beyond it
    assert 0 < (np.abs(edge) < SATURATION).sum() < 1000


@pytest.mark.parametrize("bound", [1, 2, 3, 128, 200, 255, 256, 257, 65_536, 65_537, 2**32, 2**32 + 1, 2**56])
def test_uniform_integers_reach_both_ends_and_stay_below_their_bound(bound: int) -> None:
    draws = noise._below(SeededNoise(12)._bytes, bound, 50_000)
    assert draws.min() >= 0
    assert draws.max() < bound
    assert draws.min() <= bound // 1000
    assert draws.max() >= bound - 1 - bound // 1000
    # Halves are equally likely: remainders without rejection would favour the lower one.
    assert abs((draws < bound / 2).mean() - (bound + 1) // 2 / bound) < 0.012


@pytest.mark.parametrize("scale", [Fraction(0), Fraction(-1)])
def test_a_scale_that_is_not_positive_is_refused(scale: Fraction) -> None:
    with pytest.raises(ValueError, match="scale should be positive"):
        SystemNoise().discrete_laplace(scale, 1)


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="size should not be negative"):
        SystemNoise().discrete_laplace(Fraction(1), -1)


# Sampling of events


def binomial_p_value(draws: NDArray[np.int64], trials: int, rate: float) -> float:
    """Chi-square of draws against the binomial distribution; ``trials`` even, so the degrees are even."""
    mass = np.array([1.0])
    for _ in range(trials):
        mass = np.convolve(mass, [1 - rate, rate])
    expected = mass * len(draws)
    return p_value(
        float(((np.bincount(draws, minlength=trials + 1) - expected) ** 2 / expected).sum()), trials
    )


@pytest.mark.parametrize("rate", [Fraction(1, 2), Fraction(1, 4), Fraction(37, 100)], ids=str)
def test_sampled_events_have_the_binomial_distribution_and_a_wrong_rate_is_found_out(rate: Fraction) -> None:
    draws = SeededNoise(3).binomial(np.full(50_000, 4), rate)
    assert binomial_p_value(draws, 4, float(rate)) > PLAUSIBLE
    assert binomial_p_value(draws, 4, float(rate) * 0.97) < 1e-6


def test_all_events_or_none_are_kept_at_the_ends_and_large_numbers_come_in_batches() -> None:
    trials = np.array([0, 1, 3 * 2**20 + 5])
    assert SystemNoise().binomial(trials, Fraction(1)).tolist() == trials.tolist()
    assert SystemNoise().binomial(trials, Fraction(0)).tolist() == [0, 0, 0]
    kept = SystemNoise().binomial(trials, Fraction(1, 2)).tolist()[-1]
    assert abs(kept - trials[-1] / 2) < 8 * (trials[-1] / 4) ** 0.5


@pytest.mark.parametrize(
    ("trials", "rate"), [([-1], Fraction(1, 2)), ([1], Fraction(3, 2)), ([1], Fraction(-1))]
)
def test_sampling_that_makes_no_sense_is_refused(trials: list[int], rate: Fraction) -> None:
    with pytest.raises(ValueError, match="cannot be drawn"):
        SystemNoise().binomial(np.array(trials), rate)
