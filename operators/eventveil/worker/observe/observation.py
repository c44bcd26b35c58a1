"""What a worker sees of itself, in plain numbers, and whether that is healthy.

The event loop writes, HTTP threads read, nobody waits: what is looked at is replaced as a whole, and a
counter of a stream has one writer, the owner of its partition. A reader never touches an owner, which may
vanish at any time.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from eventveil.kinds.kind import Role
from eventveil.kinds.registry import roles
from eventveil.model import timeline
from eventveil.model.records import Outgoing, TopicPartition
from eventveil.model.topology import Topology
from eventveil.tasks.task import StreamView
from eventveil.worker.observe.counting import CountingStates
from eventveil.worker.observe.losses import Losses
from eventveil.worker.observe.overdue import Overdue
from eventveil.worker.observe.progress import Progress, listed

log = logging.getLogger(__name__)

ROLES: tuple[Role, ...] = ("rekey", "aggregate", "accumulate", "sanitize", "perturb")
#: Those that close timestamps, and those that publish releases.
CLOSING, RELEASING = ("aggregate", "accumulate"), ("sanitize", "accumulate")
#: A partition with work to do and no progress for this long is stalled. A transaction has failed before that.
STALL_SECONDS = 60.0
#: Brokers answer a fetch within a second, also if there is nothing. A partition without an answer for this
#: long cannot be read; requests to a broker that is gone have ended before that.
SILENT_SECONDS = 60.0
#: A check that is this late shows a stalled process, not a broker problem.
_LATE_SECONDS = 10.0
#: From this many seconds on, a pause that a quota imposes delays releases.
THROTTLED_SECONDS = 5.0
#: A transaction that hides later records for this long is reported: most take milliseconds.
HELD_SECONDS = 5.0
#: What people do that holds up a partition until it is undone, and what readiness says of it.
Hold = Literal["append-time", "schema-registry", "sink-schema", "open-transaction", "watermark", "clock"]
_HELD: Mapping[Hold, str] = {
    "append-time": "held up by records without the broker's append time: message.timestamp.type must be"
    " LogAppendTime",
    "schema-registry": "held up by a schema registry that cannot be queried",
    "sink-schema": "held up by the schema of a sink, which was not found in the registry",
    "open-transaction": "held up by a transaction that was left open",
    "watermark": "held up by an engine that has not marked a due timestamp as complete",
    "clock": "held up by the clock of this machine, which is behind the brokers' by more than clock_skew",
}
#: What is to be done, for the log.
UNDO: Mapping[Hold, str] = {
    "append-time": (
        "records come without the broker's append time, so it is unknown which were late; nothing is "
        "closed or charged. Run `kafka-configs.sh --bootstrap-server ... --alter --topic {topic} "
        "--add-config message.timestamp.type=LogAppendTime`. The records that came meanwhile become "
        "dead letters"
    ),
    "schema-registry": (
        "the schemas that records name cannot be queried (see the previous log line); nothing after them is "
        "read, and nothing is lost. Reading continues once the registry answers"
    ),
    "sink-schema": (
        "releases need a schema that is not in the registry (see the previous log line); nothing is "
        "drawn or charged, and nothing is lost. Releases continue once the registry has it"
    ),
    "open-transaction": (
        "a producer has left a transaction open, and nothing after it can be read. It ends when that "
        "producer commits or restarts, or when its transaction.timeout.ms is over. If the producer is gone "
        "and never committed it: kafka-transactions.sh find-hanging, then abort. Do not abort one that may "
        "have been committed before a broker of Kafka 4.3.0 or 4.3.1 was killed, which hides its events: let "
        "the same transactional.id commit another transaction to this partition, which ends both"
    ),
    "watermark": (
        "a timestamp is due, and the engine has not written to this partition that it is complete; nothing "
        "is released before. Check that the engine runs, and writes its watermark to every partition of "
        "{topic}"
    ),
    "clock": (
        "the clock of this machine is at least {behind} behind the brokers', which is more than "
        "clock_skew. Timestamps are closed and released that much later. Set the clock right (is NTP "
        "running?); nothing has to be restarted"
    ),
}
#: Instead, in topics that only workers write to.
_UNDO_OWN = (
    "a transaction of a worker is open, and nothing after it can be read. Never abort it: the worker may"
    " already have been told that it is committed, and aborting it would discard its counts. It ends at the"
    " next take-over from the owner that wrote it, or after its transaction.timeout.ms (20 s). If it stays"
    " open, find out from the workers' logs why that owner ended, and restart the workers"
)
HOLDS = tuple(_HELD)
#: An event loop that has not run for this long is dead.
DEAD_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One owned partition.

    ``position`` is the next offset to be read, ``end`` the last stable offset that a fetch has reported,
    None before the first. ``progressed`` is when it last moved on or had nothing to do, in monotonic seconds.
    ``hides``: records lie behind ``end``, in or after a transaction that is open; ``hidden_since`` is since
    when all that can be read has been read and nothing else has hidden the rest. ``untimed``: records without
    an append time hold it up. ``unread``: records whose schemas cannot be asked for do;
    ``unregistered``: the schema of a sink, which the registry is not known to have. ``unmarked_since`` is
    since when all has been read and nothing but a watermark of an engine is missing for a timestamp that is
    due. ``answer`` changes with each answer to a fetch, and is None while no broker is asked; ``answered`` is
    when it last changed, or nothing was asked, in monotonic seconds. ``behind``: by how many ms the clock is
    behind the broker's, if by more than ``clock_skew``.
    """

    position: int
    end: int | None
    busy: bool
    streams: Mapping[str, StreamView]
    progressed: float = 0.0
    hides: bool = False
    hidden_since: float | None = None
    untimed: bool = False
    unread: bool = False
    unregistered: bool = False
    unmarked_since: float | None = None
    behind: int = 0
    answer: int | None = None
    answered: float = inf


class Observation:
    """The numbers of one worker process since its start; counters begin at 0."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        # Asked for of every partition twice a second.
        self._roles = roles(topology)
        self.streams = {stream.name: stream for stream in topology.streams}
        self.started = time.time()
        #: (stream, outcome): records whose verdict is final. See ``Batch.outcomes``.
        self.events: Counter[tuple[str, str]] = Counter()
        #: Records fetched from each source topic.
        self.fetched: Counter[str] = Counter()
        #: (stream, whether fresh): published releases.
        self.releases: Counter[tuple[str, bool]] = Counter()
        #: By stream: published releases of timestamps that were given up.
        self.forfeited: Counter[str] = Counter()
        #: By value stream: records published, those of values that were held back included.
        self.readings: Counter[str] = Counter()
        #: When this process last published a release of a stream, Unix seconds.
        self.released_at: dict[str, int] = {}
        #: By role.
        self.take_overs: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.fenced: Counter[str] = Counter()
        #: None while the group has not assigned anything (yet, or in a rebalance).
        self.assigned: frozenset[TopicPartition] | None = None
        self.partitions: Mapping[TopicPartition, PartitionView] = {}
        #: What last ended an owner of an assigned partition.
        self.errors: dict[TopicPartition, str] = {}
        #: Bytes: what the process may hold, None for any, and what it was last seen to hold.
        self.memory_limit: int | None = None
        self.resident = 0
        #: Whether releases show that events count; public.
        self.counting = CountingStates(topology)
        #: What becomes of events, for a log that is raw data; None: nobody asked for one.
        self.losses: Losses | None = None
        #: What a start would refuse of the topics as they are now.
        self.mistakes: Sequence[str] = ()
        #: What keeps this worker from all brokers, if something does.
        self.outage: str | None = None
        #: By how many ms the clock of this machine is behind the brokers', if by more than ``clock_skew``.
        self.behind = 0
        #: For how many seconds brokers have lately let this client wait because of a quota.
        self.throttled = 0.0
        self._overdue, self._progress = Overdue(topology.name), Progress()
        #: When the event loop was last seen running, and a fetch last answered, in monotonic seconds.
        self.beat = self.heard = time.monotonic()

    def role(self, partition: TopicPartition) -> Role:
        """What the owner of a partition does: one of ROLES."""
        return self._roles.get(partition.topic, "aggregate")

    def judged(
        self, outcomes: Mapping[str, Counter[str]], letters: Iterable[Outgoing] = (), partitions: int = 1
    ) -> None:
        """The verdicts of a committed batch, with its dead letters, of a source with ``partitions``."""
        if self.losses is not None:
            self.losses.judged(outcomes, letters, partitions)
        for stream, counts in outcomes.items():
            for outcome, count in counts.items():
                self.events[stream, outcome] += count

    def released(self, stream: str, fresh: bool, forfeited: bool = False) -> None:
        """A release was published."""
        self.releases[stream, fresh] += 1
        self.forfeited[stream] += forfeited
        # Whole seconds: the delay of a release grows with the load.
        self.released_at[stream] = int(time.time())

    def taken_over(self, partition: TopicPartition) -> None:
        """A partition is owned."""
        self.take_overs[self.role(partition)] += 1
        self.errors.pop(partition, None)

    def gave_up(self, partition: TopicPartition, error: Exception, fenced: bool) -> None:
        """An owner, or its take-over, failed; another one will try."""
        self.failures[self.role(partition)] += 1
        self.fenced[self.role(partition)] += fenced
        self.errors[partition] = str(error)

    def look(self, partitions: Mapping[TopicPartition, PartitionView], now: float, wall_clock: int) -> None:
        """Note what is owned at monotonic time ``now`` (s) and ``wall_clock`` (epoch ms)."""
        self.behind = max((view.behind for view in partitions.values()), default=0)
        self.partitions = {
            tp: replace(
                view,
                progressed=self._progressed(tp, view, now, wall_clock),
                hidden_since=self._hidden_since(tp, view, now),
                unmarked_since=self._unmarked_since(tp, view, now, wall_clock),
                answered=self._answered(tp, view, now),
            )
            for tp, view in partitions.items()
        }
        following = self.following()
        delays = {name: (one, self.delay(name, one, wall_clock)) for name, one in following.items()}
        self._overdue.look(delays, now)
        if released := self._progress.look(following, now):
            log.info(
                "released (from now on logged once an hour): %s",
                listed([self._until(*one) for one in sorted(released.items())]),
            )
        self.beat = now

    def following(self) -> dict[str, int]:
        """By stream that is released here, its next timestamp."""
        return {
            name: one.next
            for tp, view in self.partitions.items()
            if self.role(tp) in RELEASING
            for name, one in view.streams.items()
        }

    def _progressed(self, tp: TopicPartition, view: PartitionView, now: float, wall_clock: int) -> float:
        before = self.partitions.get(tp)
        if before is None or not self._has_work(tp, view, wall_clock):
            return now
        moved = (view.position, _nexts(view)) != (before.position, _nexts(before))
        return now if moved else before.progressed

    def _answered(self, tp: TopicPartition, view: PartitionView, now: float) -> float:
        before = self.partitions.get(tp)
        if before is None or before.answer is None or view.answer is None or now > self.beat + _LATE_SECONDS:
            return now
        if view.answer == before.answer:
            return before.answered
        self.heard = now
        return now

    def silent(self, now: float) -> list[TopicPartition]:
        """The owned partitions that cannot be read: fetches have had no answer for long."""
        found = self.partitions.items()
        return sorted(tp for tp, view in found if now - view.answered >= SILENT_SECONDS)

    def _hidden_since(self, tp: TopicPartition, view: PartitionView, now: float) -> float | None:
        if not view.hides or view.end is None or view.position < view.end:
            return None
        before = self.partitions.get(tp)
        same = before is not None and before.end == view.end and before.hidden_since is not None
        return before.hidden_since if before is not None and same else now

    def _unmarked_since(
        self, tp: TopicPartition, view: PartitionView, now: float, wall_clock: int
    ) -> float | None:
        unread = view.end is None or view.position < view.end
        waits = any(
            one.completed is not None
            and one.completed < one.next
            and self.delay(name, one.next, wall_clock) > 0
            for name, one in view.streams.items()
        )
        if unread or not waits:
            return None
        before = self.partitions.get(tp)
        return now if before is None or before.unmarked_since is None else before.unmarked_since

    def holds(self, now: float) -> dict[TopicPartition, Hold]:
        """The owned partitions in which something that people do holds everything up, and what."""
        found: dict[TopicPartition, Hold] = {}
        for tp, view in self.partitions.items():
            if view.untimed:
                found[tp] = "append-time"
            elif view.unread:
                found[tp] = "schema-registry"
            elif view.unregistered:
                found[tp] = "sink-schema"
            elif view.hidden_since is not None and now - view.hidden_since >= HELD_SECONDS:
                found[tp] = "open-transaction"
            elif view.unmarked_since is not None and now - view.unmarked_since >= HELD_SECONDS:
                found[tp] = "watermark"
            elif view.behind:
                found[tp] = "clock"
        return found

    def undo(self, tp: TopicPartition, hold: Hold) -> str:
        """What is to be done about what holds a partition up, for the log."""
        own = {self.topology.partials, *self.topology.rekeyed.values()}
        if hold == "open-transaction" and tp.topic in own:
            return _UNDO_OWN
        return UNDO[hold].format(topic=tp.topic)

    def _has_work(self, tp: TopicPartition, view: PartitionView, wall_clock: int) -> bool:
        """Whether it is this owner's turn; it is not while partials of other partitions are missing."""
        unread = view.end is not None and view.position < view.end
        overdue = self.role(tp) in CLOSING and any(
            self.delay(name, one.next, wall_clock) > 0 for name, one in view.streams.items()
        )
        return view.busy or unread or overdue

    def delay(self, stream: str, timestamp: int, wall_clock: int) -> int:
        """For how many milliseconds a timestamp has been due; 0 before that.

        By the brokers' clock where that of this machine is known to be behind: else nothing would be late.
        """
        return max(0, wall_clock + self.behind - timeline.due_of(self.streams[stream].timeline, timestamp))

    def upcoming(self) -> list[str]:
        """What is released next by this worker, and when it is due: one line a stream."""
        return [
            f"timestamp {timestamp} of {name}, due at {self._due_at(name, timestamp)}"
            for name, timestamp in sorted(self.following().items())
        ]

    def _due_at(self, stream: str, timestamp: int) -> str:
        return timeline.format_rfc3339(timeline.due_of(self.streams[stream].timeline, timestamp))

    def _until(self, stream: str, timestamp: int) -> str:
        end = timeline.start_of(self.streams[stream].timeline, timestamp + 1)
        return f"timestamp {timestamp} of {stream}, until {timeline.format_rfc3339(end)}"

    def alive(self, now: float) -> bool:
        """Whether the event loop runs; also true while partitions are being taken over."""
        return now - self.beat < DEAD_SECONDS

    def obstacles(self, now: float, raw: bool = False) -> list[str]:
        """Why the worker is not ready: one line a reason, none if every assigned partition is served.

        Which partition is behind, since when, and at which offset an owner failed is raw data: somebody's
        load decides it. So only ``raw`` names partitions; else the lines count those of a topic.
        """
        assigned, partitions, errors = self.assigned, self.partitions, dict(self.errors)
        if not self.alive(now):
            return [f"the event loop has not run for {DEAD_SECONDS:.0f} s or more"]
        if assigned is None:
            return ["waiting for the consumer group to assign partitions"]
        taken = [tp for tp in sorted(assigned) if tp not in partitions]
        stalled = [
            tp
            for tp in sorted(assigned)
            if (view := partitions.get(tp)) is not None and now - view.progressed >= STALL_SECONDS
        ]
        silent = [tp for tp in self.silent(now) if tp in assigned]
        holds = self.holds(now)
        of_brokers = [] if self.outage is None else [f"no broker answers: {self.outage}"]
        if self.throttled >= THROTTLED_SECONDS:
            told = f"{THROTTLED_SECONDS:.0f} s or more"
            of_brokers.append(f"brokers throttle this client for {told}: raise its quota (see the log)")
        if raw:
            return of_brokers + sorted(
                [*self.mistakes]
                + [f"{tp}: {_HELD[hold]}" for tp, hold in holds.items() if tp in assigned]
                + [f"{tp}: is being taken over{_after(errors.get(tp))}" for tp in taken]
                + [f"{tp}: no fetch answered for {now - partitions[tp].answered:.0f} s" for tp in silent]
                + [f"{tp}: no progress for {now - partitions[tp].progressed:.0f} s" for tp in stalled]
            )
        failed = [tp for tp in taken if tp in errors]
        return [
            *of_brokers,
            *self.mistakes,
            *(
                line
                for hold, words in _HELD.items()
                for line in _by_topic(words, [tp for tp in holds if holds[tp] == hold and tp in assigned])
            ),
            *_by_topic("being taken over", [tp for tp in taken if tp not in errors]),
            *_by_topic("being taken over again after a failure (see the log)", failed),
            *_by_topic(f"without an answered fetch for {SILENT_SECONDS:.0f} s or more", silent),
            *_by_topic(f"without progress for {STALL_SECONDS:.0f} s or more", stalled),
        ]


def _by_topic(state: str, places: list[TopicPartition]) -> Iterator[str]:
    for topic, count in sorted(Counter(tp.topic for tp in places).items()):
        yield f"{topic}: {count} partition{'s' * (count > 1)} {state}"


def _after(error: str | None) -> str:
    return "" if error is None else f" again after: {error}"


def _nexts(view: PartitionView) -> dict[str, int]:
    return {name: one.next for name, one in view.streams.items()}
