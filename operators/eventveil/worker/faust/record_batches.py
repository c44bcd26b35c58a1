"""Record batches of Kafka's format 2 (KIP-98), read in arrays instead of an object for every record.

The records of a batch follow each other without a gap; a varint is zigzag-coded, as in Protocol Buffers:

    length varint, attributes int8, timestamp delta varint, offset delta varint,
    key length varint, key, value length varint, value, header count varint, headers

A length of -1 is null; attributes are 0. Where a record begins is known only from the one before it. But a
record without headers ends with a zero, and the next one has its attributes, another zero, behind its length:
so the places between two zeros that hold just a varint are all that can be beginnings, and seldom anything
else. That they are the beginnings is then checked and not believed: the first is where the first batch
begins, each record, read from its place, ends where the next one begins, by its length and by the sum of its
fields, the last at the end, and every batch has as many as its header says. Then a walk from record to record
would have stopped at the same places and have read the same fields, for each step of it is checked. Wherever
anything differs, headers and damage included, nothing is read here: the caller walks. A value that holds a
false beginning (it needs zeros, which JSON has none of) costs the time of that walk, and changes no reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eventveil.decoding.binary_array import Packed

_Places = NDArray[np.int64]

#: Longer varints than those of 28 bits, or of 63 for times, are left to the caller.
_BYTES, _BYTES_OF_TIME = 4, 9
#: Behind the last record, so that varints can be read there without leaving the text.
_AFTER = bytes(16)


class Body(NamedTuple):
    """The records of a batch, uncompressed: their number, and the offset that theirs are relative to."""

    data: bytes | memoryview
    number: int
    base_offset: int


class Records(NamedTuple):
    """Records of batches, in columns."""

    offsets: NDArray[np.int64]
    keys: Packed
    values: Packed


class _Unusual(Exception):
    """These batches have to be read record by record."""


def read(bodies: Sequence[Body]) -> Records | None:
    """The records of consecutive batches; None if they must be read record by record."""
    data = b"".join((*(body.data for body in bodies), _AFTER))
    try:
        return _read(bodies, data)
    except _Unusual:
        return None


def _read(bodies: Sequence[Body], data: bytes) -> Records:
    codes = np.frombuffer(data, np.uint8)
    sizes = np.array([len(body.data) for body in bodies])
    counts = np.array([body.number for body in bodies])
    end = len(data) - len(_AFTER)
    begins, ends, at = _beginnings(codes, end, int(counts.sum()))
    first = np.cumsum(counts) - counts
    _insist(len(begins) == counts.sum() and (counts > 0).all())
    _insist((begins[first] == np.cumsum(sizes) - sizes).all() and ends[-1] == end)
    _insist((ends[:-1] == begins[1:]).all())

    _, at = _varints(codes, at, _BYTES_OF_TIME)
    offset, at = _varints(codes, at)
    keys, at = _strings(codes, at, data, end)
    values, at = _strings(codes, at, data, end)
    _insist((at + 1 == ends).all() and not codes[at].any())

    offsets = np.repeat([body.base_offset for body in bodies], counts) + offset
    _insist((offset >= 0).all() and (np.diff(offsets) > 0).all())
    return Records(offsets, keys, values)


def _insist(usual: bool | np.bool_) -> None:
    if not usual:
        raise _Unusual


def _beginnings(codes: NDArray[np.uint8], end: int, number: int) -> tuple[_Places, _Places, _Places]:
    """Where records can begin, where each would end, and the place behind its attributes, which are 0."""
    zeros = np.append(-1, np.flatnonzero(codes[:end] == 0))
    between = np.diff(zeros) - 1
    found = np.flatnonzero((between > 0) & (between <= _BYTES))
    begins = zeros[found] + 1
    lengths, at = _varints(codes, begins)
    ends = at + lengths
    real = at == zeros[found + 1]
    if np.count_nonzero(real) > number:
        # Most of those that are none lead nowhere.
        real &= np.isin(ends, np.append(begins[real], end))
    return begins[real], ends[real], at[real] + 1


def _varints(codes: NDArray[np.uint8], at: _Places, most: int = _BYTES) -> tuple[_Places, _Places]:
    """The number at each place, of ``most`` bytes at most, and the place behind it."""
    byte = codes[at]
    found = (byte & 0x7F).astype(np.int64)
    at = at + 1
    longer = np.flatnonzero(byte > 0x7F)
    for shift in range(7, 7 * most, 7):
        if not longer.size:
            break
        byte = codes[at[longer]]
        found[longer] |= (byte & 0x7F).astype(np.int64) << shift
        at[longer] += 1
        longer = longer[byte > 0x7F]
    _insist(not longer.size)
    return (found >> 1) ^ -(found & 1), at


def _strings(codes: NDArray[np.uint8], at: _Places, data: bytes, end: int) -> tuple[Packed, _Places]:
    """The strings, or null, at these places, after their lengths; and the places behind them."""
    lengths, starts = _varints(codes, at)
    behind = starts + np.maximum(lengths, 0)
    _insist((lengths >= -1).all() and (behind <= end).all())
    return Packed(data, starts, lengths), behind
