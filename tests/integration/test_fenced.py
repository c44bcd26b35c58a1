"""The table with one writer: what a writer that was shut out learns."""

from __future__ import annotations

import time

import pytest

from operators.kafka.fenced import ClockAhead, DeclaredClock, FencedTable, OwnerClosed, TransactionFailed
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


def timed_table(kafka: str, topic: str, ahead: int) -> FencedTable:
    """The table of a writer whose clock is ``ahead`` ms and may be 100."""
    clock = DeclaredClock(lambda: time.time_ns() // 1_000_000 + ahead, skew=100)
    table = FencedTable(Kafka(kafka), unique("owner"), topic, 0, clock=clock)
    table.fence()
    return table


@pytest.mark.parametrize("ahead", [-3_600_000, 0, 100])
def test_a_clock_that_is_behind_or_ahead_within_the_skew_decides(
    kafka: str, new_topic: NewTopic, ahead: int
) -> None:
    topic = new_topic("changelog", settings=COMPACTED | LOG_APPEND_TIME)
    timed_table(kafka, topic, ahead).transact("close", [Outgoing(topic, b"state", b"key", 0)])
    assert [record.value() for record in read(kafka, topic)] == [b"state"]


def test_nothing_is_committed_by_a_clock_that_is_ahead(kafka: str, new_topic: NewTopic) -> None:
    topic = new_topic("changelog", settings=COMPACTED | LOG_APPEND_TIME)
    table = timed_table(kafka, topic, ahead=3_600_000)
    with pytest.raises(ClockAhead, match=r"it is 3[56]\d{5} ms ahead, clock_skew is 100 ms.*Set the clocks"):
        table.transact("close", [Outgoing(topic, b"state", b"key", 0)])
    with pytest.raises(OwnerClosed):
        table.transact("close", [Outgoing(topic, b"state", b"key", 0)])
    assert read(kafka, topic) == []


def test_a_clock_that_was_ahead_when_it_decided_decides_nothing(kafka: str, new_topic: NewTopic) -> None:
    topic = new_topic("changelog", settings=COMPACTED | LOG_APPEND_TIME)
    decided = time.time_ns() // 1_000_000 + 3_600_000
    with pytest.raises(ClockAhead):
        timed_table(kafka, topic, 0).transact("close", [Outgoing(topic, b"state", b"key", 0)], decided)
    assert read(kafka, topic) == []


def test_a_broker_that_does_not_tell_its_time_lets_nothing_be_decided(
    kafka: str, new_topic: NewTopic
) -> None:
    topic = new_topic("changelog", settings=COMPACTED)
    with pytest.raises(ClockAhead, match="the broker did not tell the append time"):
        timed_table(kafka, topic, ahead=0).transact("close", [Outgoing(topic, b"state", b"key", 0)])
    assert read(kafka, topic) == []
