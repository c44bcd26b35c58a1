"""Re-keying one partition of a topic of events: every event goes to the partition of its user.

A pure state machine. ``eventveil.tasks.passed_on`` makes the records. Marks, one to every partition in the
transaction that they are true of, say up to which append time all events of this partition have been passed
on: what closes a timestamp behind it.

Where the broker tells no append times (``append_time: boundary``), an event gets the moment of the last
capture of the log's end at or below its offset, less the clock skew: it was appended later than that. The
end is captured when a timestamp is due by the public clock, however much is unread, so neither this time nor
the marks depend on what others sent (decision 8).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eventveil.model import timeline
from eventveil.model.durable import Durable, Natural, written
from eventveil.model.reach import header_of
from eventveil.model.records import NO_APPEND_TIME, Chunk, Outgoing, Records, TopicPartition
from eventveil.model.topology import BY_SCHEMA, Source, Timeline
from eventveil.tasks.passed_on import PassedOn, Passing, mark
from eventveil.tasks.task import StreamView, Task, Transaction


class Capture(NamedTuple):
    """A log ended at offset ``end`` no earlier than wall clock time ``asked_at``, in epoch milliseconds."""

    asked_at: Natural
    end: Natural


class RekeyerState(Durable, frozen=True):
    """What the changelog holds for one partition: ``position`` is the next offset to pass on.

    ``captures`` are those that a successor needs, ascending; there are none where brokers tell append times.
    ``skew`` is the clock skew that they are to be read with, in ms; 0 in a state of version 0.2.0 or before.
    """

    NEWER = ("skew",)

    instance: str
    partition: Natural
    position: Natural
    passed: Natural = written(0)
    captures: tuple[Capture, ...] = ()
    skew: Natural = 0

    @property
    def known(self) -> int:
        """The offset that the log reaches at least."""
        return max(self.position, self.captures[-1].end if self.captures else 0)

    def contradiction(self) -> str | None:
        """See ``Durable.contradiction``."""
        pairs = pairwise(self.captures)
        unordered = any(one.asked_at > other.asked_at or one.end >= other.end for one, other in pairs)
        return "its captures are not in order" if unordered else None


class Rekeyer(Task):
    """A partition of a topic of events, from a durable state onwards; ``partitions`` are those they go to.

    ``changelog`` is where the state is kept. ``own_times``: events bring along the times that their records
    carried.
    """

    def __init__(
        self,
        source: Source,
        timelines: Iterable[Timeline],
        partitions: int,
        state: RekeyerState,
        changelog: TopicPartition,
        *,
        own_times: bool = False,
    ) -> None:
        self._topic, self._by_schema = source.topic, source.format in BY_SCHEMA
        self._passing = Passing(source, state.partition, partitions, own_times=own_times)
        self._timelines = list(timelines)
        self._skew = max(rules.clock_skew for rules in self._timelines)
        #: None where the broker tells append times.
        self._captures: list[Capture] | None = None
        if source.append_time == "boundary":
            # The skew may be another one since. When events were appended must not change with it: some were
            # passed on with that time, and which ones depends on events of others.
            added = self._skew - (state.skew or self._skew)
            self._captures = [Capture(one.asked_at + added, one.end) for one in state.captures]
        self._partitions = partitions
        self._state, self._changelog = state, changelog
        # Every owner is asked for it at each fetch, and it changes with what is committed.
        self._due = self._next_deadline(state.passed) + self._skew
        self.position = state.position
        self._append_clock = 0
        self._captured_at = 0
        self._captured_end: int | None = None
        self._waiting: list[PassedOn | Outgoing] = []

    @property
    def quick_records(self) -> int:
        """See ``Task.quick_records``: finding a user by a schema takes some ten times as long."""
        return 0 if self._by_schema else super().quick_records

    @property
    def resume(self) -> int:
        """See ``Task.resume``."""
        return self._state.position

    def process(self, chunk: Chunk) -> None:
        """See ``Task.process``."""
        unseen = chunk.since(self.position)
        if len(unseen.offsets):
            append_times = self._append_times(unseen)
            # Of the last record, not the highest: one of a broker whose clock was ahead is forgotten soon.
            self._append_clock = int(append_times[-1])
            self.untimed |= bool((append_times == NO_APPEND_TIME).any())
            self._waiting += self._passing.of(unseen, append_times)
        self.position = max(self.position, chunk.next_offset)

    def _append_times(self, chunk: Chunk) -> NDArray[np.int64]:
        """Those of the broker, or times after which the records were appended."""
        if self._captures is None:
            return np.array(chunk.append_times, np.int64)
        return self._appended_after(self._captures, np.array(chunk.offsets, np.int64))

    def _appended_after(self, captures: list[Capture], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Times after which the records at offsets were appended: no mark before was later than they are."""
        passed = self._state.passed
        asked = [passed, *(max(passed, one.asked_at - self._skew) for one in captures)]
        return np.array(asked, np.int64)[np.searchsorted([one.end for one in captures], offsets, "right")]

    @property
    def known(self) -> int:
        """See ``Task.known``."""
        return max(self.position, self._captures[-1].end if self._captures else 0)

    def boundaries(self) -> list[tuple[Timeline, int]]:
        """See ``Task.boundaries``."""
        if self._captures is None:
            return []
        last = self._captures[-1].asked_at if self._captures else 0
        cautious = [replace(rules, clock_skew=self._skew) for rules in self._timelines]
        return [(rules, max(0, timeline.last_due(rules, last))) for rules in cautious]

    def wants_boundary(self, now: int) -> bool:
        """See ``Task.wants_boundary``."""
        return any(timeline.last_due(rules, now) > last for rules, last in self.boundaries())

    def capture_boundary(self, asked_at: int, end: int) -> None:
        """See ``Task.capture_boundary``."""
        if self._captures is None or not self.wants_boundary(asked_at):
            return
        if self._captures and end < self._captures[-1].end:
            raise ValueError(f"the log ends at {end}, below {self._captures[-1].end}")
        # What was passed on without it stays below it; and of two with one end nothing lies between.
        end = max(end, self.position)
        if self._captures and self._captures[-1].end == end:
            self._captures.pop()
        self._captures.append(Capture(asked_at, end))

    def wants_end(self, now: int) -> bool:
        """See ``Task.wants_end``: whether a timestamp is due whose events may not all be passed on."""
        if self._captures is not None:
            return self.wants_boundary(now)
        self._forget_future(now)
        if self._captured_end is not None and self.position < self._captured_end:
            return False
        # The skew is that of the most cautious stream: what was appended before it has been readable since.
        known = max(self._complete, self._captured_at - self._skew)
        return self._crosses(known, now - self._skew)

    def _forget_future(self, now: int) -> None:
        """See ``PartitionAggregator``. Marks that follow from what is ahead of the clock would stay."""
        if self._captured_at > now:
            self._captured_at, self._captured_end = 0, None
        if self._append_clock > now + self._skew:
            self._append_clock = 0

    def _crosses(self, one: int, other: int) -> bool:
        """Whether a deadline lies between two times: after ``one``, not after ``other``."""
        return other >= self._next_deadline(one)

    def _next_deadline(self, after: int) -> int:
        """The first deadline of a timestamp after a time."""
        return min(
            timeline.deadline_of(rules, max(0, timeline.last_overdue(rules, after)) + 1)
            for rules in self._timelines
        )

    @property
    def due(self) -> int:
        """See ``Task.due``: the next deadline that no mark has passed yet, once the clock skew is over."""
        return self._due

    def rests(self, now: int) -> bool:
        """See ``Task.rests``: what was read is passed on at once, and no mark is true before it is due."""
        return self.due > now

    def capture_end(self, asked_at: int, end: int) -> None:
        """See ``Task.capture_end``."""
        if self._captures is not None:
            self.capture_boundary(asked_at, end)
        else:
            self._captured_at, self._captured_end = asked_at, end

    @property
    def _complete(self) -> int:
        """Every event that was appended before this time has been seen."""
        if self._captures is not None:
            return int(self._appended_after(self._captures, np.array([self.position]))[0])
        # Less the clock skew: so much may the clocks of two brokers differ that lead the partition one after
        # the other, and then an earlier time can follow a later one.
        seen = max(self._state.passed, self._append_clock - self._skew)
        if self._captured_end is not None and self.position >= self._captured_end:
            seen = max(seen, self._captured_at - self._skew)
        return seen

    def has_work(self, now: int) -> bool:
        """See ``Task.has_work``."""
        self._forget_future(now)
        return bool(self._waiting) or self.undurable or self._crosses(self._state.passed, self._complete)

    @property
    def undurable(self) -> bool:
        """Whether an end was captured that the durable state does not hold.

        It becomes durable at once, also where records before it are not read yet: a successor that captured
        a later one would count what came in between, so a single record would decide about others.
        """
        return self._captures is not None and self._needed() != self._state.captures

    def next(self, now: int) -> Transaction | None:
        """See ``Task.next``: pass on what was read, and the marks that have become true.

        A mark speaks for every event of this topic, and none may come from another one.
        """
        if not self.has_work(now):
            return None
        state, marks = self._state, list[Outgoing]()
        passed = state.passed
        if self._crosses(passed, self._complete):
            passed = self._complete
            marks = [mark(self._topic, state.partition, passed, to) for to in range(self._partitions)]
        captures = self._needed()
        skew = self._skew if captures else 0
        state = state.replace(position=self.position, passed=passed, captures=captures, skew=skew)
        durable = self._changelog.record(self._topic.encode(), state.encode(), header_of(self.reach))
        return Transaction(
            "pass-on", Records([*self._waiting, *marks, durable]), by_clock=True, concludes=True, cause=state
        )

    def _needed(self) -> tuple[Capture, ...]:
        """The captures that a successor needs, which reads from the position on."""
        captures = self._captures or []
        reached = bisect_right(captures, self.position, key=lambda one: one.end)
        return tuple(captures[max(0, reached - 1) :])

    def committed(self, done: Transaction) -> None:
        """See ``Task.committed``."""
        assert isinstance(done.cause, RekeyerState)
        self._state = done.cause
        self._due = self._next_deadline(self._state.passed) + self._skew
        self._waiting.clear()
        if self._captures is not None:
            self._captures = [*self._needed()]

    def views(self) -> Mapping[str, StreamView]:
        """See ``Task.views``: it closes no timestamp."""
        return {}


def fingerprint(
    source: Source, partitions: int, topic_id: str, target_partitions: int
) -> dict[str, str | int]:
    """What must not change while events of ``source`` are re-keyed into the topic with this id.

    They come from ``partitions`` and go to ``target_partitions``, which is told only where it is another
    number: the topic of events has got partitions since.
    """
    by_boundary = {"source.append_time": source.append_time} if source.append_time == "boundary" else {}
    fields: dict[str, str | int] = {
        **by_boundary,
        "source.user": source.user,
        "source.user_type": source.user_type,
        "source.partitions": partitions,
        "repartition.topic": topic_id,
    }
    grown = {} if target_partitions == partitions else {"repartition.partitions": target_partitions}
    return {**fields, **grown}
