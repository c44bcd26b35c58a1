"""The log in memory does what a broker does: ``tests/integration/test_log.py`` asks the same of a broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import pytest
from confluent_kafka import KafkaError

from eventveil.kafka.log import Isolation
from eventveil.replay import log as module
from eventveil.replay.log import MemoryLog
from tests.conformance.behaviours import LogBehaviours
from tests.conformance.histories import HISTORIES, PARTITIONS, answers, history
from tests.conformance.logs import InMemory
from tests.unit.support import event

PLACE = ("topic", 0)


class TestLogInMemory(LogBehaviours):
    @pytest.fixture
    def log(self) -> InMemory:
        return InMemory()


# The histories that a broker is asked about tell a wrong log from a right one


def told(log: MemoryLog, seed: int) -> Iterator[object]:
    log.create("topic", PARTITIONS)
    yield from answers(InMemory(log), "topic", 0, "owner", history(seed))


class MarkersWithoutOffset(module._Partition):
    def mark(self, transaction: Any, time: int) -> None:
        self._open.pop(transaction, None)


class NoLastStableOffset(module._Partition):
    def end(self, isolation: Isolation) -> int:
        return super().end("read_uncommitted")


class AbortedRecordsShown(module._Partition):
    def visible(self, start: int, isolation: Isolation) -> Iterator[module.Logged]:
        behind = self.end(isolation)
        return (one for one in super().visible(start, "read_uncommitted") if one.offset < behind)


class MarkersWhereSomethingWasWritten(module._Partition):
    def mark(self, transaction: Any, time: int) -> None:
        if transaction in self._open:
            super().mark(transaction, time)


class DeletedRecordsBehindAnOpenTransactionHidden(module._Partition):
    def end(self, isolation: Isolation) -> int:
        whole = super().end("read_uncommitted")
        return whole if isolation == "read_uncommitted" else min(self._open.values(), default=whole)


class NobodyIsFenced(MemoryLog):
    def _current(self, name: str, epoch: int) -> Any:
        return self._identities[name]


class FencedAtTheEndOnly(MemoryLog):
    def _add(self, name: str, epoch: int, places: Any) -> Any:
        super()._add(name, self._identities[name].epoch, places)

    def _write(self, name: str, epoch: int, placed: Any) -> Any:
        return super()._write(name, self._identities[name].epoch, placed)


class PredecessorsStayOpen(MemoryLog):
    def _initialise(self, name: str, lasts: int) -> int:
        if name in self._identities:
            self._identities[name].transaction = None
        return super()._initialise(name, lasts)


class PredecessorsAreCommitted(MemoryLog):
    def _initialise(self, name: str, lasts: int) -> int:
        known = self._identities.get(name)
        if known is not None and known.transaction is not None:
            self._decide(known, committed=True)
        return super()._initialise(name, lasts)


PARTITION_MUTANTS = [
    MarkersWithoutOffset,
    NoLastStableOffset,
    AbortedRecordsShown,
    MarkersWhereSomethingWasWritten,
    DeletedRecordsBehindAnOpenTransactionHidden,
]
LOG_MUTANTS = [NobodyIsFenced, FencedAtTheEndOnly, PredecessorsStayOpen, PredecessorsAreCommitted]


def differs(seed: int, wrong: type[MemoryLog], monkeypatch: pytest.MonkeyPatch, **patches: Any) -> bool:
    """Whether a history has another answer from a wrong log, a failure included."""
    right = [*told(MemoryLog(), seed)]
    with monkeypatch.context() as patched:
        for name, value in patches.items():
            patched.setattr(module, name, value)
        try:
            found = [*told(wrong(), seed)]
        except (AssertionError, IndexError):
            return True
    return any(one != other for one, other in zip_longest(right, found))


@pytest.mark.parametrize("wrong", PARTITION_MUTANTS)
def test_the_histories_notice_a_wrong_partition(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert any(differs(seed, MemoryLog, monkeypatch, _Partition=wrong) for seed in range(HISTORIES))


@pytest.mark.parametrize("wrong", LOG_MUTANTS)
def test_the_histories_notice_a_wrong_coordinator(
    wrong: type[MemoryLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert any(differs(seed, wrong, monkeypatch) for seed in range(HISTORIES))


def test_the_histories_have_every_step_and_fence_producers_at_each_that_can_be_refused() -> None:
    steps, refused = Counter[str](), Counter[str]()
    for seed in range(HISTORIES):
        for step, answer, _ in (one for one in told(MemoryLog(), seed) if len(one) == 3):  # type: ignore[arg-type]
            steps[step.name] += 1
            refused[step.name] += answer == KafkaError(KafkaError.INVALID_PRODUCER_EPOCH).name()
    assert set(steps) == {"initialise", "write", "add", "commit", "abort", "append", "read", "trim"}
    assert {name for name, times in refused.items() if times} == {"write", "add", "commit", "abort"}
    assert all(times >= 5 for times in steps.values())


# What only readers in this process are given


def filled(*, stamped: bool = True) -> MemoryLog:
    """Offsets: 0 committed, 1 marker, 2 aborted, 3 marker, 4 and 5 committed, 6 marker."""
    log = MemoryLog(now=1_000)
    log.create("topic", stamped=stamped)
    writer = log.writer("owner", 20.0)
    writer.initialise(30.0)
    for values, commit in ((("a",), True), (("b",), False), (("c", "d"), True)):
        writer.write([module.Outgoing("topic", event(value), value.encode(), 0) for value in values])
        (writer.commit if commit else writer.abort)(30.0)
    return log


def test_a_chunk_has_what_a_committed_reader_sees_and_ends_behind_the_last_marker() -> None:
    chunk = filled().read(PLACE)
    assert (chunk.topic, chunk.partition, chunk.start, chunk.next_offset) == ("topic", 0, 0, 7)
    assert [*chunk.offsets] == [0, 4, 5]
    assert [*chunk.keys] == [b"a", b"c", b"d"]
    assert [*chunk.values] == [event("a"), event("c"), event("d")]
    assert [*chunk.append_times] == [1_000] * 3


def test_chunks_of_a_few_records_follow_each_other_without_a_gap() -> None:
    log, position, offsets = filled(), 0, list[int]()
    for expected in (4, 5, 7):
        chunk = log.read(PLACE, position, most=1)
        assert (chunk.start, chunk.next_offset) == (position, expected)
        offsets += chunk.offsets
        position = chunk.next_offset
    assert offsets == [0, 4, 5]
    assert not log.read(PLACE, position).offsets


def test_a_chunk_before_an_open_transaction_ends_there() -> None:
    log = filled()
    log.writer("other", 20.0).initialise(30.0)
    other = log.writer("other", 20.0)
    other.initialise(30.0)
    other.write([module.Outgoing("topic", b"open", None, 0)])
    log.append([module.Outgoing("topic", b"behind", None, 0)])
    assert log.read(PLACE, 5).next_offset == log.end(PLACE, "read_committed") == 7
    assert [*log.read(PLACE, 5, "read_uncommitted").offsets] == [5, 7, 8]
    # As a cluster does: a reader that was further finds nothing, and is not refused.
    assert log.read(PLACE, 8).next_offset == 8


def test_records_have_no_append_time_where_the_log_does_not_stamp_them() -> None:
    assert [*filled(stamped=False).read(PLACE).append_times] == [module.NO_APPEND_TIME] * 3
    assert [*filled(stamped=True).read(PLACE).append_times] == [1_000] * 3


def test_a_transaction_may_last_as_long_as_it_was_told_and_not_a_millisecond_more() -> None:
    log = filled()
    writer = log.writer("slow", 1.0)
    writer.initialise(30.0)
    writer.write([module.Outgoing("topic", b"slow", None, 0)])
    log.advance(2_000)
    assert log.end(PLACE, "read_committed") == 7
    log.advance(2_001)
    assert log.end(PLACE, "read_committed") == log.end(PLACE) == 9
