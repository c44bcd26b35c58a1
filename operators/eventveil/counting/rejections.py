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
from itertools import accumulate, chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.counting.boundaries import Boundaries
from eventveil.counting.users import Users
from eventveil.decoding.bulk import UNSURE, UNSURE_TIME, Fields, Packed, distinct, lengths_of, picked
from eventveil.decoding.packing import Header, PackedRecords
from eventveil.decoding.rules import LONGEST_DETAIL, NOT_PUBLIC, Decoder, Reason, Rejection
from eventveil.model import timeline
from eventveil.model.fields import TIME, listed
from eventveil.model.records import NO_APPEND_TIME, Chunk, Records
from eventveil.model.topology import Stream

_Rows = NDArray[np.int64]
_Texts = Sequence[bytes | None]

REASONS = tuple(Reason)
#: By identity, because hashing a member of an enumeration is a call.
_CODES = {id(reason): code for code, reason in enumerate(REASONS)}
_NONE = np.zeros(0, np.int64)
#: A key and value that are larger than this are not copied into their dead letter.
_LARGEST_LETTER = 8_000_000


class Rejections:
    """Rows, each with a reason (its place in REASONS) and a detail (its place in ``texts``, in UTF-8)."""

    __slots__ = ("codes", "details", "rows", "texts")

    def __init__(
        self, rows: _Rows = _NONE, codes: _Rows = _NONE, details: _Rows = _NONE, texts: _Texts = ()
    ) -> None:
        self.rows, self.codes, self.details, self.texts = rows, codes, details, texts

    @classmethod
    def of(cls, rejections: Sequence[tuple[int, Rejection]]) -> Rejections:
        """These rows with what is wrong with each."""
        details, texts = distinct([rejection.detail.encode() for _, rejection in rejections])
        return cls(
            np.array([row for row, _ in rejections], np.int64),
            np.array([_CODES[id(rejection.reason)] for _, rejection in rejections], np.int64),
            details,
            texts,
        )

    @classmethod
    def alike(cls, rows: _Rows, reason: Reason, texts: _Texts, details: _Rows | None = None) -> Rejections:
        """Rows with one reason; ``details`` None: the first of ``texts`` is that of all of them."""
        details = np.zeros(len(rows), np.int64) if details is None else details
        return cls(rows, np.full(len(rows), _CODES[id(reason)]), details, texts)

    @classmethod
    def merged(cls, parts: Iterable[Rejections]) -> Rejections:
        """All of them, in the order of their rows."""
        parts = [part for part in parts if len(part)]
        if len(parts) <= 1:
            return parts[0] if parts else cls()
        rows = np.concatenate([part.rows for part in parts])
        order = np.argsort(rows)
        codes = np.concatenate([part.codes for part in parts])
        firsts = accumulate((len(part.texts) for part in parts), initial=0)
        details = np.concatenate([part.details + first for part, first in zip(parts, firsts, strict=False)])
        return cls(rows[order], codes[order], details[order], [*chain(*(part.texts for part in parts))])

    def since(self, row: int) -> Rejections:
        """Those from a row on; they are in the order of their rows."""
        first = int(np.searchsorted(self.rows, row))
        if not first:
            return self
        return Rejections(self.rows[first:], self.codes[first:], self.details[first:], self.texts)

    def outcomes(self) -> Counter[str]:
        """How many there are, by reason."""
        counts = np.bincount(self.codes, minlength=len(REASONS)).tolist()
        return Counter({reason.value: count for reason, count in zip(REASONS, counts, strict=True) if count})

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[tuple[int, Rejection]]:
        columns = self.rows.tolist(), self.codes.tolist(), self.details.tolist()
        for row, code, detail in zip(*columns, strict=True):
            yield row, Rejection(REASONS[code], (self.texts[detail] or b"").decode())


class Letters(PackedRecords):
    """Dead letters of one stream and chunk, in columns: there may be very many."""

    @classmethod
    def of(cls, stream: Stream, chunk: Chunk, rejections: Rejections, origins: _Rows | None) -> Letters:
        """``origins`` are those of re-keyed records, rows of append time, partition and offset."""
        rows = rejections.rows
        keys, values = picked(chunk.keys, rows), picked(chunk.values, rows)
        details, texts = rejections.details, rejections.texts
        large = np.flatnonzero(lengths_of(keys) + lengths_of(values) > _LARGEST_LETTER)
        if large.size:
            # They could never be written, and the partition would be stuck behind one event.
            keys, values = _without(keys, large), _without(values, large)
            told = [(texts[at] or b"") + b"; left out here for its size" for at in details[large].tolist()]
            details, texts = details.copy(), [*texts, *told]
            details[large] = np.arange(len(texts) - len(told), len(texts))
        if origins is None:
            times, offsets = np.array(chunk.append_times)[rows], np.array(chunk.offsets)[rows]
            partitions = np.full(len(rows), chunk.partition)
        else:
            times, partitions, offsets = origins[rows].T
        none = np.zeros(len(rows), np.int64)
        headers = (
            Header("eventveil.reason", rejections.codes, [reason.value.encode() for reason in REASONS]),
            Header("eventveil.detail", details, texts),
            Header("eventveil.stream", none, [stream.name.encode()]),
            Header("eventveil.topic", none, [stream.source.topic_of_events.encode()]),
            Header("eventveil.partition", partitions),
            Header("eventveil.offset", offsets),
            Header("eventveil.timestamp", times),
        )
        return cls(stream.dead_letter, keys, values, headers)


def _without(values: Sequence[bytes | None], rows: _Rows) -> Sequence[bytes | None]:
    """The same with None in these rows."""
    if isinstance(values, Packed):
        lengths = values.lengths.copy()
        lengths[rows] = -1
        return Packed(values.data, values.starts, lengths)
    left_out = {*rows.tolist()}
    return [None if row in left_out else value for row, value in enumerate(values)]


class DeadLetters(Records):
    """Dead letters of several streams and chunks, made while somebody goes through them."""

    parts: Sequence[Letters]

    def __init__(self, parts: Iterable[Letters]) -> None:
        super().__init__([*parts])

    def __len__(self) -> int:
        return sum(map(len, self.parts))


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
            # Which field of a combination has no name is for the rule to say.
            if len(listed(self._stream.source.column)) == 1:
                yield self._by_column(read.where(unsure))
            read = read.where(~unsure)
        unsure = read.times == UNSURE_TIME
        if unsure.any():
            # Why there is no time of a record is for the rule to say.
            if self._stream.source.time != TIME:
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
        field, decoder = self._stream.source.column, self._decoder
        if decoder.shows_columns:
            # They may all be different: where none is unusual, no Python object is made of each.
            texts = read.fields.quoted(field, read.at, NOT_PUBLIC, LONGEST_DETAIL)
            if texts is not None:
                return Rejections.alike(read.rows, Reason.UNKNOWN_COLUMN, texts, np.arange(len(texts)))
        details, labels = read.fields.distinct(field, read.at)
        told = (decoder.unknown_column(decoder.rename(str(label))) for label in labels)
        return Rejections.alike(read.rows, Reason.UNKNOWN_COLUMN, [*map(str.encode, told)], details)

    def _by_time(self, read: Read) -> Rejections:
        details, values = read.fields.distinct(self._stream.source.time, read.at)
        verdicts = [self._timed(value) for value in values]
        codes = np.array([-1 if one is None else _CODES[id(one.reason)] for one in verdicts], np.int64)
        codes = codes[details]
        sure, texts = codes >= 0, [b"" if one is None else one.detail.encode() for one in verdicts]
        return Rejections(read.rows[sure], codes[sure], details[sure], texts)

    def _timed(self, value: str | int) -> Rejection | None:
        """What is certainly wrong with the value of a time."""
        # Of an integer beyond 64 bits the rule makes a float.
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            return None
        verdict = self._decoder.timed(value)
        return verdict if isinstance(verdict, Rejection) else None

    def _by_partition(self, read: Read) -> Rejections:
        users = self._users.canonical(read.fields, read.at)
        owners, details = np.unique(self._users.partitions(users), return_inverse=True)
        texts = [wrong_partition(self._stream, owner).encode() for owner in owners.tolist()]
        return Rejections.alike(read.rows, Reason.WRONG_PARTITION, texts, details)

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
    if not read.at.size:
        return Rejections()
    columns: list[list[Any]] = [column.tolist() for column in numbers]
    details, told = distinct(columns[0] if len(columns) == 1 else [*zip(*columns, strict=True)])
    return Rejections.alike(read.rows, reason, [(text % one).encode() for one in told], details)


def wrong_partition(stream: Stream, owner: int) -> str:
    """What is wrong with an event of a user who belongs to another partition, or with a count."""
    source, what = stream.source, stream.source.keyed_by
    return (
        f"{source.partitioner} of the {what} field gives partition {owner}; {source.writers} must key by"
        f" the {what}, with the partitioner of the topology"
    )
