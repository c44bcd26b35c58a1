"""Exact geometric numbers of any scale from the digits of an exponential one: integers only, no rounding.

Let E be exponential, P(E >= x) = e^(-x). Then floor(b E) is exactly geometric with ratio e^(-1/b), since
P(floor(b E) >= k) = P(E >= k/b) = e^(-k/b). Write E = D0 + D1/256 + D2/256^2 + ... with D0 >= 0 and all
other digits in 0..255. They are independent, because e^(-E) is a product with one factor a digit (compare
L. Devroye, "Non-Uniform Random Variate Generation", Springer 1986, chapter IV.2): P(D0 = d) is proportional
to e^(-d) and P(Di = d) to e^(-d / 256^i). So digits are drawn one by one until floor(b E) is known, and a few
tables serve every scale b.

A digit is drawn by inversion: it is the number of k >= 1 with F(k) <= U, where U is uniform in [0, 1) and
F(k) = P(Di < k). The first 16 bits of U decide, by a table, unless an F(k) begins with the same bits; then 48
more are drawn, and 64 more each time as long as U and an F(k) agree. No F(k) below 1 is rational (e is
transcendental), so that ends. The bits of F(k) are exact too: they come from integers between which the
exponential certainly lies, at a precision that grows until both say the same.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

SATURATION = 2**62
"""Larger numbers are returned as this one."""

_RADIX_BITS = 8
_RADIX = 1 << _RADIX_BITS
_ROWS = 8  # digits in tables: D0 and 56 bits of the fraction
_CELL_BITS, _WORD_BITS = 16, 64  # of U, at first and for digits that need more
_WHOLE_LIMIT = 64  # a larger D0 (probability e^-64) is left to Python integers
_WHOLE_THRESHOLDS = 45  # F(k) of D0 has the same 64 bits for all larger k
_SPARE_BITS = 17  # digits drawn at first leave the floor open for about 1 number in 2^15
_FACTOR_BITS = 62

Read = Callable[[int], bytes]


def geometric(read: Read, scale: Fraction, size: int) -> NDArray[np.int64]:
    """``size`` independent draws with P(k) proportional to e^(-k/scale), k >= 0, up to SATURATION.

    ``read(n)`` gives n uniform bytes; ``scale`` is positive.
    """
    scale_bits = scale.numerator.bit_length() - scale.denominator.bit_length() + 1  # scale < 2^scale_bits
    fraction_bits = min(max(0, scale_bits) + _SPARE_BITS, (_ROWS - 1) * _RADIX_BITS)
    digits = digits_of(read, 1 + -(-fraction_bits // _RADIX_BITS), size)
    floors, known = _floors(digits, scale, scale_bits)
    if not known.all():
        for place in np.flatnonzero(~known):
            floors[place] = _exact_floor(read, digits[:, place].tolist(), scale)
    return floors


def digits_of(read: Read, rows: int, size: int) -> NDArray[np.int16]:
    """The first digits of this many exponential numbers, one number a column; at most 8 rows."""
    cells = np.frombuffer(read(_CELL_BITS // 8 * rows * size), "<u2").reshape(rows, size)
    tables, starts = _tables()
    digits = tables.take(cells + starts[:rows])
    open_rows, open_columns = np.nonzero(digits < 0)
    for row in set(open_rows.tolist()):
        columns = open_columns[open_rows == row]
        rest = np.frombuffer(read(_WORD_BITS // 8 * len(columns)), "<u8") >> np.uint64(_CELL_BITS)
        words = cells[row, columns].astype(np.uint64) << np.uint64(_WORD_BITS - _CELL_BITS) | rest
        thresholds = _thresholds(row)
        below = np.searchsorted(thresholds, words)
        for tie in np.flatnonzero(thresholds.take(below, mode="clip") == words):
            below[tie] = _settled(read, row, int(words[tie]))
        digits[row, columns] = below
    return digits


def _floors(
    digits: NDArray[np.int16], scale: Fraction, scale_bits: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """floor(scale E) where these digits determine it, and where they do."""
    e = digits[0].astype(np.uint64)
    for row in digits[1:].astype(np.uint64):
        e = e << np.uint64(_RADIX_BITS) | row
    floors, known = scaled_floors(e, (len(digits) - 1) * _RADIX_BITS, scale, scale_bits)
    return floors, known & (digits[0] < _WHOLE_LIMIT)


def scaled_floors(
    e: NDArray[np.uint64], fraction_bits: int, scale: Fraction, scale_bits: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """floor(scale E) where ``e`` = floor(2^f E) determines it, f the ``fraction_bits``, and where it does.

    Where ``e`` is 2^62 or more, nothing of that is right. ``scale`` is below 2^scale_bits.

    With a power g, factor <= 2^g scale < factor + 1. That and e are below 2^62, so 2^(f+g) scale E lies in
    [high, high + 2) 2^64, with ``high`` the upper bits of factor * e.
    """
    power = min(_FACTOR_BITS - scale_bits, 64)
    factor = (scale.numerator << max(power, 0)) // (scale.denominator << max(-power, 0))
    shift = fraction_bits + power - 64
    if shift < 2:
        return np.zeros(len(e), np.int64), np.zeros(len(e), np.bool_)
    half, low_half = np.uint64(32), np.uint64(2**32 - 1)
    upper, lower = e >> half, e & low_half
    factor_upper, factor_lower = np.uint64(factor >> 32), np.uint64(factor & (2**32 - 1))
    middle = upper * factor_lower + lower * factor_upper + (lower * factor_lower >> half)
    high = upper * factor_upper + (middle >> half)
    known = (high & np.uint64(2**shift - 1)) <= np.uint64(2**shift - 2)
    return (high >> np.uint64(shift)).astype(np.int64), known


def _exact_floor(read: Read, digits: list[int], scale: Fraction) -> int:
    """floor(scale E) for an E that begins with these digits; draws as many more as it takes."""
    e, rows = 0, len(digits)
    for digit in digits:
        e = e << _RADIX_BITS | digit
    while True:
        unit = scale.denominator << (rows - 1) * _RADIX_BITS
        least = scale.numerator * e // unit
        if least >= SATURATION:
            return SATURATION
        if least == (scale.numerator * (e + 1) - 1) // unit:
            return least
        e = e << _RADIX_BITS | drawn_digit(read, rows)
        rows += 1


def drawn_digit(read: Read, row: int) -> int:
    """One digit of an exponential number, of any row."""
    word = int.from_bytes(read(_WORD_BITS // 8), "little")
    thresholds = _thresholds(row)
    below = int(np.searchsorted(thresholds, np.uint64(word)))
    tied = below < len(thresholds) and int(thresholds[below]) == word
    return _settled(read, row, word) if tied else below


def _settled(read: Read, row: int, word: int) -> int:
    """The digit for a U that begins with these 64 bits, as does an F(k)."""
    digit = int(np.searchsorted(_thresholds(row), np.uint64(word)))
    bits = _WORD_BITS
    while True:
        bits += _WORD_BITS
        word = word << _WORD_BITS | int.from_bytes(read(_WORD_BITS // 8), "little")
        while (threshold := _threshold(row, digit + 1, bits)) < word:
            digit += 1
        if threshold > word:
            return digit


@lru_cache
def _tables() -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """Digits by row and first 16 bits of U, -1 where more bits decide; and where the rows start."""
    tables = []
    for row in range(_ROWS):
        cells = (_thresholds(row) >> np.uint64(_WORD_BITS - _CELL_BITS)).astype(np.int64)
        inside = np.bincount(cells, minlength=1 << _CELL_BITS)
        tables.append(np.where(inside, -1, np.cumsum(inside)).astype(np.int16))
    return np.concatenate(tables), np.arange(_ROWS)[:, np.newaxis] << _CELL_BITS


@lru_cache
def _thresholds(row: int) -> NDArray[np.uint64]:
    """The first 64 bits of F(1), F(2), ... as integers, in order."""
    last = _WHOLE_THRESHOLDS if row == 0 else _RADIX - 1
    return np.array([_threshold(row, k, _WORD_BITS) for k in range(1, last + 1)], np.uint64)


def _threshold(row: int, k: int, bits: int) -> int:
    """The first ``bits`` bits of F(k) = P(digit < k), exactly: floor(2^bits F(k))."""
    if row and k == _RADIX:
        return 1 << bits
    precision = bits + row * _RADIX_BITS + 2 * k.bit_length() + 32
    while True:
        one = 1 << precision
        if row == 0:  # 1 - e^(-k)
            least, most = _exp_minus(k, 0, precision)
            low, high = (one - most) << bits >> precision, (one - least) << bits >> precision
        else:  # (1 - e^(-k x)) / (1 - e^(-256 x)) with x = 256^(-row)
            least, most = _exp_minus(k, row * _RADIX_BITS, precision)
            whole_least, whole_most = _exp_minus(_RADIX, row * _RADIX_BITS, precision)
            low = ((one - most) << bits) // (one - whole_least)
            high = ((one - least) << bits) // (one - whole_most)
        if low == high:
            return low
        precision *= 2


def _exp_minus(numerator: int, shift: int, bits: int) -> tuple[int, int]:
    """Integers around 2^bits e^(-x) for x = numerator / 2^shift, which is at most 1 or an integer.

    Each term of the series of e^y is rounded down; an error of at most 2 comes to the next one times y/n,
    plus 1, and so stays at most 2 for y <= 1. When a term is 0, all that are left out sum to less than 2.
    """
    power, y = (numerator, 1) if shift == 0 else (1, numerator)
    total = term = 1 << bits
    n = 0
    while term:
        n += 1
        term = (term * y >> shift) // n
        total += term
    least, most = total**power, (total + 2 * n + 2) ** power  # around 2^(bits power) e^x
    one = 1 << bits * (power + 1)
    return one // most, one // least + 1
