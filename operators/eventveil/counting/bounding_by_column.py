"""A second contribution bound: of a user's events at a timestamp, some of each column, and some in all.

**Rule.** An event counts if, of the events of its user at its timestamp, fewer than ``per_column`` of its
column and fewer than ``bound`` in all have counted. So of each column the first ``per_column`` events are
left, and of these the first ``bound`` count: an event after those of its column could not count, for either
they counted, or ``bound`` others had. What counts is a function of the user's own events and their order.

It goes by the numbers of users and columns, which are exact, as ``eventveil.counting.users`` does; the column
is the one that counts, whatever the event called it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eventveil.counting.users import Contributions

Integers = NDArray[np.int64]

#: A number of a user has this many bits at most; beside it there is room for that of a column.
_USER_BITS = 32
_USER = (1 << _USER_BITS) - 1


class ColumnContributions:
    """``Contributions`` with at most ``per_column`` of ``bound`` events in one column, in plain Python.

    It holds a number for each user and column with an event that counts, so at most one for each such event.
    """

    def __init__(self, bound: int, per_column: int) -> None:
        self._in_all, self._per_column = Contributions(bound), per_column
        # How many count, by column and user: the lower bits, which find a place, are those of many users.
        self._counted: dict[int, int] = {}

    def __len__(self) -> int:
        """The number of distinct users."""
        return len(self._in_all)

    def admit(self, users: Integers, columns: Integers) -> NDArray[np.bool_]:
        """Which of these events, in the order in which they come, count; they are counted."""
        pairs = columns << _USER_BITS | users
        distinct, place = np.unique(pairs, return_inverse=True)
        before = np.fromiter(
            (self._counted.get(one, 0) for one in distinct.tolist()), np.int64, len(distinct)
        )
        left = before[place] + occurrences(pairs) < self._per_column
        admitted = np.zeros(len(users), bool)
        admitted[left] = self._in_all.admit(users[left])
        found, events = np.unique(pairs[admitted], return_counts=True)
        for pair, more in zip(found.tolist(), events.tolist(), strict=True):
            self._counted[pair] = self._counted.get(pair, 0) + more
        return admitted

    def users(self) -> Integers:
        """The numbers of all users."""
        return self._in_all.users()

    def renumber(self, new_numbers: Integers) -> None:
        """See ``Contributions.renumber``."""
        self._in_all.renumber(new_numbers)
        self._counted = {
            pair & ~_USER | int(new_numbers[pair & _USER]): events for pair, events in self._counted.items()
        }


def occurrences(*keys: NDArray[np.generic]) -> Integers:
    """Of each of several things, given by ``keys``, how many that are equal stand before it."""
    order = np.lexsort(keys)
    differs = np.ones(len(order), bool)
    differs[1:] = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    starts = np.flatnonzero(differs)
    found = np.empty(len(order), np.int64)
    found[order] = np.arange(len(order)) - starts[np.cumsum(differs) - 1]
    return found
