"""Deliberately broken workers: each breaks one rule of the protocol, and the verifier must see it.

A patch is applied by ``tests.chaos.worker`` in the process of the worker.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial, partialmethod
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from msgspec import structs

from eventveil.counting.assigner import AssignedEvent, Assigner
from eventveil.counting.counter import StreamCounter
from eventveil.decoding.rules import Reason, Rejection
from eventveil.kafka.barrier import is_nonce
from eventveil.kafka.changelog import FencedTable, OwnerClosed, TransactionFailed
from eventveil.kafka.log import committed_ends, read_table
from eventveil.lifecycle.published import Public
from eventveil.model import timeline
from eventveil.model.records import Outgoing
from eventveil.process.clock import PartitionClock
from eventveil.replay.log import MemoryLog
from eventveil.tasks.aggregate import PartitionAggregator
from eventveil.tasks.release import PartitionSanitizer, ReleaseState
from eventveil.tasks.task import Transaction
from eventveil.worker import app
from eventveil.worker.faust.driver import ChunkConsumerThread
from eventveil.worker.runner import Runner
from tests.chaos.verifier import NOISE

#: The point at which a mutant on the log in memory stands still while others continue.
SLOW = "mutant:slow"


def one_transaction() -> None:
    """Charge and publish in one transaction instead of A, then B."""

    def following(self: Any, _: int) -> Transaction | None:
        decided = self.decide()
        return self.publishing([*decided, *self.publish()]) if decided else None

    _patch(PartitionSanitizer, "next", following)
    _patch(PartitionSanitizer, "prepare", lambda _: None)
    _see_no_sink()


def _see_no_sink() -> None:
    """The take-over would find the draw that the state does not know, and refuse."""
    _patch(Public, "check_sinks", lambda *_: None)


def fresh_noise_on_retry() -> None:
    """Draw again for what was decided and not published, instead of repeating its bytes."""
    decode = ReleaseState.decode

    def redrawn(value: bytes, place: str) -> ReleaseState:
        state = decode(value, place)
        pending = []
        for text in state.pending:
            release = json.loads(text)
            for column in release["counts"]:
                release["counts"][column] += NOISE * (1 + secrets.randbelow(1000))
            pending.append(json.dumps(release))
        return structs.replace(state, pending=tuple(pending))

    _patch(ReleaseState, "decode", staticmethod(redrawn))
    _see_no_sink()


def read_before_fence() -> None:
    """Read the state first and shut the former owner out afterwards; a little later, as under load."""

    def take_over(self: Any, beside: Iterable[tuple[str, int]] = (), **_: object) -> dict[bytes, bytes]:
        if log := getattr(self, "log", None):
            table = {key: value for key, value in log.table(self.place).items() if not is_nonce(key)}
            self._fault(SLOW)
        else:
            table = read_table(self._kafka, self.topic, self.partition)
            self._fault("restore:read")
            time.sleep(3)
        self.fence()
        self.mark(beside)
        return table

    _patch(FencedTable, "take_over", take_over)


def retry_in_place() -> None:
    """After a failed transaction, write the same records again with a new producer, and read nothing."""
    transact = FencedTable.transact

    def retrying(self: Any, name: str, records: Any, *clock: Any) -> None:
        records = list(records)
        try:
            transact(self, name, records, *clock)
        except (TransactionFailed, OwnerClosed):
            again = _another(self)
            again.fence()
            transact(again, name, records, *clock)

    _patch(FencedTable, "transact", retrying)


def _another(table: Any) -> FencedTable:
    """A table of the same partition for the same owner, over Kafka or the log in memory."""
    if log := getattr(table, "log", None):
        return type(table)(log, table.owner, table.place, table._fault)
    return FencedTable(table._kafka, table.owner, table.topic, table.partition)


def trusting_the_group() -> None:
    """Resume from the offset that the consumer group has committed."""
    take_over = Runner.take_over

    def trusting(self: Any) -> int:
        resume = take_over(self)
        if not isinstance(self.task, PartitionAggregator):
            return resume
        bootstrap = self.table._kafka.bootstrap
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": self.table.owner.rsplit("-", 2)[0]})
        committed = consumer.committed([TopicPartition(*self._source)], timeout=10)[0].offset
        consumer.close()
        self.task.position = max(resume, committed)
        return self.task.position

    _patch(Runner, "take_over", trusting)
    app._PROGRESS_SECONDS = 0.2


def reading_uncommitted() -> None:
    """Merge partial counts of transactions that are open or aborted."""
    create = ChunkConsumerThread._create_worker_consumer

    def uncommitted(self: Any, transport: Any) -> Any:
        consumer = create(self, transport)
        consumer._isolation_level = "read_uncommitted"
        return consumer

    _patch(ChunkConsumerThread, "_create_worker_consumer", uncommitted)
    _patch(MemoryLog, "read", partialmethod(MemoryLog.read, isolation="read_uncommitted"))


def skipping_empty() -> None:
    """Publish nothing for a timestamp without an event."""
    publish = PartitionSanitizer.publish

    def skipping(self: Any) -> list[Outgoing]:
        empty = set()
        for sanitizer in self.sanitizers.values():
            for text in sanitizer.state.pending:
                release = json.loads(text)
                if not any(count % NOISE for count in release["counts"].values()):
                    empty.add(release["timestamp"])
        return [
            record
            for record in publish(self)
            if record.topic == self._topics.changelog
            or json.loads(record.value or b"")["timestamp"] not in empty
        ]

    _patch(PartitionSanitizer, "publish", skipping)


def reopening_for_late_events() -> None:
    """Count a late event and close its timestamp once more."""
    place, observe = Assigner._place_by_append_time, StreamCounter.observe

    def accepting(self: Any, event: Any, append_time: int, following: int) -> Any:
        verdict = place(self, event, append_time, following)
        if not isinstance(verdict, Rejection) or verdict.reason is not Reason.LATE:
            return verdict
        return AssignedEvent(event, timeline.timestamp_of(self._stream.timeline, event.time))

    def reopening(self: Any, rows: Any) -> Any:
        rejections = observe(self, rows)
        self.next = min(self.next, *self._open, self.next)
        return rejections

    _patch(Assigner, "_place_by_append_time", accepting)
    _patch(Assigner, "_refused", lambda *_: ())
    _patch(StreamCounter, "observe", reopening)


def trusting_its_clock() -> None:
    """Close by a clock that nobody compares with the broker's."""
    _patch(PartitionClock, "ahead", lambda *_: 0)


def without_the_barrier() -> None:
    """Believe whichever broker answers first after the fencing, also one that is cut off."""
    _patch(FencedTable, "take_over", take_over_without_barrier)


def take_over_without_barrier(
    table: Any, beside: Iterable[tuple[str, int]] = (), **_: object
) -> dict[bytes, bytes]:
    """``FencedTable.take_over`` as it was: partitions end where the broker says that a reader meets."""
    table.fence()
    for topic, partition in beside:
        table._floors[topic, partition] = committed_ends(table._kafka, topic, [partition])[partition] - 1
    table._fault("restore:before-read")
    found = read_table(table._kafka, table.topic, table.partition)
    table._fault("restore:read")
    return {key: value for key, value in found.items() if not is_nonce(key)}


#: How to undo each patch.
_undo: list[Callable[[], None]] = []


def _patch(owner: type, name: str, replacement: Any) -> None:
    assert hasattr(owner, name), f"{owner.__name__} has no {name} any more: correct the mutant"
    if name in vars(owner):
        _undo.append(partial(setattr, owner, name, vars(owner)[name]))
    else:
        _undo.append(partial(delattr, owner, name))
    setattr(owner, name, replacement)


@contextmanager
def broken(mutant: str) -> Iterator[None]:
    """This process is a mutant until the ``with`` block is left."""
    try:
        MUTANTS[mutant]()
        yield
    finally:
        while _undo:
            _undo.pop()()


MUTANTS: dict[str, Callable[[], None]] = {
    mutant.__name__.replace("_", "-"): mutant
    for mutant in (
        one_transaction,
        fresh_noise_on_retry,
        read_before_fence,
        retry_in_place,
        trusting_the_group,
        reading_uncommitted,
        skipping_empty,
        reopening_for_late_events,
        trusting_its_clock,
        without_the_barrier,
    )
}
