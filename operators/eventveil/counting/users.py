"""Users: a number for each, and how often each has contributed to a timestamp.

Each distinct user gets the next number, so that whole chunks of them fit into arrays. Users are told apart by
their whole values. What is kept of one is its value, a place in a table and two flags; whatever is known of a
user and an open timestamp goes by the number.

The contribution bound: of each user, at most ``bound`` events per timestamp count, the first ones. It goes by
the numbers, which are exact: were it a hash that decided, a collision would let one user's presence remove
another's contribution, and the sensitivity would be twice the bound. Of re-keyed events those count that come
first at their origin: ``eventveil.counting.bounding_by_origin``.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.decoding.bulk import Fields, PlainNumbers, as_array
from eventveil.model.partitioners import MANY
from eventveil.model.topology import Source
from eventveil.process import kernel

#: This many users are kept whether they are needed or not.
_FREE = 65_536
_FEW = 64
#: The number of what is no user, and the first number of one.
_NOBODY, _FIRST = 0, 1

_SMALLEST_BITS = 4
_REBUILT_AT_ONCE = 1 << 16


class Users:
    """The users that one source partition has met, those included that do not belong to it.

    Users in no open timestamp are forgotten now and then, unless they were met since the last time: many
    come again in the next timestamp.
    """

    def __init__(self, source: Source, partitions: int, partition: int) -> None:
        # Where that is empty or missing the rule looks further.
        self._pointer, self._integers = source.first_user, source.user_type == "integer"
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
        return as_array(self.numbered(fields))

    def numbered(self, fields: Fields) -> Any:
        """The same in an array, or as the kernel has them."""
        key = self, self._epoch
        if key not in fields.known:
            fields.known[key] = self._of_fields(fields)
        return fields.known[key]

    def _of_fields(self, fields: Fields) -> Any:
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
        return as_array(self._of([int(user) if self._integers else user.decode() for user in users]))

    def _of(self, column: Any) -> Any:
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
        """Forget users neither ``needed`` nor met lately; the new numbers, at the old ones.

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

    def of(self, column: Any) -> Any:
        """The number of each, a new one for those who are new; they are met. For ``as_array``."""
        return self._native.of(column)

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


class Contributions:
    """The users who have contributed to one timestamp so far, in one source partition, and how often."""

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
            # Of several that claim a free place one gets it; the other keys move on, as at a taken place.
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
_FACTOR, _SHIFT, _SECOND = (np.uint64(secrets.randbits(64) | odd) for odd in (1, 0, 1))
_HALF = np.uint64(32)


def scatter(numbers: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """64 bits for each number, of which the upper ones are good.

    One multiplication would do for most numbers, but some factors let those at equal distances fall together.
    """
    once = numbers * _FACTOR + _SHIFT
    scattered: NDArray[np.uint64] = (once ^ once >> _HALF) * _SECOND
    return scattered
