"""Digits of exponential numbers and what is made of them, against rationals that enclose the truth."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from math import ceil, floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventveil.privacy import exponential
from eventveil.privacy.exponential import SATURATION

ROWS = range(exponential._ROWS)
CELLS = 2**16
HUGE = st.integers(1, 2**100)


def cumulative(row: int, k: int, digits: int = 120) -> Fraction:
    """F(k) to this many decimals, by another library's exponential function."""
    with localcontext(prec=digits):
        below = 1 - (-Decimal(k) / 256**row).exp()
        return Fraction(below if row == 0 else below / (1 - (-256 / Decimal(256**row)).exp()))


def scripted(*parts: bytes) -> Callable[[int], bytes]:
    left = list(parts)

    def read(count: int) -> bytes:
        part = left.pop(0)
        assert len(part) == count
        return part

    return read


def word(value: int) -> bytes:
    return value.to_bytes(8, "little")


@pytest.mark.parametrize("row", [*ROWS, 9, 12])
def test_thresholds_are_the_first_bits_of_the_distribution(row: int) -> None:
    thresholds = exponential._thresholds(row).tolist()
    assert thresholds == [floor(cumulative(row, k) * 2**64) for k in range(1, len(thresholds) + 1)]


@given(row=st.integers(0, 12), k=st.integers(1, 255), bits=st.integers(1, 300))
def test_more_bits_of_a_threshold_are_exact_too(row: int, k: int, bits: int) -> None:
    assert exponential._threshold(row, k, bits) == floor(cumulative(row, k, 400) * 2**bits)


@pytest.mark.parametrize("row", ROWS)
def test_a_table_decides_a_digit_where_all_that_begins_alike_has_that_digit_and_nowhere_else(
    row: int,
) -> None:
    table = exponential._tables()[0][row * CELLS : (row + 1) * CELLS].tolist()
    begins = [exponential._threshold(row, k, 16) for k in range(1, 60 if row == 0 else 256)]
    expected, digit = [], 0
    for cell in range(CELLS):
        inside = begins.count(cell) if digit < len(begins) and begins[digit] == cell else 0
        expected.append(-1 if inside else digit)
        digit += inside
    assert table == expected


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("k", [1, 2, 44])
def test_a_tie_is_decided_by_more_bits(row: int, k: int) -> None:
    whole = exponential._threshold(row, k, 192)
    first, second, third = whole >> 128, whole >> 64 & 2**64 - 1, whole & 2**64 - 1
    for difference, digit in ((-1, k - 1), (1, k)):
        assert exponential.drawn_digit(scripted(word(first), word(second + difference)), row) == digit
        read = scripted(word(first), word(second), word(third + difference))
        assert exponential.drawn_digit(read, row) == digit


def test_an_open_digit_of_an_array_is_decided_by_48_and_then_by_64_more_bits() -> None:
    threshold = exponential._threshold(1, 7, 128)
    cell, rest, more = threshold >> 112, threshold >> 64 & 2**48 - 1, threshold & 2**64 - 1
    rows = np.array([[0, 0, 0], [cell, cell, cell]], "<u2").tobytes()
    rests = np.array([(rest + 1) << 16, (rest - 1) << 16, rest << 16], "<u8").tobytes()
    for difference, digit in ((1, 7), (-1, 6)):
        digits = exponential.digits_of(scripted(rows, rests, word(more + difference)), 2, 3)
        assert digits.tolist() == [[0, 0, 0], [7, 6, digit]]


def test_a_first_digit_beyond_64_bits_goes_on() -> None:
    ones = word(2**64 - 1)
    # 1 - e^-k begins with 64 ones from k = 45 on, with 128 from 89 on.
    assert exponential.drawn_digit(scripted(ones, word(0)), 0) == 44
    assert exponential.drawn_digit(scripted(ones, word(2**64 - 2)), 0) == 88
    assert exponential.drawn_digit(scripted(ones, ones, word(0)), 0) == 88


@given(numerator=HUGE, denominator=HUGE, rows=st.integers(4, 8), seed=st.integers(0, 2**32))
def test_a_known_floor_is_that_of_every_number_that_begins_with_these_digits(
    numerator: int, denominator: int, rows: int, seed: int
) -> None:
    scale, choose = Fraction(numerator, denominator), np.random.default_rng(seed)
    digits = choose.integers(0, 256, (rows, 50)).astype(np.int16)
    digits[0] = choose.geometric(0.05, 50) - 1
    digits[1:, :5], digits[1:, 5:10] = 0, 255
    bits = scale.numerator.bit_length() - scale.denominator.bit_length() + 1
    assert scale < Fraction(2) ** bits
    floors, known = exponential._floors(digits, scale, bits)
    assert not known[digits[0] >= 64].any()
    for column in range(50):
        e = int.from_bytes(bytes(digits[:, column].tolist()), "big") if digits[0, column] < 256 else None
        if known[column]:
            assert e is not None
            low, end = (scale * value / 256 ** (rows - 1) for value in (e, e + 1))
            assert floor(low) == ceil(end) - 1 == floors[column]


@pytest.mark.parametrize(
    "scale", [Fraction(1, 2), Fraction(7, 3), Fraction(10_000), Fraction(2**100 + 1, 2**99)]
)
def test_few_floors_are_left_open(scale: Fraction) -> None:
    choose = random.Random(1)
    bits = scale.numerator.bit_length() - scale.denominator.bit_length() + 1
    rows = 1 + -(-(max(0, bits) + exponential._SPARE_BITS) // 8)
    digits = exponential.digits_of(choose.randbytes, rows, 100_000)
    assert exponential._floors(digits, scale, bits)[1].mean() > 0.999


@given(numerator=HUGE, denominator=HUGE, digits=st.lists(st.integers(0, 255), min_size=1, max_size=4))
def test_an_open_floor_draws_as_many_digits_as_it_takes(
    numerator: int, denominator: int, digits: list[int]
) -> None:
    scale, choose = Fraction(numerator, denominator), random.Random(7)
    drawn = 0

    def read(count: int) -> bytes:
        nonlocal drawn
        drawn += 1
        return choose.randbytes(count)

    found = exponential._exact_floor(read, digits, scale)
    unit = Fraction(1, 256 ** (len(digits) - 1))
    e = sum(Fraction(digit, 256**place) for place, digit in enumerate(digits))
    assert min(floor(scale * e), SATURATION) <= found <= min(ceil(scale * (e + unit)) - 1, SATURATION)
    known = floor(scale * e) == ceil(scale * (e + unit)) - 1 or scale * e >= SATURATION
    assert known == (drawn == 0)
