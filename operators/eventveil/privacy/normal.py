"""Rounded normal noise of any rational standard deviation, exactly: integers only, from random bytes.

``rounded_normal`` gives round(sigma Z) for an exact standard normal Z. So for a whole count c, c +
round(sigma Z) = round(c + sigma Z) is post-processing of real-valued Gaussian noise, and has the privacy of
that; no proof about a discrete Gaussian is needed. Z itself exists nowhere: as many of its binary digits are
drawn as decide.

*A normal number by cells.* After C. F. F. Karney, "Sampling Exactly from the Normal Distribution" (ACM
Transactions on Mathematical Software 42, 2016), algorithm N, with cells of 1/16 instead of 1, so that 49 of
50 candidates are kept instead of one in two. Draw a cell j >= 0 with probability in proportion to
e^(-(j/16)^2 / 2), a uniform x in [0, 1), and an exponential E; keep h = (j + x) / 16 if E > y, y = (2 j x +
x^2) / 512. Since h^2 / 2 = (j/16)^2 / 2 + y and P(E > y) = e^(-y), what is kept has a density in proportion
to e^(-h^2 / 2) on h >= 0: it is |Z|. A fair sign makes it Z. Rounding is to the nearest integer and
symmetric; a tie has probability 0, so that it does not matter what becomes of it.

*By digits.* E comes by digits of base 256 (``exponential``, which has the proof), x by bits. An inequality,
or a rounded number, is taken as known if it is the same for all E and x that begin with the digits drawn so
far. Where it is not, more are drawn, until it is: with probability 1 that ends. Whether the first digits
decide, and what, is computed in whole numbers without rounding error, or with one whose bound is part of the
interval.

*The cell* is drawn by inversion: it is the number of k >= 1 with F(k) <= U for a uniform U and F(k) = P(cell
< k). The first 16 bits of U decide, by a table, unless an F(k) begins with the same bits; then 48 more are
drawn, and 64 more each time as long as U and an F(k) agree. The bits of F(k) come from integers between
which the sum of all e^(-i^2 / 512), and that of the first k, certainly lie. Were a 2^n F(k) an integer, no
precision would tell its bits: then an error is raised, instead of a guess. For the tables a test shows that
it is not so.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from eventveil.privacy.exponential import SATURATION, Read, digits_of, drawn_digit, scaled_floors

_CELL_BITS, _WORD_BITS = 16, 64  # of U, at first and for cells that need more
_FINE = 4  # a cell is 2^-4 wide
_CELLS = 160  # F(k) has the same 64 bits for all larger k
_CELL_LIMIT = 256  # a larger cell (probability e^-128) is left to Python integers
_LONG_BITS = 54  # of x, so that cell and x fit 62 bits
_SHORT_BITS = 32
_SPARE_BITS = 17  # leave the rounded number open for about 1 in 2^15
_TEST_BITS = 24  # of x, that E is compared with
_TEST_ROWS = 3  # digits of E
_MOST_PRECISION = 2**16

Integers = NDArray[np.int64]


def rounded_normal(read: Read, sigma: Fraction, size: int) -> Integers:
    """Up to ``size`` independent draws of round(sigma Z), within +-SATURATION; usually 49 of 50 are kept.

    ``read(n)`` gives n uniform bytes; ``sigma`` is positive.
    """
    cells = _cells(read, size)
    scale = 2 * sigma  # round(h sigma) = (floor(2 sigma h) + 1) // 2
    scale_bits = scale.numerator.bit_length() - scale.denominator.bit_length() + 1
    bits = _SHORT_BITS if scale_bits + _SPARE_BITS <= _SHORT_BITS else _LONG_BITS
    x = _fractions(read, bits, size)
    digits = digits_of(read, _TEST_ROWS, size)
    kept, open_ = _kept(cells, x >> np.uint64(bits - _TEST_BITS), digits)
    e = cells.astype(np.uint64) << np.uint64(bits) | x
    floors, known = scaled_floors(e, bits + _FINE, scale, scale_bits)
    known &= cells < _CELL_LIMIT
    for place in np.flatnonzero(open_ | (kept & ~known)):
        draw = _Draw(read, int(cells[place]), int(x[place]), bits)
        if open_[place]:
            kept[place] = draw.is_kept(digits[:, place].tolist())
        if kept[place]:
            floors[place] = draw.floor(scale)
    magnitude = (floors[kept] + 1) >> 1
    negative = np.unpackbits(np.frombuffer(read((size + 7) // 8), np.uint8), count=size)[kept]
    return np.where(negative == 1, -magnitude, magnitude)


def _fractions(read: Read, bits: int, size: int) -> NDArray[np.uint64]:
    """The first bits of this many uniform numbers in [0, 1)."""
    if bits <= 32:
        return (np.frombuffer(read(4 * size), "<u4") >> np.uint32(32 - bits)).astype(np.uint64)
    return np.frombuffer(read(8 * size), "<u8") >> np.uint64(64 - bits)


def _kept(
    cells: Integers, x: NDArray[np.uint64], digits: NDArray[np.int16]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which candidates are certainly kept, and of which that is open; ``x`` are their first _TEST_BITS bits.

    2^16 E lies in [e, e + 1), and 2^16 y = 2^7 (2 j x + x^2) between the same for the ends of x.
    """
    e = digits[0].astype(np.int64) << 16 | digits[1].astype(np.int64) << 8 | digits[2]
    least = x.astype(np.int64)
    twice = cells << (_TEST_BITS + 1)
    low = (twice + least) * least >> (2 * _TEST_BITS - 7)
    high = (twice + least + 1) * (least + 1) >> (2 * _TEST_BITS - 7)
    kept = e > high
    return kept, ~kept & (e + 1 > low)


class _Draw:
    """One candidate, of which as many bits of x are drawn as it takes."""

    def __init__(self, read: Read, cell: int, x: int, bits: int) -> None:
        self._read, self._cell, self._x, self._bits = read, cell, x, bits

    def is_kept(self, digits: list[int]) -> bool:
        """Whether E > y, for an E that begins with these digits."""
        rows, e = len(digits), int.from_bytes(bytes(digits[1:]), "big") + (digits[0] << 8 * (len(digits) - 1))
        while True:
            shift = max(0, 8 * (rows - 1) - 2 * self._bits - 9), 2 * self._bits + 9 - 8 * (rows - 1)
            low, high = self._twice_square(self._x) << shift[0], self._twice_square(self._x + 1) << shift[0]
            unit = 1 << max(0, shift[1])
            if e * unit >= high:
                return True
            if (e + 1) * unit <= low:
                return False
            e = e << 8 | drawn_digit(self._read, rows)
            rows += 1
            self._refine()

    def floor(self, scale: Fraction) -> int:
        """floor(scale h), up to SATURATION."""
        while True:
            h = self._cell << self._bits | self._x
            unit = scale.denominator << self._bits + _FINE
            least = scale.numerator * h // unit
            if least >= SATURATION:
                return SATURATION
            if least == (scale.numerator * (h + 1) - 1) // unit:
                return least
            self._refine()

    def _twice_square(self, x: int) -> int:
        """2 j x + x^2, with twice as many bits behind the point as x has."""
        return (self._cell << self._bits + 1) * x + x * x

    def _refine(self) -> None:
        self._x = self._x << _WORD_BITS | int.from_bytes(self._read(_WORD_BITS // 8), "little")
        self._bits += _WORD_BITS


def _cells(read: Read, size: int) -> Integers:
    """This many cells."""
    starts = np.frombuffer(read(_CELL_BITS // 8 * size), "<u2")
    cells = _table().take(starts)
    places = np.flatnonzero(cells < 0)
    rest = np.frombuffer(read(_WORD_BITS // 8 * len(places)), "<u8") >> np.uint64(_CELL_BITS)
    words = starts[places].astype(np.uint64) << np.uint64(_WORD_BITS - _CELL_BITS) | rest
    thresholds = _thresholds()
    below = np.searchsorted(thresholds, words)
    for tie in np.flatnonzero(thresholds.take(below, mode="clip") == words):
        below[tie] = _settled(read, int(words[tie]))
    cells[places] = below
    return cells


def _settled(read: Read, word: int) -> int:
    """The cell for a U that begins with these 64 bits, as does an F(k)."""
    cell = int(np.searchsorted(_thresholds(), np.uint64(word)))
    bits = _WORD_BITS
    while True:
        bits += _WORD_BITS
        word = word << _WORD_BITS | int.from_bytes(read(_WORD_BITS // 8), "little")
        while (threshold := _threshold(cell + 1, bits)) < word:
            cell += 1
        if threshold > word:
            return cell


@lru_cache
def _table() -> Integers:
    """Cells by the first 16 bits of U, -1 where more bits decide."""
    first = (_thresholds() >> np.uint64(_WORD_BITS - _CELL_BITS)).astype(np.int64)
    inside = np.bincount(first, minlength=1 << _CELL_BITS)
    return np.where(inside, -1, np.cumsum(inside))


@lru_cache
def _thresholds() -> NDArray[np.uint64]:
    """The first 64 bits of F(1), F(2), ... as integers, in order."""
    return np.array([_threshold(k, _WORD_BITS) for k in range(1, _CELLS + 1)], np.uint64)


def _threshold(k: int, bits: int) -> int:
    """The first ``bits`` bits of F(k) = P(cell < k), exactly: floor(2^bits F(k))."""
    precision = bits + 64
    while precision <= _MOST_PRECISION:
        least, most = _sums(precision)
        low, high = ((sums[min(k, len(sums) - 1)] << bits) for sums in (least, most))
        low, high = low // most[-1], high // least[-1]
        if low == high:
            return low
        precision *= 2
    raise ArithmeticError(f"the first {bits} bits of F({k}) cannot be told")


@lru_cache(maxsize=8)
def _sums(precision: int) -> tuple[list[int], list[int]]:
    """Integers around 2^precision times the sums of the first 0, 1, 2, ... weights; the last ones of all.

    A weight is q^(i^2), q = e^(-1/512), and is q^(2 i - 1) times the one before it. So the weights from i on
    sum to at most that of i over 1 - q^(2 i + 1).
    """
    one = 1 << precision
    least, most = _exp_minus_2_to_minus_9(precision)
    square = least * least >> precision, (most * most >> precision) + 1
    weight, ratio = (one, one), (least, most)
    sums: tuple[list[int], list[int]] = [0], [0]
    last = isqrt(512 * precision) + 1  # q^(i^2) is below 2^-precision
    for _ in range(last):
        for side in (0, 1):
            sums[side].append(sums[side][-1] + weight[side])
        weight = weight[0] * ratio[0] >> precision, (weight[1] * ratio[1] >> precision) + 1
        ratio = ratio[0] * square[0] >> precision, (ratio[1] * square[1] >> precision) + 1
    sums[0].append(sums[0][-1])
    sums[1].append(sums[1][-1] + weight[1] * one // (one - ratio[1]) + 1)
    return sums


def _exp_minus_2_to_minus_9(precision: int) -> tuple[int, int]:
    """Integers around 2^precision e^(-1/512), by the series of e^(1/512): each term is rounded down.

    The error of a term is that of the one before it over 512 n, plus 1: less than 2. Once a term is 0, all
    that are left out sum to less than 2.
    """
    total = term = 1 << precision
    n = 0
    while term:
        n += 1
        term = (term >> 9) // n
        total += term
    one = 1 << 2 * precision
    return one // (total + 2 * n + 2), -(-one // total)
