"""Numbers for strings and integers: each distinct one gets the next, so that columns of them are arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from eventveil.decoding import kernel

_Numbers = NDArray[np.int64]


class Numbers(Protocol):
    """A dictionary for whole columns, of ``Fields`` or lists: of strings, or of integers.

    What it is asked for is told apart by all of its bytes, and never by a hash alone.
    """

    def __len__(self) -> int:
        """How many there are."""

    def of(self, column: Any) -> tuple[_Numbers, _Numbers]:
        """The number of each, and the places of the new ones, whose numbers are the next ones."""

    def find(self, column: Any) -> _Numbers:
        """The number of each, or -1 if it has none."""

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Forget all but those, a flag for each; they are numbered anew, in the same order."""


def numbers(first: int) -> Numbers:
    """Numbers from ``first`` on, of columns as ``eventveil.decoding.bulk`` reads them."""
    return PlainNumbers(first) if kernel.NATIVE is None else NativeNumbers(first)


class _Known(dict[Any, int]):
    """Gives a key that is not there the next number."""

    def __missing__(self, key: Any) -> int:
        number = self[key] = len(self)
        return number


class PlainNumbers:
    """See ``Numbers``: for lists."""

    def __init__(self, first: int) -> None:
        self._first, self._known = first, _Known()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, column: Sequence[str | int]) -> tuple[_Numbers, _Numbers]:
        """See ``Numbers.of``."""
        size = len(self._known)
        found = np.fromiter(map(self._known.__getitem__, column), np.int64, len(column))
        late = np.flatnonzero(found >= size)
        new = late[np.unique(found[late], return_index=True)[1]]
        return found + self._first, new

    def find(self, column: Sequence[str | int]) -> _Numbers:
        """See ``Numbers.find``."""
        get = self._known.get
        return (
            np.fromiter((get(one, -1 - self._first) for one in column), np.int64, len(column)) + self._first
        )

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """See ``Numbers.keep``."""
        known = _Known()
        for one in compress(self._known, kept.tolist()):
            known[one] = len(known)
        self._known = known


class NativeNumbers:
    """See ``Numbers``: for columns of the kernel, and lists."""

    def __init__(self, first: int) -> None:
        self._numbers: Any = kernel.NATIVE.Numbers(first)
        # Metrics ask for it while another thread is numbering.
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def of(self, column: Any) -> tuple[_Numbers, _Numbers]:
        """See ``Numbers.of``."""
        found, new = self._numbers.of(column)
        self._size = len(self._numbers)
        return np.frombuffer(found, np.int64), np.frombuffer(new, np.int64)

    def find(self, column: Any) -> _Numbers:
        """See ``Numbers.find``."""
        return np.frombuffer(self._numbers.find(column), np.int64)

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """See ``Numbers.keep``."""
        self._numbers.keep(kept.tobytes())
        self._size = len(self._numbers)
