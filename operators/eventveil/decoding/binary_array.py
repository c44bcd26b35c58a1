"""Many byte strings in one text, none of which needs an object of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

_Places = NDArray[np.int64]


class Packed(Sequence[bytes | None]):
    """Parts of ``data``, in its order and apart, from ``starts`` on; a length of -1 is None."""

    def __init__(self, data: bytes, starts: _Places, lengths: _Places) -> None:
        self.data, self.starts, self.lengths = data, starts, lengths

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


def picked(values: Sequence[bytes | None], rows: _Places) -> list[bytes | None]:
    """Those in these rows."""
    if isinstance(values, Packed):
        return [*Packed(values.data, values.starts[rows], values.lengths[rows])]
    return [values[row] for row in rows.tolist()]


def lengths_of(values: Sequence[bytes | None]) -> _Places:
    """The length of each, 0 of None."""
    if isinstance(values, Packed):
        return np.maximum(values.lengths, 0)
    return np.fromiter((len(value or b"") for value in values), np.int64, len(values))
