"""The table with one writer: what a writer that was shut out learns."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from operators.clock import Clock, ClockAhead, OwnerClock, wall_clock
from operators.faults import FaultHook, no_fault
from operators.kafka.fenced import FencedTable, OwnerClosed, TransactionFailed
from operators.records import Outgoing
from operators.topology.model import Kafka
from tests.integration.conftest import NewTopic
from tests.kafka.topics import COMPACTED, LOG_APPEND_TIME, read, unique

ATTEMPTS = 10


def test_a_writer_that_is_shut_out_while_it_writes_is_told_so_and_nothing_else(
    kafka: str, new_topic: NewTopic
) -> None:
    # Whether confluent-kafka raises the fatal error by itself or among delivery reports, where Python makes a
    # SystemError of it, is chance; ten attempts meet both.
    topic, owner = new_topic("changelog", settings=COMPACTED), unique("owner")
    records = [Outgoing(topic, b"of a zombie", b"key", 0)] * 5
    for _ in range(ATTEMPTS):
        older, newer = (FencedTable(Kafka(kafka), owner, topic, 0) for _ in range(2))
        older.fence()
        newer.fence()
        with pytest.raises(TransactionFailed) as caught:
            older.transact("close", records)
        assert caught.value.fenced
        with pytest.raises(OwnerClosed):
            older.transact("close", records)
    assert read(kafka, topic, "read_uncommitted") == []


class Speechless:
    """A producer whose flush fails as that of confluent-kafka sometimes does once it is fenced."""

    def __init__(self, abort: KafkaError | None) -> None:
        self._abort = abort

    def flush(self, timeout: float) -> int:
        raise SystemError("<method 'flush'> returned NULL without setting an exception")

    def abort_transaction(self, timeout: float) -> None:
        if self._abort is not None:
            raise KafkaException(self._abort)

    def __getattr__(self, name: str) -> Any:
        assert name in {"begin_transaction", "produce", "poll"}, name
        return lambda *_, **__: None


@pytest.mark.parametrize(
    ("abort", "fenced"), [(KafkaError(KafkaError._FENCED), True), (None, False)], ids=["fenced", "aborted"]
)
def test_a_client_that_fails_without_a_reason_is_asked_for_one(
    abort: KafkaError | None, fenced: bool
) -> None:
    table = FencedTable(Kafka("nowhere:1"), "owner", "topic", 0)
    table._producer = cast(Any, Speechless(abort))
    with pytest.raises(TransactionFailed) as caught:
        table.transact("close", [Outgoing("topic", b"value", b"key", 0)])
    assert caught.value.fenced == fenced
    with pytest.raises(OwnerClosed):
        table.transact("close", [])


def close(kafka: str, topic: str, clock: OwnerClock, fault: FaultHook = no_fault) -> None:
    """Write a state that was decided by this clock."""
    table = FencedTable(Kafka(kafka), unique("owner"), topic, 0, fault)
    table.fence()
    try:
        table.transact("close", [Outgoing(topic, b"state", b"key", 0)], clock)
    except ClockAhead:
        with pytest.raises(OwnerClosed):
            table.transact("close", [Outgoing(topic, b"state", b"key", 0)], clock)
        raise


def clock_ahead(milliseconds: int, skew: int = 1000) -> OwnerClock:
    return OwnerClock(Clock(lambda: wall_clock() + milliseconds), skew)


@pytest.mark.parametrize("ahead", [-3_600_000, 0, 500])
def test_a_clock_that_is_behind_or_ahead_within_the_skew_decides(
    kafka: str, new_topic: NewTopic, ahead: int
) -> None:
    topic = new_topic("changelog", settings=COMPACTED | LOG_APPEND_TIME)
    close(kafka, topic, clock_ahead(ahead))
    assert [record.value() for record in read(kafka, topic)] == [b"state"]


@pytest.mark.parametrize("ahead", [3_600_000, 1_500])
def test_nothing_is_committed_by_a_clock_that_is_ahead(kafka: str, new_topic: NewTopic, ahead: int) -> None:
    topic = new_topic("changelog", settings=COMPACTED | LOG_APPEND_TIME)
    with pytest.raises(ClockAhead, match=r"at least \d+ ms ahead of the broker's, clock_skew is 1000 ms"):
        close(kafka, topic, clock_ahead(ahead))
    assert read(kafka, topic) == []


def test_a_clock_that_was_ahead_and_is_right_again_decides_nothing(kafka: str, new_topic: NewTopic) -> None:
    topic = new_topic("changelog", settings=COMPACTED | LOG_APPEND_TIME)
    ahead = 5_000
    clock = OwnerClock(Clock(lambda: wall_clock() + ahead), 1000)
    clock.now()
    ahead = 0
    clock.now()
    with pytest.raises(ClockAhead):
        close(kafka, topic, clock)
    assert read(kafka, topic) == []


@pytest.mark.parametrize("ahead", [0, 1_500])
@pytest.mark.parametrize("point", ["close:before-produce", "close:produced"])
def test_a_late_answer_makes_it_ask_again_and_covers_no_clock_that_is_ahead(
    kafka: str, new_topic: NewTopic, ahead: int, point: str
) -> None:
    topic = new_topic("changelog", settings=COMPACTED | LOG_APPEND_TIME)
    stalls = [2.0]

    def stall(name: str) -> None:
        if name == point and stalls:
            time.sleep(stalls.pop())

    if ahead:
        with pytest.raises(ClockAhead, match="at least"):
            close(kafka, topic, clock_ahead(ahead), stall)
        assert read(kafka, topic) == []
    else:
        close(kafka, topic, clock_ahead(ahead), stall)
        # Written late the first answer is exact; answered late it is not, and the state is written again.
        assert len(read(kafka, topic)) == (1 if point == "close:before-produce" else 2)


def test_a_broker_that_does_not_tell_its_time_lets_nothing_be_decided(
    kafka: str, new_topic: NewTopic
) -> None:
    topic = new_topic("changelog", settings=COMPACTED)
    with pytest.raises(ClockAhead, match="does not tell append times; `eventveil topics` says how"):
        close(kafka, topic, clock_ahead(0))
    assert read(kafka, topic) == []
