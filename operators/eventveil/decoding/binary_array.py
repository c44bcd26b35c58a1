"""Many byte strings in one text, none of which needs an object of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast, overload

import numpy as np
from numpy.typing import NDArray

from eventveil.decoding.dictionary import windows_of

_Places = NDArray[np.int64]

#: Gaps between strings are overwritten by this many bytes at a time, and not if one is longer than that.
_AT_ONCE, _LONGEST_GAP = 8, 256
_LINE_FEEDS = np.frombuffer(b"\n" * _AT_ONCE, "<u8")[0]


class Packed(Sequence[bytes | None]):
    """Parts of ``data``, in its order and apart, from ``starts`` on; a length of -1 is None."""

    def __init__(self, data: bytes, starts: _Places, lengths: _Places) -> None:
        self.data, self.starts, self.lengths = data, starts, lengths

    @property
    def ends(self) -> _Places:
        """Where each ends."""
        return self.starts + np.maximum(self.lengths, 0)

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[bytes | None]:
        data = self.data
        for start, length in zip(self.starts.tolist(), self.lengths.tolist(), strict=True):
            yield data[start : start + length] if length >= 0 else None

    @overload
    def __getitem__(self, index: int) -> bytes | None: ...
    @overload
    def __getitem__(self, index: slice) -> Packed: ...
    def __getitem__(self, index: int | slice) -> bytes | Packed | None:
        starts, lengths = self.starts[index], self.lengths[index]
        if isinstance(index, slice):
            return Packed(self.data, starts, lengths)
        return self.data[starts : starts + lengths] if lengths >= 0 else None


#: Where None is as good as an empty string.
Values = Sequence[bytes] | Packed


def without_none(values: Sequence[bytes | None]) -> Values:
    """The same with an empty string for None; packed ones as they are."""
    if isinstance(values, Packed) or all(values):
        return cast(Values, values)
    return [value or b"" for value in values]


def chosen(values: Values, rows: _Places | slice = slice(None)) -> list[bytes]:
    """Those in these rows, an empty one for None."""
    if isinstance(values, Packed):
        return [value or b"" for value in Packed(values.data, values.starts[rows], values.lengths[rows])]
    return [*values] if isinstance(rows, slice) else [values[row] for row in rows.tolist()]


def picked(values: Sequence[bytes | None], rows: _Places) -> list[bytes | None]:
    """Those in these rows."""
    if isinstance(values, Packed):
        return [*Packed(values.data, values.starts[rows], values.lengths[rows])]
    return [values[row] for row in rows.tolist()]


def lengths_of(values: Values) -> _Places:
    """The length of each, 0 of None."""
    if isinstance(values, Packed):
        return np.maximum(values.lengths, 0)
    return np.fromiter(map(len, values), np.int64, len(values))


def in_one_text(values: Values, before: bytes, behind: bytes) -> tuple[bytes, _Places]:
    """One text of all values, with nothing but line feeds between them, and where each starts in it."""
    if isinstance(values, Packed) and len(values) > 1:
        gaps = values.starts[1:] - values.ends[:-1]
        if gaps.min() >= _AT_ONCE and gaps.max() <= _LONGEST_GAP:
            return _without_gaps(values, before, behind)
    lengths = lengths_of(values)
    return b"\n".join((before, *chosen(values), behind)), np.cumsum(lengths + 1) - lengths + len(before)


def _without_gaps(values: Packed, before: bytes, behind: bytes) -> tuple[bytes, _Places]:
    first, last = int(values.starts[0]), int(values.ends[-1])
    data = bytearray().join((before, memoryview(values.data)[first:last], behind))
    windows, shift = windows_of(data), len(before) - first
    # The last bytes of every gap, and all from its first on.
    at, stop = values.ends[:-1] + shift, values.starts[1:] + (shift - _AT_ONCE)
    windows[stop] = _LINE_FEEDS
    while at.size:
        windows[at] = _LINE_FEEDS
        more = np.flatnonzero(at + _AT_ONCE < stop)
        at, stop = at[more] + _AT_ONCE, stop[more]
    return bytes(data), values.starts + shift
