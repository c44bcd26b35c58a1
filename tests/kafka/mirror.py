"""A copy of topics on another cluster, as a mirror makes it: same names and records, other topic ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from confluent_kafka import Message, Producer
from confluent_kafka.admin import ConfigResource, ResourceType

from eventveil.kafka.admin import Admin
from tests.kafka.topics import create_topic, read

#: What a broker tells of a topic and nobody has set.
_SET_FOR_THE_TOPIC = 1


def mirror(source: str, target: str, topics: Iterable[str]) -> None:
    """Copy what is committed in ``topics`` from one cluster to another, partition by partition."""
    admin = Admin({"bootstrap.servers": source, "log_level": 0})
    for topic in topics:
        partitions = len(admin.list_topics(topic, timeout=30).topics[topic].partitions)
        create_topic(target, topic, partitions, _settings(admin, topic))
        producer = Producer({"bootstrap.servers": target, "log_level": 0})
        for message in _messages(source, topic, partitions):
            producer.produce(
                topic, message.value(), message.key(), message.partition() or 0, headers=message.headers()
            )
        assert producer.flush(30) == 0


def _settings(admin: Admin, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result(30)
    return {name: one.value for name, one in entries.items() if one.source == _SET_FOR_THE_TOPIC}


def _messages(bootstrap: str, topic: str, partitions: int) -> Iterator[Message]:
    for partition in range(partitions):
        yield from read(bootstrap, topic, partition=partition)
