"""Re-keying one partition of a topic of events: every event goes to the partition of its user.

A pure state machine. Each record travels whole, with its place and append time in headers; the key that it
had is one of them. Records without a user travel too: the streams say what is wrong with them. Marks, one to
every partition in the transaction that they are true of, say up to which append time all events of this
partition have been passed on: what closes a timestamp behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

import numpy as np
import orjson
from numpy.typing import NDArray

from eventveil.counting.counter import STATE_VERSION, read_state, unreadable
from eventveil.decoding.rules import Rejection, UserFinder, parse
from eventveil.model import timeline
from eventveil.model.errors import StateRefused
from eventveil.model.partitioners import murmur2_partition
from eventveil.model.records import NO_APPEND_TIME, Chunk, Mark, Outgoing
from eventveil.model.topology import Source, Timeline
from eventveil.topology.counts import LARGEST_REKEYED

_PARTITION, _OFFSET, _TIME, _KEY, _PASSED = (
    f"eventveil.{name}" for name in ("partition", "offset", "timestamp", "key", "passed")
)
#: In place of a longer value, which might not be writable: no event either, and no dead letter copies it.
_STAND_IN = bytes(LARGEST_REKEYED + 1)
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class RekeyerState:
    """What the changelog holds for one partition: ``position`` is the next offset to pass on."""

    instance: str
    partition: int
    position: int
    passed: int = 0

    def encode(self) -> bytes:
        """JSON bytes of this state."""
        return orjson.dumps({"version": STATE_VERSION, **asdict(self)})

    @classmethod
    def decode(cls, value: bytes, place: str) -> RekeyerState:
        """Read a state back; ``place`` names it in the StateRefused that anything unexpected raises."""
        try:
            state = cls(**read_state(value, place))
        except TypeError as error:
            raise unreadable(place, str(error)) from None
        numbers = (state.partition, state.position, state.passed)
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise unreadable(place, "an offset or time is not a whole number")
        return state


class Rekeyer:
    """A partition of a topic of events, from a durable state onwards; ``partitions`` are those they go to."""

    def __init__(
        self, source: Source, timelines: Iterable[Timeline], partitions: int, state: RekeyerState
    ) -> None:
        self._topic = source.topic
        self._find_user = UserFinder(source)
        self._timelines = list(timelines)
        self._skew = max(rules.clock_skew for rules in self._timelines)
        self._partitions = partitions
        self._state = state
        self.position = state.position
        #: Whether records were met without the append time that they should have; they are to wait.
        self.untimed = False
        self._append_clock = 0
        self._captured_at = 0
        self._captured_end: int | None = None
        self._waiting: list[Outgoing] = []

    @property
    def resume(self) -> int:
        """The first offset that a successor would have to read."""
        return self._state.position

    def observe(self, chunk: Chunk) -> None:
        """Take in a chunk. Records below the position were seen already and are passed over.

        Raises ValueError if records between the position and the chunk are missing.
        """
        unseen = chunk.since(self.position)
        for offset, append_time, key, value in zip(
            unseen.offsets, unseen.append_times, unseen.keys, unseen.values, strict=True
        ):
            self._append_clock = max(self._append_clock, append_time)
            self.untimed |= append_time == NO_APPEND_TIME
            self._waiting.append(self._passed_on(offset, append_time, key, value))
        self.position = max(self.position, chunk.next_offset)

    def _passed_on(self, offset: int, append_time: int, key: bytes | None, value: bytes | None) -> Outgoing:
        if value is not None and len(value) > LARGEST_REKEYED:
            value = _STAND_IN
        found = parse(value, LARGEST_REKEYED)
        found = found if isinstance(found, Rejection) else self._find_user(found)
        user = None if isinstance(found, Rejection) else found
        # The topic of events may have got more partitions than there are to go to.
        own = self._state.partition % self._partitions
        partition = own if user is None else murmur2_partition(user, self._partitions)
        headers = [
            (_PARTITION, b"%d" % self._state.partition),
            (_OFFSET, b"%d" % offset),
            (_TIME, b"%d" % append_time),
        ]
        if key is not None:
            headers.append((_KEY, key))
        return Outgoing(self._topic, value, user, partition, headers)

    def wants_end(self, now: int) -> bool:
        """Whether a timestamp is due that only the end offset can show to be passed on completely."""
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
        """Take note that the log ended at offset ``end`` no earlier than wall clock time ``asked_at``."""
        self._captured_at, self._captured_end = asked_at, end

    @property
    def _complete(self) -> int:
        """Every event that was appended before this time has been seen."""
        # Less the clock skew: so much may the clocks of two brokers differ that lead the partition one after
        # the other, and then an earlier time can follow a later one.
        seen = max(self._state.passed, self._append_clock - self._skew)
        if self._captured_end is not None and self.position >= self._captured_end:
            seen = max(seen, self._captured_at - self._skew)
        return seen

    def pass_on(self) -> tuple[list[Outgoing], RekeyerState] | None:
        """The records of one transaction and the state after it; None if there is nothing to say."""
        passed = self._state.passed
        if self._crosses(passed, self._complete):
            passed = self._complete
        if not self._waiting and passed == self._state.passed:
            return None
        marks = []
        if passed > self._state.passed:
            headers = [(_PARTITION, b"%d" % self._state.partition), (_PASSED, b"%d" % passed)]
            marks = [Outgoing(self._topic, None, None, one, headers) for one in range(self._partitions)]
        return [*self._waiting, *marks], replace(self._state, position=self.position, passed=passed)

    def committed(self, state: RekeyerState) -> None:
        """Take note that what ``pass_on`` returned is durable."""
        self._state = state
        self._waiting.clear()


def read_passed_on(chunk: Chunk) -> tuple[Chunk, NDArray[np.int64], list[Mark]]:
    """The events of a re-keyed chunk as they were before, where each comes from, and the marks.

    Origins are rows of append time, partition and offset, as in ``Origin``. Raises StateRefused for a record
    that nobody but this program can have written.
    """
    events: list[int] = []
    keys: list[bytes | None] = []
    numbers: list[int] = []
    marks: list[Mark] = []
    every = chunk.headers or [None] * len(chunk.offsets)
    for index, headers in zip(range(len(chunk.offsets)), every, strict=True):
        found = dict(headers or ())
        try:
            if _PASSED in found:
                marks.append(Mark(int(found[_PARTITION]), int(found[_PASSED])))
                continue
            numbers += int(found[_TIME]), int(found[_PARTITION]), int(found[_OFFSET])
        except (KeyError, ValueError):
            raise _foreign(chunk, index) from None
        events.append(index)
        keys.append(found.get(_KEY))
    try:
        origins = np.array(numbers, np.int64).reshape(-1, 3)
    except OverflowError:
        large = next(place for place, number in enumerate(numbers) if number not in _INT64)
        raise _foreign(chunk, events[large // 3]) from None
    chosen = replace(
        chunk,
        offsets=[chunk.offsets[index] for index in events],
        append_times=origins[:, 0].tolist(),
        keys=keys,
        values=[chunk.values[index] for index in events],
        headers=(),
    )
    return chosen, origins, marks


def _foreign(chunk: Chunk, index: int) -> StateRefused:
    return StateRefused(
        f"{chunk.topic}, partition {chunk.partition}, offset {chunk.offsets[index]}",
        "the record was not written by the re-keying stage",
        "Find out who else writes to this topic and revoke the right",
    )


def fingerprint(
    source: Source, partitions: int, topic_id: str, target_partitions: int
) -> dict[str, str | int]:
    """What must not change while events of ``source`` are re-keyed into the topic with this id.

    They come from ``partitions`` and go to ``target_partitions``, which is told only where it is another
    number: the topic of events has got partitions since.
    """
    fields: dict[str, str | int] = {
        "source.user": source.user,
        "source.user_type": source.user_type,
        "source.partitions": partitions,
        "repartition.topic": topic_id,
    }
    grown = {} if target_partitions == partitions else {"repartition.partitions": target_partitions}
    return {**fields, **grown}
