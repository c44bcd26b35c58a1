"""Numbers for users: each distinct one gets the next, so that whole chunks of them fit into arrays.

Users are told apart by their whole values. What is kept of one is its value, a place in a table and two
flags; whatever is known of a user and an open timestamp goes by the number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.decoding.columns import Fields
from eventveil.decoding.numbers import numbers
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
        self._partitions_of = MANY[source.partitioner]
        self._partitions, self._partition = partitions, partition
        self._numbers = numbers(_FIRST)
        self._belongs = np.zeros(_FEW, bool)
        self._met = np.zeros(_FEW, bool)
        self._asked = 0
        self._kept = _FREE // 2
        self._epoch = 0

    def __len__(self) -> int:
        """The number of users."""
        return len(self._numbers)

    def of(self, fields: Fields) -> NDArray[np.int64]:
        """The numbers of the users that were read."""
        key = self, self._epoch
        if key not in fields.known:
            fields.known[key] = self._of_fields(fields)
        return fields.known[key]

    def _of_fields(self, fields: Fields) -> NDArray[np.int64]:
        return self._of(fields.column(self._pointer), lambda rows: self.canonical(fields, rows))

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
        values = [int(user) if self._integers else user.decode() for user in users]
        return self._of(values, lambda rows: [users[row] for row in rows.tolist()])

    def _of(self, column: Any, canonical: Callable[[NDArray[np.int64]], list[bytes]]) -> NDArray[np.int64]:
        found, new = self._numbers.of(column)
        if new.size:
            end = _FIRST + len(self._numbers)
            self._belongs, self._met = _grown(self._belongs, end), _grown(self._met, end)
            keys = canonical(new)
            belongs = self._partitions_of(keys, self._partitions) == self._partition
            self._belongs[end - len(new) : end] = belongs & np.fromiter(map(bool, keys), bool, len(keys))
        self._met[found] = True
        self._asked += len(found)
        return found

    def belong(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of them are users, and of this partition."""
        return self._belongs[numbers]

    @property
    def crowded(self) -> bool:
        """Whether it is time to forget: they have doubled, or many more events than users were met."""
        return len(self) > _FREE and (len(self) > 2 * self._kept or self._asked > 4 * len(self))

    def forget(self, needed: Iterable[NDArray[np.int64]]) -> NDArray[np.int64] | None:
        """Forget who is neither ``needed`` nor was met lately; the new numbers, at the old ones.

        None, and nobody is forgotten, if that would be less than a quarter.
        """
        end = _FIRST + len(self)
        keep = self._met[:end].copy()
        for some in needed:
            keep[some] = True
        keep[_NOBODY] = True
        self._met[:] = False
        self._asked, self._kept = 0, int(np.count_nonzero(keep))
        if 4 * self._kept > 3 * end:
            return None
        self._numbers.keep(keep[_FIRST:])
        self._belongs = _grown(self._belongs[:end][keep], _FEW)
        self._epoch += 1
        self._met = np.zeros(len(self._belongs), bool)
        return np.cumsum(keep) - 1


def _grown(flags: NDArray[np.bool_], size: int) -> NDArray[np.bool_]:
    if size <= len(flags):
        return flags
    return np.concatenate([flags, np.zeros(max(size, 2 * len(flags)) - len(flags), bool)])
