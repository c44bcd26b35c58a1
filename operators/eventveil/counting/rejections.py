"""Why rows of a chunk do not count, in columns, and the dead letters that tell it.

``Validator`` judges many records at once that certainly cannot count, with the reasons and details of
``Assigner.verdict``. A client that sends one malformed event may send a hundred thousand. Nobody else must
wait for them much longer than for as many good ones. Bulk decoding has read fields of the right kinds; what
is wrong with such an event is the first of: its column, its time, its partition, where its time lies. Where
that is not certain, nothing is said, and the record is put to the rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from eventveil.counting.boundaries import Boundaries
from eventveil.counting.users import Users
from eventveil.decoding.bulk import UNSURE, UNSURE_TIME, Fields, picked
from eventveil.decoding.rules import Decoder, Reason, Rejection, unknown_column
from eventveil.model import timeline
from eventveil.model.records import NO_APPEND_TIME, Chunk, Headers, Outgoing
from eventveil.model.topology import Stream

_Rows = NDArray[np.int64]
_Header = tuple[str, bytes]

REASONS = tuple(Reason)
#: By identity, for the hash of a member of an enumeration is a call.
_CODES = {id(reason): code for code, reason in enumerate(REASONS)}
_NONE = np.zeros(0, np.int64)
#: A key and value that are larger than this are not copied into their dead letter.
_LARGEST_LETTER = 8_000_000


class Rejections:
    """Rows, each with a reason (its place in REASONS) and a detail."""

    __slots__ = ("codes", "details", "rows")

    def __init__(self, rows: _Rows = _NONE, codes: _Rows = _NONE, details: Sequence[str] = ()) -> None:
        self.rows, self.codes, self.details = rows, codes, details

    @classmethod
    def of(cls, rejections: Sequence[tuple[int, Rejection]]) -> Rejections:
        """These rows with what is wrong with each."""
        return cls(
            np.array([row for row, _ in rejections], np.int64),
            np.array([_CODES[id(rejection.reason)] for _, rejection in rejections], np.int64),
            [rejection.detail for _, rejection in rejections],
        )

    @classmethod
    def alike(cls, rows: _Rows, reason: Reason, details: Sequence[str]) -> Rejections:
        """Rows with one reason."""
        return cls(rows, np.full(len(rows), _CODES[id(reason)]), details)

    @classmethod
    def merged(cls, parts: Iterable[Rejections]) -> Rejections:
        """All of them, in the order of their rows."""
        parts = [part for part in parts if len(part)]
        if len(parts) <= 1:
            return parts[0] if parts else cls()
        rows = np.concatenate([part.rows for part in parts])
        order = np.argsort(rows)
        details = [detail for part in parts for detail in part.details]
        codes = np.concatenate([part.codes for part in parts])
        return cls(rows[order], codes[order], [details[at] for at in order.tolist()])

    def since(self, row: int) -> Rejections:
        """Those from a row on; they are in the order of their rows."""
        first = int(np.searchsorted(self.rows, row))
        return Rejections(self.rows[first:], self.codes[first:], self.details[first:]) if first else self

    def outcomes(self) -> Counter[str]:
        """How many there are, by reason."""
        counts = np.bincount(self.codes, minlength=len(REASONS)).tolist()
        return Counter({reason.value: count for reason, count in zip(REASONS, counts, strict=True) if count})

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[int, Rejection]]:
        for row, code, detail in zip(self.rows.tolist(), self.codes.tolist(), self.details, strict=True):
            yield row, Rejection(REASONS[code], detail)


class Letters:
    """The dead letters of one stream and chunk, each made when it is asked for: there may be very many.

    ``origins`` are those of re-keyed records, rows of append time, partition and offset.
    """

    def __init__(self, stream: Stream, chunk: Chunk, rejections: Rejections, origins: _Rows | None) -> None:
        self._stream, self._chunk, self._rejections, self._origins = stream, chunk, rejections, origins

    def __len__(self) -> int:
        return len(self._rejections)

    def __iter__(self) -> Iterator[Outgoing]:
        return self._made(self._rejections)

    def _made(self, rejections: Rejections) -> Iterator[Outgoing]:
        stream, rows = self._stream, rejections.rows
        reasons = [("eventveil.reason", reason.value.encode()) for reason in REASONS]
        name = ("eventveil.stream", stream.name.encode())
        topic = ("eventveil.topic", stream.source.topic_of_events.encode())
        keys, values = picked(self._chunk.keys, rows), picked(self._chunk.values, rows)
        # All of them are hardly ever as large as the largest that may be.
        all_fit = sum(map(len, filter(None, chain(keys, values)))) <= _LARGEST_LETTER
        columns = keys, values, rejections.codes.tolist(), rejections.details, *self._places(rows)
        for key, value, code, detail, partition, offset, append_time in zip(*columns, strict=True):
            headers: Headers = (
                reasons[code],
                ("eventveil.detail", detail.encode()),
                name,
                topic,
                partition,
                ("eventveil.offset", offset),
                append_time,
            )
            if not all_fit and len(key or b"") + len(value or b"") > _LARGEST_LETTER:
                # It could never be written, and the partition would be stuck behind one event.
                key, value = None, None
                left_out = f"{detail}; left out here for its size".encode()
                headers = (headers[0], ("eventveil.detail", left_out), *headers[2:])
            # What the class calls to make one: half of its time is spent on the way there.
            yield tuple.__new__(Outgoing, (stream.dead_letter, value, key, None, headers))

    def _places(self, rows: _Rows) -> tuple[Iterable[_Header], Iterable[bytes], Iterable[_Header]]:
        """Of the original records the header of the partition, the offset, the header of the append time."""
        partitions: Iterable[_Header]
        if self._origins is not None:
            times, partition, offsets = self._origins[rows].T
            partitions = _headers("eventveil.partition", partition)
        else:
            times, offsets = np.array(self._chunk.append_times)[rows], np.array(self._chunk.offsets)[rows]
            partitions = repeat(("eventveil.partition", b"%d" % self._chunk.partition), len(rows))
        return partitions, map(b"%d".__mod__, offsets.tolist()), _headers("eventveil.timestamp", times)


def _headers(name: str, numbers: _Rows) -> Iterator[_Header]:
    """A header for each number; neighbours are often alike."""
    told, header = None, (name, b"")
    for number in numbers.tolist():
        if number != told:
            told, header = number, (name, b"%d" % number)
        yield header


class DeadLetters:
    """Dead letters of several streams and chunks, made while somebody goes through them."""

    def __init__(self, parts: Iterable[Letters]) -> None:
        self._parts = [*parts]

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[Outgoing]:
        return chain.from_iterable(self._parts)


#: Why events were refused by their time, by append times and by boundaries.
AHEAD, LATE = "%d ms ahead of the append time", "appended %d ms after the deadline of %d"
BEYOND = "%d ms beyond max_ahead after the next boundary"
BEHIND = "appended behind the boundary of %d"

_Array = NDArray[np.int64]


class Read:
    """What bulk decoding has read of some rows of a chunk, found at ``at`` in the fields of a part."""

    def __init__(
        self, fields: Fields, at: _Array, columns: _Array, times: _Array, offsets: _Array, appended: _Array
    ) -> None:
        """``columns`` and ``times`` are those of the part, ``offsets`` and ``appended`` of the chunk."""
        self.fields, self.at = fields, at
        self._all = columns, times, offsets, appended

    def where(self, chosen: NDArray[np.bool_]) -> Read:
        """Those that a mask chooses."""
        return Read(self.fields, self.at[chosen], *self._all)

    @property
    def rows(self) -> _Array:
        """Their places in the chunk."""
        return self.fields.rows[self.at]

    @property
    def columns(self) -> _Array:
        """Their columns, UNSURE where bulk decoding has found none."""
        return self._all[0][self.at]

    @property
    def times(self) -> _Array:
        """Their times, UNSURE_TIME where bulk decoding has found none."""
        return self._all[1][self.at]

    @property
    def offsets(self) -> _Array:
        """Their offsets."""
        return self._all[2][self.rows]

    @property
    def appended(self) -> _Array:
        """Their append times."""
        return self._all[3][self.rows]


class Validator:
    """Judges for one stream in one source partition.

    ``first`` is the first timestamp of the stream; before ``grown`` the source had fewer partitions.
    """

    def __init__(self, stream: Stream, first: int, grown: int, decoder: Decoder, users: Users) -> None:
        self._stream, self._first, self._grown = stream, first, grown
        self._captured = stream.source.append_time == "boundary"
        self._decoder, self._users = decoder, users

    def __call__(self, read: Read, following: int, boundaries: Boundaries | None) -> Iterator[Rejections]:
        """The rows that certainly cannot count; ``following`` is the next timestamp to close."""
        named = self._users.are_some(read.fields)[read.at]
        if boundaries is None:
            named &= read.appended != NO_APPEND_TIME
        read = read.where(named)
        unsure = read.columns == UNSURE
        if unsure.any():
            yield self._by_column(read.where(unsure))
            read = read.where(~unsure)
        unsure = read.times == UNSURE_TIME
        if unsure.any():
            yield self._by_time(read.where(unsure))
            read = read.where(~unsure)
        if self._grown:
            read = read.where(timeline.timestamp_of(self._stream.timeline, read.times) >= self._grown)
        here = self._users.belong(self._users.of(read.fields)[read.at])
        if not here.all():
            yield self._by_partition(read.where(~here))
            read = read.where(here)
        if read.at.size:
            yield from self._by_place(read, following, boundaries)

    def _by_column(self, read: Read) -> Rejections:
        labels = read.fields.at(self._stream.source.column, read.at)
        return Rejections.alike(
            read.rows, Reason.UNKNOWN_COLUMN, [unknown_column(str(one)) for one in labels]
        )

    def _by_time(self, read: Read) -> Rejections:
        known: dict[str | int, int | Rejection] = {}
        found: list[tuple[int, Rejection]] = []
        for row, value in zip(
            read.rows.tolist(), read.fields.at(self._stream.source.time, read.at), strict=True
        ):
            # Of an integer beyond 64 bits the rule makes a float.
            if isinstance(value, int) and not -(2**63) <= value < 2**64:
                continue
            verdict = known.get(value)
            if verdict is None:
                verdict = known[value] = self._decoder.timed(value)
            if isinstance(verdict, Rejection):
                found.append((row, verdict))
        return Rejections.of(found)

    def _by_partition(self, read: Read) -> Rejections:
        users = self._users.canonical(read.fields, read.at)
        owners = self._users.partitions(users).tolist()
        details = {owner: wrong_partition(self._stream, owner) for owner in {*owners}}
        return Rejections.alike(read.rows, Reason.WRONG_PARTITION, [details[owner] for owner in owners])

    def _by_place(self, read: Read, following: int, boundaries: Boundaries | None) -> Iterator[Rejections]:
        """As ``Assigner.verdict``: too far ahead, before the origin, before the start, then too late."""
        rules = self._stream.timeline
        if boundaries is None:
            latest = timeline.latest_times(self._stream, self._first, read.appended)
        else:
            latest = boundaries.latest_times(read.offsets)
        text, since = (BEYOND, latest) if self._captured else (AHEAD, read.appended)
        far = read.times > latest
        yield _told(read.where(far), Reason.TOO_FAR_AHEAD, text, (read.times - since)[far])
        read = read.where(~far)
        timestamps = timeline.timestamp_of(rules, read.times)
        before = timestamps < 1
        early = read.where(before)
        yield _told(early, Reason.BEFORE_ORIGIN, "%d ms before the origin", rules.origin - early.times)
        read, timestamps = read.where(~before), timestamps[~before]
        before = timestamps < self._first
        text = f"timestamp %d is before {self._first}"
        yield _told(read.where(before), Reason.BEFORE_START, text, timestamps[before])
        read, timestamps = read.where(~before), timestamps[~before]
        if boundaries is None:
            yield from self._too_late(read, timestamps, following)
        else:
            late = (timestamps < following) | (read.offsets >= boundaries.ends_of(timestamps))
            yield _told(read.where(late), Reason.LATE, BEHIND, timestamps[late])

    def _too_late(self, read: Read, timestamps: _Array, following: int) -> Iterator[Rejections]:
        after = read.appended - timeline.deadline_of(self._stream.timeline, timestamps)
        late = after >= 0
        if self._captured:
            yield _told(read.where(late), Reason.LATE, BEHIND, timestamps[late])
        else:
            yield _told(read.where(late), Reason.LATE, LATE, after[late], timestamps[late])
        closed = ~late & (timestamps < following)
        text = "timestamp %d was closed before this was readable"
        yield _told(read.where(closed), Reason.AFTER_CLOSE, text, timestamps[closed])


def _told(read: Read, reason: Reason, text: str, *numbers: _Array) -> Rejections:
    """Rows with one reason, and a text with numbers of each."""
    columns = [column.tolist() for column in numbers]
    return Rejections.alike(read.rows, reason, [text % told for told in zip(*columns, strict=True)])


def wrong_partition(stream: Stream, owner: int) -> str:
    """What is wrong with an event of a user who belongs to another partition, or with a count."""
    if stream.source.count is not None:
        return (
            f"{stream.source.partitioner} of the column field gives partition {owner}; the engine must key by"
            " the column, with the partitioner of the topology"
        )
    return (
        f"{stream.source.partitioner} of the user field gives partition {owner}; "
        "producers must key by the user, with the partitioner of the topology"
    )
