"""Re-keying one partition of a topic of events: every event goes to the partition of its user.

A pure state machine. Each record travels whole, with its place and append time in headers; the key that it
had and its own headers are among them, under names that no producer chooses. Records without a user travel
too: the streams say what is wrong with them. Marks, one to every partition in the transaction that they are
true of, say up to which append time all events of this partition have been passed on: what closes a timestamp
behind it.

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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eventveil.decoding.places import Envelope
from eventveil.decoding.rules import Rejection, UserFinder, parse, weigh
from eventveil.model import timeline
from eventveil.model.durable import Durable, Natural, written
from eventveil.model.errors import StateRefused
from eventveil.model.partitioners import murmur2_partition
from eventveil.model.records import (
    NO_APPEND_TIME,
    NO_OWN_TIME,
    Chunk,
    Headers,
    Mark,
    Outgoing,
    Schemas,
    TopicPartition,
)
from eventveil.model.topology import Source, Timeline
from eventveil.tasks.task import StreamView, Task, Transaction
from eventveil.topology.counts import LARGEST_REKEYED

_PARTITION, _OFFSET, _TIME, _KEY, _PASSED = (
    f"eventveil.{name}" for name in ("partition", "offset", "timestamp", "key", "passed")
)
#: Has the time that a record carried, where a stream asks for it: never a time at which it was appended.
_OWN_TIME = "eventveil.own-time"
#: What stands before the names of headers that a record had.
_OWN = "eventveil.headers/"
#: Headers that are longer, all together, are not carried, and neither is the value of their record.
_LARGEST_HEADERS = 1_000_000
#: In place of a longer value, which might not be writable: no event either, and no dead letter copies it.
_STAND_IN = bytes(LARGEST_REKEYED + 1)


class Capture(NamedTuple):
    """A log ended at offset ``end`` no earlier than wall clock time ``asked_at``, in epoch milliseconds."""

    asked_at: Natural
    end: Natural


class RekeyerState(Durable, frozen=True):
    """What the changelog holds for one partition: ``position`` is the next offset to pass on.

    ``captures`` are those that a successor needs, ascending; there are none where brokers tell append times.
    """

    instance: str
    partition: Natural
    position: Natural
    passed: Natural = written(0)
    captures: tuple[Capture, ...] = ()

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
        self._topic, self._own_times = source.topic, own_times
        #: None where the broker tells append times.
        self._captures = list(state.captures) if source.append_time == "boundary" else None
        self._find_user, self._format = UserFinder(source), source.format
        self._timelines = list(timelines)
        self._skew = max(rules.clock_skew for rules in self._timelines)
        self._partitions = partitions
        self._state, self._changelog = state, changelog
        self.position = state.position
        self._append_clock = 0
        self._captured_at = 0
        self._captured_end: int | None = None
        self._waiting: list[Outgoing] = []

    @property
    def resume(self) -> int:
        """See ``Task.resume``."""
        return self._state.position

    def process(self, chunk: Chunk) -> None:
        """See ``Task.process``."""
        unseen = chunk.since(self.position)
        every = unseen.headers or [None] * len(unseen.offsets)
        own_times = (self._own_times and unseen.own_times) or [NO_OWN_TIME] * len(unseen.offsets)
        for offset, append_time, own_time, key, value, headers in zip(
            unseen.offsets, unseen.append_times, own_times, unseen.keys, unseen.values, every, strict=True
        ):
            if self._captures is not None:
                append_time = self._appended_after(self._captures, offset)
            self._append_clock = max(self._append_clock, append_time)
            self.untimed |= append_time == NO_APPEND_TIME
            envelope = Envelope(key, headers or (), append_time, own_time)
            self._waiting.append(self._passed_on(offset, envelope, value, chunk.schemas))
        self.position = max(self.position, chunk.next_offset)

    def _appended_after(self, captures: list[Capture], offset: int) -> int:
        """A time after which the record at an offset was appended: no mark before it was later than that."""
        found = bisect_right(captures, offset, key=lambda one: one.end)
        passed = self._state.passed
        return max(passed, captures[found - 1].asked_at - self._skew) if found else passed

    def _passed_on(self, offset: int, envelope: Envelope, value: bytes | None, schemas: Schemas) -> Outgoing:
        own = [(_OWN + name, header) for name, header in envelope.headers if header is not None]
        if sum(len(name.encode()) + len(header) for name, header in own) > _LARGEST_HEADERS:
            own, value = [], None if value is None else _STAND_IN
        if value is not None and len(value) > LARGEST_REKEYED:
            value = _STAND_IN
        found = self._document(value, schemas)
        found = found if isinstance(found, Rejection) else self._find_user(found, envelope)
        user = None if isinstance(found, Rejection) else found
        key = envelope.key
        if sum(map(len, (value or b"", user or b"", key or b"", *(one for _, one in own)))) > LARGEST_REKEYED:
            # Together they might not be writable, and the partition would be stuck behind one event.
            value, user, own = _STAND_IN, None, []
            key = key if len(key or b"") <= _LARGEST_HEADERS else None
        # The topic of events may have got more partitions than there are to go to.
        here = self._state.partition % self._partitions
        partition = here if user is None else murmur2_partition(user, self._partitions)
        headers = [
            (_PARTITION, b"%d" % self._state.partition),
            (_OFFSET, b"%d" % offset),
            (_TIME, b"%d" % envelope.append_time),
        ]
        if envelope.own_time != NO_OWN_TIME:
            headers.append((_OWN_TIME, b"%d" % envelope.own_time))
        if key is not None:
            headers.append((_KEY, key))
        return Outgoing(self._topic, value, user, partition, [*headers, *own])

    @property
    def known(self) -> int:
        """See ``Task.known``."""
        return max(self.position, self._captures[-1].end if self._captures else 0)

    def _document(self, value: bytes | None, schemas: Schemas) -> Any | Rejection:
        if self._find_user.reads_value:
            return parse(value, LARGEST_REKEYED, self._format, schemas)
        return weigh(value, LARGEST_REKEYED)

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
        if self._captured_at > now:
            # A clock that has been put back since made this capture; the log may have grown.
            self._captured_at, self._captured_end = 0, None
        if self._captured_end is not None and self.position < self._captured_end:
            return False
        # The skew is that of the most cautious stream: what was appended before it has been readable since.
        known = max(self._complete, self._captured_at - self._skew)
        return self._crosses(known, now - self._skew)

    def _crosses(self, one: int, other: int) -> bool:
        """Whether a deadline lies between two times: after ``one``, not after ``other``."""
        return any(
            timeline.last_overdue(rules, other) > max(0, timeline.last_overdue(rules, one))
            for rules in self._timelines
        )

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
            return self._appended_after(self._captures, self.position)
        # Less the clock skew: so much may the clocks of two brokers differ that lead the partition one after
        # the other, and then an earlier time can follow a later one.
        seen = max(self._state.passed, self._append_clock - self._skew)
        if self._captured_end is not None and self.position >= self._captured_end:
            seen = max(seen, self._captured_at - self._skew)
        return seen

    def has_work(self, now: int) -> bool:
        """See ``Task.has_work``."""
        return bool(self._waiting) or self._crosses(self._state.passed, self._complete)

    def next(self, now: int) -> Transaction | None:
        """See ``Task.next``: pass on what was read, and the marks that have become true.

        A mark speaks for every event of this topic, and none may come from another one.
        """
        if not self.has_work(now):
            return None
        passed, marks = self._state.passed, []
        if self._crosses(passed, self._complete):
            passed = self._complete
            headers = [(_PARTITION, b"%d" % self._state.partition), (_PASSED, b"%d" % passed)]
            marks = [Outgoing(self._topic, None, None, one, headers) for one in range(self._partitions)]
        state = self._state.replace(position=self.position, passed=passed, captures=self._needed())
        topic, partition = self._changelog
        durable = Outgoing(topic, state.encode(), self._topic.encode(), partition)
        return Transaction(
            "pass-on", (*self._waiting, *marks, durable), by_clock=True, concludes=True, cause=state
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
        self._waiting.clear()
        if self._captures is not None:
            self._captures = [*self._needed()]

    def views(self) -> Mapping[str, StreamView]:
        """See ``Task.views``: it closes no timestamp."""
        return {}


def read_passed_on(chunk: Chunk) -> tuple[Chunk, NDArray[np.int64], list[Mark]]:
    """The events of a re-keyed chunk as they were before, where each comes from, and the marks.

    Origins are rows of append time, partition and offset, as in ``Origin``. Raises StateRefused for a record
    that nobody but this program can have written.
    """
    events: list[int] = []
    keys: list[bytes | None] = []
    own: list[Headers] = []
    numbers: list[int] = []
    own_times: list[int] = []
    marks: list[Mark] = []
    every = chunk.headers or [None] * len(chunk.offsets)
    for index, headers in zip(range(len(chunk.offsets)), every, strict=True):
        found = dict(headers or ())
        try:
            if _PASSED in found:
                marks.append(Mark(int(found[_PARTITION]), int(found[_PASSED])))
                continue
            numbers += int(found[_TIME]), int(found[_PARTITION]), int(found[_OFFSET])
            own_times.append(int(found.get(_OWN_TIME, NO_OWN_TIME)))
        except (KeyError, TypeError, ValueError):
            # A header may also be null: that is a TypeError.
            raise _foreign(chunk) from None
        events.append(index)
        keys.append(found.get(_KEY))
        own.append(_own_headers(headers or ()))
    try:
        origins = np.array(numbers, np.int64).reshape(-1, 3)
    except OverflowError:
        raise _foreign(chunk) from None
    chosen = replace(
        chunk,
        offsets=[chunk.offsets[index] for index in events],
        append_times=origins[:, 0].tolist(),
        keys=keys,
        values=[chunk.values[index] for index in events],
        headers=own if any(own) else (),
        own_times=own_times,
    )
    return chosen, origins, marks


def _own_headers(headers: Headers) -> Headers:
    return [(name.removeprefix(_OWN), value) for name, value in headers if name.startswith(_OWN)]


def _foreign(chunk: Chunk) -> StateRefused:
    # Without the offset, which goes to the log: the difference between two is an exact count.
    return StateRefused(
        str(TopicPartition(chunk.topic, chunk.partition)),
        "a record was not written by the re-keying stage",
        "Find out who else writes to this topic and revoke the right. Who may read the topic finds the"
        f" record by its headers: all others have {_PARTITION} with {_OFFSET} and {_TIME}, or with {_PASSED}",
    )


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
