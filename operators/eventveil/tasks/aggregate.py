"""Aggregating one source partition: every stream over it, closed together when the public clock allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from eventveil.counting.assigner import Rows
from eventveil.counting.counter import CounterState, Partial, StreamCounter
from eventveil.counting.engine import EngineCounter
from eventveil.counting.rejections import DeadLetters, Letters
from eventveil.counting.users import Users
from eventveil.decoding.bulk import BulkReader, Columnar, Fields, fields_of, lengths_of, picked
from eventveil.model import timeline
from eventveil.model.partitioners import Growth
from eventveil.model.reach import Reach, header_of
from eventveil.model.records import NO_APPEND_TIME, Chunk, Columns, Outgoing, Records, TopicPartition
from eventveil.model.topology import BY_SCHEMA, Stream, Timeline
from eventveil.tasks.passed_on import read_passed_on
from eventveil.tasks.task import QUICK, StreamView, Task, Transaction

#: The header of a state with the version that judged the events. Version 0.2.0 of Eventveil ignores headers.
VERSION = "eventveil.version"

#: What is judged at once: the most records, and the most bytes unless a single record has more.
_PORTION, _PORTION_BYTES = 16_384, 2_000_000
#: As many times more after a portion of which no record took long. The kernel's tables of users are looked
#: through once for each portion, and what was in the processor's cache is gone by the next one.
_AT_EASE = 4
#: A turn ends once more than this many of its records could not be judged in arrays. Of these records every
#: 1,000 bytes count as one more.
_SLOW, _SLOW_BYTES = 1024, 1000
#: A transaction carries at most about this many bytes of partial counts.
_BATCH_BYTES = 4_000_000


@dataclass(frozen=True, slots=True)
class Batch:
    """What one fenced transaction of a source partition carries.

    ``states`` are the states after it, by stream name. ``outcomes`` is what became of the records whose
    verdicts become final with it: over all batches that are committed, each record is in there once, even
    if it has to be read again. More may be due than one batch holds.
    """

    partials: tuple[Partial, ...]
    dead_letters: DeadLetters
    states: Mapping[str, CounterState]
    outcomes: Mapping[str, Counter[str]]


class PartitionAggregator:
    """The streams over one source partition, from their durable states onwards."""

    def __init__(
        self,
        partitions: int,
        streams: Mapping[str, tuple[Stream, CounterState]],
        counter: type[StreamCounter] | None = None,
        grown: Mapping[str, Sequence[Growth]] | None = None,
    ) -> None:
        """``grown`` tells of streams by name when the source had fewer ``partitions``.

        ``counter`` None: what counts events, or what takes the counts of an engine.
        """
        # Streams that look for the user in the same place know the same users.
        self._users: dict[tuple[str, str, str], Users] = {}
        self.counters: dict[str, StreamCounter] = {}
        for name, (stream, state) in streams.items():
            source = stream.source
            identity = (source.user, source.user_type, source.partitioner)
            users = self._users.setdefault(identity, Users(source, partitions, state.partition))
            made = counter or (StreamCounter if source.count is None else EngineCounter)
            self.counters[name] = made(stream, partitions, state, users, (grown or {}).get(name, ()))
        self.position = self.resume
        self._reader = self._new_reader()
        #: Whether a stream judges every record one by one, or reads it by a schema, which takes as long.
        self._ruled = any(
            not stream.is_read_in_bulk or stream.source.format in BY_SCHEMA for stream, _ in streams.values()
        )
        self._rekeyed = any(stream.source.raw is not None for stream, _ in streams.values())
        by_broker = all(stream.source.append_time == "broker" for stream, _ in streams.values())
        # Of re-keyed events, who passes them on has looked.
        self._timed = by_broker and not self._rekeyed
        #: Whether records were met without the append time that they should have, whose verdict is to wait.
        self.untimed = False
        self._append_clock = 0
        self._at_ease = False
        self._captured_at = 0
        self._captured_end: int | None = None
        self._dead_letters: dict[str, list[Letters]] = {name: [] for name in streams}

    def _new_reader(self) -> BulkReader:
        streams = [counter.stream for counter in self.counters.values()]
        return BulkReader(
            fields_of((stream.source, stream.counts) for stream in streams),
            min(stream.source.max_bytes for stream in streams),
            streams[0].source.format,
        )

    @property
    def resume(self) -> int:
        """The first offset that a successor needs."""
        return min(counter.resume for counter in self.counters.values())

    @property
    def judged(self) -> int:
        """The offset below which every record has had its verdict in some stream."""
        return max(counter.judged for counter in self.counters.values())

    @property
    def known(self) -> int:
        """The offset that the log reaches at least: behind the last record that was read or judged, and no
        less than the last boundary."""
        ends = (one.boundaries.end for one in self.counters.values() if one.boundaries is not None)
        return max(self.position, self.judged, *ends)

    def process(self, chunk: Chunk) -> None:
        """Judge records of a chunk, from the position on; those below it were seen already.

        All of them, or as many as one turn may take: the position tells how far. At least one, so
        repeated calls come to the end. How a chunk is divided into turns changes no verdict.

        Raises ValueError if records between the position and the chunk are missing.
        """
        slow = 0
        while slow <= _SLOW:
            portion = _portion(chunk.since(self.position), _AT_EASE if self._at_ease else 1)
            took_long = self._process(portion)
            self._at_ease = not took_long
            slow += took_long
            if self.position >= chunk.next_offset:
                return

    def _process(self, unseen: Chunk) -> int:
        """Judge a portion; how many records of it took long."""
        position, slow, origins = unseen.next_offset, 0, None
        if self._rekeyed:
            unseen, origins, marks = read_passed_on(unseen)
            for mark in marks:
                for counter in self.counters.values():
                    counter.mark(mark)
        if len(unseen.offsets):
            slow = self._judge(unseen, origins)
        self.position = max(self.position, position)
        return slow

    def _judge(self, chunk: Chunk, origins: NDArray[np.int64] | None) -> int:
        offsets, append_times = np.array(chunk.offsets, np.int64), np.array(chunk.append_times, np.int64)
        # That of the last record, not the highest: one of a broker whose clock was ahead is forgotten soon.
        self._append_clock = int(append_times[-1])
        if self._timed and (append_times == NO_APPEND_TIME).any():
            # Those that have had their verdict are read again only for what is around them.
            told = min(counter.judged for counter in self.counters.values())
            self.untimed |= bool((append_times[offsets >= told] == NO_APPEND_TIME).any())
        for users in self._crowded():
            self._forget(users)
        slow, shared = 0, len(self.counters) > 1
        rows = Rows(
            offsets, append_times, chunk.values, (), origins, shared, chunk.keys, chunk.headers,
            chunk.schemas, chunk.own_times,
        )  # fmt: skip
        rows.parts = self._reader.read(chunk.values, rows.beside, chunk.schemas)
        for name, counter in self.counters.items():
            rejections = counter.observe(rows)
            slow += len(rejections)
            if len(rejections):
                self._dead_letters[name].append(Letters.of(counter.stream, chunk, rejections, origins))
        return slow + (len(chunk.offsets) if self._ruled else _unsure(chunk.values, rows.parts))

    @property
    def quick_records(self) -> int:
        """See ``Task.quick_records``.

        Each stream looks at each record, one with further rules for long. Users are forgotten before records
        are judged, in a time that depends on how many there are.
        """
        return 0 if self._ruled or self._crowded() else QUICK // len(self.counters)

    def _crowded(self) -> list[Users]:
        return [users for users in self._users.values() if users.crowded]

    def _forget(self, users: Users) -> None:
        sharing = [counter for counter in self.counters.values() if counter.users is users]
        new_numbers = users.forget(numbers for counter in sharing for numbers in counter.contributors())
        if new_numbers is not None:
            for counter in sharing:
                counter.renumber(new_numbers)

    @property
    def due(self) -> int:
        """When the next timestamp of a stream is due, or was, in epoch milliseconds."""
        return min(timeline.due_of(one.stream.timeline, one.next) for one in self.counters.values())

    @property
    def closed(self) -> int:
        """When the last timestamp that was closed was due, in epoch milliseconds."""
        return max(timeline.due_of(one.stream.timeline, one.next - 1) for one in self.counters.values())

    def boundaries(self) -> list[tuple[Timeline, int]]:
        """The timelines of the streams with boundaries, and the last timestamps that have one."""
        counters = self.counters.values()
        return [(one.stream.timeline, one.boundaries.last) for one in counters if one.boundaries is not None]

    def wants_boundary(self, now: int) -> bool:
        """Whether a timestamp is due that has no boundary yet, however much is still to be read.

        Until it has one, no chunk may be judged that was fetched after this moment.
        """
        return any(
            one.boundaries is not None and one.boundaries.wanted(now) for one in self.counters.values()
        )

    def wants_end(self, now: int) -> bool:
        """Whether a timestamp is due that only the end offset of the partition can show to be complete.

        A boundary is wanted as soon as it is due: when it is captured must not depend on what others sent.
        """
        self._forget_future(now)
        if self.wants_boundary(now):
            return True
        if self._captured_end is not None and self.position < self._captured_end:
            return False
        return any(
            counter.boundaries is None
            and counter.completed is None
            and not self._rekeyed
            and timeline.due_of(counter.stream.timeline, counter.next) <= now
            and self._closable(counter, now) < counter.next
            and timeline.due_of(counter.stream.timeline, counter.next) > self._captured_at
            for counter in self.counters.values()
        )

    def capture_end(self, asked_at: int, end: int) -> None:
        """Take note that the log ended at offset ``end`` no earlier than wall clock time ``asked_at``.

        Raises ValueError if it has become shorter than a boundary that was captured in it.
        """
        self._captured_at, self._captured_end = asked_at, end
        self.capture_boundary(asked_at, end)

    def capture_boundary(self, asked_at: int, end: int) -> None:
        """The same, for boundaries only."""
        # A clock that was set back may have let records pass that lie behind the end. What was judged
        # without a boundary stays below it.
        boundary = max(end, self.position)
        for counter in self.counters.values():
            if counter.boundaries is not None:
                counter.boundaries = counter.boundaries.capture(asked_at, boundary)

    def _forget_future(self, now: int) -> None:
        """Forget what is ahead of this clock: it proves nothing, also later. A capture was made under a clock
        that has been set back since, and an append time is of a broker whose clock was ahead."""
        if self._captured_at > now:
            self._captured_at, self._captured_end = 0, None
        if self._append_clock > now + min(one.stream.timeline.clock_skew for one in self.counters.values()):
            self._append_clock = 0

    def _closable(self, counter: StreamCounter, now: int) -> int:
        """The last timestamp of a stream that may close: due, and no record on time can still come."""
        rules = counter.stream.timeline
        if counter.boundaries is not None:
            return counter.boundaries.reached(self.position)
        if counter.completed is not None:
            return min(timeline.last_due(rules, now), counter.completed)
        if self._rekeyed:
            # A predecessor's marks may stand behind records that are still to be read again.
            passed = min(counter.passed) if counter.read_again(self.position) else 0
            return min(timeline.last_due(rules, now), timeline.last_overdue(rules, passed))
        # Past the deadline by the clock skew: so much may the clocks of two brokers differ that lead the
        # partition one after the other, and then records on time can follow one that is late.
        complete = timeline.last_due(rules, self._append_clock)
        if self._captured_end is not None and self.position >= self._captured_end:
            complete = max(complete, timeline.last_due(rules, self._captured_at))
        return min(timeline.last_due(rules, now), complete)

    @property
    def dead_letters(self) -> int:
        """The number of dead letters that wait for a transaction."""
        return sum(map(len, chain.from_iterable(self._dead_letters.values())))

    def can_close(self, now: int) -> bool:
        """Whether ``close`` has something to close."""
        self._forget_future(now)
        return any(counter.next <= self._closable(counter, now) for counter in self.counters.values())

    def close(self, now: int) -> Batch | None:
        """Close what may be closed, up to the size of one transaction; None if that is nothing.

        Dead letters of the streams in the batch go along with it.
        """
        self._forget_future(now)
        partials: list[Partial] = []
        closed: set[str] = set()
        size = 0
        for name, counter in self.counters.items():
            last = self._closable(counter, now)
            while counter.next <= last and size < _BATCH_BYTES:
                partial = counter.close()
                partials.append(partial)
                closed.add(name)
                size += 200 + 12 * len(partial.columns) + sum(map(len, partial.names))
        return self._batch(partials, closed) if partials else None

    def dead_letter_batch(self) -> Batch | None:
        """The dead letters that wait, with states that record their verdicts; None if there are none.

        Boundaries that were captured become durable too: before any verdict that rests on them.
        """
        captured = {name for name, counter in self.counters.items() if counter.undurable}
        return self._batch([], captured) if self.dead_letters or captured else None

    def _batch(self, partials: list[Partial], changed: set[str]) -> Batch:
        names = changed | {name for name, letters in self._dead_letters.items() if letters}
        letters = DeadLetters(chain.from_iterable(self._dead_letters[name] for name in sorted(names)))
        for name in names:
            self._dead_letters[name] = []
        states = {name: self.counters[name].state_at(self.position) for name in sorted(names)}
        outcomes = {name: self.counters[name].new_outcomes() for name in sorted(names)}
        return Batch(tuple(partials), letters, states, outcomes)

    def durable(self, batch: Batch) -> None:
        """Take note that the batch is durable."""
        for name, state in batch.states.items():
            self.counters[name].resume_from(state)


@dataclass(frozen=True, slots=True)
class Outputs:
    """Where the records of a transaction go: the topic of partial counts, with the partition of each stream,
    and the partition of the changelog. States carry the ``version`` that judges in a header, if it is given.
    """

    partials: str
    partition_of: Mapping[str, int]
    changelog: TopicPartition
    version: str = ""

    def records(self, batch: Batch, reach: Reach | None = None) -> Records:
        """Dead letters, partial counts, and the states that go with them; to be met once.

        States carry the ``reach`` of what was read.
        """
        return Records(self._parts(batch, reach))

    def _parts(self, batch: Batch, reach: Reach | None) -> Iterator[Outgoing | Columns]:
        yield from batch.dead_letters.parts
        for partial in batch.partials:
            name = partial.stream
            for piece in partial.pieces():
                yield Outgoing(self.partials, piece.encode(), name.encode(), self.partition_of[name])
        topic, partition = self.changelog
        headers = [*([(VERSION, self.version.encode())] if self.version else ()), *header_of(reach)]
        for name, state in batch.states.items():
            yield Outgoing(topic, state.encode(), name.encode(), partition, headers)


class Aggregation(PartitionAggregator, Task):
    """The task: events in, partial counts and dead letters out."""

    def __init__(
        self,
        outputs: Outputs,
        partitions: int,
        streams: Mapping[str, tuple[Stream, CounterState]],
        grown: Mapping[str, Sequence[Growth]] | None = None,
    ) -> None:
        """As of ``PartitionAggregator``."""
        super().__init__(partitions, streams, grown=grown)
        self._outputs, self.partitions = outputs, partitions
        # Every owner is asked for them at each fetch, and they change when it closes something.
        self._due, self._closed = super().due, super().closed

    @property
    def due(self) -> int:
        """See ``Task.due``."""
        return self._due

    @property
    def closed(self) -> int:
        """See ``Task.closed``."""
        return self._closed

    def close(self, now: int) -> Batch | None:
        """See ``PartitionAggregator.close``."""
        batch = super().close(now)
        self._due, self._closed = super().due, super().closed
        return batch

    def has_work(self, now: int) -> bool:
        """See ``Task.has_work``."""
        undurable = any(counter.undurable for counter in self.counters.values())
        return undurable or bool(self.dead_letters) or self.can_close(now)

    def next(self, now: int) -> Transaction | None:
        """See ``Task.next``: close what is due and complete, then write dead letters.

        What is closed rests on all that was read and asked: of this topic, with no other partition. So do
        boundaries, which become durable with dead letters.
        """
        if batch := self.close(now):
            return self._transaction("close", batch, concludes=True)
        if batch := self.dead_letter_batch():
            return self._transaction("judge", batch, concludes=bool(self.boundaries()))
        return None

    def _transaction(self, name: str, batch: Batch, *, concludes: bool) -> Transaction:
        records = self._outputs.records(batch, self.reach)
        return Transaction(
            name,
            records,
            by_clock=True,
            concludes=concludes,
            tentative=True,
            outcomes=batch.outcomes,
            letters=batch.dead_letters,
            cause=batch,
        )

    def committed(self, done: Transaction) -> None:
        """See ``Task.committed``."""
        assert isinstance(done.cause, Batch)
        self.durable(done.cause)

    def rests(self, now: int) -> bool:
        """See ``Task.rests``: what is not due is neither closed nor waited for."""
        return self.due > now

    def views(self) -> Mapping[str, StreamView]:
        """See ``Task.views``."""
        return {
            name: StreamView(counter.next, counter.held, completed=counter.completed)
            for name, counter in self.counters.items()
        }


def _unsure(values: Sequence[bytes | None], parts: Sequence[Fields]) -> int:
    """How much is left to the rule, in records: many bytes count as several."""
    if sum(len(part.rows) + len(part.broken) for part in parts) == len(values):
        return 0
    left = np.ones(len(values), bool)
    for part in parts:
        left[part.rows] = False
        left[part.broken] = False
    rows = np.flatnonzero(left)
    if not rows.size or isinstance(values, Columnar):
        return len(rows)
    return len(rows) + sum(len(value or b"") for value in picked(values, rows)) // _SLOW_BYTES


def _portion(chunk: Chunk, times: int) -> Chunk:
    """What of a chunk is judged at once: a portion, or ``times`` as much."""
    # Values that were columns before are not measured: that would make JSON of them.
    if isinstance(chunk.values, Columnar):
        return chunk
    lengths = lengths_of(chunk.values[: times * _PORTION])
    records = int(np.searchsorted(np.cumsum(lengths), times * _PORTION_BYTES, side="right"))
    return chunk.first(max(1, records)) if records < len(chunk.offsets) else chunk
