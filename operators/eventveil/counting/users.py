"""Numbers for users: each distinct one gets the next, so that whole chunks of them fit into arrays.

Users are told apart by their whole values. What is kept of one is its value, a place in a table and two
flags; whatever is known of a user and an open timestamp goes by the number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.decoding import kernel
from eventveil.decoding.bulk import Fields, PlainNumbers
from eventveil.model.partitioners import MANY
from eventveil.model.topology import Source

#: This many users are kept whether they are needed or not.
_FREE = 65_536
_FEW = 64
#: The number of what is no user, and the first number of one.
_NOBODY, _FIRST = 0, 1


class Users:
    """The users that one source partition has met, those included that do not belong to it.

    Who is in no open timestamp is forgotten now and then, unless it was met since the last time: many users
    come again in the next timestamp.
    """

    def __init__(self, source: Source, partitions: int, partition: int) -> None:
        self._pointer, self._integers = source.user, source.user_type == "integer"
        self._partitions_of, self._partitions = MANY[source.partitioner], partitions
        #: The table of the compiled kernel; None in plain Python.
        self.native: Any = None
        if kernel.NATIVE is not None:
            self.native = kernel.NATIVE.Users(source.partitioner, partitions, partition)
        self._known = _Plain(source, partitions, partition) if self.native is None else _Native(self.native)
        # Metrics ask for it while another thread is numbering.
        self._size = 0
        self._asked = 0
        self._kept = _FREE // 2
        self._epoch = 0

    def __len__(self) -> int:
        """The number of users."""
        return self._size

    def of(self, fields: Fields) -> NDArray[np.int64]:
        """The numbers of the users that were read."""
        key = self, self._epoch
        if key not in fields.known:
            fields.known[key] = self._of_fields(fields)
        return fields.known[key]

    def _of_fields(self, fields: Fields) -> NDArray[np.int64]:
        return self._of(fields.column(self._pointer))

    def are_some(self, fields: Fields) -> NDArray[np.bool_]:
        """Which rows of the fields have a user."""
        return fields.filled(self._pointer)

    def canonical(self, fields: Fields, at: NDArray[np.int64]) -> list[bytes]:
        """The users at these places of the fields, in canonical bytes."""
        return fields.canonical(self._pointer, at)

    def partitions(self, users: list[bytes]) -> NDArray[np.int64]:
        """Where they belong."""
        return self._partitions_of(users, self._partitions)

    def number(self, user: bytes) -> int:
        """The number of one user, given in canonical bytes."""
        return int(self.numbers([user])[0])

    def numbers(self, users: Sequence[bytes]) -> NDArray[np.int64]:
        """The numbers of some users, given in canonical bytes."""
        return self._of([int(user) if self._integers else user.decode() for user in users])

    def _of(self, column: Any) -> NDArray[np.int64]:
        found = self._known.of(column)
        self._size = len(self._known)
        self._asked += len(found)
        return found

    def belong(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of them are users, and of this partition."""
        return self._known.belong(numbers)

    @property
    def crowded(self) -> bool:
        """Whether it is time to forget: they have doubled, or many more events than users were met."""
        return len(self) > _FREE and (len(self) > 2 * self._kept or self._asked > 4 * len(self))

    def forget(self, needed: Iterable[NDArray[np.int64]]) -> NDArray[np.int64] | None:
        """Forget who is neither ``needed`` nor was met lately; the new numbers, at the old ones.

        None, and nobody is forgotten, if that would be less than a quarter.
        """
        keep = self._known.take_met()
        for some in needed:
            keep[some] = True
        keep[_NOBODY] = True
        self._asked, self._kept = 0, int(np.count_nonzero(keep))
        if 4 * self._kept > 3 * len(keep):
            return None
        self._known.keep(keep)
        self._size = len(self._known)
        self._epoch += 1
        return np.cumsum(keep) - 1


class _Native:
    """Users in a table of the compiled kernel."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def __len__(self) -> int:
        return len(self._native)

    def of(self, column: Any) -> NDArray[np.int64]:
        """The number of each, a new one for those who are new; they are met."""
        return np.frombuffer(self._native.of(column), np.int64)

    def belong(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """See ``Users.belong``."""
        return np.frombuffer(self._native.belong(numbers), bool)

    def take_met(self) -> NDArray[np.bool_]:
        """Which numbers were met since the last call, that of nobody included."""
        return np.frombuffer(self._native.take_met(), bool).copy()

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """Forget all but those; they are numbered anew, in the same order."""
        self._native.keep(kept[_FIRST:].tobytes())


class _Plain:
    """The same in a dictionary and arrays."""

    def __init__(self, source: Source, partitions: int, partition: int) -> None:
        self._partitions_of = MANY[source.partitioner]
        self._partitions, self._partition = partitions, partition
        self._numbers = PlainNumbers(_FIRST)
        self._belongs = np.zeros(_FEW, bool)
        self._met = np.zeros(_FEW, bool)

    def __len__(self) -> int:
        return len(self._numbers)

    def of(self, column: Sequence[str | int]) -> NDArray[np.int64]:
        """See ``_Native.of``."""
        found, new = self._numbers.of(column)
        if new.size:
            end = _FIRST + len(self._numbers)
            self._belongs, self._met = _grown(self._belongs, end), _grown(self._met, end)
            keys = [str(column[place]).encode() for place in new.tolist()]
            belongs = self._partitions_of(keys, self._partitions) == self._partition
            self._belongs[end - len(new) : end] = belongs & np.fromiter(map(bool, keys), bool, len(keys))
        self._met[found] = True
        return found

    def belong(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """See ``Users.belong``."""
        return self._belongs[numbers]

    def take_met(self) -> NDArray[np.bool_]:
        """See ``_Native.take_met``."""
        met = self._met[: _FIRST + len(self)].copy()
        self._met[:] = False
        return met

    def keep(self, kept: NDArray[np.bool_]) -> None:
        """See ``_Native.keep``."""
        self._numbers.keep(kept[_FIRST:])
        self._belongs = _grown(self._belongs[: len(kept)][kept], _FEW)
        self._met = np.zeros(len(self._belongs), bool)


def _grown(flags: NDArray[np.bool_], size: int) -> NDArray[np.bool_]:
    if size <= len(flags):
        return flags
    return np.concatenate([flags, np.zeros(max(size, 2 * len(flags)) - len(flags), bool)])
