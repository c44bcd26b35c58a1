"""Where records of one source partition count: at which timestamp, for which user and column, or why not.

``Placer.verdict`` is the rule, for one record. ``Placer.place`` finds at once those of many for which the
rule certainly says yes; it is asked for every other one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from operators import timeline
from operators.boundaries import Boundaries
from operators.bulk import IGNORED, UNSURE, ColumnFinder
from operators.decode import Decoder, Event, Reason, Rejection, parse
from operators.fields import UNSURE_TIME, Fields
from operators.growth import Growth, PartitionCounts
from operators.partitioner import PARTITIONERS
from operators.records import NO_APPEND_TIME
from operators.topology.model import Stream
from operators.users import Users


@dataclass(slots=True)
class Rows:
    """Records of a chunk as columns of equal length; ``origins`` only of re-keyed ones.

    Those are rows of append time, partition and offset, as in ``Origin``. ``parts`` are what bulk decoding is
    sure of, each row in one of them at most.
    """

    offsets: NDArray[np.int64]
    append_times: NDArray[np.int64]
    values: Sequence[bytes | None]
    parts: Sequence[Fields]
    origins: NDArray[np.int64] | None = None
    _documents: dict[int, Any] = field(default_factory=dict)

    def document(self, row: int, max_bytes: int) -> Any | Rejection:
        """What ``parse`` makes of a value, once for all streams."""
        value = self.values[row]
        if value is not None and len(value) > max_bytes:
            return parse(value, max_bytes)
        if row not in self._documents:
            self._documents[row] = parse(value, max_bytes)
        return self._documents[row]


@dataclass(frozen=True, slots=True)
class Placed:
    """An event that is on time, and its timestamp."""

    event: Event
    timestamp: int


@dataclass(frozen=True, slots=True)
class Placements:
    """Events on time: the indices of their rows, numbers of their users, columns or IGNORED, timestamps."""

    rows: NDArray[np.int64]
    users: NDArray[np.int64]
    columns: NDArray[np.int64]
    timestamps: NDArray[np.int64]

    def where(self, chosen: NDArray[Any]) -> Placements:
        """Those that a mask or indices choose."""
        if chosen.dtype == bool and chosen.all():
            return self
        return Placements(
            self.rows[chosen], self.users[chosen], self.columns[chosen], self.timestamps[chosen]
        )


class Placer:
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
        self._partitions, self._partition, self._first = PartitionCounts(partitions, grown), partition, first
        self._users = users
        self._decoder = Decoder(stream.source, stream.counts)
        self._find_columns = ColumnFinder(stream.source, stream.counts)
        self._partition_of = PARTITIONERS[stream.source.partitioner]

    def place(
        self, rows: Rows, start: int, following: int, boundaries: Boundaries | None
    ) -> tuple[Placements, list[tuple[int, Rejection]]]:
        """The events among the rows from index ``start`` on that are on time, and why the others are not.

        ``following`` is the next timestamp to close. ``boundaries`` is None where append times decide.
        """
        certain = [self._certain(rows, part, start, following, boundaries) for part in rows.parts]
        placed = certain[0] if len(certain) == 1 else _merged(certain)
        asked = np.ones(len(rows.offsets), bool)
        asked[:start] = False
        asked[placed.rows] = False
        rejections: list[tuple[int, Rejection]] = []
        more: list[tuple[int, int, int, int]] = []
        for row in np.flatnonzero(asked).tolist():
            document = rows.document(row, self._stream.source.max_bytes)
            verdict = self.verdict(
                int(rows.offsets[row]), int(rows.append_times[row]), document, following, boundaries
            )
            if isinstance(verdict, Rejection):
                rejections.append((row, verdict))
            else:
                column = IGNORED if verdict.event.column is None else verdict.event.column
                more.append((row, self._users.number(verdict.event.user), column, verdict.timestamp))
        if more:
            placed = _merged([placed, Placements(*np.array(more, np.int64).T)])
        return placed, rejections

    def _certain(
        self, rows: Rows, fields: Fields, start: int, following: int, boundaries: Boundaries | None
    ) -> Placements:
        rules = self._stream.timeline
        users, columns = self._users.of(fields), self._find_columns(fields)
        times = fields.times(self._stream.source.time)
        sure = self._users.belong(users) & (columns != UNSURE) & (times != UNSURE_TIME)
        sure &= fields.rows >= start
        read, times = Placements(fields.rows, users, columns, times).where(sure), times[sure]
        timestamps = timeline.timestamp_of(rules, times)
        # Users are known by the partition that they have now.
        on_time = timestamps >= max(1, self._first, following, self._partitions.since)
        if boundaries is None:
            append_times = rows.append_times[read.rows]
            on_time &= append_times != NO_APPEND_TIME
            on_time &= times <= append_times + rules.max_ahead
            on_time &= append_times < timeline.deadline_of(rules, timestamps)
        else:
            on_time &= boundaries.admit(rows.offsets[read.rows], times, timestamps)
        return Placements(read.rows, read.users, read.columns, timestamps).where(on_time)

    def verdict(
        self, offset: int, append_time: int, document: Any, following: int, boundaries: Boundaries | None
    ) -> Placed | Rejection:
        """Where the event in a document counts, or the first thing that is wrong with it."""
        if isinstance(document, Rejection):
            return document
        if append_time == NO_APPEND_TIME and boundaries is None:
            return Rejection(Reason.NO_APPEND_TIME, "the topic does not stamp records with LogAppendTime")
        event = self._decoder.decode(document)
        if isinstance(event, Rejection):
            return event
        partitions = self._partitions.at(timeline.timestamp_of(self._stream.timeline, event.time))
        owner = self._partition_of(event.user, partitions)
        if owner != self._partition:
            return Rejection(
                Reason.WRONG_PARTITION,
                f"{self._stream.source.partitioner} of the user field gives partition {owner}; "
                "producers must key by the user, with the partitioner of the topology",
            )
        if boundaries is None:
            return self._place_by_append_time(event, append_time, following)
        return self._place_by_boundary(event, offset, following, boundaries)

    def _place_by_append_time(self, event: Event, append_time: int, following: int) -> Placed | Rejection:
        rules = self._stream.timeline
        if event.time > append_time + rules.max_ahead:
            return Rejection(Reason.TOO_FAR_AHEAD, f"{event.time - append_time} ms ahead of the append time")
        placed = self._place(event)
        if isinstance(placed, Rejection):
            return placed
        deadline = timeline.deadline_of(rules, placed.timestamp)
        if append_time >= deadline:
            return Rejection(
                Reason.LATE, f"appended {append_time - deadline} ms after the deadline of {placed.timestamp}"
            )
        if placed.timestamp < following:
            # On time by its append time, yet it became readable after the close: brokers' clocks or replicas
            # lag by more than the declared clock skew.
            return Rejection(
                Reason.AFTER_CLOSE, f"timestamp {placed.timestamp} was closed before this was readable"
            )
        return placed

    def _place_by_boundary(
        self, event: Event, offset: int, following: int, boundaries: Boundaries
    ) -> Placed | Rejection:
        latest = boundaries.latest_time(offset)
        if event.time > latest:
            return Rejection(
                Reason.TOO_FAR_AHEAD, f"{event.time - latest} ms beyond max_ahead after the next boundary"
            )
        placed = self._place(event)
        if isinstance(placed, Rejection):
            return placed
        boundary = boundaries.of(placed.timestamp)
        if placed.timestamp < following or (boundary is not None and offset >= boundary):
            return Rejection(Reason.LATE, f"appended behind the boundary of {placed.timestamp}")
        return placed

    def _place(self, event: Event) -> Placed | Rejection:
        rules = self._stream.timeline
        timestamp = timeline.timestamp_of(rules, event.time)
        if timestamp < 1:
            # In milliseconds: the time may lie before the year 1, where no calendar date can be written.
            return Rejection(Reason.BEFORE_ORIGIN, f"{rules.origin - event.time} ms before the origin")
        if timestamp < self._first:
            return Rejection(Reason.BEFORE_START, f"timestamp {timestamp} is before {self._first}")
        return Placed(event, timestamp)


def _merged(parts: Sequence[Placements]) -> Placements:
    """All of them, in the order of their rows."""
    columns = [[getattr(part, name) for part in parts] for name in ("rows", "users", "columns", "timestamps")]
    merged = Placements(*(np.concatenate(column) if column else np.zeros(0, np.int64) for column in columns))
    return merged.where(np.argsort(merged.rows))
