"""Partitions that rest: aiokafka gives nothing of them, and everything once they are awake again."""

from __future__ import annotations

import asyncio

import aiokafka
from aiokafka import TopicPartition
from confluent_kafka import Producer

from eventveil.worker.faust.driver import _let_rest
from tests.integration.conftest import NewTopic

_RECORDS = 100


def test_nothing_comes_of_a_partition_that_rests_and_nothing_is_lost(kafka: str, new_topic: NewTopic) -> None:
    topic = new_topic("resting", 2)
    producer = Producer({"bootstrap.servers": kafka})
    for number in range(2 * _RECORDS):
        producer.produce(topic, str(number), partition=number % 2)
    assert producer.flush(30) == 0

    async def scenario() -> None:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=kafka, auto_offset_reset="earliest")
        await consumer.start()
        try:
            partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
            consumer.assign(partitions)
            found = [await some_of(consumer, partition) for partition in partitions]
            # What was fetched and is not used up is given up, so that others do not have to wait for it.
            _let_rest(consumer, [TopicPartition(topic, 1), TopicPartition("not assigned", 0)])
            assert await more_of(consumer, {0}) == {0: list(range(found[0], _RECORDS))}
            _let_rest(consumer, [])
            assert await more_of(consumer, {1}) == {1: list(range(found[1], _RECORDS))}
        finally:
            await consumer.stop()

    asyncio.run(scenario())


async def some_of(consumer: aiokafka.AIOKafkaConsumer, partition: TopicPartition) -> int:
    """Read some records of a partition; how many."""
    found = 0
    async with asyncio.timeout(120):
        while not found:
            batch = await consumer.getmany(partition, timeout_ms=100, max_records=30)
            found = len(batch.get(partition, []))
    return found


async def more_of(consumer: aiokafka.AIOKafkaConsumer, partitions: set[int]) -> dict[int, list[int]]:
    """The offsets of all that comes until the last records of these partitions have come, and a while on."""
    found: dict[int, list[int]] = {}
    quiet = 0
    async with asyncio.timeout(120):
        while quiet < 5 or any(found.get(one, [])[-1:] != [_RECORDS - 1] for one in partitions):
            batch = await consumer.getmany(timeout_ms=100)
            quiet = 0 if batch else quiet + 1
            for tp, records in batch.items():
                found.setdefault(tp.partition, []).extend(record.offset for record in records)
    return found
