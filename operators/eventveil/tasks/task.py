"""The one protocol by which data moves.

A task is pure: it reads one input partition, is the only writer of one changelog partition, and answers with
transactions. Its runner (``eventveil.worker.runner`` over Kafka, a log in memory in tests) gives it
records, the clock and the end of its input, and commits what it answers, one transaction after the other.
After an error a task is discarded: its successor is restored from the log.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from eventveil.model.reach import Reach
from eventveil.model.records import NO_EPOCH, Chunk, Outgoing
from eventveil.model.topology import Timeline
from eventveil.process.memory import NOTHING, Held


@dataclass(frozen=True, slots=True)
class StreamView:
    """One stream in one owned partition.

    ``next`` is the first timestamp that is not closed (by a task that counts) or not published (by one that
    releases). ``held`` is what is in memory. ``spent`` is the part of epsilon, 0 to 1, that the window of the
    last published release has spent. ``discarded`` counts partials that timestamps were released
    without, since the partition was taken over. ``completed`` is the last timestamp that a
    watermark of an engine has completed, None where none has to.
    """

    next: int
    held: Held = NOTHING
    spent: float = 0.0
    discarded: int = 0
    completed: int | None = None


class Published(NamedTuple):
    """A release that becomes public. ``forfeited``: its timestamp was given up."""

    stream: str
    timestamp: int
    fresh: bool
    forfeited: bool = False


@dataclass(frozen=True, slots=True)
class Transaction:
    """Records that become durable together, or not at all.

    They are to be iterated over once, except for those of a transaction that publishes, which are a sequence.

    ``name`` is pass-on, close, judge, expose, decide or publish. ``by_clock``: the clock has decided, so it
    must not have been ahead. ``concludes``: it rests on what was read of topics and asked about them, so they
    are to be the same topics still, and those that are going to be published in as well. ``tentative``: it
    may be written before that is known, and be committed afterwards, since aborting it shows nobody anything.

    The rest is for those who watch: ``outcomes`` is what became of the records whose verdicts are final with
    it, by stream, and ``letters`` are the dead letters among them (both raw data); ``releases`` and
    ``readings`` are what becomes public, the latter by stream. ``cause`` is the task's own.
    """

    name: str
    records: Iterable[Outgoing]
    by_clock: bool = False
    concludes: bool = False
    tentative: bool = False
    outcomes: Mapping[str, Counter[str]] = field(default_factory=dict)
    letters: Iterable[Outgoing] = ()
    releases: Sequence[Published] = ()
    readings: Mapping[str, int] = field(default_factory=dict)
    cause: object = None


#: The number of records that take some tenths of a millisecond, if none is looked at for long.
QUICK = 256


class Task(ABC):
    """See the module. One thread at a time calls what changes it; times are in epoch milliseconds."""

    #: The offset of the next record to process.
    position: int
    #: How far the input reached in which leader epoch, by all that this task or a former one has read; None:
    #: nobody knows. Who runs the task notes it, and a state that is written carries it.
    reach: Reach | None = None
    #: How many partitions the input topic has, where its records are placed by that.
    partitions = 1
    #: Whether records were met without the append time that they should have: nothing is decided until who
    #: runs the task has found that the topic tells append times again, and sets this back.
    untimed = False
    #: Whether processing takes as long as there are events, rather than partial counts.
    counts = True
    #: Whether deciding what is next takes as long, too.
    counts_to_decide = False

    @property
    @abstractmethod
    def resume(self) -> int:
        """The first offset that a successor needs."""

    @property
    def known(self) -> int:
        """The offset that the input reaches at least, by all that this task or a former one has seen."""
        return self.position

    def note(self, reach: Reach) -> None:
        """Take note of how far the input reaches. What is read again shows nothing new."""
        if reach.epoch != NO_EPOCH and (self.reach is None or reach.offset >= self.reach.offset):
            self.reach = reach

    @abstractmethod
    def process(self, chunk: Chunk) -> None:
        """Take in records of a chunk that begins at the position or before, as many as one turn may take.

        At least one, so repeated calls come to the end; the position tells how far. Raises ValueError if
        records between the position and the chunk are missing.
        """

    @property
    def quick_records(self) -> int:
        """How many records of a chunk ``process`` may take in where nothing else may be held up; 0: none.

        Asked before each chunk: it may depend on what is in memory.
        """
        return QUICK

    def boundaries(self) -> list[tuple[Timeline, int]]:
        """The timelines by which ends of the input decide what is late, each with the last timestamp that
        has one; empty where brokers tell append times."""
        return []

    def wants_boundary(self, now: int) -> bool:
        """Whether a timestamp is due whose end of the input is not known, however much is still to be read.

        Until it is, nothing may be processed that was fetched after this moment.
        """
        return False

    def capture_boundary(self, asked_at: int, end: int) -> None:  # noqa: B027  # most have none
        """Take note of an end that was asked for when a timestamp became due.

        Raises ValueError if the input has become shorter.
        """

    def wants_end(self, now: int) -> bool:
        """Whether only the end of the input can show that something is complete."""
        return False

    def capture_end(self, asked_at: int, end: int) -> None:  # noqa: B027  # most never want it
        """Take note that the input ended at offset ``end`` no earlier than ``asked_at``.

        Raises ValueError if it has become shorter than an end that verdicts rest on.
        """

    def has_work(self, now: int) -> bool:
        """Whether ``next`` may have something to answer; quick, and may err towards yes."""
        return True

    @property
    def has_next(self) -> bool:
        """Whether what ``next`` answers is there already."""
        return False

    @abstractmethod
    def next(self, now: int) -> Transaction | None:
        """What is to be committed next; None if there is nothing before more is read or time passes.

        What was answered before must have been committed, and ``committed`` called.
        """

    @abstractmethod
    def committed(self, done: Transaction) -> None:
        """Take note that what ``next`` answered is durable."""

    def left(self) -> Transaction | None:
        """What a predecessor has decided and perhaps not published: to be committed before anything else."""
        return None

    def begin(self) -> None:  # noqa: B027  # most continue at once
        """What a predecessor has left is public: continue with what comes after it."""

    def end(self) -> None:  # noqa: B027  # most leave nothing that matters
        """Leave nothing that must not be seen; at once and from any thread."""

    @abstractmethod
    def views(self) -> Mapping[str, StreamView]:
        """What can be seen of each stream now, while another thread may be at work. Does not block."""

    @property
    def due(self) -> int | None:
        """When the clock alone gives it something to do, or gave; None: never."""
        return None

    def rests(self, now: int) -> bool:
        """Whether it has nothing to do before it is due, unless a chunk comes; False if nobody knows."""
        return False

    @property
    def closed(self) -> int | None:
        """When the last timestamp was due that it has closed for others to release; None: it closes none."""
        return None

    @property
    def awaited(self) -> int | None:
        """When the next release that it makes of what others closed is due, or was; None: it makes none."""
        return None


class Publisher(Task):
    """A task that publishes in two transactions (docs/decisions/0001-two-transactions.md).

    The first decides and charges, privately; the second makes public what was decided, byte for byte.
    """

    #: The second transaction, if it is there already.
    _ahead: Transaction | None = None

    @abstractmethod
    def decide(self) -> list[Outgoing]:
        """The records of the first transaction; empty if there is nothing to decide."""

    @abstractmethod
    def publish(self) -> list[Outgoing]:
        """The records of the second one, for all that is decided; empty if nothing is pending."""

    @abstractmethod
    def published(self) -> None:
        """Take note that everything decided is public."""

    @abstractmethod
    def publishing(self, records: Sequence[Outgoing]) -> Transaction:
        """The transaction that publishes these records."""

    def deciding(self, records: Sequence[Outgoing]) -> Transaction:
        """The transaction that decides by these records."""
        return Transaction("decide", records, concludes=True)

    def left(self) -> Transaction | None:
        """See ``Task.left``."""
        if self._ahead is not None:
            return self._ahead
        records = self.publish()
        return self.publishing(records) if records else None

    @property
    def has_next(self) -> bool:
        """See ``Task.has_next``."""
        return self._ahead is not None

    def next(self, now: int) -> Transaction | None:
        """See ``Task.next``."""
        if left := self.left():
            return left
        decided = self.decide()
        return self.deciding(decided) if decided else None

    def prepare(self) -> None:
        """Make the second transaction, while the first is being committed."""
        self._ahead = self.left()

    def committed(self, done: Transaction) -> None:
        """See ``Task.committed``."""
        if done.name == "publish":
            self._ahead = None
        else:
            self.prepare()
        if self._ahead is None:
            self.published()
