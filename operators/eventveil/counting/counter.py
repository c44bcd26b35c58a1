"""Counting one stream in one source partition: place, bound, count, and close timestamp by timestamp.

A pure state machine. Its durable state is small: the next timestamp to close, the resume offset (the first
record that an open timestamp needs), the judged offset (records below it have had their verdict) and, in a
source without append times, the boundaries that verdicts rest on. Counts of open timestamps live in memory
and are rebuilt by reading again from the resume offset, silently below the judged offset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from eventveil.counting.assigner import Placements, Placer, Rows
from eventveil.counting.boundaries import Boundaries, Boundary
from eventveil.counting.bounding import Contributions
from eventveil.counting.bounding_by_origin import EarliestContributions
from eventveil.counting.growth import Growth
from eventveil.counting.rejections import Rejections
from eventveil.counting.users import Users
from eventveil.decoding.bulk import FILTERED, IGNORED
from eventveil.decoding.rules import Reason
from eventveil.model.durable import Durable, Natural, Positive
from eventveil.model.errors import StateRefused
from eventveil.model.records import Mark
from eventveil.model.topology import Stream
from eventveil.process.memory import Held

_NONE = np.zeros(0, dtype=np.int64)
#: An event of a pan-private stream for whose timestamp there is no budget, or one that was given up.
DISCARDED = "discarded"
#: What can become of a record: it counts, is left out by a declared rule, or is a dead letter.
OUTCOMES = ("counted", "bounded", "ignored", "filtered", DISCARDED, *(reason.value for reason in Reason))


class CounterState(Durable, frozen=True):
    """What the counting changelog holds for one stream and source partition.

    ``instance`` is the identity that the stream got at its genesis. ``first`` is the first timestamp of the
    stream, ``next`` the next one to close. ``resume`` and ``judged`` are offsets of the source partition.
    ``boundaries`` are those that a successor needs; there are none where the broker tells append times.
    ``passed`` are the times of the last marks of re-keyed events, one per partition of the topic of events
    (``eventveil.tasks.repartition``).
    """

    instance: str
    partition: Natural
    first: Positive
    next: Positive
    resume: Natural
    judged: Natural
    passed: tuple[Natural, ...] = ()
    boundaries: tuple[Boundary, ...] = ()

    def waiting_for(self, partitions: int) -> CounterState:
        """The state that waits for marks of this many partitions or more; further ones have left none yet."""
        return self.replace(passed=(*self.passed, *(0,) * (partitions - len(self.passed))))

    def contradiction(self) -> str | None:
        """See ``Durable.contradiction``."""
        ascending = all(
            one.last < other.last and one.offset <= other.offset for one, other in pairwise(self.boundaries)
        )
        sound = self.first <= self.next and self.resume <= self.judged and ascending
        return None if sound else "its timestamps or offsets contradict each other"


@dataclass(frozen=True, slots=True)
class Partial:
    """The counts of one timestamp in one source partition, sparse: ``columns`` ascending, ``counts`` > 0.

    ``boundary`` is that of the timestamp, None where the broker tells append times.
    """

    stream: str
    timestamp: int
    partition: int
    instance: str
    columns: NDArray[np.int64]
    counts: NDArray[np.int64]
    boundary: int | None = None

    def encode(self) -> bytes:
        """JSON bytes, equal for equal partials."""
        boundary = {} if self.boundary is None else {"boundary": self.boundary}
        return orjson.dumps(
            {
                "stream": self.stream,
                "timestamp": self.timestamp,
                "partition": self.partition,
                "instance": self.instance,
                "columns": self.columns,
                "counts": self.counts,
                **boundary,
            },
            option=orjson.OPT_SERIALIZE_NUMPY,
        )

    @classmethod
    def decode(cls, value: bytes, place: str) -> Partial:
        """Read a partial back. Raises StateRefused, naming ``place``, if the bytes are none."""
        try:
            fields = orjson.loads(value)
            columns, counts = _integers(fields.pop("columns")), _integers(fields.pop("counts"))
            partial: Partial | None = cls(**fields, columns=columns, counts=counts)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            partial = None
        if (
            partial is None
            or type(partial.stream) is not str
            or type(partial.timestamp) is not int
            or type(partial.partition) is not int
            or type(partial.boundary) not in (int, type(None))
        ):
            # No detail: it could quote exact counts.
            remedy = "Find out who else writes to this topic and revoke the right"
            raise StateRefused(place, "the record is no partial count", remedy)
        return partial


def _integers(values: Any) -> NDArray[np.int64]:
    """A JSON array of integers; numpy alone would cut fractions off and read digits in texts."""
    if type(values) is not list or not {*map(type, values)} <= {int}:
        raise TypeError("not an array of integers")
    return np.array(values, dtype=np.int64)


class _OpenTimestamp:
    """What is known so far of a timestamp that is not closed."""

    __slots__ = ("_counts", "contributions", "first_offset")

    def __init__(self, columns: int, bound: int, rekeyed: bool, offset: int) -> None:
        self.contributions = EarliestContributions(bound, columns) if rekeyed else Contributions(bound)
        self._counts = np.zeros(0 if rekeyed else columns, dtype=np.int64)
        self.first_offset = offset

    def admit(self, placed: Placements, origins: NDArray[np.int64] | None) -> NDArray[np.bool_]:
        """Count events as the bound allows; for which the number of events that count has grown."""
        if isinstance(self.contributions, Contributions):
            counted = self.contributions.admit(placed.users)
            np.add.at(self._counts, placed.columns[counted], 1)
            return counted
        if origins is None:
            raise ValueError("re-keyed events come without their origins")
        return self.contributions.admit(placed.users, origins[placed.rows], placed.columns)

    def counts(self) -> NDArray[np.int64]:
        """The number of events that count, by column."""
        if isinstance(self.contributions, Contributions):
            return self._counts
        return self.contributions.counts()


class StreamCounter:
    """Counts one stream in one of ``partitions`` source partitions, from a durable state onwards.

    ``users`` may be shared with other streams whose users are in the same field. ``grown`` tells when the
    source had fewer partitions.
    """

    def __init__(
        self,
        stream: Stream,
        partitions: int,
        state: CounterState,
        users: Users,
        grown: Sequence[Growth] = (),
    ) -> None:
        self.stream, self.users = stream, users
        self.next = state.next
        #: What became of the records judged by this object: "counted", "bounded", "ignored", "filtered" or a
        #: Reason.
        self.outcomes: Counter[str] = Counter()
        self._told: Counter[str] = Counter()
        self._state = state
        self._placer = Placer(stream, partitions, state.partition, state.first, users, grown)
        self._open: dict[int, _OpenTimestamp] = {}
        #: Of re-keyed events: the time of the last mark of each partition.
        self.passed = state.passed
        if stream.source.raw is not None and not state.passed:
            self.passed = (0,) * partitions
        #: None where the broker tells append times.
        self.boundaries: Boundaries | None = None
        if stream.source.has_boundaries:
            self.boundaries = Boundaries(stream.timeline, state.first, state.boundaries)

    @property
    def resume(self) -> int:
        """The first offset that a successor would have to read."""
        return self._state.resume

    @property
    def judged(self) -> int:
        """The offset below which every record has had its verdict."""
        return self._state.judged

    def observe(self, rows: Rows) -> Rejections:
        """Count records, and say which rows cannot count, and why. Re-keyed ones have ``origins``.

        They must come in offset order. A record that the bound, the filter or ``unknown: ignore``
        leaves out is no rejection. Nothing is said of records below the judged offset: their dead letters
        are out already.
        """
        start, told = np.searchsorted(rows.offsets, (self._state.resume, self._state.judged)).tolist()
        placed, rejections = self._placer.place(rows, start, self.next, self.boundaries)
        self._take(rows, placed, told)
        rejections = rejections.since(told)
        self.outcomes.update(rejections.outcomes())
        return rejections

    def _take(self, rows: Rows, placed: Placements, told: int) -> None:
        """Count events, and book those from row ``told`` on."""
        counts = placed.columns >= 0
        grown = self._count(rows, placed.where(counts)) if counts.any() else np.zeros(0, bool)
        news = grown[placed.rows[counts] >= told]
        self._book("counted", news)
        self._book("bounded", ~news)
        self._book("ignored", placed.rows[placed.columns == IGNORED] >= told)
        self._book("filtered", placed.rows[placed.columns == FILTERED] >= told)

    def _book(self, outcome: str, events: NDArray[np.bool_]) -> None:
        if number := int(np.count_nonzero(events)):
            self.outcomes[outcome] += number

    def _count(self, rows: Rows, placed: Placements) -> NDArray[np.bool_]:
        """Count events with a column, in order; for which the number of events that count has grown."""
        first, last = int(placed.timestamps.min()), int(placed.timestamps.max())
        if first == last:
            return self._open_at(first, rows, placed).admit(placed, rows.origins)
        grown = np.empty(len(placed.rows), bool)
        order = np.argsort(placed.timestamps, kind="stable")
        edges = np.flatnonzero(np.diff(placed.timestamps[order])) + 1
        for indices in np.split(order, edges):
            part = placed.where(indices)
            opened = self._open_at(int(part.timestamps[0]), rows, part)
            grown[indices] = opened.admit(part, rows.origins)
        return grown

    def _open_at(self, timestamp: int, rows: Rows, placed: Placements) -> _OpenTimestamp:
        opened = self._open.get(timestamp)
        if opened is None:
            columns, bound = len(self.stream.counts.labels), self.stream.bound
            first_offset = int(rows.offsets[placed.rows[0]])
            opened = _OpenTimestamp(columns, bound, self.stream.source.raw is not None, first_offset)
            self._open[timestamp] = opened
        return opened

    def contributors(self) -> Iterator[NDArray[np.int64]]:
        """The numbers of the users of each open timestamp."""
        return (opened.contributions.users() for opened in self._open.values())

    def renumber(self, new_numbers: NDArray[np.int64]) -> None:
        """Users have new numbers, found at their old ones."""
        for opened in self._open.values():
            opened.contributions.renumber(new_numbers)

    def new_outcomes(self) -> Counter[str]:
        """What ``outcomes`` has gained since the last call."""
        gained, self._told = self.outcomes - self._told, self.outcomes.copy()
        return gained

    def close(self) -> Partial:
        """Close the next timestamp and return its partial count, an empty one included."""
        timestamp, self.next = self.next, self.next + 1
        boundary = None if self.boundaries is None else self.boundaries.of(timestamp)
        found = self._take_counts(timestamp)
        counts = _NONE if found is None else found
        columns = np.flatnonzero(counts)
        return Partial(
            stream=self.stream.name,
            timestamp=timestamp,
            partition=self._state.partition,
            instance=self._state.instance,
            columns=columns,
            counts=counts[columns],
            boundary=boundary,
        )

    def _take_counts(self, timestamp: int) -> NDArray[np.int64] | None:
        """The counts of a timestamp, which is no longer open; None if nothing counted."""
        opened = self._open.pop(timestamp, None)
        return None if opened is None else opened.counts()

    def _first_offsets(self) -> Iterator[int]:
        """The first offset that each open timestamp needs."""
        return (opened.first_offset for opened in self._open.values())

    def state_at(self, position: int) -> CounterState:
        """The durable state once every record below ``position`` has been judged here.

        While records below the judged offset are read again, those from ``position`` on are still to come:
        a successor needs them too.
        """
        unread = max(position, self._state.resume)
        resume = min(self._first_offsets(), default=unread)
        needed = () if self.boundaries is None else self.boundaries.needed(self.next, resume).captured
        judged = max(position, self._state.judged)
        return self._state.replace(
            next=self.next,
            resume=resume,
            judged=judged,
            boundaries=needed,
            passed=self.passed,
        )

    def resume_from(self, state: CounterState) -> None:
        """Take ``state``, which is durable now, as the state that a successor would continue from."""
        self._state = state
        if self.boundaries is not None:
            self.boundaries = replace(self.boundaries, captured=state.boundaries)

    def mark(self, mark: Mark) -> None:
        """Take note of how far a partition of re-keyed events has been passed on."""
        one, time = mark
        # Of a partition that was added the first mark may be the first that is heard.
        self.passed = (*self.passed, *(0,) * (one + 1 - len(self.passed)))
        self.passed = (*self.passed[:one], max(time, self.passed[one]), *self.passed[one + 1 :])

    def read_again(self, position: int) -> bool:
        """Whether all that a predecessor had judged has been read here."""
        return position >= self._state.judged

    @property
    def completed(self) -> int | None:
        """The last timestamp that a watermark has completed; None where none has to."""
        return None

    @property
    def undurable(self) -> bool:
        """Whether a boundary was captured that the durable state does not hold."""
        return self.boundaries is not None and self.boundaries.captured[-1:] != self._state.boundaries[-1:]

    @property
    def last_open(self) -> int | None:
        """The last timestamp that has counted an event and is not closed, if there is one."""
        return max(self._open, default=None)

    @property
    def contributions(self) -> int:
        """The number of (user, open timestamp) pairs held in memory."""
        # A list, at once: metrics may ask while another thread counts.
        return sum(len(opened.contributions) for opened in list(self._open.values()))

    @property
    def held(self) -> Held:
        """What is in memory, of ``users`` all that the streams sharing them have met."""
        return Held(len(self._open), self.contributions, len(self.users))
