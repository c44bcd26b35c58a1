"""Rounded normal noise against its exact distribution, and every decision on the way against rationals."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import erf, erfc, floor, isqrt, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from eventveil.privacy import normal
from eventveil.privacy.exponential import SATURATION
from eventveil.privacy.noise import SeededNoise, SystemNoise
from tests.unit.privacy.goodness import binned, p_value

DRAWS = 200_000
PLAUSIBLE = 1e-3  # for fixed seeds: chosen once, never again at random
IMPOSSIBLE = 1e-9
SIGMAS = [
    Fraction(1, 4),
    Fraction(1),
    Fraction(7, 3),
    Fraction(46),
    Fraction(10_000),
    Fraction(2**60 + 1, 2**20),
]


def against_exact(draws: NDArray[np.int64], sigma: Fraction) -> float:
    """p-value of the draws being round(sigma Z): bins over 3.5 standard deviations, and both tails."""
    reach = max(1, int(Fraction(7, 2) * sigma))
    starts = np.arange(-reach, reach + 1, max(1, reach // 20))
    starts = starts if len(starts) % 2 == 0 else starts[:-1]
    below = [(1 + erf((start - 0.5) / (float(sigma) * sqrt(2)))) / 2 for start in starts.tolist()]
    expected = np.diff(np.concatenate([[0.0], below, [1.0]])) * len(draws)
    some = expected >= 5
    rest = expected[~some].sum()
    found = binned(draws, starts)
    statistic = float(((found[some] - expected[some]) ** 2 / expected[some]).sum())
    if rest >= 5:
        statistic += float((found[~some].sum() - rest) ** 2 / rest)
    return p_value(statistic, (int(some.sum()) - (rest < 5)) // 2 * 2)


@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
def test_draws_have_the_exact_distribution(sigma: Fraction) -> None:
    assert against_exact(SeededNoise(1).rounded_normal(sigma, DRAWS), sigma) > PLAUSIBLE


@pytest.mark.parametrize("wrong", [Fraction(19, 20), Fraction(21, 20)], ids=str)
@pytest.mark.parametrize("sigma", SIGMAS[1:], ids=str)
def test_a_sigma_that_is_wrong_by_a_twentieth_is_found_out(sigma: Fraction, wrong: Fraction) -> None:
    assert against_exact(SeededNoise(1).rounded_normal(sigma * wrong, DRAWS), sigma) < IMPOSSIBLE


def keep_all(cells: NDArray[np.int64], x: object, digits: object) -> tuple[object, object]:
    return np.ones(len(cells), np.bool_), np.zeros(len(cells), np.bool_)


def cells_alike(read: Callable[[int], bytes], size: int) -> NDArray[np.int64]:
    return np.frombuffer(read(size), np.uint8).astype(np.int64) >> 2


@pytest.mark.parametrize("defect", ["zero twice", "no sign", "all cells alike", "floors instead of rounding"])
def test_a_defective_distribution_is_found_out(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if defect == "all cells alike":
        monkeypatch.setattr(normal, "_cells", cells_alike)
    sigma = Fraction(7, 3)
    draws = SeededNoise(2).rounded_normal(sigma, DRAWS)
    if defect == "zero twice":
        draws = np.concatenate([draws, draws[draws == 0]])
    elif defect == "no sign":
        draws = np.abs(draws)
    elif defect == "floors instead of rounding":
        draws = SeededNoise(2).rounded_normal(2 * sigma, DRAWS) // 2
    assert against_exact(draws, sigma) < IMPOSSIBLE


def test_a_cell_without_the_test_inside_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two per cent of the candidates are thrown away, so it takes more draws to see that none is.
    sigma = Fraction(64)
    assert against_exact(SeededNoise(3).rounded_normal(sigma, 4 * DRAWS), sigma) > PLAUSIBLE
    monkeypatch.setattr(normal, "_kept", keep_all)
    assert against_exact(SeededNoise(3).rounded_normal(sigma, 4 * DRAWS), sigma) < IMPOSSIBLE


def test_the_operating_system_s_noise_has_the_exact_distribution() -> None:
    draws = SystemNoise().rounded_normal(Fraction(46), DRAWS)
    assert against_exact(draws, Fraction(46)) > 1e-6  # fails once in a million runs


def test_far_tails_are_as_heavy_as_they_should_be() -> None:
    far = np.abs(SeededNoise(4).rounded_normal(Fraction(1000), 20 * DRAWS)) > 4000
    expected = 20 * DRAWS * erfc(4.0005 / sqrt(2))
    assert abs(far.sum() - expected) < 4 * sqrt(expected)


def test_consecutive_draws_are_independent() -> None:
    draws = SeededNoise(5).rounded_normal(Fraction(100), DRAWS).astype(float)
    for lag in (1, 2, 3, 2**13):
        assert abs(np.corrcoef(draws[:-lag], draws[lag:])[0, 1]) < 4 / sqrt(DRAWS)


def test_the_same_seed_gives_the_same_noise_on_every_machine() -> None:
    source = SeededNoise(2013)
    assert source.rounded_normal(Fraction(10), 8).tolist() == [-2, 20, 12, 14, -14, 17, 19, 8]
    assert source.rounded_normal(Fraction(2**70, 2**60 + 1), 4).tolist() == [793, 2866, -278, -179]


@pytest.mark.parametrize(("sigma", "size"), [(Fraction(0), 1), (Fraction(-1), 1), (Fraction(1), -1)])
def test_what_cannot_be_drawn_is_refused(sigma: Fraction, size: int) -> None:
    with pytest.raises(ValueError, match="should"):
        SeededNoise(1).rounded_normal(sigma, size)


def test_nothing_is_drawn_of_no_numbers() -> None:
    assert SeededNoise(1).rounded_normal(Fraction(1), 0).shape == (0,)


def test_a_sigma_beyond_all_counts_saturates() -> None:
    draws = SeededNoise(1).rounded_normal(Fraction(2**80), 1000)
    assert (np.abs(draws) == SATURATION // 2).mean() > 0.999


@lru_cache
def weights(digits: int) -> list[Decimal]:
    """All that matter, by another library's exponential function."""
    with localcontext(prec=digits):
        return [(-Decimal(i * i) / 512).exp() for i in range(isqrt(1200 * digits) + 2)]


def cumulative(k: int, digits: int) -> Fraction:
    """P(cell < k)."""
    with localcontext(prec=digits):
        return Fraction(sum(weights(digits)[:k])) / Fraction(sum(weights(digits)))


def test_thresholds_are_the_first_bits_of_the_distribution() -> None:
    thresholds = normal._thresholds().tolist()
    assert thresholds == [floor(cumulative(k, 60) * 2**64) for k in range(1, len(thresholds) + 1)]
    assert thresholds[-1] == 2**64 - 1


@pytest.mark.parametrize("k", [1, 17, 160, 300])
@pytest.mark.parametrize("bits", [16, 128, 300])
def test_more_bits_of_a_threshold_are_exact_too(k: int, bits: int) -> None:
    assert normal._threshold(k, bits) == floor(cumulative(k, 150) * 2**bits)


def test_a_threshold_whose_bits_cannot_be_told_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(normal, "_sums", lambda precision: ([0, 1, 2], [0, 2, 3]))
    with pytest.raises(ArithmeticError):
        normal._threshold(1, 64)


def test_the_table_decides_a_cell_where_all_that_begins_alike_has_it_and_nowhere_else() -> None:
    begins = np.array([normal._threshold(k, 16) for k in range(1, 200)])
    cells = np.searchsorted(begins, np.arange(2**16), "left")
    open_ = np.isin(np.arange(2**16), begins)
    assert normal._table().tolist() == np.where(open_, -1, cells).tolist()


@pytest.mark.parametrize("difference", [-1, 1])
@pytest.mark.parametrize("k", [1, 40, 120])
def test_a_cell_is_decided_however_many_bits_agree(k: int, difference: int) -> None:
    more = normal._threshold(k, 128) + difference
    rest = [more % 2**64]
    cell = normal._settled(lambda count: rest.pop().to_bytes(count, "little"), more >> 64)
    assert cell == (k if difference > 0 else k - 1)


def square_over(cell: int, x: Fraction) -> Fraction:
    """y."""
    return (2 * cell * x + x * x) / 512


@given(
    cell=st.integers(0, 200),
    x=st.integers(0, 2**24 - 1) | st.sampled_from([0, 2**24 - 1]),
    near=st.integers(-3, 3),
    whole=st.none() | st.integers(0, 20),
)
def test_a_candidate_is_decided_exactly_where_all_that_begins_alike_agrees(
    cell: int, x: int, near: int, whole: int | None
) -> None:
    low, high = (square_over(cell, Fraction(value, 2**24)) for value in (x, x + 1))
    e = max(0, floor(low * 2**16) + near) if whole is None else whole << 16 | x >> 8
    digits = np.array([[e >> 16], [e >> 8 & 255], [e & 255]], np.int16)
    kept, open_ = normal._kept(np.array([cell]), np.array([x], np.uint64), digits)
    if kept[0]:
        assert Fraction(e, 2**16) >= high
    elif not open_[0]:
        assert Fraction(e + 1, 2**16) <= low
    else:
        assert low - Fraction(1, 2**16) < Fraction(e + 1, 2**16) < high + Fraction(2, 2**16)


@given(
    cell=st.integers(0, 400), x=st.integers(0, 2**54 - 1), near=st.integers(-2, 2), seed=st.integers(0, 99)
)
def test_an_open_candidate_is_decided_by_what_is_drawn_more(cell: int, x: int, near: int, seed: int) -> None:
    choose, drawn = random.Random(seed), list[int]()

    def read(count: int) -> bytes:
        drawn.append(count)
        return choose.randbytes(count)

    e = max(0, floor(square_over(cell, Fraction(x, 2**54)) * 2**16) + near)
    draw = normal._Draw(read, cell, x, 54)
    kept = draw.is_kept([e >> 16, e >> 8 & 255, e & 255])
    low, high = (square_over(cell, Fraction(value, 2**draw._bits)) for value in (draw._x, draw._x + 1))
    if not drawn:
        assert Fraction(e, 2**16) >= high if kept else Fraction(e + 1, 2**16) <= low
    assert Fraction(e + 1, 2**16) > low if kept else Fraction(e, 2**16) < high
    assert draw._x >> draw._bits - 54 == x  # what was drawn before stands


@given(
    numerator=st.integers(1, 2**100),
    denominator=st.integers(1, 2**100),
    cell=st.integers(0, 400),
    x=st.integers(0, 2**32 - 1),
)
def test_a_rounded_number_is_that_of_every_number_that_begins_alike(
    numerator: int, denominator: int, cell: int, x: int
) -> None:
    scale, choose = Fraction(numerator, denominator), random.Random(7)
    draw = normal._Draw(choose.randbytes, cell, x, 32)
    found = draw.floor(scale)
    low, high = (scale * (cell + Fraction(value, 2**draw._bits)) / 16 for value in (draw._x, draw._x + 1))
    assert min(floor(low), SATURATION) == found
    assert found == SATURATION or high <= found + 1


def test_next_to_no_number_is_left_open() -> None:
    opened = 0

    class Counting(normal._Draw):
        def __init__(self, *arguments: object) -> None:
            nonlocal opened
            opened += 1
            super().__init__(*arguments)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(normal, "_Draw", Counting)
        for sigma in SIGMAS:
            SeededNoise(6).rounded_normal(sigma, DRAWS)
    assert opened < len(SIGMAS) * DRAWS / 2000
