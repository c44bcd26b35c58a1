"""Counting one stream in one source partition: place, bound, count, and close timestamp by timestamp.

A pure state machine. Its durable state is small: the next timestamp to close, the resume offset (the first
record that an open timestamp needs), the judged offset (records below it have had their verdict) and, in a
source without append times, the boundaries that verdicts rest on. Counts of open timestamps live in memory
and are rebuilt by reading again from the resume offset, silently below the judged offset.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from itertools import chain, pairwise
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from operators import timeline
from operators.boundaries import Boundaries, Boundary
from operators.contributions import Contributions, EarliestContributions
from operators.decode import Decoder, Event, Reason, Rejection
from operators.errors import StateRefused
from operators.partitioner import PARTITIONERS
from operators.records import NO_APPEND_TIME, Mark, Origin
from operators.topology.model import Stream

STATE_VERSION = 1
_NONE = np.zeros(0, dtype=np.int64)
#: What can become of a record: it counts, is left out by a declared rule, or is a dead letter.
OUTCOMES = ("counted", "bounded", "ignored", *(reason.value for reason in Reason))


@dataclass(frozen=True, slots=True)
class CounterState:
    """What the counting changelog holds for one stream and source partition.

    ``instance`` is the identity that the stream got at its genesis. ``first`` is the first timestamp of the
    stream, ``next`` the next one to close. ``resume`` and ``judged`` are offsets of the source partition.
    ``boundaries`` are those that a successor needs; there are none where the broker tells append times.
    ``passed`` are the times of the last marks of re-keyed events, one per partition (``operators.rekeying``).
    """

    instance: str
    partition: int
    first: int
    next: int
    resume: int
    judged: int
    boundaries: tuple[Boundary, ...] = ()
    passed: tuple[int, ...] = ()

    def encode(self) -> bytes:
        """JSON bytes of this state."""
        fields = asdict(self)
        if boundaries := [list(one) for one in fields.pop("boundaries")]:
            fields["boundaries"] = boundaries
        if not self.passed:
            del fields["passed"]
        return orjson.dumps({"version": STATE_VERSION, **fields})

    @classmethod
    def decode(cls, value: bytes, place: str) -> CounterState:
        """Read a state back; ``place`` names it in the StateRefused that anything unexpected raises."""
        fields = read_state(value, place)
        try:
            boundaries = tuple(Boundary(*pair) for pair in fields.pop("boundaries", ()))
            passed = tuple(fields.pop("passed", ()))
            state = cls(**fields, boundaries=boundaries, passed=passed)
        except TypeError as error:
            raise unreadable(place, str(error)) from None
        numbers = (
            state.partition,
            state.first,
            state.next,
            state.resume,
            state.judged,
            *chain(*boundaries),
            *passed,
        )
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise unreadable(place, "an offset or timestamp is not a whole number")
        ascending = all(
            one.last < other.last and one.offset <= other.offset for one, other in pairwise(boundaries)
        )
        if not (1 <= state.first <= state.next and state.resume <= state.judged and ascending):
            raise unreadable(place, "its timestamps or offsets contradict each other")
        return state


def read_state(value: bytes, place: str) -> dict[str, Any]:
    """The fields of a JSON state record of this version. Raises StateRefused for anything else."""
    try:
        fields = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise unreadable(place, str(error)) from None
    if not isinstance(fields, dict):
        raise unreadable(place, "it is not an object")
    version = fields.pop("version", None)
    if version != STATE_VERSION:
        raise StateRefused(
            place,
            f"the state has version {version!r}, this program reads version {STATE_VERSION}",
            "Run the version of Eventveil that wrote it",
        )
    return fields


def unreadable(place: str, detail: str) -> StateRefused:
    """The refusal of a state record that cannot be what this program wrote."""
    return StateRefused(
        place,
        f"the state cannot be read: {detail}",
        "Find out what damaged it; a backup will do only if it has the last release",
    )


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

    __slots__ = ("contributions", "counts", "first_offset")

    def __init__(self, columns: int, bound: int, rekeyed: bool, offset: int) -> None:
        self.counts = np.zeros(columns, dtype=np.int64)
        self.contributions = EarliestContributions(bound) if rekeyed else Contributions(bound)
        self.first_offset = offset

    def admit(self, user: bytes, column: int, origin: Origin | None) -> bool:
        """Count an event if the bound allows it; whether the number of events that count has grown."""
        if isinstance(self.contributions, Contributions):
            grown = admitted = self.contributions.admit(user)
        else:
            admitted, displaced = self.contributions.admit(user, origin, column)
            grown = admitted and displaced is None
            if displaced is not None:
                self.counts[displaced] -= 1
        if admitted:
            self.counts[column] += 1
        return grown


class StreamCounter:
    """Counts one stream in one of ``partitions`` source partitions, from a durable state onwards."""

    def __init__(self, stream: Stream, partitions: int, state: CounterState) -> None:
        self.stream = stream
        self.decoder = Decoder(stream.source, stream.counts)
        self.next = state.next
        #: What became of the records judged by this object: "counted", "bounded", "ignored" or a Reason.
        self.outcomes: Counter[str] = Counter()
        self._told: Counter[str] = Counter()
        self._state = state
        self._partitions = partitions
        self._partition_of = PARTITIONERS[stream.source.partitioner]
        self._open: dict[int, _OpenTimestamp] = {}
        #: Of re-keyed events: the time of the last mark of each partition.
        self.passed = state.passed
        if stream.source.raw is not None and not state.passed:
            self.passed = (0,) * partitions
        #: None where the broker tells append times.
        self.boundaries: Boundaries | None = None
        if stream.source.append_time == "boundary":
            self.boundaries = Boundaries(stream.timeline, state.first, state.boundaries)

    @property
    def resume(self) -> int:
        """The first offset that a successor would have to read."""
        return self._state.resume

    def judge(
        self, offset: int, append_time: int, document: Any, origin: Origin | None = None
    ) -> Rejection | None:
        """Count one record, or say why it cannot count. A re-keyed one has an ``origin``.

        Records must come in offset order. A record that the bound or ``unknown: ignore`` leaves out is no
        rejection. Below the judged offset the answer is always None: its dead letter is out already.
        """
        if offset < self._state.resume:
            return None
        verdict = self._verdict(offset, append_time, document)
        outcome = (
            self._count(offset, verdict, origin) if isinstance(verdict, _Placed) else verdict.reason.value
        )
        if offset < self._state.judged:
            return None
        self.outcomes[outcome] += 1
        return verdict if isinstance(verdict, Rejection) else None

    def _verdict(self, offset: int, append_time: int, document: Any) -> _Placed | Rejection:
        if isinstance(document, Rejection):
            return document
        if append_time == NO_APPEND_TIME and self.boundaries is None:
            return Rejection(Reason.NO_APPEND_TIME, "the topic does not stamp records with LogAppendTime")
        event = self.decoder.decode(document)
        if isinstance(event, Rejection):
            return event
        owner = self._partition_of(event.user, self._partitions)
        if owner != self._state.partition:
            return Rejection(
                Reason.WRONG_PARTITION,
                f"{self.stream.source.partitioner} of the user field gives partition {owner}; "
                "producers must key by the user, with the partitioner of the topology",
            )
        if self.boundaries is None:
            return self._place_by_append_time(event, append_time)
        return self._place_by_boundary(event, offset, self.boundaries)

    def _place_by_append_time(self, event: Event, append_time: int) -> _Placed | Rejection:
        rules = self.stream.timeline
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
        if placed.timestamp < self.next:
            # On time by its append time, yet it became readable after the close: brokers' clocks or replicas
            # lag by more than the declared clock skew.
            return Rejection(
                Reason.AFTER_CLOSE, f"timestamp {placed.timestamp} was closed before this was readable"
            )
        return placed

    def _place_by_boundary(self, event: Event, offset: int, boundaries: Boundaries) -> _Placed | Rejection:
        latest = boundaries.latest_time(offset)
        if event.time > latest:
            return Rejection(
                Reason.TOO_FAR_AHEAD, f"{event.time - latest} ms beyond max_ahead after the next boundary"
            )
        placed = self._place(event)
        if isinstance(placed, Rejection):
            return placed
        boundary = boundaries.of(placed.timestamp)
        if placed.timestamp < self.next or (boundary is not None and offset >= boundary):
            return Rejection(Reason.LATE, f"appended behind the boundary of {placed.timestamp}")
        return placed

    def _place(self, event: Event) -> _Placed | Rejection:
        rules = self.stream.timeline
        timestamp = timeline.timestamp_of(rules, event.time)
        if timestamp < 1:
            # In milliseconds: the time may lie before the year 1, where no calendar date can be written.
            return Rejection(Reason.BEFORE_ORIGIN, f"{rules.origin - event.time} ms before the origin")
        if timestamp < self._state.first:
            return Rejection(Reason.BEFORE_START, f"timestamp {timestamp} is before {self._state.first}")
        return _Placed(event, timestamp)

    def _count(self, offset: int, placed: _Placed, origin: Origin | None) -> str:
        event = placed.event
        if event.column is None:
            return "ignored"
        opened = self._open.get(placed.timestamp)
        if opened is None:
            columns = len(self.stream.counts.labels)
            bound = self.stream.counts.contributions
            opened = _OpenTimestamp(columns, bound, self.stream.source.raw is not None, offset)
            self._open[placed.timestamp] = opened
        return "counted" if opened.admit(event.user, event.column, origin) else "bounded"

    def new_outcomes(self) -> Counter[str]:
        """What ``outcomes`` has gained since the last call."""
        gained, self._told = self.outcomes - self._told, self.outcomes.copy()
        return gained

    def close(self) -> Partial:
        """Close the next timestamp and return its partial count, an empty one included."""
        timestamp, self.next = self.next, self.next + 1
        boundary = None if self.boundaries is None else self.boundaries.of(timestamp)
        opened = self._open.pop(timestamp, None)
        columns = _NONE if opened is None else np.flatnonzero(opened.counts)
        return Partial(
            stream=self.stream.name,
            timestamp=timestamp,
            partition=self._state.partition,
            instance=self._state.instance,
            columns=columns,
            counts=_NONE if opened is None else opened.counts[columns],
            boundary=boundary,
        )

    def state_at(self, position: int) -> CounterState:
        """The durable state once every record below ``position`` has been judged here.

        While records below the judged offset are read again, those from ``position`` on are still to come:
        a successor needs them too.
        """
        unread = max(position, self._state.resume)
        resume = min((opened.first_offset for opened in self._open.values()), default=unread)
        needed = () if self.boundaries is None else self.boundaries.needed(self.next, resume).captured
        judged = max(position, self._state.judged)
        return replace(
            self._state,
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
        self.passed = (*self.passed[:one], max(time, self.passed[one]), *self.passed[one + 1 :])

    def read_again(self, position: int) -> bool:
        """Whether all that a predecessor had judged has been read here."""
        return position >= self._state.judged

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
        # A list, at once: whoever observes the worker may ask while another thread counts.
        return sum(len(opened.contributions) for opened in list(self._open.values()))


@dataclass(frozen=True, slots=True)
class _Placed:
    event: Event
    timestamp: int
