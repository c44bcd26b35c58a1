"""When was what a log has lost appended, at the latest?"""

from __future__ import annotations

from contextlib import closing

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME

from eventveil.kafka.log import read_partition
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Kafka


def first_appended(kafka: Kafka, log: TopicPartition, now: int) -> int:
    """When the first record that a partition has left was appended (epoch ms); ``now`` if nothing tells.

    Raises KafkaException.
    """
    with closing(read_partition(kafka, *log, isolation="read_uncommitted")) as messages:
        for message in messages:
            kind, appended = message.timestamp()
            return appended if kind == TIMESTAMP_LOG_APPEND_TIME else now
    return now
