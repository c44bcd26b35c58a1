"""Reading a sink on a broker: committed records, every partition to the end that it has now."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from eventveil.kafka.barrier import is_nonce
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.log import committed_ends, offset_of, read_partition
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Kafka, Registry
from eventveil.read.assembling import Assembly
from eventveil.read.by_schema import BySchema

_OFTEN = 256


def read_sink(
    kafka: Kafka,
    topic: str,
    assembly: Assembly,
    registry: Registry | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Hand every record of a topic to ``assembly``. Raises ReadingError, EventveilError, KafkaException.

    ``registry`` has the schemas of the records, where they have some.
    """
    values = BySchema(registry)
    ends = committed_ends(kafka, topic, range(Cluster(kafka).topic(topic).partitions))
    done, total = 0, sum(ends.values())
    for partition, end in ends.items():
        with closing(read_partition(kafka, topic, partition)) as messages:
            for number, message in enumerate(messages):
                offset = offset_of(message)
                if not is_nonce(message.key()):
                    place = TopicPartition(topic, partition).at(offset)
                    assembly.add(values.json(message.value(), place), place)
                if progress and number % _OFTEN == 0:
                    progress(min(done + offset, total), total)
        done += end
