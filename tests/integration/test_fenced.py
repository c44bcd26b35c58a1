"""The table with one writer: what a writer that was shut out learns, and which reading a new one believes."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count, takewhile
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from confluent_kafka import KafkaError

from eventveil.kafka import changelog, reader
from eventveil.kafka.barrier import is_nonce
from eventveil.kafka.changelog import FencedTable, OwnerClosed, TransactionFailed
from eventveil.kafka.reader import StoredRecord
from eventveil.model.errors import Unsettled
from eventveil.model.records import Outgoing, TopicPartition
from eventveil.model.topology import Kafka
from eventveil.process.clock import Clock, ClockAhead, PartitionClock, wall_clock
from eventveil.process.faults import FaultHook, no_fault
from tests.chaos.mutants import take_over_without_barrier
from tests.integration.conftest import NewTopic
from tests.kafka.broker import local_broker
from tests.kafka.jars import missing_tools
from tests.kafka.markers import end
from tests.kafka.topics import (
    COMPACTED,
    LOG_APPEND_TIME,
    create_topic,
    delete_topic,
    end_offset,
    produce,
    read,
    read_to_end,
    settled,
    unique,
)

ATTEMPTS = 10


def test_a_writer_that_is_shut_out_while_it_writes_is_told_so_and_nothing_else(
    kafka: str, new_topic: NewTopic
) -> None:
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


def test_a_writer_whose_transaction_outlived_its_timeout_is_told_that_and_not_of_another(
    kafka: str, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changelog, "_TRANSACTION_SECONDS", 1.0)
    topic, owner = new_topic("changelog", settings=COMPACTED), unique("owner")

    def slow(point: str) -> None:
        # The broker looks for such transactions once a second (tests/kafka/settings.py), or every 10 s.
        if point == "close:before-commit":
            deadline = time.monotonic() + 180
            while read_to_end(kafka, topic, "read_committed")[1] == 0 and time.monotonic() < deadline:
                time.sleep(0.2)

    table = FencedTable(Kafka(kafka), owner, topic, 0, slow)
    table.fence()
    with pytest.raises(TransactionFailed, match=r"the transaction took \d+ s, and the broker") as caught:
        table.transact("close", [Outgoing(topic, b"state", b"key", 0)])
    assert caught.value.overdue
    assert not caught.value.fenced
    # The partition is nobody else's.
    monkeypatch.setattr(changelog, "_TRANSACTION_SECONDS", 20.0)
    again = FencedTable(Kafka(kafka), owner, topic, 0)
    assert again.take_over() == {}
    again.transact("close", [Outgoing(topic, b"state", b"key", 0)])


def close(kafka: str, topic: str, clock: PartitionClock, fault: FaultHook = no_fault) -> None:
    """Write a state that was decided by this clock."""
    table = FencedTable(Kafka(kafka), unique("owner"), topic, 0, fault)
    table.fence()
    try:
        table.transact("close", [Outgoing(topic, b"state", b"key", 0)], clock)
    except ClockAhead:
        with pytest.raises(OwnerClosed):
            table.transact("close", [Outgoing(topic, b"state", b"key", 0)], clock)
        raise


def clock_ahead(milliseconds: int, skew: int = 1000) -> PartitionClock:
    return PartitionClock(Clock(lambda: wall_clock() + milliseconds), skew)


@pytest.mark.parametrize("ahead", [-3_600_000, 0, 2_500])
def test_a_clock_that_is_behind_or_ahead_within_the_skew_decides(
    kafka: str, new_topic: NewTopic, ahead: int
) -> None:
    topic = new_topic("changelog", settings=COMPACTED | LOG_APPEND_TIME)
    close(kafka, topic, clock_ahead(ahead, skew=5_000))
    # It is written again where the answer was slow.
    assert {record.value() for record in read(kafka, settled(kafka, topic))} == {b"state"}


def test_a_take_over_shows_that_the_clock_is_behind(kafka: str, new_topic: NewTopic) -> None:
    """Nothing else may be written for hours, because nothing is due by that clock."""
    topic = new_topic("changelog", settings=COMPACTED | LOG_APPEND_TIME)
    behind, right = clock_ahead(-3_600_000), clock_ahead(0)
    for clock in (behind, right):
        FencedTable(Kafka(kafka), unique("owner"), topic, 0, hear=clock.hear).take_over()
    assert right.behind == 0
    # It is no more than an hour, and less by what the answer took.
    assert 3_000_000 < behind.behind <= 3_600_000


@pytest.mark.parametrize("ahead", [3_600_000, 1_500])
def test_nothing_is_committed_by_a_clock_that_is_ahead(kafka: str, new_topic: NewTopic, ahead: int) -> None:
    topic = new_topic("changelog", settings=COMPACTED | LOG_APPEND_TIME)
    with pytest.raises(ClockAhead, match=r"at least \d+ ms ahead of the broker's, clock_skew is 1000 ms"):
        close(kafka, topic, clock_ahead(ahead))
    assert read(kafka, topic) == []


def test_a_clock_that_was_ahead_and_is_right_again_decides_nothing(kafka: str, new_topic: NewTopic) -> None:
    topic = new_topic("changelog", settings=COMPACTED | LOG_APPEND_TIME)
    ahead = 5_000
    clock = PartitionClock(Clock(lambda: wall_clock() + ahead), 1000)
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
    # The answer to a clock that is right may take as long as the skew, and not be late.
    skew = 1000 if ahead else 3000
    stalls = [skew / 1000 + 1]

    def stall(name: str) -> None:
        if name == point and stalls:
            time.sleep(stalls.pop())

    if ahead:
        with pytest.raises(ClockAhead, match="at least"):
            close(kafka, topic, clock_ahead(ahead, skew), stall)
        assert read(kafka, topic) == []
    else:
        close(kafka, topic, clock_ahead(ahead, skew), stall)
        # Written late the first answer is exact; answered late it is not, and the state is written again.
        assert len(read(kafka, settled(kafka, topic))) == (1 if point == "close:before-produce" else 2)


def test_a_broker_that_does_not_tell_its_time_lets_nothing_be_decided(
    kafka: str, new_topic: NewTopic
) -> None:
    topic = new_topic("changelog", settings=COMPACTED)
    with pytest.raises(ClockAhead, match="has no append times; `eventveil topics` says how"):
        close(kafka, topic, clock_ahead(0))
    assert read(kafka, topic) == []


# The barrier


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up on brokers that show an old log after a second."""
    monkeypatch.setattr(reader, "BARRIER_SECONDS", 1.0)


class CutOff:
    """What readers are told of where a log ends: at first by a broker that has seen nothing since ``end``."""

    def __init__(self, end: int, stale: int) -> None:
        self.end, self.stale, self.asked = end, stale, 0

    def tell(self, reading: Any, which: int) -> int:
        self.asked += 1
        told = offset_of(reading, which)
        return min(told, self.end) if self.asked <= self.stale else told


offset_of = reader.LogReader._offset


def written_and_cut_off(kafka: str, topic: str, owner: str) -> int:
    """Write an old state, then a new one; the answer is where the log ended between them."""
    table = FencedTable(Kafka(kafka), owner, topic, 0)
    table.take_over()
    table.transact("close", [Outgoing(topic, b"old", b"next", 0)])
    between = end_offset(kafka, topic)
    table.transact("close", [Outgoing(topic, b"new", b"next", 0)])
    return between


def test_a_take_over_believes_no_broker_that_shows_less_than_was_acknowledged(
    kafka: str, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, owner = new_topic("changelog", settings=COMPACTED), unique("owner")
    cut = CutOff(written_and_cut_off(kafka, topic, owner), stale=3)
    monkeypatch.setattr(reader.LogReader, "_offset", lambda *asked: cut.tell(*asked))
    assert FencedTable(Kafka(kafka), owner, topic, 0).take_over() == {b"next": b"new"}
    assert cut.asked >= 4


def test_a_take_over_reads_the_headers_of_the_newest_records(kafka: str, new_topic: NewTopic) -> None:
    topic, owner = new_topic("changelog", settings=COMPACTED), unique("owner")
    table = FencedTable(Kafka(kafka), owner, topic, 0)
    table.take_over()
    by = [("eventveil.version", b"1")]
    table.transact("close", [Outgoing(topic, b"1", key, 0, by) for key in (b"one", b"other", b"gone")])
    table.transact("close", [Outgoing(topic, b"2", b"other", 0), Outgoing(topic, None, b"gone", 0)])
    after = FencedTable(Kafka(kafka), owner, topic, 0)
    assert after.take_over() == {b"one": b"1", b"other": b"2"}
    assert {
        key: [*headers] for key, headers in after.headers.items() if key in (b"one", b"other", b"gone")
    } == {b"one": by, b"other": []}


def test_without_the_barrier_the_same_broker_is_believed(
    kafka: str, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken table of the mutation trials is broken indeed."""
    topic, owner = new_topic("changelog", settings=COMPACTED), unique("owner")
    cut = CutOff(written_and_cut_off(kafka, topic, owner), stale=3)
    monkeypatch.setattr(reader.LogReader, "_offset", lambda *asked: cut.tell(*asked))
    table = FencedTable(Kafka(kafka), owner, topic, 0)
    assert take_over_without_barrier(table) == {b"next": b"old"}
    table.transact("close", [Outgoing(topic, b"a second draw", b"next", 0)])
    assert read(kafka, settled(kafka, topic))[-1].value() == b"a second draw"


@pytest.mark.usefixtures("impatient")
def test_a_take_over_that_is_only_shown_old_logs_ends_in_a_doubt_and_a_later_one_settles_it(
    kafka: str, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, owner = new_topic("changelog", settings=COMPACTED), unique("owner")
    cut = CutOff(written_and_cut_off(kafka, topic, owner), stale=1000)
    monkeypatch.setattr(reader.LogReader, "_offset", lambda *asked: cut.tell(*asked))
    with pytest.raises(Unsettled, match="no broker has shown what its leader had acknowledged") as caught:
        FencedTable(Kafka(kafka), owner, topic, 0).take_over()
    assert caught.value.refusal is None
    cut.stale = 0
    monkeypatch.setattr(reader, "BARRIER_SECONDS", 35.0)
    assert FencedTable(Kafka(kafka), owner, topic, 0).take_over() == {b"next": b"new"}


def test_a_table_that_lacks_the_nonce_is_not_believed_however_long_its_log(
    kafka: str, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a topic would be that was created again and filled from a backup."""
    topic = new_topic("changelog", settings=COMPACTED)
    monkeypatch.setattr(changelog, "read_latest", lambda *_: {b"next": StoredRecord(0, b"next", b"old")})
    with pytest.raises(Unsettled):
        FencedTable(Kafka(kafka), unique("owner"), topic, 0).take_over()


def test_a_take_over_tells_how_far_the_partitions_beside_it_reach_and_nobody_meets_the_nonces(
    kafka: str, new_topic: NewTopic
) -> None:
    topic, sink = new_topic("changelog", settings=COMPACTED), new_topic("sink", partitions=2)
    produce(kafka, sink, [b"release"] * 3, partition=1)
    table = FencedTable(Kafka(kafka), unique("owner"), topic, 0)
    assert table.take_over([TopicPartition(sink, 0), TopicPartition(sink, 1)]) == {}
    assert (table.floors[sink, 0], table.floors[sink, 1]) == (0, 3)
    assert table.floors[topic, 0] == 0
    table.transact("publish", [Outgoing(sink, b"release", b"stream", 1)])
    assert table.floors[sink, 1] == 5
    settled(kafka, sink, partition=1)
    assert [record.value() for record in read(kafka, sink, partition=1)] == [b"release"] * 4
    assert read(kafka, sink) == []
    (nonce,), _ = read_to_end(kafka, sink, "read_uncommitted")
    assert nonce.value() is None
    assert is_nonce(nonce.key())
    assert nonce.headers()[0][1].startswith(b"barrier: ")


def test_a_partition_that_is_created_again_under_a_writer_gets_nothing_more(
    kafka: str, new_topic: NewTopic
) -> None:
    topic, ledger = new_topic("changelog", settings=COMPACTED), new_topic("ledger")
    produce(kafka, ledger, [b"entry"] * 20)
    owner = unique("owner")
    table = FencedTable(Kafka(kafka), owner, topic, 0)
    table.take_over([TopicPartition(ledger, 0)])
    delete_topic(kafka, ledger)
    create_topic(kafka, ledger)
    with pytest.raises(Unsettled, match=f"{ledger}, partition 0: it is shorter than it was"):
        table.transact(
            "publish", [Outgoing(ledger, b"entry", b"stream", 0), Outgoing(topic, b"state", b"key", 0)]
        )
    with pytest.raises(OwnerClosed):
        table.transact("publish", [])
    assert read(kafka, ledger) == []
    assert FencedTable(Kafka(kafka), owner, topic, 0).take_over([TopicPartition(ledger, 0)]) == {}


def test_a_late_marker_of_the_marks_ends_no_later_transaction(kafka: str, new_topic: NewTopic) -> None:
    # A coordinator that was not answered in time sends a marker again, while the first is still on its way.
    changelog, beside = new_topic("changelog", settings=COMPACTED), TopicPartition(new_topic("ledger"), 0)
    answers: list[int] = []

    def end_late(point: str) -> None:
        if point == "charge:before-commit":
            answers.append(end(kafka, beside, marked.id, marked.epoch, commit=False))

    table = FencedTable(Kafka(kafka), unique("owner"), changelog, 0, end_late)
    table.fence()
    assert table._writer is not None
    assert table._writer._producer is not None
    marked = table._writer._producer
    table.mark([beside])
    charge = [Outgoing(changelog, b"state", b"key", 0), Outgoing(beside.topic, b"entry", None, 0)]
    table.transact("charge", charge)
    assert [one.value() for one in read(kafka, changelog)] == [b"state"]
    assert [one.value() for one in read(kafka, beside.topic)] == [b"entry"]
    assert answers == [KafkaError.INVALID_PRODUCER_EPOCH]


def test_marks_do_not_shut_out_a_newer_owner(kafka: str, new_topic: NewTopic) -> None:
    topic, owner, beside = new_topic("changelog", settings=COMPACTED), unique("owner"), new_topic("ledger")
    newer = FencedTable(Kafka(kafka), owner, topic, 0)

    def overtake(point: str) -> None:
        if point == "mark:before-commit":
            newer.fence()

    older = FencedTable(Kafka(kafka), owner, topic, 0, overtake)
    older.fence()
    with pytest.raises(TransactionFailed) as caught:
        older.mark([TopicPartition(beside, 0)])
    assert caught.value.fenced
    newer.transact("charge", [Outgoing(topic, b"state", b"key", 0)])
    assert [one.value() for one in read(kafka, topic)] == [b"state"]


#: A broker that lets a producer write to a partition of which its coordinator does not know.
UNVERIFIED = {"transaction.partition.verification.enable": "false"}


@pytest.mark.skipif(bool(missing_tools()), reason="; ".join(missing_tools()))
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_whose_markers_are_missing_ends_as_its_coordinator_decided(
    tmp_path: Path, committed: bool
) -> None:
    with local_broker(directory=tmp_path / "broker", settings=UNVERIFIED) as broker:
        kafka, owner, ledger = Kafka(broker.bootstrap), unique("owner"), TopicPartition("ledger", 0)
        create_topic(broker.bootstrap, "changelog", settings=COMPACTED)
        create_topic(broker.bootstrap, "ledger")
        former = FencedTable(kafka, owner, "changelog", 0)
        former.take_over([ledger])
        former.transact("charge", [Outgoing("changelog", b"1", b"key", 0), Outgoing("ledger", b"1", None, 0)])
        if not committed:
            # The last thing that the coordinator hears of the owner is an abort.
            former.mark([ledger])
        leave_open(former, [Outgoing("changelog", b"2", b"key", 0), Outgoing("ledger", b"2", None, 0)])
        states = FencedTable(kafka, owner, "changelog", 0).take_over([ledger])
        entries = [one.value() for one in read(broker.bootstrap, "ledger")]
        assert (states, entries) == (
            ({b"key": b"2"}, [b"1", b"2"]) if committed else ({b"key": b"1"}, [b"1"])
        )


def leave_open(table: FencedTable, records: list[Outgoing]) -> None:
    """Write records that the coordinator knows nothing of, as if it had lost the markers of a transaction."""
    writer = table._writer
    assert writer is not None
    for topic in {one.topic for one in records}:
        settled(table._kafka.bootstrap, topic)
    writer.begin(10)
    writer._added.update(TopicPartition(one.topic, 0) for one in records)
    writer.write(records)
    writer._added.clear()


#: Enough of them that some are just being committed when the broker dies.
OWNERS = 20


@pytest.mark.skipif(bool(missing_tools()), reason="; ".join(missing_tools()))
def test_state_and_ledger_agree_after_a_broker_was_killed_among_many_commits(tmp_path: Path) -> None:
    ledger, stopped, charged = TopicPartition("ledger", 0), Event(), [0] * OWNERS
    with local_broker(directory=tmp_path / "broker") as broker:
        kafka = Kafka(broker.bootstrap)
        create_topic(broker.bootstrap, "changelog", OWNERS, COMPACTED)
        create_topic(broker.bootstrap, "ledger")

        def charge_on_and_on(partition: int) -> None:
            table, owner = table_of(kafka, partition), str(partition).encode()
            with suppress(TransactionFailed):
                table.take_over([ledger])
                for number in takewhile(lambda _: not stopped.is_set(), count(1)):
                    value = str(number).encode()
                    state = Outgoing("changelog", value, b"state", partition)
                    table.transact("charge", [state, Outgoing("ledger", value, owner, 0)])
                    charged[partition] = number

        with ThreadPoolExecutor(OWNERS) as threads:
            charging = [threads.submit(charge_on_and_on, partition) for partition in range(OWNERS)]
            try:
                # Some may fail on a busy machine.
                while any(
                    number < 20 and not one.done() for number, one in zip(charged, charging, strict=True)
                ):
                    time.sleep(0.1)
                assert not all(one.done() for one in charging), [one.exception() for one in charging]
                broker.kill()
                broker.start()
            finally:
                # Also of one that has not noticed.
                stopped.set()
        states = [table_of(kafka, partition).take_over([ledger]).get(b"state") for partition in range(OWNERS)]
        # One that failed before its first commit has neither.
        expected = {str(partition).encode(): state for partition, state in enumerate(states) if state}
        assert {one.key(): one.value() for one in read(broker.bootstrap, "ledger")} == expected


def table_of(kafka: Kafka, partition: int) -> FencedTable:
    return FencedTable(kafka, f"owner-{partition}", "changelog", partition)
