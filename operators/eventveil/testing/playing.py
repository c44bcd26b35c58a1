"""Playing the events of a test: the core of the worker over a log in memory, under a clock of the test.

The worker of a test keeps up: before an event is appended, the clock moves to its append time, everything
appended before has been read, and what is due is closed. So which timestamp is closed before which event is
decided by append times alone. Events of a stream with ``repartition`` go through the re-keying stage first.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import orjson

from eventveil.counting.counter import Partial
from eventveil.counting.rejections import DeadLetters
from eventveil.decoding.places import Envelope
from eventveil.decoding.rules import Decoder, Rejection, parse, weigh
from eventveil.model import timeline
from eventveil.model.errors import EventveilError
from eventveil.model.partitioners import PARTITIONERS
from eventveil.model.records import NO_APPEND_TIME, Chunk, Headers, Outgoing, TopicPartition
from eventveil.model.topology import Stream
from eventveil.replay.inputs import Input
from eventveil.replay.partitions import INSTANCE, OwnCounting, Task
from eventveil.replay.run import Released, Replay
from eventveil.replay.span import Span
from eventveil.tasks.aggregate import Batch, PartitionAggregator
from eventveil.tasks.repartition import Rekeyer, RekeyerState
from eventveil.testing.model import Case, Played, Sent
from eventveil.testing.noise import NoiseOff
from eventveil.topology.problems import Position

#: A test that covers more timestamps has no ``from``, or one that is far away.
MOST_TIMESTAMPS = 10_000
#: What becomes of an event that does not count and is no dead letter.
LEFT_OUT = ("bounded", "ignored", "filtered")
#: In place of a time that cannot be read.
_NEVER = -(2**62)


class Unplayable(EventveilError):
    """A test cannot be played as it is; ``position`` is the place in its file."""

    def __init__(self, position: Position, message: str) -> None:
        super().__init__(message)
        self.position, self.message = position, message


@dataclass(frozen=True, slots=True)
class _Append:
    """Records of one event that are appended to one partition at one time."""

    event: int
    partition: int
    time: int
    records: Sequence[Sent]


class _Log(Input):
    """The source topic of a stream, in memory. It is not read as an input: ``_Clocked`` appends to it."""

    def __init__(self, stream: Stream, partitions: int) -> None:
        super().__init__(stream.source.topic)
        self.partitions = partitions
        self.complete = False

    def rules(self, stream: Stream, last: int | None) -> Stream:
        """As they are."""
        return stream

    def begin(self, earliest: int, longest: int) -> Mapping[int, int]:
        """Every partition begins at 0."""
        return dict.fromkeys(range(self.partitions), 0)

    def chunks(self) -> Iterator[Chunk]:
        """None: see the class."""
        return iter(())

    def ended(self, partition: int) -> bool:
        """Whether the test is over."""
        return self.complete


class _Clocked(OwnCounting):
    """Counts what a script appends, and closes timestamps when they are due by the clock."""

    def __init__(self, task: Task, log: _Log, case: Case, stream: Stream) -> None:
        super().__init__(task, log, range(log.partitions))
        self._log, self._stream, self._case = log, stream, case
        self._script = [*_script(case, stream)]
        self._by_boundary = stream.source.append_time == "boundary"
        self._rekeyers = [self._rekeyer(one) for one in range(log.partitions)] if stream.source.raw else []
        #: The event that each offset of a source partition belongs to.
        self._event_at: list[list[int]] = [[] for _ in range(log.partitions)]
        self.read = 0
        self.played = Played()

    def _rekeyer(self, partition: int) -> Rekeyer:
        state = RekeyerState(INSTANCE, partition, 0)
        changelog = TopicPartition("", partition)
        return Rekeyer(self._stream.source, [self._stream.timeline], self._log.partitions, state, changelog)

    def steps(self) -> Generator[Sequence[Partial], None, None]:
        """See ``Counting.steps``."""
        for append in self._script:
            yield self._advance(append.time)
            self._append(append)
        last = self.last_open(self._stream.name)
        if self._case.until is not None:
            yield self._advance(self._case.until)
        elif last:
            yield self._advance(timeline.due_of(self._stream.timeline, last))
        self._log.complete = True
        yield ()

    def _advance(self, now: int) -> list[Partial]:
        """Move the clock: whatever is due is closed."""
        for one in self._rekeyers:
            one.capture_end(now, one.position)
            self._pass_on(one, self.read)
        partials: list[Partial] = []
        for aggregator in self._aggregators.values():
            aggregator.capture_end(now, aggregator.position)
            self._write_dead_letters(aggregator)
            while batch := aggregator.close(now):
                self._commit(aggregator, batch)
                partials += batch.partials
        self._note_closed()
        return partials

    def _note_closed(self) -> None:
        first = min(one.counters[self._stream.name].next for one in self._aggregators.values())
        known = max(self.played.closed, default=self._task.first[self._stream.name] - 1)
        if first - self._case.start > MOST_TIMESTAMPS:
            raise Unplayable(self._case.position, _too_many(self._stream, self._case.start))
        self.played.closed |= dict.fromkeys(range(known + 1, first), self.read)

    def _append(self, append: _Append) -> None:
        self.read = append.event
        places = self._event_at[append.partition]
        start = len(places)
        places += [append.event] * len(append.records)
        if self._rekeyers:
            one = self._rekeyers[append.partition]
            one.process(self._chunk(append.partition, start, append.time, append.records))
            self._pass_on(one, append.event)
            return
        time = NO_APPEND_TIME if self._by_boundary else append.time
        self._read(self._chunk(append.partition, start, time, append.records), append.event)

    def _pass_on(self, one: Rekeyer, event: int) -> None:
        """Append what the re-keying stage has for the partitions of users, and read it."""
        # It goes by the ends that were captured, not by this time.
        passed = one.next(0)
        if passed is None:
            return
        records = [record for record in passed.records if record.topic == self._stream.source.topic]
        for partition in range(self._log.partitions):
            mine = [record for record in records if record.partition == partition]
            if mine:
                self._read(self._passed_on(partition, mine), event)
        one.committed(passed)

    def _passed_on(self, partition: int, records: Sequence[Outgoing]) -> Chunk:
        start = self._aggregators[partition].position
        return self._chunk(partition, start, 0, records)

    def _chunk(
        self, partition: int, start: int, time: int, records: Sequence[Sent] | Sequence[Outgoing]
    ) -> Chunk:
        after = start + len(records)
        offsets, times = range(start, after), [time] * len(records)
        topic = self._stream.source.topic
        keys, values = [one.key for one in records], [one.value for one in records]
        headers: list[Headers | None] = [one.headers for one in records]
        return Chunk(topic, partition, 0, start, offsets, times, keys, values, after, headers)

    def _read(self, chunk: Chunk, event: int) -> None:
        before = self.outcomes(self._stream.name)
        aggregator = self._aggregators[chunk.partition]
        while aggregator.position < chunk.next_offset:
            aggregator.process(chunk)
            self._write_dead_letters(aggregator)
        after = self.outcomes(self._stream.name)
        for why in LEFT_OUT:
            if number := after[why] - before[why]:
                self.played.left_out[event, why] += number
        self.events += len(chunk.offsets)

    def _write_dead_letters(self, aggregator: PartitionAggregator) -> None:
        if batch := aggregator.dead_letter_batch():
            self._commit(aggregator, batch)

    def _commit(self, aggregator: PartitionAggregator, batch: Batch) -> None:
        self._note_letters(batch.dead_letters)
        aggregator.durable(batch)

    def _note_letters(self, letters: DeadLetters) -> None:
        for letter in letters:
            headers = {name: text.decode() for name, text in letter.headers}
            place = int(headers["eventveil.partition"]), int(headers["eventveil.offset"])
            event = self._event_at[place[0]][place[1]]
            self.played.dead_letters[event, headers["eventveil.reason"]] += 1
            self.played.details.setdefault(event, headers["eventveil.detail"])


def _script(case: Case, stream: Stream) -> Iterator[_Append]:
    """What is appended, in order. Raises Unplayable for a time that goes back."""
    clock = timeline.start_of(stream.timeline, case.start)
    placing = _Placing(stream, case.partitions)
    for number, event in enumerate(case.events, 1):
        if event.appended is not None and number > 1 and event.appended < clock:
            raise Unplayable(
                event.position,
                f"event {number} is appended at {timeline.format_rfc3339(event.appended)}, before the one "
                f"above it, at {timeline.format_rfc3339(clock)}; put events in the order of append times",
            )
        if number == 1 and event.appended is not None:
            clock = event.appended
        run: list[Sent] = []
        place = (-1, clock)
        for sent in event.records:
            time, user_partition = placing.of(sent, event.appended)
            clock = event.appended if event.appended is not None else max(clock, time)
            partition = user_partition if event.partition is None else event.partition
            if run and place != (partition, clock):
                yield _Append(number, *place, run)
                run = []
            place = partition, clock
            run.append(sent)
        yield _Append(number, *place, run)
    _check_until(case, clock)


def _check_until(case: Case, clock: int) -> None:
    if case.until is not None and case.events and case.until < clock:
        raise Unplayable(
            case.position,
            f"until is {timeline.format_rfc3339(case.until)}, but the last event is appended at "
            f"{timeline.format_rfc3339(clock)}; until is the time at the end of the test",
        )


class _Placing:
    """Where a producer that keeps to the topology would put an event, and when it happened."""

    def __init__(self, stream: Stream, partitions: int) -> None:
        source = stream.source
        self._source, self._partitions = source, partitions
        self._partition_of = PARTITIONERS[source.partitioner]
        self._decoder = Decoder(source, stream.counts)

    def of(self, sent: Sent, appended: int | None) -> tuple[int, int]:
        """The time, or one before all others if it cannot be read, and the partition, or the first one."""
        most, form = self._source.max_bytes, self._source.format
        document = parse(sent.value, most, form) if self._decoder.reads_value else weigh(sent.value, most)
        if isinstance(document, Rejection):
            return _NEVER, 0
        envelope = Envelope(sent.key, sent.headers, NO_APPEND_TIME if appended is None else appended)
        time = self._decoder.time(document, envelope)
        user = None if self._source.raw else self._decoder.user(document, envelope)
        known = isinstance(user, bytes)
        return (
            _NEVER if isinstance(time, Rejection) else time,
            self._partition_of(user, self._partitions) if known and isinstance(user, bytes) else 0,
        )


def _too_many(stream: Stream, first: int) -> str:
    begins = timeline.format_rfc3339(timeline.start_of(stream.timeline, first))
    return (
        f"{stream.name} has more than {MOST_TIMESTAMPS:,} timestamps from {begins} on; begin later with "
        "`from:`, and keep the times of events near each other"
    )


def play(case: Case, stream: Stream) -> Played:
    """What comes of the events of a test, with the noise off.

    Raises Unplayable for events that cannot be played, NoiseNeeded or what the mechanism raises.
    """
    log = _Log(stream, case.partitions)
    noise = NoiseOff()
    clocked: list[_Clocked] = []

    def counting(task: Task) -> _Clocked:
        clocked.append(_Clocked(task, log, case, stream))
        return clocked[0]

    last = None if case.until is None else {stream.name: timeline.last_due(stream.timeline, case.until)}
    span = Span({stream.name: case.start}, last)
    # Marked as seeded: even the records that are looked at here say that they are not to be published.
    running = Replay([stream], log, span, lambda _: noise, {}, 1, seeded=True, counting=counting)
    (counted,) = clocked
    for released in running:
        _note(counted.played, released)
        noise.next_timestamp()
    return counted.played


def _note(played: Played, released: Released) -> None:
    stream, release = released.stream, released.release
    labels = stream.counts.labels
    nonzero = released.counts.nonzero()[0].tolist()
    epsilon, units = stream.mechanism.epsilon, released.units
    played.counts[released.timestamp] = {labels[at]: int(released.counts[at]) for at in nonzero}
    played.records[released.timestamp] = orjson.loads(released.record)
    played.spent[released.timestamp] = epsilon * Fraction(release.test + release.publish, units)
    played.most_spent = max(played.most_spent, epsilon * Fraction(release.window_spent, units))
