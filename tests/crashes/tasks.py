"""Tasks: each reads one input partition, is the only writer of one changelog partition, and answers with
transactions.

They are pure, but for the noise that a core draws. A runner (``world.py``) gives them records, the clock and
the end of the input, and commits what they answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from eventveil.model.records import Chunk, Outgoing, TopicPartition
from eventveil.tasks.aggregate import Batch, PartitionAggregator
from eventveil.tasks.release import PartitionSanitizer
from eventveil.tasks.repartition import Rekeyer
from eventveil.tasks.values import PartitionPerturber


@dataclass(frozen=True, slots=True)
class Transaction:
    """Records that become durable together, or not at all.

    ``by_clock``: the clock has decided, so it must not have been ahead. ``cause`` is the task's own.
    """

    name: str
    records: tuple[Outgoing, ...]
    by_clock: bool = False
    cause: Any = None


class Core(Protocol):
    """What every core does with its input."""

    @property
    def position(self) -> int: ...

    def observe(self, batch: Chunk) -> object: ...


C = TypeVar("C", bound=Core)


class Task(ABC, Generic[C]):
    """See the module. After an error the task is worth nothing: its successor reads the log."""

    def __init__(self, source: TopicPartition, core: C) -> None:
        self.input, self.core = source, core

    @property
    def position(self) -> int:
        """The offset of the next record to process."""
        return self.core.position

    def process(self, batch: Chunk) -> None:
        """Take in records that begin at the position or before, as many as one turn may take."""
        self.core.observe(batch)

    def wants_end(self, now: int) -> bool:
        """Whether only the end of the input can show that something is complete."""
        return False

    def capture_end(self, now: int, end: int) -> None:  # most never want it
        """The input, records of open transactions included, ended there no earlier than ``now``."""

    @abstractmethod
    def next(self, now: int) -> Transaction | None:
        """What is to be committed next; None if there is nothing before more is read or time passes."""

    @abstractmethod
    def committed(self, done: Transaction) -> None:
        """Take note that it is durable."""


class Aggregate(Task[PartitionAggregator]):
    """Events in, partial counts and dead letters out."""

    def __init__(
        self,
        source: TopicPartition,
        core: PartitionAggregator,
        partials: str,
        changelog: TopicPartition,
        partition_of: Mapping[str, int],
    ) -> None:
        super().__init__(source, core)
        self._partials, self._changelog = partials, changelog
        self._partition_of = partition_of

    def wants_end(self, now: int) -> bool:
        return self.core.wants_end(now)

    def capture_end(self, now: int, end: int) -> None:
        self.core.capture_end(now, end)

    def next(self, now: int) -> Transaction | None:
        if self.core.can_close(now):
            return self._written("close", self.core.close(now))
        return self._written("judge", self.core.dead_letter_batch())

    def _written(self, name: str, batch: Batch | None) -> Transaction | None:
        if batch is None:
            return None
        partials = (
            Outgoing(self._partials, one.encode(), one.stream.encode(), self._partition_of[one.stream])
            for one in batch.partials
        )
        topic, partition = self._changelog
        states = (
            Outgoing(topic, state.encode(), stream.encode(), partition)
            for stream, state in batch.states.items()
        )
        records = (*batch.dead_letters, *partials, *states)
        return Transaction(name, records, by_clock=True, cause=batch)

    def committed(self, done: Transaction) -> None:
        self.core.committed(done.cause)


class Release(Task[PartitionSanitizer | PartitionPerturber]):
    """Partial counts or values in; decided and charged in one transaction, published in the next."""

    def next(self, now: int) -> Transaction | None:
        if pending := self.core.publish():
            return Transaction("publish", tuple(pending))
        decided = self.core.decide()
        return Transaction("decide", tuple(decided)) if decided else None

    def committed(self, done: Transaction) -> None:
        if done.name == "publish":
            self.core.published()


class Repartition(Task[Rekeyer]):
    """Events in, the same events in the partitions of their users out, with marks."""

    def __init__(self, source: TopicPartition, core: Rekeyer, target: str, changelog: TopicPartition) -> None:
        super().__init__(source, core)
        self._target, self._changelog = target, changelog

    def wants_end(self, now: int) -> bool:
        return self.core.wants_end(now)

    def capture_end(self, now: int, end: int) -> None:
        self.core.capture_end(now, end)

    def next(self, now: int) -> Transaction | None:
        if (found := self.core.pass_on()) is None:
            return None
        records, state = found
        topic, partition = self._changelog
        record = Outgoing(topic, state.encode(), self._target.encode(), partition)
        return Transaction("pass-on", (*records, record), by_clock=True, cause=state)

    def committed(self, done: Transaction) -> None:
        self.core.committed(done.cause)
