"""Numbers for users: each distinct one gets the next, so that whole chunks of them fit into arrays.

A dictionary of the whole values, hence exact. It is the one entry per distinct user that a worker keeps;
whatever is known of a user and an open timestamp goes by the number.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from operators.bulk import Fields, is_int64
from operators.partitioner import MANY
from operators.topology.model import Source

#: So many users are kept whether they are needed or not.
_FREE = 65_536
_FEW = 64


class _Numbers(dict[Any, int]):
    """By the value in JSON: numbers in the order of insertion; the values since the last ``take_new``."""

    def __init__(self) -> None:
        super().__init__()
        self.new: list[Any] = []

    def __missing__(self, user: Any) -> int:
        self.new.append(user)
        self[user] = number = len(self)
        return number


class Users:
    """The users that one source partition has met, those included that do not belong to it.

    Who is in no open timestamp is forgotten now and then, unless it was met since the last time: many users
    come again in the next timestamp.
    """

    def __init__(self, source: Source, partitions: int, partition: int) -> None:
        self._pointer, self._integers = source.user, source.user_type == "integer"
        self._partitions_of = MANY[source.partitioner]
        self._partitions, self._partition = partitions, partition
        self._numbers = _Numbers()
        self._belongs = np.zeros(_FEW, bool)
        self._met = np.zeros(_FEW, bool)
        self._asked = 0
        self._kept = _FREE // 2
        self._last: tuple[Fields, NDArray[np.int64]] | None = None

    def __len__(self) -> int:
        """The number of users."""
        return len(self._numbers)

    def of(self, fields: Fields) -> NDArray[np.int64]:
        """The numbers of the users that were read."""
        if self._last is None or self._last[0] is not fields:
            self._last = fields, self._of(fields)
        return self._last[1]

    def _of(self, fields: Fields) -> NDArray[np.int64]:
        users = fields.values(self._pointer)
        if self._integers and fields.integers(self._pointer) is None:
            # A float is equal to an integer, and beyond 64 bits the integer would have been a float.
            users = [user if is_int64(user) else None for user in users]
        found = np.fromiter(map(self._numbers.__getitem__, users), np.int64, len(users))
        self._learn()
        self._met[found] = True
        self._asked += len(found)
        return found

    def number(self, user: bytes) -> int:
        """The number of one user, given in canonical bytes."""
        found = self._numbers[int(user) if self._integers else user.decode()]
        self._learn()
        self._met[found] = True
        return found

    def belong(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of them are users, and of this partition."""
        return self._belongs[numbers]

    def _learn(self) -> None:
        """Find out about new users where they belong."""
        new, self._numbers.new = self._numbers.new, []
        if not new:
            return
        known, size = len(self._numbers) - len(new), len(self._numbers)
        self._belongs, self._met = _grown(self._belongs, size), _grown(self._met, size)
        # None stands for what is no user, and nobody is empty.
        keys = [b"%d" % user if type(user) is int else (user or "").encode() for user in new]
        self._belongs[known:size] = self._partitions_of(keys, self._partitions) == self._partition
        self._belongs[known:size] &= np.fromiter(map(bool, keys), bool, len(keys))

    @property
    def crowded(self) -> bool:
        """Whether it is time to forget: they have doubled, or many more events than users were met."""
        return len(self) > _FREE and (len(self) > 2 * self._kept or self._asked > 4 * len(self))

    def forget(self, needed: Iterable[NDArray[np.int64]]) -> NDArray[np.int64]:
        """Forget who is neither ``needed`` nor was met lately; the new numbers, at the old ones."""
        keep = self._met[: len(self)].copy()
        for numbers in needed:
            keep[numbers] = True
        kept = _Numbers()
        for user in compress(self._numbers, keep.tolist()):
            kept[user] = len(kept)
        self._belongs = _grown(self._belongs[: len(self)][keep], _FEW)
        self._numbers, self._last = kept, None
        self._met = np.zeros(len(self._belongs), bool)
        self._asked, self._kept = 0, len(kept)
        return np.cumsum(keep) - 1


def _grown(flags: NDArray[np.bool_], size: int) -> NDArray[np.bool_]:
    if size <= len(flags):
        return flags
    return np.concatenate([flags, np.zeros(max(size, 2 * len(flags)) - len(flags), bool)])
