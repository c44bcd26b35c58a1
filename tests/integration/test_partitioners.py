"""Where the clients really put a key on a broker is where the partitioners of a topology say it belongs."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from eventveil.model.partitioners import PARTITIONERS, RECOGNIZED
from tests.integration.conftest import NewTopic
from tests.kafka.topics import read

PARTITIONS = 7  # not a power of two, so that every bit of a hash decides


def users() -> Iterator[bytes]:
    """Keys of every length up to 40 bytes: texts of several alphabets, numbers, and any bytes."""
    chance = random.Random(2013)
    for length in range(1, 41):
        yield from (chance.randbytes(length) for _ in range(10))
        yield "".join(chance.choices("añßжλ中🛫 -_", k=length)).encode()
        yield str(chance.randrange(10**length)).encode()


def landed(kafka: str, topic: str) -> dict[bytes | None, int]:
    """The partition of each key."""
    return {
        message.key(): partition
        for partition in range(PARTITIONS)
        for message in read(kafka, topic, partition=partition)
    }


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("murmur2_random", "murmur2"),
        ("murmur2", "murmur2"),
        ("consistent_random", "crc32"),
        ("consistent", "crc32"),
        (None, "crc32"),
        ("fnv1a", "fnv1a"),
    ],
)
def test_librdkafka_puts_keys_where_the_partitioner_says(
    kafka: str, new_topic: NewTopic, setting: str | None, name: str
) -> None:
    topic = new_topic("hashed", PARTITIONS)
    chosen = {} if setting is None else {"partitioner": setting}
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 20, **chosen})
    for user in users():
        producer.produce(topic, key=user, value=b"{}")
    assert producer.flush(30) == 0
    expected = {user: RECOGNIZED[name](user, PARTITIONS) for user in users()}
    assert landed(kafka, topic) == expected
    assert set(expected.values()) == set(range(PARTITIONS))


def test_aiokafka_puts_keys_where_murmur2_says(kafka: str, new_topic: NewTopic) -> None:
    topic = new_topic("hashed", PARTITIONS)

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=kafka) as producer:
            sent = [await producer.send(topic, key=user, value=b"{}") for user in users()]
            await asyncio.gather(*sent)

    asyncio.run(produce())
    assert landed(kafka, topic) == {user: PARTITIONERS["murmur2"](user, PARTITIONS) for user in users()}
