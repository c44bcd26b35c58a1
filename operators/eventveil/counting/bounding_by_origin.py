"""The contribution bound of re-keyed events: of each user, the ``bound`` earliest per timestamp count.

Re-keyed events of one user come from several partitions. Which of them is read first depends on what others
sent there, so it must not decide; an event that was read first gives way to an earlier one. What is held of a
timestamp are the events that count, so that their columns are its counts whenever it is closed.

A hash finds users, their numbers decide; origins are compared by all that they are. Both are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.counting.bounding_by_column import occurrences
from eventveil.counting.users import scatter

_SMALLEST = 16
_AT_ONCE = 1 << 16
_LARGEST = 2**63 - 1

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]


class Packing:
    """Origins in words that are in the same order, as few as the ranges of the three fields allow.

    ``ranges`` are the least and the largest value of append time, partition and offset. Almost always one
    word holds all: an hour in milliseconds and 100 partitions leave 2**35 offsets.
    """

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        bits = [(high - low).bit_length() for low, high in ranges]
        self._ranges = [
            (low, min(low + (1 << size) - 1, _LARGEST)) for (low, _), size in zip(ranges, bits, strict=True)
        ]
        self._lows = np.array([low % 2**64 for low, _ in ranges], np.uint64)
        self._masks = np.array([(1 << size) - 1 for size in bits], np.uint64)
        self._places: list[tuple[int, np.uint64]] = []
        word = used = 0
        for size in reversed(bits):
            if used + size > 64:
                word, used = word + 1, 0
            # A field that is always the same takes no bits, wherever it is.
            self._places.insert(0, (word, np.uint64(min(used, 63))))
            used += size
        self.words = word + 1

    def around(self, origins: Integers) -> Packing:
        """This one, if the origins fit into it, else one for them too.

        A range is doubled until it is large enough, so that what is held is packed anew a few times only.
        """
        ranges = []
        for (low, high), (least, largest) in zip(self._ranges, _ranges(origins), strict=True):
            if largest > high:
                high = min(low + (1 << (largest - low).bit_length()) - 1, _LARGEST)
            if least < low:
                low = max(high + 1 - (1 << (high - least).bit_length()), -_LARGEST - 1)
            ranges.append((low, high))
        return self if ranges == self._ranges else Packing(ranges)

    def pack(self, origins: Integers) -> Words:
        """Rows of words, the least significant one first."""
        packed = np.zeros((len(origins), self.words), np.uint64)
        for field, (word, shift) in enumerate(self._places):
            packed[:, word] |= origins[:, field].astype(np.uint64) - self._lows[field] << shift
        return packed

    def unpack(self, words: Words) -> Integers:
        """The origins again."""
        origins = np.empty((len(words), len(self._places)), np.int64)
        for field, (word, shift) in enumerate(self._places):
            distances = words[:, word] >> shift & self._masks[field]
            origins[:, field] = (distances + self._lows[field]).view(np.int64)
        return origins


def _ranges(origins: Integers) -> list[tuple[int, int]]:
    """The least and the largest value of each field."""
    return list(zip(origins.min(axis=0).tolist(), origins.max(axis=0).tolist(), strict=True))


class EarliestContributions:
    """Which events of one timestamp and source partition count so far, among ``columns`` columns.

    ``columns`` None: as many as there will be, with numbers below 2**32. An event is its origin: read twice,
    it counts once. An event takes 4 bytes for its user, 8 for its origin (16 or 24 if its ranges are very
    large), 1, 2 or 4 for its column and a sixteenth of that as room to grow; with a ``bound`` above 1 a link
    of 4 and a rank of 1 or more besides. A table of those indices finds the latest event of each user: half
    to two thirds of it are taken, so it takes 6 to 8 bytes a user.

    With ``per_column`` below ``bound`` at most that many of a user's events count in one column
    (``eventveil.counting.bounding_by_column``): the earliest of each column, and the earliest of these. Sets
    of events within both bounds are the independent sets of a matroid, so the earliest of all that came are
    the earliest of those held and the new ones, and their number never falls.
    """

    def __init__(self, bound: int, columns: int | None, per_column: int | None = None) -> None:
        self._bound, self._labels, self._per_column = bound, columns, per_column
        self._packing: Packing | None = None
        self._size = self._distinct = 0
        self._users = np.zeros(1, np.uint32)
        self._origins = np.zeros((1, 1), np.uint64)
        self._columns = np.zeros(1, np.uint32 if columns is None else np.min_scalar_type(columns - 1))
        # Of the same user: the index of the next earlier event plus one, and how many are not later.
        self._earlier = np.zeros(1 if bound > 1 else 0, np.uint32)
        self._ranks = np.zeros(1 if bound > 1 else 0, np.min_scalar_type(bound))
        # The index of a user's latest event plus one, or 0 where nobody is.
        self._table = np.zeros(_SMALLEST, np.uint32)

    def __len__(self) -> int:
        """The number of distinct users."""
        return self._distinct

    @property
    def nbytes(self) -> int:
        """What all of this takes, in bytes."""
        return sum(one.nbytes for one in (*self._arrays(), self._table))

    def _arrays(self) -> Iterator[NDArray[np.generic]]:
        yield from (self._users, self._origins, self._columns, self._earlier, self._ranks)

    @property
    def size(self) -> int:
        """How many events count."""
        return self._size

    def counts(self, columns: int | None = None) -> Integers:
        """The number of events that count, by column; ``columns``: how many there are, if nobody said."""
        number = columns if self._labels is None else self._labels
        assert number is not None, "nobody said how many columns there are"
        counts = np.zeros(number, np.int64)
        for part in _parts(self._size):
            counts += np.bincount(self._columns[part], minlength=number)
        return counts

    def renumber_columns(self, new_numbers: Integers) -> None:
        """Columns have new numbers, found at their old ones."""
        for part in _parts(self._size):
            self._columns[part] = new_numbers[self._columns[part]]

    def admit(self, users: Integers, origins: Integers, columns: Integers) -> NDArray[np.bool_]:
        """Take in events, in the order in which they come; for which the number that counts has grown.

        ``origins`` are rows of append time, partition and offset, which order the events of a user.
        """
        grown = np.zeros(len(users), bool)
        words = self._pack(origins)
        arrivals = np.lexsort((*words.T, users))
        starts, groups = _runs(users[arrivals])
        users, words, columns = users[arrivals[starts]], words[arrivals], columns[arrivals]
        places, latest = self._find(users)
        before = self._rank(latest)
        # Held events that may give way come again, in front of new ones of the same origin.
        owners, held, below = self._giving_way(words[starts], latest)
        if held.size:
            groups = np.concatenate([owners, groups])
            words = np.concatenate([self._origins[held], words])
            columns = np.concatenate([self._columns[held], columns])
            arrivals = np.concatenate([np.full(len(held), -1), arrivals])
            order = np.lexsort((*words.T, groups))
            groups, words, columns, arrivals = groups[order], words[order], columns[order], arrivals[order]
        first = _differs(groups)
        for word in words.T:
            first |= _differs(word)
        groups, words, columns, arrivals = groups[first], words[first], columns[first], arrivals[first]
        fits = self._fits(groups, columns, arrivals)
        grown[_first_to_come(groups[fits], arrivals[fits], self._bound - before)] = True
        fits = self._fits(groups, columns, np.arange(len(groups)))
        groups, words, columns = groups[fits], words[fits], columns[fits]
        ranks = self._rank(below)[groups] + _positions(groups) + 1
        kept = ranks <= self._bound
        groups, words, columns, ranks = groups[kept], words[kept], columns[kept], ranks[kept]
        # No fewer than before: in their places, and behind all others.
        indices = np.concatenate([held, self._take(len(groups) - len(held))])
        self._users[indices], self._origins[indices], self._columns[indices] = users[groups], words, columns
        if self._bound > 1:
            self._ranks[indices] = ranks
            self._earlier[indices] = 1 + np.where(_differs(groups), below[groups], np.roll(indices, 1))
        # They ascend in each group: the last one is written last.
        latest[groups] = indices
        self._point(users, places, latest, before == 0)
        return grown

    def _fits(self, groups: Integers, columns: Integers, order: Integers) -> NDArray[np.bool_] | slice:
        """Which events are among the first of their group and column, in this order; see ``per_column``."""
        if self._per_column is None:
            return slice(None)
        arranged = np.lexsort((order, columns, groups))
        fits = np.empty(len(groups), bool)
        fits[arranged] = occurrences(columns[arranged], groups[arranged]) < self._per_column
        return fits

    def _pack(self, origins: Integers) -> Words:
        known = self._packing
        packing = Packing(_ranges(origins)) if known is None else known.around(origins)
        if known is not packing:
            packed = self._origins
            if packed.shape[1] != packing.words:
                packed = np.zeros((len(packed), packing.words), np.uint64)
            if known is not None:
                for part in _parts(self._size):
                    packed[part] = packing.pack(known.unpack(self._origins[part]))
            self._packing, self._origins = packing, packed
        return packing.pack(origins)

    def _rank(self, indices: Integers) -> Integers:
        """How many events of its user are not later than each; 0 where the index is -1."""
        if self._bound == 1:
            return (indices >= 0).astype(np.int64)
        return np.where(indices >= 0, self._ranks[indices], 0).astype(np.int64)

    def _giving_way(self, words: Words, latest: Integers) -> tuple[Integers, Integers, Integers]:
        """Of each user all held events that are not earlier than the words, and the index below them, or -1.

        The former as indices of users and of events. Earlier ones may be among them, if origins take several
        words: of those the most significant one is compared. With ``per_column`` all come: which of them give
        way depends on the columns of earlier ones too.
        """
        below = latest.copy()
        owners, held = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        asked = np.flatnonzero(below >= 0)
        while asked.size:
            at = below[asked]
            if self._per_column is None:
                found = self._origins[at, -1] >= words[asked, -1]
                asked, at = asked[found], at[found]
            owners.append(asked)
            held.append(at)
            below[asked] = self._earlier[at].astype(np.int64) - 1 if self._bound > 1 else -1
            asked = asked[below[asked] >= 0]
        return np.concatenate(owners), np.concatenate(held), below

    def _take(self, more: int) -> Integers:
        """The indices of that many more events, behind all others."""
        start, self._size = self._size, self._size + more
        if self._size > len(self._users):
            for array in self._arrays():
                if array.size:
                    # In place where the system can do it; nobody else has a view.
                    array.resize((self._size + self._size // 16, *array.shape[1:]), refcheck=False)
        return np.arange(start, self._size)

    def _places(self, users: NDArray[np.uint32]) -> Integers:
        """Where in the table to begin to look."""
        upper = scatter(users) >> np.uint64(32)
        return (upper * np.uint64(len(self._table)) >> np.uint64(32)).astype(np.int64)

    def _find(self, users: Integers) -> tuple[Integers, Integers]:
        """Of distinct users the places in the table, free or theirs, and the index of the latest, or -1."""
        keys = users.astype(np.uint32)
        places = self._places(keys)
        latest = np.empty(len(users), np.int64)
        waiting = np.arange(len(users))
        while waiting.size:
            there = self._table[places[waiting]].astype(np.int64) - 1
            latest[waiting] = there
            waiting = waiting[(there >= 0) & (self._users[there] != keys[waiting])]
            places[waiting] = (places[waiting] + 1) % len(self._table)
        return places, latest

    def _point(self, users: Integers, places: Integers, latest: Integers, new: NDArray[np.bool_]) -> None:
        """Let the table point to the latest events of users."""
        self._table[places[~new]] = latest[~new] + 1
        self._distinct += int(np.count_nonzero(new))
        if 3 * self._distinct > 2 * len(self._table):
            # What the table does not know yet comes behind it.
            self._rebuild(max(3 * self._distinct // 2 + 1, len(self._table) * 4 // 3))
            places = self._places(users.astype(np.uint32))
        self._enter(places[new], latest[new])

    def _enter(self, places: Integers, latest: Integers) -> None:
        """Enter distinct users that are not in the table, from these places on."""
        waiting = np.arange(len(places))
        while waiting.size:
            at, wanted = places[waiting], latest[waiting] + 1
            free = self._table[at] == 0
            # Of several that claim a free place one gets it, and the others probe further.
            self._table[at[free]] = wanted[free]
            waiting = waiting[self._table[at] != wanted]
            places[waiting] = (places[waiting] + 1) % len(self._table)

    def _rebuild(self, size: int) -> None:
        table, self._table = self._table, np.zeros(size, np.uint32)
        for part in _parts(len(table)):
            latest = table[part][table[part] != 0].astype(np.int64) - 1
            self._enter(self._places(self._users[latest]), latest)

    def users(self) -> Integers:
        """The numbers of all users."""
        users: Integers = self._users[self._table[self._table != 0] - 1].astype(np.int64)
        return users

    def renumber(self, new_numbers: Integers) -> None:
        """See ``Contributions.renumber``."""
        for part in _parts(self._size):
            self._users[part] = new_numbers[self._users[part]]
        self._rebuild(len(self._table))


def _parts(size: int) -> Iterator[slice]:
    return (slice(start, min(start + _AT_ONCE, size)) for start in range(0, size, _AT_ONCE))


def _differs(ordered: NDArray[Any]) -> NDArray[np.bool_]:
    """Which of them are not equal to the one before."""
    differs = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=differs[1:])
    return differs


def _runs(ordered: Integers) -> tuple[Integers, Integers]:
    """Where equal ones begin, and for each the index of its run."""
    differs = _differs(ordered)
    return np.flatnonzero(differs), np.cumsum(differs) - 1


def _positions(groups: Integers) -> Integers:
    """The position of each in its group; equal groups stand together."""
    starts, runs = _runs(groups)
    return np.arange(len(groups)) - starts[runs]


def _first_to_come(groups: Integers, arrivals: Integers, room: Integers) -> Integers:
    """Of each group the first arrivals, as many as it has room for; -1 is none."""
    new = (arrivals >= 0) & (room[groups] > 0)
    shift = int(arrivals.max(initial=0)).bit_length()
    packed = np.sort(groups[new] << shift | arrivals[new])
    came = packed >> shift
    arrived: Integers = packed[_positions(came) < room[came]] & (1 << shift) - 1
    return arrived
