"""Playing the events of a test: the tasks of the worker over a log in memory, under a clock of the test.

The worker of a test keeps up: before an event is appended, the clock moves to its append time, everything
appended before has been read, and what is due is closed. So which timestamp is closed before which event is
decided by append times alone. Events of a stream with ``repartition`` go through the re-keying stage first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import orjson

from eventveil.counting.counter import Partial
from eventveil.decoding.places import Envelope
from eventveil.decoding.rules import Decoder, Rejection, parse, weigh
from eventveil.model import timeline
from eventveil.model.errors import EventveilError
from eventveil.model.partitioners import PARTITIONERS
from eventveil.model.records import NO_APPEND_TIME, NO_OWN_TIME, Chunk, Outgoing, TopicPartition
from eventveil.model.topology import ReadingStream, Stream
from eventveil.replay.inputs import Input
from eventveil.replay.log import MemoryLog
from eventveil.replay.partitions import Scope
from eventveil.replay.releasing import INSTANCE, Released, Releasing
from eventveil.replay.runner import LogRunner
from eventveil.replay.values import ValueReplay
from eventveil.tasks.aggregate import Batch
from eventveil.tasks.repartition import Rekeyer, RekeyerState
from eventveil.tasks.task import Task, Transaction
from eventveil.tasks.values import READ
from eventveil.testing.model import Case, EventEntry, Played, Sent
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
    """Records of one event that are appended to one partition at one time.

    ``created`` is the time that their producer gives them, None for that at which they are appended.
    """

    event: int
    partition: int
    time: int
    records: Sequence[Sent]
    created: int | None = None


class _Worker:
    """The tasks over a log in memory, run by the clock of the script."""

    def __init__(self, case: Case[Stream], last: int | None) -> None:
        self._case, self._stream, self._now = case, case.stream, 0
        stream, self._script = case.stream, [*_script(case)]
        source, everywhere = stream.source, range(case.partitions)
        self._log = MemoryLog()
        self._passing_on: list[_Role] = []
        self._log.create(source.topic, case.partitions, stamped=source.append_time != "boundary")
        if source.raw:
            self._log.create(source.raw, case.partitions, stamped=source.append_time != "boundary")
            self._passing_on = [self._role(source.raw, one, self._rekeyer(one)) for one in everywhere]
        scope = Scope(
            {stream.name: stream}, {stream.name: case.start}, {stream.name: last}, {},
            dict.fromkeys(everywhere, 0), case.partitions if source.raw else 0,
        )  # fmt: skip
        tasks = [scope.aggregation(one) for one in everywhere]
        self._counters = [task.counters[stream.name] for task in tasks]
        self._counting = [self._role(source.topic, one, task) for one, task in enumerate(tasks)]
        #: The event that each offset of a partition of events belongs to.
        self._event_at: list[list[int]] = [[] for _ in everywhere]
        self.read = 0
        self.played = Played()

    def _rekeyer(self, partition: int) -> Rekeyer:
        state = RekeyerState(INSTANCE, partition, 0)
        changelog = TopicPartition("", partition)
        source = self._stream.source
        return Rekeyer(
            source,
            [self._stream.timeline],
            self._case.partitions,
            state,
            changelog,
            own_times=source.own_time,
        )

    def _role(self, topic: str, partition: int, task: Task) -> _Role:
        place = TopicPartition(topic, partition)
        return _Role(
            place, task, LogRunner(task, self._commit, lambda: self._now, lambda: self._log.end(place))
        )

    def _commit(self, work: Transaction) -> None:
        """Of what is written, re-keyed events are read again; partial counts are handed on."""
        if work.name == "pass-on":
            self._log.append([one for one in work.records if one.topic == self._stream.source.topic])

    def steps(self) -> Iterator[list[Partial]]:
        """The partial counts of each step, in their order."""
        for append in self._script:
            yield self._advance(append.time)
            yield self._append(append)
        if self._case.until is not None:
            yield self._advance(self._case.until)
        elif last := self.last_open:
            yield self._advance(timeline.due_of(self._stream.timeline, last))

    @property
    def last_open(self) -> int:
        """The last timestamp that has an event and is not closed, 0 if there is none."""
        return max(one.last_open or 0 for one in self._counters)

    def close(self, last: int) -> Iterator[Partial]:
        """What is still open up to a timestamp: the test is over."""
        for one in self._counters:
            while one.next <= last:
                yield one.close()

    def _advance(self, now: int) -> list[Partial]:
        """Move the clock: whatever is due is closed."""
        self._now = now
        self._log.advance(now)
        return self._go_on()

    def _append(self, append: _Append) -> list[Partial]:
        self.read = append.event
        self._event_at[append.partition] += [append.event] * len(append.records)
        topic = self._stream.source.topic_of_events
        self._log.append(
            (Outgoing(topic, one.value, one.key, append.partition, one.headers) for one in append.records),
            append.created,
        )
        return self._go_on()

    def _go_on(self) -> list[Partial]:
        """Every task reads to the end of its input, and commits what it can."""
        for role in self._passing_on:
            for _ in role.go_on(self._log):
                pass
        before = self._outcomes()
        done = [one for role in self._counting for one in role.go_on(self._log)]
        after = self._outcomes()
        for why in LEFT_OUT:
            if number := after[why] - before[why]:
                self.played.left_out[self.read, why] += number
        for one in done:
            self._note_letters(one.letters)
        self._note_closed()
        return [partial for one in done if isinstance(one.cause, Batch) for partial in one.cause.partials]

    def _outcomes(self) -> Counter[str]:
        return sum((one.outcomes for one in self._counters), Counter())

    def _note_closed(self) -> None:
        first = min(one.next for one in self._counters)
        known = max(self.played.closed, default=self._case.start - 1)
        if first - self._case.start > MOST_TIMESTAMPS:
            raise Unplayable(self._case.position, _too_many(self._stream, self._case.start))
        self.played.closed |= dict.fromkeys(range(known + 1, first), self.read)

    def _note_letters(self, letters: Iterable[Outgoing]) -> None:
        for letter in letters:
            headers = {name: text.decode() for name, text in letter.headers}
            place = int(headers["eventveil.partition"]), int(headers["eventveil.offset"])
            event = self._event_at[place[0]][place[1]]
            self.played.dead_letters[event, headers["eventveil.reason"]] += 1
            self.played.details.setdefault(event, headers["eventveil.detail"])


@dataclass(frozen=True, slots=True)
class _Role:
    """A task, what it reads, and what runs it."""

    place: TopicPartition
    task: Task
    runner: LogRunner

    def go_on(self, log: MemoryLog) -> Iterator[Transaction]:
        """Read to the end; the transactions, once they are durable."""
        yield from self.runner.take_in(log.read(self.place, self.task.position))
        yield from self.runner.settle()


def _script(case: Case[Stream]) -> Iterator[_Append]:
    """What is appended, in order. Raises Unplayable for a time that goes back."""
    clock = timeline.start_of(case.stream.timeline, case.start)
    placing = _Placement(case.stream, case.partitions)
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
            time, user_partition = placing.of(sent, event)
            clock = event.appended if event.appended is not None else max(clock, time)
            partition = user_partition if event.partition is None else event.partition
            if run and place != (partition, clock):
                yield _Append(number, *place, run, event.created)
                run = []
            place = partition, clock
            run.append(sent)
        yield _Append(number, *place, run, event.created)
    _check_until(case, clock)


def _check_until(case: Case[Stream], clock: int) -> None:
    if case.until is not None and case.events and case.until < clock:
        raise Unplayable(
            case.position,
            f"until is {timeline.format_rfc3339(case.until)}, but the last event is appended at "
            f"{timeline.format_rfc3339(clock)}; until is the time at the end of the test",
        )


class _Placement:
    """Where a producer that keeps to the topology would put an event, and when it happened."""

    def __init__(self, stream: Stream, partitions: int) -> None:
        source = stream.source
        self._source, self._partitions = source, partitions
        self._partition_of = PARTITIONERS[source.partitioner]
        self._decoder = Decoder(source, stream.counts)

    def of(self, sent: Sent, event: EventEntry) -> tuple[int, int]:
        """The time, or one before all others if it cannot be read, and the partition, or the first one."""
        most, form = self._source.max_bytes, self._source.format
        document = parse(sent.value, most, form) if self._decoder.reads_value else weigh(sent.value, most)
        if isinstance(document, Rejection):
            return _NEVER, 0
        appended = NO_APPEND_TIME if event.appended is None else event.appended
        own_time = event.created
        if own_time is None:
            own_time = NO_OWN_TIME if event.appended is None else event.appended
        envelope = Envelope(sent.key, sent.headers, appended, own_time)
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


def play(case: Case[Stream]) -> Played:
    """What comes of the events of a test, with the noise off.

    Raises Unplayable for events that cannot be played, NoiseNeeded or what the mechanism raises.
    """
    stream = case.stream
    last = None if case.until is None else timeline.last_due(stream.timeline, case.until)
    worker, noise = _Worker(case, last), NoiseOff()
    # Marked as seeded: even the records that are looked at here say that they are not to be published.
    releasing = Releasing(stream, case.partitions, case.start, last, noise, seeded=True)

    def release(partials: Iterable[Partial]) -> None:
        releasing.add(partials)
        # One by one, for requests for noise are counted by timestamp.
        while not releasing.ended and (released := releasing.take(min(releasing.next, releasing.until))):
            _note(worker.played, released)
            noise.next_timestamp()

    for partials in worker.steps():
        release(partials)
    if releasing.last is None:
        releasing.last = max(releasing.last_counted, worker.last_open)
    release(worker.close(releasing.last))
    return worker.played


def _note(played: Played, released: Released) -> None:
    stream, release = released.stream, released.release
    labels = stream.counts.labels
    nonzero = released.counts.nonzero()[0].tolist()
    epsilon, units = stream.mechanism.epsilon, released.units
    played.counts[released.timestamp] = {labels[at]: int(released.counts[at]) for at in nonzero}
    played.records[released.timestamp] = orjson.loads(released.record)
    played.spent[released.timestamp] = epsilon * Fraction(release.test + release.publish, units)
    played.most_spent = max(played.most_spent, epsilon * Fraction(release.window_spent, units))


class _Values(Input):
    """The events of a test, one entry a chunk."""

    def __init__(self, case: Case[ReadingStream]) -> None:
        super().__init__(case.stream.source.topic)
        self._events, self._partitions = case.events, case.partitions
        self._next = [0] * case.partitions
        #: The number of the event whose values were delivered last.
        self.read = 0

    def rules(self, stream: Stream, last: int | None) -> Stream:
        """As they are."""
        return stream

    def begin(self, earliest: int, longest: int) -> Mapping[int, int]:
        """Every partition begins at 0."""
        return dict.fromkeys(range(self._partitions), 0)

    def chunks(self) -> Iterator[Chunk]:
        """One for each event, with all its repeats."""
        for event in self._events:
            self.read += 1
            yield self._chunk(event)

    def _chunk(self, event: EventEntry) -> Chunk:
        partition, values = event.partition or 0, event.values
        start = self._next[partition]
        after = self._next[partition] = start + len(values)
        nothing = [None] * len(values)
        offsets, times = range(start, after), [0] * len(values)
        return Chunk("values", partition, 0, start, offsets, times, nothing, values, after)

    def ended(self, partition: int) -> bool:
        """See ``Input.ended``; nobody asks."""
        return self.read == len(self._events)


def play_values(case: Case[ReadingStream]) -> Played:
    """The readings of the events of a test, in steps of the grid, and which events had no value."""
    stream, source, noise, played = case.stream, _Values(case), NoiseOff(), Played()
    running = ValueReplay([stream], source, lambda *_: noise, seeded=True)
    known = running.outcomes[stream.name].copy()
    for replayed in running:
        noise.next_timestamp()
        played.readings[source.read] = [orjson.loads(record)["reading"] for record in replayed.records]
        now = running.outcomes[stream.name]
        for reason, number in (now - known).items():
            if reason != READ:
                played.unreadable[source.read, str(reason)] += number
        known = now.copy()
    return played
