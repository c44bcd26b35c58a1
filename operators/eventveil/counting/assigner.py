"""Where records of one source partition count: at which timestamp, for which user and column, or why not.

``Assigner.verdict`` is the rule, for one record. ``Assigner.place`` finds at once those of many for which the
rule certainly says yes, or certainly no; it is asked for every other one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.counting.boundaries import Boundaries
from eventveil.counting.rejections import (
    AHEAD,
    BEHIND,
    BEYOND,
    LATE,
    Read,
    Rejections,
    Validator,
    wrong_partition,
)
from eventveil.counting.users import Users
from eventveil.decoding.bulk import (
    FILTERED,
    IGNORED,
    UNSURE,
    UNSURE_TIME,
    ColumnFinder,
    CombinedFinder,
    Fields,
    NameFinder,
    Sieve,
    as_array,
    passes_beside,
    picked,
)
from eventveil.decoding.packing import texts_at
from eventveil.decoding.places import MISSING, NO_ENVELOPE, TIME_LIMIT, Envelope
from eventveil.decoding.rules import NO_JSON, Decoder, Event, Reason, Rejection, parse, weigh
from eventveil.model import fields as places
from eventveil.model import timeline
from eventveil.model.partitioners import PARTITIONERS, Growth, PartitionCounts
from eventveil.model.records import NO_APPEND_TIME, NO_OWN_TIME, Headers, Schemas
from eventveil.model.topology import Source, Stream
from eventveil.process import kernel


@dataclass(slots=True)
class Rows:
    """Records of a chunk as columns of equal length; ``origins`` only of re-keyed ones.

    Those are rows of append time, partition and offset. ``parts`` are what bulk decoding is sure of, each row
    in one of them at most. ``shared``: more than one stream asks for the documents. ``keys``, ``headers`` and
    ``own_times`` may be empty where there are none. ``schemas`` are those of the chunk.
    """

    offsets: NDArray[np.int64]
    append_times: NDArray[np.int64]
    values: Sequence[bytes | None]
    parts: Sequence[Fields]
    origins: NDArray[np.int64] | None = None
    shared: bool = False
    keys: Sequence[bytes | None] = ()
    headers: Sequence[Headers | None] = ()
    schemas: Schemas = field(default_factory=dict)
    own_times: Sequence[int] = ()
    _documents: dict[int, Any] = field(default_factory=dict)
    _beside: dict[str, Sequence[bytes | None]] = field(default_factory=dict)

    def envelope(self, row: int) -> Envelope:
        """What is around the value of a row."""
        key = self.keys[row] if self.keys else None
        headers = self.headers[row] if self.headers else None
        own_time = self.own_times[row] if self.own_times else NO_OWN_TIME
        return Envelope(key, headers or (), int(self.append_times[row]), own_time)

    def beside(self, field: str) -> Sequence[bytes | None]:
        """The texts at a field around the values (``packing.texts_at``)."""
        if field not in self._beside:
            self._beside[field] = texts_at(field, self.keys, self.headers, len(self.offsets))
        return self._beside[field]

    def times(self, source: Source) -> NDArray[np.int64]:
        """What ``$time`` is by a source, or UNSURE_TIME."""
        if not source.own_time:
            return np.where(self.append_times == NO_APPEND_TIME, UNSURE_TIME, self.append_times)
        if not len(self.own_times):
            return np.full(len(self.offsets), UNSURE_TIME)
        found = np.array(self.own_times, np.int64)
        unsure = (found == NO_OWN_TIME) | (found <= -TIME_LIMIT) | (found >= TIME_LIMIT)
        return np.where(unsure, UNSURE_TIME, found)

    def documents(self, rows: NDArray[np.int64], max_bytes: int) -> Iterator[tuple[int, Any | Rejection]]:
        """These rows with what ``parse`` makes of their values.

        Each is parsed once for all streams, if there are several. Otherwise none is kept: the garbage
        collector would look through all of them.
        """
        for row, value in zip(rows.tolist(), picked(self.values, rows), strict=True):
            if value is None or len(value) > max_bytes:
                yield row, parse(value, max_bytes)
                continue
            document = self._documents.get(row, MISSING)
            if document is MISSING:
                document = parse(value, max_bytes)
                if self.shared:
                    self._documents[row] = document
            yield row, document


@dataclass(frozen=True, slots=True)
class AssignedEvent:
    """An event that is on time, and its timestamp."""

    event: Event
    timestamp: int


@dataclass(frozen=True, slots=True)
class AssignedRows:
    """Events on time: the indices of their rows, numbers of their users, columns or IGNORED, timestamps."""

    rows: NDArray[np.int64]
    users: NDArray[np.int64]
    columns: NDArray[np.int64]
    timestamps: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def arrays(self) -> tuple[NDArray[np.int64], ...]:
        """Rows, users, columns and timestamps."""
        return self.rows, self.users, self.columns, self.timestamps

    def where(self, chosen: NDArray[Any]) -> AssignedRows:
        """Those that a mask or indices choose."""
        if chosen.dtype == bool and chosen.all():
            return self
        return AssignedRows(
            self.rows[chosen], self.users[chosen], self.columns[chosen], self.timestamps[chosen]
        )


@dataclass(frozen=True, slots=True)
class Placed:
    """Events on time: those that are ``certain``, and others that were ``judged`` one by one.

    The certain ones are ``AssignedRows``, or as the kernel has them (its ``Placed``). Rows ascend in each,
    and none is in both.
    """

    certain: Any
    judged: AssignedRows

    def merged(self) -> AssignedRows:
        """All of them in arrays, in the order of their rows."""
        certain = _in_arrays(self.certain)
        return _merged([certain, self.judged]) if len(self.judged) else certain

    def for_kernel(self) -> tuple[Any, tuple[NDArray[np.int64], ...] | None]:
        """The same as the kernel takes them: its own ones or None, and the columns of all others or None."""
        if isinstance(self.certain, AssignedRows):
            return None, self.merged().arrays
        return self.certain, self.judged.arrays if len(self.judged) else None


class Assigner:
    """Places the events of one stream in one of ``partitions`` source partitions; ``grown`` had it fewer."""

    def __init__(
        self,
        stream: Stream,
        partitions: int,
        partition: int,
        first: int,
        users: Users,
        grown: Sequence[Growth] = (),
    ) -> None:
        self._stream = stream
        #: Whether append times are those of captures (``latest_times``).
        self._captured = stream.source.append_time == "boundary"
        self._partitions, self._partition, self._first = PartitionCounts(partitions, grown), partition, first
        self._users = users
        self._decoder = Decoder(stream.source, stream.counts)
        #: Of columns that are found in the data, in the chunk that was placed last.
        self.names = self._decoder.names
        self._find_columns = self._column_finder()
        since = self._partitions.since
        #: No earlier timestamp counts, or not in as many partitions.
        self._earliest = max(1, first, since)
        self._refuse = Validator(stream, first, since, self._decoder, users)
        self._partition_of = PARTITIONERS[stream.source.partitioner]
        self._in_bulk = stream.is_read_in_bulk
        source = stream.source
        inside = [one for one in source.filter if self._in_bulk and places.is_pointer(one.field)]
        self._sieve = Sieve(inside, source.max_bytes, source.format) if inside else None
        self._around = [one for one in source.filter if places.in_envelope(one.field)]
        self._native = None if users.native is None else _native_assigner(stream, first)

    def _column_finder(self) -> Callable[[Fields], Any]:
        source, counts = self._stream.source, self._stream.counts
        if self.names is not None:
            return NameFinder(source, self.names)
        return CombinedFinder(source, counts) if source.has_names else ColumnFinder(source, counts)

    def place(
        self, rows: Rows, start: int, following: int, boundaries: Boundaries | None
    ) -> tuple[Placed, Rejections]:
        """The events among the rows from index ``start`` on that are on time, and why the others are not.

        What the filter leaves out is among the first, with the column FILTERED, user 0 and timestamp 0.
        ``following`` is the next timestamp to close. ``boundaries`` is None where append times decide.
        """
        if self.names is not None:
            self.names.clear()
        # What bulk decoding has read is of streams without further rules.
        parts = rows.parts if self._in_bulk else ()
        passing, failing = (None, None) if self._sieve is None else self._sieve(rows.values, rows.schemas)
        around = self._passes_around(rows)
        if around is not None:
            passing = around if passing is None else passing & around
        read = [self._certain(rows, part, start, following, boundaries, passing) for part in parts]
        certain = read[0] if len(read) == 1 else _merged([*map(_in_arrays, read)])
        if len(certain) == len(rows.offsets) - start:
            return Placed(certain, _NOTHING), Rejections.merged([])
        asked = np.ones(len(rows.offsets), bool)
        asked[:start] = False
        asked[_rows_of(certain)] = False
        filtered: list[int] = []
        if around is not None:
            # Before the value is parsed, which may be of another format.
            filtered += np.flatnonzero(asked & ~around).tolist()
            asked[filtered] = False
        refused = [
            rejections
            for part in parts
            for rejections in self._refused(rows, part, asked, following, boundaries, passing)
        ]
        for rejections in refused:
            asked[rejections.rows] = False
        if failing is not None:
            # A record without the append time that it should have is refused before.
            timed = boundaries is not None or rows.append_times != NO_APPEND_TIME
            filtered += np.flatnonzero(asked & failing & timed).tolist()
            asked[filtered] = False
        one_by_one: list[tuple[int, Rejection]] = []
        events: list[tuple[int, AssignedEvent]] = []
        envelope = NO_ENVELOPE
        for row, document in self._documents(rows, np.flatnonzero(asked)):
            offset, append_time = int(rows.offsets[row]), int(rows.append_times[row])
            if self._decoder.reads_envelope:
                envelope = rows.envelope(row)
            verdict = self.verdict(offset, append_time, document, following, boundaries, envelope)
            if verdict is None:
                filtered.append(row)
            elif isinstance(verdict, Rejection):
                one_by_one.append((row, verdict))
            else:
                events.append((row, verdict))
        more = [*self._found(events), *_filtered(filtered)]
        placed = Placed(certain, _merged(more) if more else _NOTHING)
        return placed, Rejections.merged([*refused, Rejections.of(one_by_one)])

    def _documents(self, rows: Rows, chosen: NDArray[np.int64]) -> Iterator[tuple[int, Any | Rejection]]:
        """These rows with their documents; None in place of those that no rule looks into."""
        max_bytes = self._stream.source.max_bytes
        if self._decoder.reads_value:
            form = self._stream.source.format
            if form == "json":
                yield from rows.documents(chosen, max_bytes)
                return
            for row, value in zip(chosen.tolist(), picked(rows.values, chosen), strict=True):
                yield row, parse(value, max_bytes, form, rows.schemas)
            return
        for row, value in zip(chosen.tolist(), picked(rows.values, chosen), strict=True):
            yield row, weigh(value, max_bytes)

    def _found(self, events: Sequence[tuple[int, AssignedEvent]]) -> Iterator[AssignedRows]:
        """Events that were judged one by one; looking for many users at once is much faster."""
        if not events:
            return
        columns = [IGNORED if one.event.column is None else one.event.column for _, one in events]
        timestamps = [one.timestamp for _, one in events]
        users = self._users.numbers([one.event.user for _, one in events])
        rows = np.array([row for row, _ in events], np.int64)
        yield AssignedRows(rows, users, np.array(columns, np.int64), np.array(timestamps, np.int64))

    def _passes_around(self, rows: Rows) -> NDArray[np.bool_] | None:
        """Which rows pass the conditions on the record around the value; None if there are none."""
        if not self._around:
            return None
        if not all(places.is_text(one.field) for one in self._around):
            passes = self._decoder.filter.passes_around
            return np.array([passes(rows.envelope(row)) for row in range(len(rows.offsets))], bool)
        passing = np.ones(len(rows.offsets), bool)
        for one in self._around:
            passing &= passes_beside(one, rows.beside(one.field))
        return passing

    def _times(self, rows: Rows, fields: Fields) -> NDArray[np.int64]:
        """Epoch milliseconds of what was read, or UNSURE_TIME."""
        source = self._stream.source
        return fields.times(source.time) if source.time != places.TIME else rows.times(source)[fields.rows]

    def _certain(
        self,
        rows: Rows,
        fields: Fields,
        start: int,
        following: int,
        boundaries: Boundaries | None,
        passing: NDArray[np.bool_] | None,
    ) -> Any:
        """Of what was read, that which is certainly on time, as ``Placed.certain``.

        ``passing``: which rows certainly pass the filter; None where there is none.
        """
        # Users are known by the partition that they have now.
        earliest = max(self._earliest, following)
        if self._native is None:
            return self._on_time(rows, fields, start, earliest, boundaries, passing)
        clock = (rows.append_times, None) if boundaries is None else (rows.offsets, boundaries.columns)
        source = self._stream.source
        times = self._times(rows, fields) if source.time == places.TIME else fields.timed(source.time)
        users = self._users.numbered(fields)
        read = fields.rows, users, self._passing_columns(fields, passing), times
        return self._native.place(self._users.native, read, clock, (start, earliest))

    def _on_time(
        self,
        rows: Rows,
        fields: Fields,
        start: int,
        earliest: int,
        boundaries: Boundaries | None,
        passing: NDArray[np.bool_] | None,
    ) -> AssignedRows:
        """The same in arrays."""
        rules, times = self._stream.timeline, self._times(rows, fields)
        columns = as_array(self._passing_columns(fields, passing))
        read = AssignedRows(fields.rows, self._users.of(fields), columns, times)
        sure = self._users.belong(read.users) & (read.columns != UNSURE) & (times != UNSURE_TIME)
        sure &= read.rows >= start
        read, times = read.where(sure), times[sure]
        timestamps = timeline.timestamp_of(rules, times)
        on_time = timestamps >= earliest
        if boundaries is None:
            append_times = rows.append_times[read.rows]
            on_time &= append_times != NO_APPEND_TIME
            on_time &= times <= timeline.latest_times(self._stream, self._first, append_times)
            on_time &= append_times < timeline.deadline_of(rules, timestamps)
        else:
            on_time &= boundaries.admit(rows.offsets[read.rows], times, timestamps)
        return AssignedRows(read.rows, read.users, read.columns, timestamps).where(on_time)

    def _columns(self, fields: Fields) -> NDArray[np.int64]:
        return as_array(self._found_columns(fields))

    def _passing_columns(self, fields: Fields, passing: NDArray[np.bool_] | None) -> Any:
        """The columns, UNSURE where it is not sure that the filter is passed."""
        if passing is None:
            return self._found_columns(fields)
        return np.where(passing[fields.rows], self._columns(fields), UNSURE)

    def _found_columns(self, fields: Fields) -> Any:
        if self not in fields.known:
            fields.known[self] = self._find_columns(fields)
        return fields.known[self]

    def _refused(
        self,
        rows: Rows,
        fields: Fields,
        asked: NDArray[np.bool_],
        following: int,
        boundaries: Boundaries | None,
        passing: NDArray[np.bool_] | None,
    ) -> Iterator[Rejections]:
        """Of the rows of a part that are asked about, those that certainly cannot count."""
        broken = fields.broken[asked[fields.broken]]
        if broken.size:
            yield Rejections.alike(broken, Reason.NOT_JSON, [NO_JSON.encode()])
        at = np.flatnonzero((asked if passing is None else asked & passing)[fields.rows])
        if not at.size:
            return
        times = self._times(rows, fields)
        read = Read(fields, at, self._columns(fields), times, rows.offsets, rows.append_times)
        yield from self._refuse(read, following, boundaries)

    def verdict(
        self,
        offset: int,
        append_time: int,
        document: Any,
        following: int,
        boundaries: Boundaries | None,
        envelope: Envelope = NO_ENVELOPE,
    ) -> AssignedEvent | Rejection | None:
        """Where the event in a document counts, or the first thing that is wrong with it.

        None if the filter leaves it out.
        """
        if isinstance(document, Rejection):
            return document
        if append_time == NO_APPEND_TIME and boundaries is None:
            return Rejection(Reason.NO_APPEND_TIME, "the topic does not stamp records with LogAppendTime")
        event = self._decoder.decode(document, envelope)
        if event is None or isinstance(event, Rejection):
            return event
        partitions = self._partitions.at(timeline.timestamp_of(self._stream.timeline, event.time))
        owner = self._partition_of(event.user, partitions)
        if owner != self._partition:
            return Rejection(Reason.WRONG_PARTITION, wrong_partition(self._stream, owner))
        if boundaries is None:
            return self._place_by_append_time(event, append_time, following)
        return self._place_by_boundary(event, offset, following, boundaries)

    def _place_by_append_time(
        self, event: Event, append_time: int, following: int
    ) -> AssignedEvent | Rejection:
        rules = self._stream.timeline
        latest = int(timeline.latest_times(self._stream, self._first, append_time))
        if event.time > latest:
            told, since = (BEYOND, latest) if self._captured else (AHEAD, append_time)
            return Rejection(Reason.TOO_FAR_AHEAD, told % (event.time - since))
        placed = self._place(event)
        if isinstance(placed, Rejection):
            return placed
        deadline = timeline.deadline_of(rules, placed.timestamp)
        if append_time >= deadline:
            told = (
                BEHIND % placed.timestamp
                if self._captured
                else LATE % (append_time - deadline, placed.timestamp)
            )
            return Rejection(Reason.LATE, told)
        if placed.timestamp < following:
            # On time by its append time, yet it became readable after the close: brokers' clocks or replicas
            # lag by more than the declared clock skew.
            return Rejection(
                Reason.AFTER_CLOSE, f"timestamp {placed.timestamp} was closed before this was readable"
            )
        return placed

    def _place_by_boundary(
        self, event: Event, offset: int, following: int, boundaries: Boundaries
    ) -> AssignedEvent | Rejection:
        latest = boundaries.latest_time(offset)
        if event.time > latest:
            return Rejection(Reason.TOO_FAR_AHEAD, BEYOND % (event.time - latest))
        placed = self._place(event)
        if isinstance(placed, Rejection):
            return placed
        boundary = boundaries.of(placed.timestamp)
        if placed.timestamp < following or (boundary is not None and offset >= boundary):
            return Rejection(Reason.LATE, BEHIND % placed.timestamp)
        return placed

    def _place(self, event: Event) -> AssignedEvent | Rejection:
        rules = self._stream.timeline
        timestamp = timeline.timestamp_of(rules, event.time)
        if timestamp < 1:
            # In milliseconds: the time may lie before the year 1, where no calendar date can be written.
            return Rejection(Reason.BEFORE_ORIGIN, f"{rules.origin - event.time} ms before the origin")
        if timestamp < self._first:
            return Rejection(Reason.BEFORE_START, f"timestamp {timestamp} is before {self._first}")
        return AssignedEvent(event, timestamp)


def _native_assigner(stream: Stream, first: int) -> Any:
    """The same rule in the compiled kernel."""
    rules = stream.timeline
    times = rules.origin, rules.interval, rules.lateness, rules.max_ahead
    return kernel.NATIVE.Placer(
        times, stream.source.append_time == "boundary", first, timeline.step_of(rules)
    )


def _filtered(rows: Sequence[int]) -> Iterator[AssignedRows]:
    """What the filter leaves out."""
    if rows:
        none = np.zeros(len(rows), np.int64)
        yield AssignedRows(np.array(rows, np.int64), none, none + FILTERED, none)


def _in_arrays(certain: Any) -> AssignedRows:
    """What is certain, in arrays."""
    if isinstance(certain, AssignedRows):
        return certain
    return AssignedRows(*(np.frombuffer(one, np.int64) for one in certain.bytes()))


def _rows_of(certain: Any) -> NDArray[np.int64]:
    if isinstance(certain, AssignedRows):
        return certain.rows
    return np.frombuffer(certain.row_bytes(), np.int64)


def _merged(parts: Sequence[AssignedRows]) -> AssignedRows:
    """All of them, in the order of their rows."""
    columns = [[getattr(part, name) for part in parts] for name in ("rows", "users", "columns", "timestamps")]
    merged = AssignedRows(
        *(np.concatenate(column) if column else np.zeros(0, np.int64) for column in columns)
    )
    return merged.where(np.argsort(merged.rows))


_NOTHING = _merged([])
