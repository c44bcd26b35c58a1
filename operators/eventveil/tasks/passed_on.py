"""Re-keyed events as they stand in their topic: how they are written and read, a chunk at once.

Each record travels whole, with its place and append time in headers; the key that it had and its own headers
are among them, under names that no producer chooses. A header that is null travels too: it hides an earlier
one of its name, and without it the record would have another user. So do records without a user: the streams
say what is wrong with them. Marks say up to which append time all events of a partition have been passed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eventveil.decoding.bulk import BulkReader, Kind, are_some, lengths_of, packed_in, picked
from eventveil.decoding.packing import Header, PackedHeaders, PackedRecords, partitions_of
from eventveil.decoding.places import Envelope
from eventveil.decoding.rules import UserFinder
from eventveil.model import fields
from eventveil.model.errors import StateRefused
from eventveil.model.partitioners import murmur2_partition
from eventveil.model.records import (
    NO_KEY,
    NO_OWN_TIME,
    Chosen,
    Chunk,
    Headers,
    Mark,
    Outgoing,
    Schemas,
    TopicPartition,
)
from eventveil.model.topology import Source
from eventveil.process import kernel
from eventveil.topology.counts import LARGEST_REKEYED


class _Names(NamedTuple):
    """The names of headers, as the kernel asks for them."""

    partition: str = "eventveil.partition"
    offset: str = "eventveil.offset"
    #: When the event was appended.
    time: str = "eventveil.timestamp"
    #: The time that a record carried, where a stream asks for it: never one at which it was appended.
    own_time: str = "eventveil.own-time"
    key: str = "eventveil.key"
    #: Of a mark, up to when.
    passed: str = "eventveil.passed"
    #: What stands before the names of headers that a record had.
    prefix: str = "eventveil.headers/"


_NAMES = _Names()
_PARTITION, _OFFSET, _TIME, _OWN_TIME, _KEY, _PASSED, _OWN = _NAMES
#: Headers that are longer, all together, are not carried, and neither is the value of their record.
_LARGEST_HEADERS = 1_000_000
#: In place of a longer value, which might not be writable: no event either, and no dead letter copies it.
_STAND_IN = bytes(LARGEST_REKEYED + 1)
#: Up to this size, with its headers and the user that is in it once more, a record is carried as it is.
_USUAL = LARGEST_REKEYED // 4
#: So few records cost less one by one.
_FEW = 10
#: Columns are cut where a record has to be looked at alone; where that is more often, all are. Each piece is
#: a batch of its own in each partition, and batches are sent one after the other.
_PIECES = 8

Integers = NDArray[np.int64]


class PassedOn(PackedRecords):
    """Events of consecutive records of one partition, each with the partition that it goes to."""

    #: They do not ask how many partitions the topic has: each has one.
    partition = 0

    def __init__(self, numbers: Integers, *parts: Any) -> None:
        super().__init__(*parts)
        self._numbers = numbers

    def partitions(self, count: int) -> Integers:
        """See ``Columns.partitions``: whatever the count, the partition that each was given."""
        return self._numbers

    def _each_partition(self) -> Iterator[int]:
        return iter(self._numbers.tolist())

    def where(self, chosen: Chosen) -> PassedOn:
        """See ``Columns.where``."""
        return PassedOn(self._numbers[chosen], *self._chosen(chosen))


class Passing:
    """Makes of records of ``source`` what is passed on to ``partitions`` partitions.

    ``here`` is the partition that they are read from. ``own_times``: they bring along the times that they
    carried.
    """

    def __init__(self, source: Source, here: int, partitions: int, *, own_times: bool) -> None:
        self._topic, self._own_times = source.topic, own_times
        self._here, self._partitions = here, partitions
        # The topic of events may have got more partitions than there are to go to.
        self._without_user = here % partitions
        self._find_user = UserFinder(source)
        self._pointer = source.first_user
        self._reader = BulkReader(_wanted(source), LARGEST_REKEYED, source.format)

    def of(self, chunk: Chunk, append_times: Integers) -> Iterator[PassedOn | Outgoing]:
        """All records of a chunk, in their order; ``append_times`` are theirs, in epoch milliseconds."""
        number, alone = len(chunk.offsets), self._alone(chunk)
        if number < _FEW or np.count_nonzero(np.diff(alone)) > _PIECES:
            alone[:] = True
        usual = None if alone.all() else self._together(chunk, append_times, alone)
        edges = [0, *(np.flatnonzero(np.diff(alone)) + 1).tolist(), number]
        for begin, end in pairwise(edges):
            if usual is None or alone[begin]:
                yield from (self._one(chunk, row, int(append_times[row])) for row in range(begin, end))
            else:
                yield usual if end - begin == number else usual.where(slice(begin, end))

    def _alone(self, chunk: Chunk) -> NDArray[np.bool_]:
        """Which records may be too large to be passed on as they are."""
        headers: Integers = np.zeros(len(chunk.offsets), np.int64)
        if isinstance(chunk.headers, PackedHeaders):
            headers = chunk.headers.sizes(len(_OWN))
        elif chunk.headers:
            headers = np.fromiter(map(_size_of, chunk.headers), np.int64, len(headers))
        sizes = lengths_of(chunk.values) + lengths_of(chunk.keys) + headers
        alone: NDArray[np.bool_] = (sizes > _USUAL) | (headers > _LARGEST_HEADERS)
        return alone

    def _together(self, chunk: Chunk, append_times: Integers, alone: NDArray[np.bool_]) -> PassedOn:
        """All records as columns; what it says of those that are looked at alone means nothing."""
        number = len(chunk.offsets)
        users = self._users(chunk, append_times, alone)
        headers = [
            Header(_PARTITION, np.full(number, self._here)),
            Header(_OFFSET, np.array(chunk.offsets, np.int64)),
            Header(_TIME, append_times),
            *self._own_time(chunk),
        ]
        if are_some(chunk.keys):
            headers.append(Header(_KEY, np.arange(number), chunk.keys))
        found = partitions_of(users, self._partitions)
        numbers = np.where(found == NO_KEY, self._without_user, found)
        return PassedOn(numbers, self._topic, users, chunk.values, headers, chunk.headers, _OWN)

    def _users(
        self, chunk: Chunk, append_times: Integers, alone: NDArray[np.bool_]
    ) -> Sequence[bytes | None]:
        """The user of each record, or None."""
        users: list[bytes | None] = [None] * len(chunk.offsets)
        unsure = ~alone
        for part in self._reader.read(chunk.values, schemas=chunk.schemas):
            for row, user in zip(
                part.rows.tolist(), part.canonical(self._pointer, np.arange(len(part.rows))), strict=True
            ):
                if user:
                    users[row], unsure[row] = user, False
            unsure[part.broken] = False
        for row in np.flatnonzero(unsure).tolist():
            envelope = self._envelope(chunk, row, int(append_times[row]))
            users[row] = self._user(chunk.values[row], envelope, chunk.schemas)
        return users

    def _own_time(self, chunk: Chunk) -> list[Header]:
        if not self._own_times or not len(chunk.own_times):
            return []
        times = np.array(chunk.own_times, np.int64)
        if (times != NO_OWN_TIME).all():
            return [Header(_OWN_TIME, times)]
        texts = [None if time == NO_OWN_TIME else b"%d" % time for time in times.tolist()]
        return [Header(_OWN_TIME, np.arange(len(texts)), texts)] if are_some(texts) else []

    def _envelope(self, chunk: Chunk, row: int, append_time: int) -> Envelope:
        headers = (chunk.headers[row] if len(chunk.headers) else None) or ()
        own_time = chunk.own_times[row] if self._own_times and len(chunk.own_times) else NO_OWN_TIME
        return Envelope(chunk.keys[row], headers, append_time, own_time)

    def _one(self, chunk: Chunk, row: int, append_time: int) -> Outgoing:
        envelope, value = self._envelope(chunk, row, append_time), chunk.values[row]
        own = [(_OWN + name, header) for name, header in envelope.headers]
        if sum(len(name.encode()) + len(header or b"") for name, header in own) > _LARGEST_HEADERS:
            own, value = [], None if value is None else _STAND_IN
        if value is not None and len(value) > LARGEST_REKEYED:
            value = _STAND_IN
        user, key = self._user(value, envelope, chunk.schemas), envelope.key
        parts = value, user, key, *(one for _, one in own)
        if sum(len(one or b"") for one in parts) > LARGEST_REKEYED:
            # Together they might not be writable, and the partition would be stuck behind one event.
            value, user, own = _STAND_IN, None, []
            key = key if len(key or b"") <= _LARGEST_HEADERS else None
        headers = [
            (_PARTITION, b"%d" % self._here),
            (_OFFSET, b"%d" % chunk.offsets[row]),
            (_TIME, b"%d" % append_time),
        ]
        if envelope.own_time != NO_OWN_TIME:
            headers.append((_OWN_TIME, b"%d" % envelope.own_time))
        if key is not None:
            headers.append((_KEY, key))
        partition = self._without_user if user is None else murmur2_partition(user, self._partitions)
        return Outgoing(self._topic, value, user, partition, (*headers, *own))

    def _user(self, value: bytes | None, envelope: Envelope, schemas: Schemas) -> bytes | None:
        return self._find_user.read(value, envelope, schemas, LARGEST_REKEYED)


def _size_of(headers: Headers | None) -> int:
    """As ``PackedHeaders.sizes``."""
    return sum(len(_OWN) + len(name.encode()) + len(value or b"") for name, value in headers or ())


def _wanted(source: Source) -> dict[str, Kind] | None:
    """Where a value has the user, or has it first; None where only the rule finds it."""
    return {source.first_user: source.user_type} if fields.is_pointer(source.first_user) else None


def mark(topic: str, partition: int, passed: int, to: int) -> Outgoing:
    """Says in partition ``to`` that all events of ``partition`` appended before ``passed`` were passed on."""
    return Outgoing(topic, None, None, to, [(_PARTITION, b"%d" % partition), (_PASSED, b"%d" % passed)])


def read_passed_on(chunk: Chunk) -> tuple[Chunk, Integers, list[Mark]]:
    """The events of a re-keyed chunk as they were before, where each comes from, and the marks.

    Origins are rows of append time (the broker's), partition and offset: of one user's events in the order
    in which they count. Raises StateRefused for a record that nobody but this program can have written.
    """
    if kernel.NATIVE is not None and isinstance(chunk.headers, PackedHeaders):
        headers = chunk.headers
        found = kernel.NATIVE.passed_on(headers.found, headers.records, _NAMES, NO_OWN_TIME)
        if found is not None:
            return _from_kernel(chunk, headers, found)
    return _one_by_one(chunk)


def _from_kernel(chunk: Chunk, headers: PackedHeaders, found: Any) -> tuple[Chunk, Integers, list[Mark]]:
    places, origins, own_times, keys, marks, has_own = found
    rows, origins = np.frombuffer(places, np.int64), np.frombuffer(origins, np.int64).reshape(-1, 3)
    chosen = replace(
        chunk,
        offsets=np.array(chunk.offsets, np.int64)[rows].tolist(),
        append_times=origins[:, 0].tolist(),
        keys=packed_in(headers.found.data, *keys),
        values=picked(chunk.values, rows),
        headers=_OwnHeaders(headers.found, headers.records[rows]) if has_own else (),
        own_times=np.frombuffer(own_times, np.int64).tolist(),
    )
    return chosen, origins, [Mark(*one) for one in marks]


class _OwnHeaders(PackedHeaders):
    """The headers that events had before they were re-keyed."""

    def texts(self, name: str) -> Sequence[bytes | None]:
        """See ``PackedHeaders.texts``."""
        return super().texts(_OWN + name)

    def _of(self, record: int) -> Headers:
        return _own_headers(super()._of(record))


def _one_by_one(chunk: Chunk) -> tuple[Chunk, Integers, list[Mark]]:
    events: list[int] = []
    keys: list[bytes | None] = []
    own: list[Headers] = []
    numbers: list[int] = []
    own_times: list[int] = []
    marks: list[Mark] = []
    every: Sequence[Headers | None] = chunk.headers or [None] * len(chunk.offsets)
    for index, headers in zip(range(len(chunk.offsets)), every, strict=True):
        found = dict(headers or ())
        try:
            if _PASSED in found:
                marks.append(Mark(int(found[_PARTITION]), int(found[_PASSED])))
                continue
            numbers += int(found[_TIME]), int(found[_PARTITION]), int(found[_OFFSET])
            own_times.append(int(found.get(_OWN_TIME, NO_OWN_TIME)))
        except (KeyError, TypeError, ValueError):
            # A header may also be null: that is a TypeError.
            raise _foreign(chunk) from None
        events.append(index)
        keys.append(found.get(_KEY))
        own.append(_own_headers(headers or ()))
    try:
        origins = np.array(numbers, np.int64).reshape(-1, 3)
    except OverflowError:
        raise _foreign(chunk) from None
    chosen = replace(
        chunk,
        offsets=[chunk.offsets[index] for index in events],
        append_times=origins[:, 0].tolist(),
        keys=keys,
        values=[chunk.values[index] for index in events],
        headers=own if any(own) else (),
        own_times=own_times,
    )
    return chosen, origins, marks


def _own_headers(headers: Headers) -> Headers:
    return [(name.removeprefix(_OWN), value) for name, value in headers if name.startswith(_OWN)]


def _foreign(chunk: Chunk) -> StateRefused:
    # Without the offset, which goes to the log: the difference between two is an exact count.
    return StateRefused(
        str(TopicPartition(chunk.topic, chunk.partition)),
        "a record was not written by the re-keying stage",
        "Find out who else writes to this topic and revoke the right. Anyone with read access to the"
        f" topic can identify the record by its headers: all others have {_PARTITION} with {_OFFSET} and"
        f" {_TIME}, or with {_PASSED}",
    )
