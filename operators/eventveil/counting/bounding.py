"""The contribution bound: of each user, at most ``bound`` events per timestamp count, the first ones.

Users are told apart by their numbers (``eventveil.counting.users``), which are exact: were it a hash that
decided, a collision would let one user's presence remove another's contribution, and the sensitivity would be
twice the bound. Of re-keyed events those count that come first at their origin:
``eventveil.counting.bounding_by_origin``.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.decoding import kernel

_SMALLEST_BITS = 4
_REBUILT_AT_ONCE = 1 << 16


class Contributions:
    """Who has contributed to one timestamp so far, in one source partition, and how often."""

    def __init__(self, bound: int) -> None:
        #: In the compiled kernel, or in arrays, which are laid out alike.
        self._table: Any
        if kernel.NATIVE is None:
            self._table = PlainContributions(bound)
        else:
            self._table = kernel.NATIVE.Contributions(bound)
        # Metrics ask for it while another thread counts.
        self._users = 0

    def __len__(self) -> int:
        """The number of distinct users."""
        return self._users

    @property
    def bytes(self) -> int:
        """What its table takes."""
        size: int = self._table.bytes()
        return size

    def admit(self, users: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of these events, in the order in which they come, count; they are counted."""
        admitted = np.frombuffer(self._table.admit(users), bool)
        self._users = len(self._table)
        return admitted

    def users(self) -> NDArray[np.int64]:
        """The numbers of all users."""
        return np.frombuffer(self._table.users(), np.int64)

    def renumber(self, new_numbers: NDArray[np.int64]) -> None:
        """Let every user have its new number, found at its old one; distinct ones stay distinct."""
        self._table.renumber(new_numbers)


class PlainContributions:
    """``Contributions`` without the kernel.

    A hash table of user numbers with linear probing, a third to two thirds of it taken: 6 to 12 bytes a user,
    and half as much again for a ``bound`` of 256, more for larger ones.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._clear(_SMALLEST_BITS)

    def _clear(self, bits: int) -> None:
        self._users = 0
        self._bits = bits
        # A number plus one, or 0 where nobody is. Nobody holds four billion users in memory.
        self._table = np.zeros(1 << bits, np.uint32)
        # How often the user in the same place of the table has contributed; once, if the bound is 1.
        self._counted = np.zeros(1 << bits, np.min_scalar_type(self._bound)) if self._bound > 1 else None

    def __len__(self) -> int:
        return self._users

    def bytes(self) -> int:
        """See ``Contributions.bytes``."""
        return self._table.nbytes + (0 if self._counted is None else self._counted.nbytes)

    def admit(self, users: NDArray[np.int64]) -> NDArray[np.bool_]:
        """See ``Contributions.admit``."""
        # User and place in the order in one number: sorting those is faster than sorting indices by users.
        shift = len(users).bit_length()
        packed = np.sort(users << shift | np.arange(len(users)))
        order, ordered = packed & (1 << shift) - 1, packed >> shift
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        events = np.diff(starts, append=len(users))
        before = self._count(ordered[starts], events)
        admitted = np.empty(len(users), bool)
        admitted[order] = np.arange(len(users)) < np.repeat(starts + self._bound - before, events)
        return admitted

    def _count(self, users: NDArray[np.int64], events: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count events of distinct users up to the bound; how often each had contributed before."""
        self._make_room(len(users))
        places, fresh = self._enter((users + 1).astype(np.uint32))
        if self._counted is None:
            return (~fresh).astype(np.int64)
        before: NDArray[np.int64] = self._counted[places].astype(np.int64)
        self._counted[places] = np.minimum(before + events, self._bound)
        return before

    def _enter(self, keys: NDArray[np.uint32]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The places of distinct keys in the table, and which of them were not there yet."""
        places = (scatter(keys) >> np.uint64(64 - self._bits)).astype(np.int64)
        fresh = np.zeros(len(keys), bool)
        waiting = np.arange(len(keys))
        while waiting.size:
            at, wanted = places[waiting], keys[waiting]
            free = self._table[at] == 0
            # Of several that meet in a free place one stays, and the others go on with whom they do not fit.
            self._table[at[free]] = wanted[free]
            arrived = self._table[at] == wanted
            fresh[waiting[free & arrived]] = True
            waiting = waiting[~arrived]
            places[waiting] = places[waiting] + 1 & len(self._table) - 1
        self._users += int(np.count_nonzero(fresh))
        return places, fresh

    def _make_room(self, more: int) -> None:
        bits = self._bits
        while 3 * (self._users + more) > 2 << bits:
            bits += 1
        if bits > self._bits:
            self._rebuild(bits, None)

    def _rebuild(self, bits: int, new_numbers: NDArray[np.int64] | None) -> None:
        table, counted = self._table, self._counted
        self._clear(bits)
        for start in range(0, len(table), _REBUILT_AT_ONCE):
            part = slice(start, start + _REBUILT_AT_ONCE)
            taken = table[part] != 0
            users = table[part][taken].astype(np.int64) - 1
            users = users if new_numbers is None else new_numbers[users]
            events = (
                np.ones(len(users), np.int64) if counted is None else counted[part][taken].astype(np.int64)
            )
            self._count(users, events)

    def users(self) -> NDArray[np.int64]:
        """See ``Contributions.users``."""
        users: NDArray[np.int64] = self._table[self._table != 0].astype(np.int64) - 1
        return users

    def renumber(self, new_numbers: NDArray[np.int64]) -> None:
        """See ``Contributions.renumber``."""
        self._rebuild(self._bits, new_numbers)


#: Secret, and odd where they multiply.
_FIRST, _SHIFT, _SECOND = (np.uint64(secrets.randbits(64) | odd) for odd in (1, 0, 1))
_HALF = np.uint64(32)


def scatter(numbers: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """64 bits for each number, of which the upper ones are good.

    One multiplication would do for most numbers, but some factors let those at equal distances fall together.
    """
    once = numbers * _FIRST + _SHIFT
    scattered: NDArray[np.uint64] = (once ^ once >> _HALF) * _SECOND
    return scattered
