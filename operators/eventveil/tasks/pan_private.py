"""Counting and releasing a pan-private stream in one place, one timestamp at a time.

The noise that the counters of a timestamp start with follows from the release before it. So only one
timestamp is counted: events of later ones are passed over and read again when it is their turn. What is in
memory is that timestamp's ``Counters``; nothing else ever holds a count, because there are no partial counts.
A release is decided in steps, each of which is durable before the next (the proof is in
``eventveil.mechanisms.pan_private``):

    expose   this timestamp is about to be drawn for; a successor who finds that, and no release, gives it up.
             Dead letters that wait go with it: should they fail, that costs no timestamp
    decide   transaction A: release, charge and state; private
    publish  transaction B: ledger entry and release, as they are
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from eventveil.counting.assigner import Assigner, Placed, Rows
from eventveil.counting.counter import DISCARDED, CounterState, StreamCounter
from eventveil.counting.users import Users
from eventveil.decoding.bulk import FILTERED, IGNORED
from eventveil.mechanisms.pan_private import Counters, PanPrivate
from eventveil.model.durable import Durable, Natural, written
from eventveil.model.partitioners import Growth
from eventveil.model.reach import header_of
from eventveil.model.records import Chunk, Outgoing, Records, TopicPartition
from eventveil.model.timeline import deadline_of, due_of
from eventveil.model.topology import Stream
from eventveil.process.memory import Held
from eventveil.tasks.aggregate import Batch, PartitionAggregator
from eventveil.tasks.release import ReleaseState, StreamSanitizer, publication, releases_in
from eventveil.tasks.task import StreamView, Task, Transaction


class Exposure(Durable, frozen=True):
    """Which timestamp somebody may have seen more of than its release: it is not counted twice.

    ``announced`` is the last timestamp with an announced look, 0 if there was none. ``heard`` is the offset
    behind the last announcement that was heard.
    """

    instance: str
    timestamp: Natural = written(0)
    announced: Natural = written(0)
    heard: Natural = written(0)

    @staticmethod
    def key(stream: str) -> bytes:
        """Its key in the changelog; no stream name holds a slash."""
        return b"exposure/" + stream.encode()

    def contradiction(self) -> str | None:
        """See ``Durable.contradiction``."""
        return "its timestamps contradict each other" if self.announced > self.timestamp else None


@dataclass(frozen=True, slots=True)
class _Exposing:
    """What becomes durable before anything is drawn; ``letters`` are the dead letters that go with it."""

    exposure: Exposure
    letters: Batch | None = None


class SingleCounter(StreamCounter):
    """Counts the next timestamp only, into ``counters``; of later ones it knows where they begin.

    ``counters`` is None where events are discarded.
    """

    counters: Counters | None = None

    def __init__(
        self, stream: Stream, partitions: int, state: CounterState, users: Users, grown: Sequence[Growth] = ()
    ) -> None:
        super().__init__(stream, partitions, state, users, grown)
        self._begins: dict[int, int] = {}
        self._taken = 0

    def _take(self, rows: Rows, placed: Placed, told: int) -> None:
        """See ``StreamCounter._take``. Events that count are booked when their timestamp closes."""
        events = placed.merged()
        if (events.columns == FILTERED).any():
            raise ValueError("where the state begins would show which events a filter left out")
        # Also of events that ``unknown: ignore`` leaves out: their column must not show in the state.
        for timestamp in np.unique(events.timestamps).tolist():
            first = events.rows[events.timestamps == timestamp].min()
            self._begins.setdefault(timestamp, int(rows.offsets[first]))
        ignored = events.columns == IGNORED
        self._book("ignored", events.rows[ignored] >= told)
        events = events.where(~ignored)
        mine = events.timestamps == self.next
        self._taken += int(np.count_nonzero(mine))
        if self.counters is not None:
            self.counters.add(events.columns[mine])

    def go_on(self) -> None:
        """To the next timestamp; the counters are wiped."""
        if self._taken:
            self.outcomes[DISCARDED if self.counters is None else "counted"] += self._taken
        if self.counters is not None:
            self.counters.wipe()
        self._begins.pop(self.next, None)
        self.next, self._taken, self.counters = self.next + 1, 0, None

    def forget(self) -> Users:
        """The users that were met, which is raw."""
        source, partition = self.stream.source, self._state.partition
        self.users = Users(source, 1, partition)
        self._assigner = Assigner(self.stream, 1, partition, self._state.first, self.users)
        return self.users

    @property
    def begin(self) -> int | None:
        """The offset of the first event of the next timestamp, if one was passed over."""
        return self._begins.get(self.next)

    def state_at(self, position: int) -> CounterState:
        """See ``StreamCounter.state_at``."""
        resume = min(self._begins.values(), default=max(position, self._state.resume))
        judged = max(position, self._state.judged)
        return self._state.replace(next=self.next, resume=resume, judged=judged)


class SingleAggregator(PartitionAggregator):
    """Reads one stream over one partition as far as its next timestamp may need, and back for the one after.

    The chunk that was read last is kept until all of it has been read.
    """

    def __init__(self, stream: Stream, state: CounterState) -> None:
        super().__init__(1, {stream.name: (stream, state)}, SingleCounter)
        counter = self.counters[stream.name]
        assert isinstance(counter, SingleCounter)
        self.counter = counter
        self._kept: Chunk | None = None
        #: The latest append time of what was read.
        self._latest = 0

    def process(self, chunk: Chunk) -> None:
        """See ``PartitionAggregator.process``: judges as many records as the next timestamp may need."""
        unseen = chunk.since(self.position)
        self._kept = chunk
        # It is complete once a record is read that was appended after it was due.
        due = due_of(self.counter.stream.timeline, self.counter.next)
        end = bisect_left(unseen.append_times, due) + 1
        if self._latest < due and end < len(unseen.offsets):
            unseen = unseen.first(end)
        self._latest = max(self._latest, max(unseen.append_times, default=0))
        super().process(unseen)
        # Names of users, and whatever else helps to read, are raw.
        self._users, self._reader = {("", "", ""): self.counter.forget()}, self._new_reader()

    def go_on(self) -> Batch:
        """Close the timestamp: what is durable with it, dead letters included. ``go_back`` once it is."""
        self.counter.go_on()
        return self._batch([], {self.counter.stream.name})

    def go_back(self) -> None:
        """To where the next timestamp begins."""
        begin = self.counter.begin
        if begin is not None and begin < self.position:
            self.position, self._append_clock, self._latest = begin, 0, 0

    def read_kept(self) -> None:
        """Read on in the chunk that was read last, if the position is in it."""
        chunk = self._kept
        if chunk is None or not chunk.start <= self.position < chunk.next_offset:
            self._kept = None
        else:
            self.process(chunk)


@dataclass(frozen=True, slots=True)
class PanPrivateTopics:
    """Where the records go: topic and partition of the ledger and of the changelog."""

    ledger: TopicPartition
    changelog: TopicPartition


def release_key(stream: str) -> bytes:
    """The key of the budget state of a pan-private stream, beside the counting state in one changelog."""
    return b"release/" + stream.encode()


class PanPrivateStream(Task):
    """The task: a pan-private stream, from its durable states onwards."""

    def __init__(
        self,
        stream: Stream,
        mechanism: PanPrivate,
        counted: CounterState,
        sanitizer: StreamSanitizer,
        exposure: Exposure,
        places: PanPrivateTopics,
    ) -> None:
        """``sanitizer`` has the mechanism, and has restored it."""
        self.stream, self.sanitizer, self.exposure = stream, sanitizer, exposure
        self.aggregator = SingleAggregator(stream, counted)
        self._mechanism, self._places = mechanism, places
        self._forfeited = exposure.timestamp == counted.next
        self._heard: int | None = None
        self._begun = self._exposed = False
        # Counters are wiped by who gives the partition up, while another thread may be counting.
        self._lock, self._ended = threading.Lock(), False

    @property
    def timestamp(self) -> int:
        """The timestamp that is being counted."""
        return self.aggregator.counter.next

    @property
    def position(self) -> int:  # type: ignore[override]  # it is the aggregator's to move
        """See ``Task.position``. It goes back after a release: what was passed over is read again."""
        return self.aggregator.position

    @property
    def resume(self) -> int:
        """See ``Task.resume``."""
        return self.aggregator.resume

    @property
    def known(self) -> int:
        """See ``Task.known``."""
        return self.aggregator.known

    @property
    def untimed(self) -> bool:
        """See ``Task.untimed``."""
        return self.aggregator.untimed

    @untimed.setter
    def untimed(self, value: bool) -> None:
        self.aggregator.untimed = value

    @property
    def due(self) -> int:
        """See ``Task.due``."""
        return self.aggregator.due

    def views(self) -> Mapping[str, StreamView]:
        """See ``Task.views``."""
        return {self.stream.name: StreamView(self.timestamp, Held(1), spent=self.sanitizer.spent)}

    def wants_end(self, now: int) -> bool:
        """See ``Task.wants_end``."""
        return self.aggregator.wants_end(now)

    def capture_end(self, asked_at: int, end: int) -> None:
        """See ``Task.capture_end``."""
        self.aggregator.capture_end(asked_at, end)

    def left(self) -> Transaction | None:
        """See ``Task.left``."""
        if not self.sanitizer.state.pending:
            return None
        records = [*publication(self.sanitizer, self._places.ledger)]
        releases = releases_in(records, self._places.ledger.topic)
        records.append(self._release_state(self.sanitizer.state.settled))
        return Transaction("publish", records, releases=releases)

    def begin(self) -> None:
        """See ``Task.begin``."""
        if not self._begun:
            self.open()

    def open(self) -> None:
        """Begin to count the next timestamp, unless its events are to be discarded. What was is public."""
        self._begun = True
        self._unless_ended(self._open)

    def _open(self) -> None:
        self.aggregator.go_back()
        self.aggregator.counter.counters = None if self._forfeited else self._mechanism.open()
        self.aggregator.read_kept()

    @property
    def quick_records(self) -> int:
        """See ``Task.quick_records``."""
        return self.aggregator.quick_records

    def process(self, chunk: Chunk) -> None:
        """See ``Task.process``."""
        self._unless_ended(partial(self.aggregator.process, chunk))

    def end(self) -> None:
        """See ``Task.end``: as soon as the chunk that is being counted has been, if one is."""
        self._ended = True
        self._wipe_at_end()

    def hear(self, behind: int) -> None:
        """Somebody will look at this timestamp: of an announcement, this being the offset behind it."""
        self._heard = behind

    def next(self, now: int) -> Transaction | None:
        """See ``Task.next``.

        The clock is checked with the first record, before anything is drawn.
        """
        if left := self.left():
            return left
        if self._exposed:
            return self._deciding()
        if self._heard is None and not self.aggregator.can_close(now):
            # What is left of the last chunk, turn by turn; a release does not wait for it.
            self._unless_ended(self.aggregator.read_kept)
        if self.untimed:
            return None
        if self._heard is not None:
            announced = self.exposure.replace(
                timestamp=self.timestamp, announced=self.timestamp, heard=self._heard
            )
            return self._exposing(_Exposing(announced))
        closes = self.aggregator.can_close(now) and not self.sanitizer.lacks_schema
        if closes and not self.draws:
            return replace(self._deciding(), by_clock=True, concludes=True)
        letters = self.aggregator.dead_letter_batch()
        if closes:
            exposing = _Exposing(self.exposure.replace(timestamp=self.timestamp), letters)
            return replace(self._exposing(exposing), by_clock=True, concludes=True)
        return self._settling("judge", letters) if letters else None

    def _exposing(self, work: _Exposing) -> Transaction:
        record = self._places.changelog.record(Exposure.key(self.stream.name), work.exposure.encode())
        if work.letters is None:
            return Transaction("expose", [record], cause=work)
        return replace(self._settling("expose", work.letters, record), cause=work)

    def _deciding(self) -> Transaction:
        batch = self.decide()
        return self._settling("decide", batch, self._release_state(self.sanitizer.state))

    def _settling(self, name: str, batch: Batch, *more: Outgoing) -> Transaction:
        # With dead letters goes that they need not be written again.
        letters, changelog = batch.dead_letters, self._places.changelog
        states = [
            changelog.record(name.encode(), one.encode(), header_of(self.reach))
            for name, one in batch.states.items()
        ]
        records = Records([*letters.parts, *states, *more])
        return Transaction(name, records, outcomes=batch.outcomes, letters=letters, cause=batch)

    def _release_state(self, state: ReleaseState) -> Outgoing:
        return self._places.changelog.record(release_key(self.stream.name), state.encode())

    def committed(self, done: Transaction) -> None:
        """See ``Task.committed``."""
        if isinstance(done.cause, _Exposing):
            if done.cause.letters is not None:
                self.aggregator.durable(done.cause.letters)
            self._expose(done.cause.exposure)
        elif isinstance(done.cause, Batch):
            self.aggregator.durable(done.cause)
        else:
            self.sanitizer.published()
            self.open()

    def _expose(self, exposure: Exposure) -> None:
        if exposure.heard != self.exposure.heard:
            # It will be published, whatever the mechanism would have chosen.
            self._mechanism.announce()
            self._heard = None
        else:
            self._exposed = True
        self.exposure = exposure

    def _unless_ended(self, work: Callable[[], None]) -> None:
        try:
            with self._lock:
                if not self._ended:
                    work()
        finally:
            self._wipe_at_end()

    def _wipe_at_end(self) -> None:
        # The thread that holds the lock overwrites what it leaves.
        if self._ended and self._lock.acquire(blocking=False):
            if self.aggregator.counter.counters is not None:
                self.aggregator.counter.counters.wipe()
            self._lock.release()

    @property
    def draws(self) -> bool:
        """Whether a release of this timestamp would be drawn, so that it must be exposed before."""
        return self.aggregator.counter.counters is not None

    def may_be_announced(self, now: int) -> bool:
        """Whether somebody may be told to look at this timestamp, and half of its time is left to do so.

        Once in a timestamp, because two looks differ by the truth; and not where there is nothing to be seen.
        """
        rules = self.stream.timeline
        middle = (due_of(rules, self.timestamp - 1) + deadline_of(rules, self.timestamp)) // 2
        return self.draws and self.exposure.timestamp != self.timestamp and now < middle

    def decide(self) -> Batch:
        """Release the timestamp, which must be complete, and exposed if it draws. At most once.

        Raises ValueError once the partition was given up, because its counters are gone.
        """
        counters = self.aggregator.counter.counters
        with self._lock:
            if self._ended:
                raise ValueError("the partition was given up")
            nothing = np.zeros(len(self.stream.counts.labels), np.int64)
            seen = nothing if counters is None else counters.cells
            step = (lambda _: self._mechanism.forfeit()) if self._forfeited else self._mechanism.step
            self.sanitizer.keep(self.sanitizer.drawn(seen, step, forfeited=self._forfeited))
            self.sanitizer.charge(0)
            self._forfeited = self._exposed = False
            return self.aggregator.go_on()
