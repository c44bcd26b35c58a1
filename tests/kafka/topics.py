"""What tests do with topics: create, write, read to the end."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

from aiokafka import TopicPartition as AioPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.produce import ProduceRequest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from eventveil.kafka.admin import Admin
from eventveil.kafka.barrier import is_nonce

Isolation = Literal["read_committed", "read_uncommitted"]
Value = str | bytes | None
LOG_APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
COMPACTED = {"cleanup.policy": "compact"}


def unique(prefix: str) -> str:
    """A name that no other test uses, for topics, groups and transactional ids."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def create_topic(
    bootstrap: str, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None
) -> str:
    """Create a topic, wait until its partitions have leaders, return its name."""
    admin = Admin({"bootstrap.servers": bootstrap, "log_level": 0})
    topic = NewTopic(name, partitions, 1, config=dict(settings or {}))
    admin.create_topics([topic])[name].result(30)
    _wait_for_leaders(admin, name, partitions)
    return name


def alter_topic(bootstrap: str, name: str, settings: Mapping[str, str]) -> None:
    """Change settings of a topic."""
    entries = [
        ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
        for setting, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    admin = Admin({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(30)


def grow_topic(bootstrap: str, name: str, partitions: int) -> None:
    """Give a topic ``partitions`` in all and wait until they have leaders."""
    admin = Admin({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_partitions([NewPartitions(name, partitions)])[name].result(30)
    _wait_for_leaders(admin, name, partitions)


def _wait_for_leaders(admin: Admin, name: str, partitions: int) -> None:
    """Brokers answer before all of them know what they did; a client is told of an unknown partition."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found = admin.list_topics(name, timeout=10).topics[name].partitions.values()
        if len(found) == partitions and all(partition.leader >= 0 for partition in found):
            return
        time.sleep(0.05)
    raise TimeoutError(f"{name} has no leaders")


def transactional_producer(bootstrap: str, identity: str, **settings: object) -> Producer:
    """A producer with this transactional.id after ``init_transactions``; it fences earlier ones.

    ``settings`` are librdkafka's with underscores for dots.
    """
    configuration: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "transactional.id": identity,
        "transaction.timeout.ms": 60_000,
        "linger.ms": 0,
        "log_level": 0,
    }
    configuration |= {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer(configuration)
    producer.init_transactions(30)
    return producer


def produce(
    bootstrap: str,
    topic: str,
    values: Iterable[Value],
    key: Value = None,
    partition: int = 0,
    **settings: object,
) -> None:
    """Write ``values`` outside any transaction and wait until the broker has them."""
    configuration = {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, **configuration})
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    for value in values:
        producer.produce(topic, value=value, key=key, partition=partition, on_delivery=delivered)
    left = producer.flush(30)
    assert left == 0, f"{left} records did not reach {topic}"
    assert not errors, f"{topic} refused: {errors}"


def append_batch(bootstrap: str, topic: str, batch: bytes, partition: int = 0) -> None:
    """Write a record batch as it is: brokers take more than the clients let producers write."""

    async def ask() -> None:
        client = AIOKafkaClient(bootstrap_servers=bootstrap)
        await client.bootstrap()
        try:
            await client._wait_on_metadata(topic)
            leader = client.cluster.leader_for_partition(AioPartition(topic, partition))
            request = ProduceRequest(None, -1, 30_000, [(topic, [(partition, batch)])])
            answer: Any = await client.send(leader, request)
            ((_, ((_, code, *_),)),) = answer.topics
            assert code == 0, f"{topic} refused: error {code}"
        finally:
            await client.close()

    asyncio.run(ask())


def transact(producer: Producer, topic: str, values: Iterable[Value], partition: int = 0) -> None:
    """Write ``values`` in one transaction and commit it."""
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value=value, partition=partition)
    producer.commit_transaction(30)


def abandon(
    producer: Producer, topic: str, values: Iterable[Value], partition: int = 0, key: Value = None
) -> None:
    """Begin a transaction and bring ``values`` to the broker, but neither commit nor abort."""
    errors: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        errors.append(error)

    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value=value, key=key, partition=partition, on_delivery=delivered)
    left = producer.flush(30)
    assert left == 0, f"{left} records did not reach {topic}"
    assert not any(errors), f"{topic} refused: {errors}"


def read(
    bootstrap: str, topic: str, isolation: Isolation = "read_committed", partition: int = 0, first: int = 0
) -> list[Message]:
    """Every record of a partition, from offset ``first`` on, that a reader under ``isolation`` sees by now.

    The nonces of the barrier are passed over, as every reader does (``eventveil.kafka.barrier``).
    """
    records, _ = read_to_end(bootstrap, topic, isolation, partition, first=first)
    return [record for record in records if not is_nonce(record.key())]


def read_to_end(
    bootstrap: str,
    topic: str,
    isolation: Isolation,
    partition: int = 0,
    seconds: float = 30.0,
    first: int = 0,
) -> tuple[list[Message], int]:
    """The records of a partition and the offset at which the reader met the end.

    Raises TimeoutError when the end does not come within ``seconds``.
    """
    consumer = _reader(bootstrap, isolation, wait_ms=20)
    consumer.assign([TopicPartition(topic, partition, first)])
    records: list[Message] = []
    deadline = time.monotonic() + seconds
    try:
        while time.monotonic() < deadline:
            for message in _come(consumer, 0.2):
                error, offset = message.error(), message.offset()
                if error is None:
                    records.append(message)
                elif error.code() == KafkaError._PARTITION_EOF and offset is not None:
                    return records, offset
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    raise TimeoutError(f"{topic}[{partition}] did not end within {seconds} s")


@contextmanager
def following(bootstrap: str, topic: str, first: int = 0) -> Iterator[Callable[[float], list[Message]]]:
    """What to wait with: each call tells the committed records that have come to partition 0 since the last
    call, and waits for one as long as it is told to. The first call tells all from offset ``first`` on.

    It costs less than to read again. After an error, as when the topic was created again, the next call tells
    all records. Raises what ``read_to_end`` raises.
    """
    consumer = _reader(bootstrap, "read_committed", wait_ms=500)
    behind = True

    def more(seconds: float) -> list[Message]:
        nonlocal behind, first
        found: list[Message] = []
        if behind:
            found, end = read_to_end(bootstrap, topic, "read_committed", first=first)
            consumer.assign([TopicPartition(topic, 0, end)])
            behind = False
        else:
            for message in _come(consumer, seconds):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() != KafkaError._PARTITION_EOF:
                    behind, first = True, 0
        return [message for message in found if not is_nonce(message.key())]

    try:
        yield more
    finally:
        consumer.close()


def _reader(bootstrap: str, isolation: Isolation, wait_ms: int) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": unique("reader"),
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": wait_ms,
        }
    )


def _come(consumer: Consumer, seconds: float) -> list[Message]:
    """What has come, or comes first within so long. Asked for many, a consumer waits all of the time."""
    message = consumer.poll(seconds)
    return [] if message is None else [message, *consumer.consume(1000, 0)]


def values(messages: Iterable[Message]) -> list[bytes | None]:
    """The values of messages, in order."""
    return [message.value() for message in messages]


def end_offset(
    bootstrap: str,
    topic: str,
    isolation: Isolation = "read_uncommitted",
    partition: int = 0,
    seconds: float = 30.0,
) -> int:
    """The offset after the last record or control marker of a partition (the high watermark).

    Under read_committed the answer is the last stable offset instead: the first offset of the oldest open
    transaction, if there is one. Raises KafkaException if no leader answers within ``seconds``.
    """
    settings = {"bootstrap.servers": bootstrap, "group.id": unique("reader"), "isolation.level": isolation}
    consumer, deadline = Consumer(settings), time.monotonic() + seconds
    try:
        while True:
            try:
                place = TopicPartition(topic, partition)
                return int(consumer.get_watermark_offsets(place, timeout=seconds)[1])
            except KafkaException as error:
                # Just after a topic was created the broker may not lead its partitions yet.
                leads = error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION
                if leads or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
    finally:
        consumer.close()


def settled(bootstrap: str, topic: str, partition: int = 0, seconds: float = 30.0) -> str:
    """The topic, once a partition has the markers of all transactions, which brokers write after a commit."""
    deadline = time.monotonic() + seconds
    while end_offset(bootstrap, topic, "read_committed", partition) < end_offset(
        bootstrap, topic, partition=partition
    ):
        assert time.monotonic() < deadline, f"{topic}[{partition}] has an open transaction"
        time.sleep(0.02)
    return topic


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete a topic and wait until it is gone."""
    admin = Admin({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)
    while topic in admin.list_topics(timeout=30).topics:
        time.sleep(0.1)
