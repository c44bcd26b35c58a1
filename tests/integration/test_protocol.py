"""What the protocol of the worker needs from Apache Kafka, and what Kafka and its clients really do.

The worker relies on each of these facts; docs/architecture.md, "What Apache Kafka does", tells what follows.
Every test holds for any broker that certifies the worker, so this file also judges a new version or brand.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import aiokafka
import faust
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from faust.transport.drivers import aiokafka as driver

from tests.integration.conftest import NewTopic
from tests.kafka.topics import (
    COMPACTED,
    LOG_APPEND_TIME,
    Isolation,
    abandon,
    end_offset,
    produce,
    read,
    read_to_end,
    settled,
    transact,
    transactional_producer,
    unique,
    values,
)
from tests.worker.waiting import until

LOG_APPEND_TIME_TYPE = 2  # librdkafka's TIMESTAMP_LOG_APPEND_TIME
BOTH: tuple[Isolation, Isolation] = ("read_committed", "read_uncommitted")


def failure(call: Callable[[], object]) -> KafkaError:
    """The error that a call of the confluent client must end in."""
    with pytest.raises(KafkaException) as caught:
        call()
    error = caught.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def aiokafka_read(bootstrap: str, topic: str, isolation: Isolation, until: int) -> list[bytes | None]:
    """The values that aiokafka hands out before its position reaches offset ``until``."""

    async def collect() -> list[bytes | None]:
        partition = aiokafka.TopicPartition(topic, 0)
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            isolation_level=isolation,
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_wait_ms=20,
        )
        await consumer.start()
        try:
            consumer.assign([partition])
            consumer.seek(partition, 0)
            found: list[bytes | None] = []
            async with asyncio.timeout(120):
                while await consumer.position(partition) < until:
                    for records in (await consumer.getmany(timeout_ms=50)).values():
                        found += [record.value for record in records]
            return found
        finally:
            await consumer.stop()

    return asyncio.run(collect())


# Fencing


def test_a_newer_producer_of_the_same_identity_fences_the_older(kafka: str, new_topic: NewTopic) -> None:
    topic, identity = new_topic(), unique("owner")
    older = transactional_producer(kafka, identity)
    transact(older, topic, ["before"])
    newer = transactional_producer(kafka, identity)

    older.begin_transaction()
    older.produce(topic, "zombie")
    error = failure(lambda: older.commit_transaction(30))
    assert error.code() == KafkaError._FENCED
    assert error.fatal()
    failure(older.begin_transaction)  # It stays dead.

    transact(newer, topic, ["after"])
    for isolation in BOTH:
        assert values(read(kafka, settled(kafka, topic), isolation)) == [b"before", b"after"]


def test_a_zombie_frozen_before_its_commit_cannot_commit(kafka: str, new_topic: NewTopic) -> None:
    topic, identity = new_topic(), unique("owner")
    zombie = transactional_producer(kafka, identity)
    abandon(zombie, topic, ["frozen"])
    transactional_producer(kafka, identity)
    error = failure(lambda: zombie.commit_transaction(30))
    assert (error.code(), error.fatal()) == (KafkaError._FENCED, True)
    assert read(kafka, topic) == []


def test_a_zombie_cannot_add_to_the_transaction_it_had_begun(kafka: str, new_topic: NewTopic) -> None:
    topic, identity = new_topic(), unique("owner")
    zombie = transactional_producer(kafka, identity)
    abandon(zombie, topic, ["frozen"])
    transactional_producer(kafka, identity)
    zombie.produce(topic, "too late")
    assert failure(lambda: zombie.commit_transaction(30)).code() == KafkaError._FENCED
    assert values(read(kafka, topic, "read_uncommitted")) == [b"frozen"]


def test_committing_nothing_does_not_reveal_that_one_is_fenced(kafka: str, new_topic: NewTopic) -> None:
    identity = unique("owner")
    zombie = transactional_producer(kafka, identity)
    transactional_producer(kafka, identity)
    zombie.begin_transaction()
    zombie.commit_transaction(30)  # The client never asks the broker.


def test_a_commit_after_the_transaction_timed_out_fails_as_if_fenced(kafka: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    slow = transactional_producer(kafka, unique("owner"), transaction_timeout_ms=5000)
    abandon(slow, topic, ["slow"])
    until(lambda: end_offset(kafka, topic, "read_committed") >= 2)  # the record and the broker's abort marker
    error = failure(lambda: slow.commit_transaction(30))
    assert (error.code(), error.fatal()) == (KafkaError._FENCED, True)
    assert read(kafka, topic) == []


# Taking over


def test_init_transactions_aborts_the_predecessors_open_transaction(kafka: str, new_topic: NewTopic) -> None:
    topic, identity = new_topic(), unique("owner")
    abandon(transactional_producer(kafka, identity), topic, ["undecided"])
    assert end_offset(kafka, topic, "read_committed") == 0
    transactional_producer(kafka, identity)
    # When init_transactions returns, the marker is in the log and nothing holds read_committed readers back.
    assert end_offset(kafka, topic, "read_committed") == end_offset(kafka, topic) == 2
    assert read(kafka, topic) == []


def test_init_transactions_keeps_what_the_predecessor_committed(kafka: str, new_topic: NewTopic) -> None:
    topics, identity = [new_topic(), new_topic()], unique("owner")
    older = transactional_producer(kafka, identity)
    older.begin_transaction()
    for topic in topics:
        older.produce(topic, "decided")
    older.commit_transaction(30)
    transactional_producer(kafka, identity)
    # At once: a successor that reads after its init sees the whole transaction, in every topic.
    assert [values(read(kafka, topic)) for topic in topics] == [[b"decided"], [b"decided"]]


def test_other_identities_go_on_when_one_is_fenced(kafka: str, new_topic: NewTopic) -> None:
    topic, identity = new_topic(), unique("owner")
    neighbour = transactional_producer(kafka, unique("owner"))
    neighbour.begin_transaction()
    neighbour.produce(topic, "neighbour")
    for _ in range(2):
        transactional_producer(kafka, identity)
    neighbour.commit_transaction(30)
    assert values(read(kafka, settled(kafka, topic))) == [b"neighbour"]


def test_an_open_transaction_hides_the_end_of_its_partition(kafka: str, new_topic: NewTopic) -> None:
    # So "read to the end" proves nothing before init_transactions, and an end offset that is to bound what
    # was appended by now must be asked for read_uncommitted, whatever isolation the reader has.
    topic = new_topic()
    abandon(transactional_producer(kafka, unique("owner")), topic, ["open"])
    produce(kafka, topic, ["behind it"])
    assert read_to_end(kafka, topic, "read_committed") == ([], 0)
    assert end_offset(kafka, topic, "read_committed") == 0
    assert end_offset(kafka, topic, "read_uncommitted") == 2


@pytest.mark.parametrize(("isolation", "end"), [("read_committed", 0), ("read_uncommitted", 1)])
def test_aiokafka_end_offsets_follow_the_readers_isolation(
    kafka: str, new_topic: NewTopic, isolation: Isolation, end: int
) -> None:
    topic = new_topic()
    abandon(transactional_producer(kafka, unique("owner")), topic, ["open"])

    async def ask() -> int:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=kafka, isolation_level=isolation)
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition(topic, 0)
            return int((await consumer.end_offsets([partition]))[partition])
        finally:
            await consumer.stop()

    assert asyncio.run(ask()) == end


# Aborted records and control markers


@pytest.fixture
def aborted_in_the_middle(kafka: str, new_topic: NewTopic) -> str:
    """Offsets: 0 first, 1 marker, 2 aborted, 3 marker, 4 last, 5 marker."""
    topic, identity = new_topic(), unique("owner")
    owner = transactional_producer(kafka, identity)
    transact(owner, topic, ["first"])
    abandon(owner, topic, ["aborted"])
    owner.abort_transaction(30)
    transact(owner, topic, ["last"])
    return settled(kafka, topic)


def test_only_read_committed_hides_aborted_records(kafka: str, aborted_in_the_middle: str) -> None:
    seen = {isolation: values(read(kafka, aborted_in_the_middle, isolation)) for isolation in BOTH}
    assert seen["read_committed"] == [b"first", b"last"]
    assert seen["read_uncommitted"] == [b"first", b"aborted", b"last"]


def test_only_read_committed_hides_aborted_records_from_aiokafka(
    kafka: str, aborted_in_the_middle: str
) -> None:
    seen = {isolation: aiokafka_read(kafka, aborted_in_the_middle, isolation, until=6) for isolation in BOTH}
    assert seen["read_committed"] == [b"first", b"last"]
    assert seen["read_uncommitted"] == [b"first", b"aborted", b"last"]


@pytest.mark.parametrize("isolation", BOTH)
def test_a_changelog_that_ends_in_a_control_marker_is_read_to_its_end(
    kafka: str, new_topic: NewTopic, isolation: Isolation
) -> None:
    topic = new_topic("changelog", settings=COMPACTED)
    owner = transactional_producer(kafka, unique("owner"))
    owner.begin_transaction()
    owner.produce(topic, key="stream", value="state")
    owner.commit_transaction(30)
    records, end = read_to_end(kafka, settled(kafka, topic), isolation)
    assert values(records) == [b"state"]
    # The last record is at 0, the marker at 1: the end is told behind the marker.
    assert end == end_offset(kafka, topic) == 2
    assert aiokafka_read(kafka, topic, isolation, until=2) == [b"state"]


def test_positions_pass_a_partition_of_aborted_records_only(kafka: str, new_topic: NewTopic) -> None:
    topic, identity = new_topic(), unique("owner")
    owner = transactional_producer(kafka, identity)
    for attempt in range(3):
        abandon(owner, topic, [f"{attempt}"] * 10)
        owner.abort_transaction(30)
    assert read_to_end(kafka, settled(kafka, topic), "read_committed") == ([], 33)
    assert aiokafka_read(kafka, topic, "read_committed", until=33) == []


# The broker's clock


def test_log_append_time_replaces_the_producers_time_and_never_runs_back(
    kafka: str, new_topic: NewTopic
) -> None:
    topic = new_topic(settings=LOG_APPEND_TIME)
    before = _now()
    for _ in range(5):
        _produce_claiming(kafka, topic, time_ms=1_000, count=3)
    after = _now()
    records = read(kafka, topic)
    kinds, times = zip(*[record.timestamp() for record in records], strict=True)
    assert set(kinds) == {LOG_APPEND_TIME_TYPE}
    assert list(times) == sorted(times)
    # Milliseconds of the broker's clock, here the same machine's or the container host's.
    assert before - 1_000 <= times[0] <= times[-1] <= after + 1_000


def test_log_append_time_is_one_time_for_a_whole_batch(kafka: str, new_topic: NewTopic) -> None:
    topic = new_topic(settings=LOG_APPEND_TIME)
    # They linger longer than producing them takes, so they travel in one batch.
    produce(kafka, topic, ["x"] * 500, linger_ms=60_000)
    assert len({record.timestamp() for record in read(kafka, topic)}) == 1


def test_aiokafka_tells_log_append_time_from_a_producers_time(kafka: str, new_topic: NewTopic) -> None:
    appended, claimed = new_topic(settings=LOG_APPEND_TIME), new_topic()
    for topic in (appended, claimed):
        _produce_claiming(kafka, topic, time_ms=1_000, count=1)

    async def kind_and_time(topic: str) -> tuple[int, int]:
        consumer = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=kafka, auto_offset_reset="earliest")
        await consumer.start()
        try:
            record = await asyncio.wait_for(consumer.getone(), 120)
            return record.timestamp_type, record.timestamp
        finally:
            await consumer.stop()

    assert asyncio.run(kind_and_time(claimed)) == (0, 1_000)
    kind, moment = asyncio.run(kind_and_time(appended))
    assert kind == 1
    assert moment > 1_000


def test_offsets_for_times_finds_the_first_record_appended_at_or_after_a_time(
    kafka: str, new_topic: NewTopic
) -> None:
    topic = new_topic(settings=LOG_APPEND_TIME)
    for _ in range(3):
        # In one batch.
        produce(kafka, topic, ["x"] * 5, linger_ms=60_000)
        time.sleep(0.05)
    second_batch = read(kafka, topic)[5].timestamp()[1]
    assert _offset_for_time(kafka, topic, second_batch - 1) == 5
    assert _offset_for_time(kafka, topic, second_batch) == 5
    assert _offset_for_time(kafka, topic, second_batch + 1) == 10
    assert _offset_for_time(kafka, topic, _now() + 3_600_000) == -1  # librdkafka's "end"


def _now() -> int:
    return time.time_ns() // 1_000_000


def _produce_claiming(bootstrap: str, topic: str, time_ms: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(count):
        producer.produce(topic, "x", partition=0, timestamp=time_ms)
    assert producer.flush(30) == 0


def _offset_for_time(bootstrap: str, topic: str, time_ms: int) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": unique("reader")})
    try:
        return int(consumer.offsets_for_times([TopicPartition(topic, 0, time_ms)], timeout=30)[0].offset)
    finally:
        consumer.close()


# Releasing: why two transactions


def _die_before_commit(bootstrap: str, identity: str, records: Iterable[tuple[str, str]]) -> None:
    """A worker that writes (topic, value) records in a transaction and is killed before its commit."""
    worker = transactional_producer(bootstrap, identity)
    worker.begin_transaction()
    for topic, value in records:
        worker.produce(topic, value)
    assert worker.flush(30) == 0


def _write(bootstrap: str, identity: str, records: Iterable[tuple[str, str]]) -> None:
    worker = transactional_producer(bootstrap, identity)
    worker.begin_transaction()
    for topic, value in records:
        worker.produce(topic, value)
    worker.commit_transaction(30)


def test_deciding_and_publishing_in_one_transaction_can_show_two_draws(
    kafka: str, new_topic: NewTopic
) -> None:
    state, sink, identity = new_topic("state"), new_topic("sink"), unique("owner")
    _die_before_commit(kafka, identity, [(state, "decided draw 1"), (sink, "draw 1")])
    # The successor finds no decision and has to draw again.
    transactional_producer(kafka, identity)
    assert read(kafka, state) == []
    _write(kafka, identity, [(state, "decided draw 2"), (sink, "draw 2")])
    assert values(read(kafka, settled(kafka, sink))) == [b"draw 2"]
    assert values(read(kafka, sink, "read_uncommitted")) == [b"draw 1", b"draw 2"]


def test_deciding_first_and_publishing_then_shows_one_draw_wherever_it_dies(
    kafka: str, new_topic: NewTopic
) -> None:
    state, sink, identity = new_topic("state"), new_topic("sink"), unique("owner")
    # It dies in A: nothing is decided, and nothing has reached the sink.
    _die_before_commit(kafka, identity, [(state, "draw 1")])
    transactional_producer(kafka, identity)
    assert read(kafka, state) == []
    assert read(kafka, sink, "read_uncommitted") == []
    # The next dies in B: the decision is there, its successor publishes the same.
    _write(kafka, identity, [(state, "draw 2")])
    _die_before_commit(kafka, identity, [(sink, "draw 2")])
    transactional_producer(kafka, identity)
    decided = values(read(kafka, settled(kafka, state)))
    assert decided == [b"draw 2"]
    _write(kafka, identity, [(sink, "draw 2")])
    assert values(read(kafka, settled(kafka, sink))) == [b"draw 2"]
    assert set(values(read(kafka, sink, "read_uncommitted"))) == {b"draw 2"}


# Faust's consumer


class CommittedThread(driver.AIOKafkaConsumerThread):
    """Faust's consumer, told to hide aborted records."""

    def _create_worker_consumer(self, transport: Any) -> aiokafka.AIOKafkaConsumer:
        consumer = super()._create_worker_consumer(transport)
        consumer._isolation_level = "read_committed"
        return consumer


class CommittedConsumer(driver.Consumer):
    """The consumer of CommittedTransport."""

    def _new_consumer_thread(self) -> CommittedThread:
        return CommittedThread(self, loop=self.loop, beacon=self.beacon)


class CommittedTransport(driver.Transport):
    """Faust's aiokafka transport with a read_committed consumer."""

    Consumer = CommittedConsumer


def _faust_reads(
    bootstrap: str, topic: str, until: bytes, folder: Path, transport: type[driver.Transport]
) -> list[bytes]:
    """The values that an agent of a Faust application sees, up to the value ``until``."""

    async def run() -> list[bytes]:
        app = faust.App(
            unique("faust"),
            broker=f"kafka://{bootstrap}",
            store="memory://",
            datadir=str(folder),
            web_enabled=False,
            topic_disable_leader=True,
            topic_allow_declare=False,
        )
        app.transport = transport(app.conf.broker, app)
        seen: list[bytes] = []
        finished = asyncio.Event()

        @app.agent(app.topic(topic, key_serializer="raw", value_serializer="raw"))
        async def watch(stream: Any) -> None:
            async for value in stream:
                seen.append(value)
                if value == until:
                    finished.set()

        await app.start()
        try:
            await asyncio.wait_for(finished.wait(), 180)
        finally:
            await app.stop()
        return seen

    return asyncio.run(run())


def test_fausts_own_consumer_sees_aborted_records(
    kafka: str, aborted_in_the_middle: str, tmp_path: Path
) -> None:
    seen = _faust_reads(kafka, aborted_in_the_middle, b"last", tmp_path, driver.Transport)
    assert seen == [b"first", b"aborted", b"last"]


def test_a_subclass_of_fausts_consumer_sees_committed_records_only(
    kafka: str, aborted_in_the_middle: str, tmp_path: Path
) -> None:
    seen = _faust_reads(kafka, aborted_in_the_middle, b"last", tmp_path, CommittedTransport)
    assert seen == [b"first", b"last"]
