"""Reading a sink on a broker: committed records, every partition to the end that it has now."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing

from eventveil.kafka.barrier import is_nonce
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.ends import still_open
from eventveil.kafka.log import committed_ends, offset_of, read_partition
from eventveil.model.records import TopicPartition
from eventveil.model.spelling import meant
from eventveil.model.topology import Kafka, Registry
from eventveil.read.assembling import Assembly
from eventveil.read.by_schema import BySchema
from eventveil.read.problems import ReadingError

_OFTEN = 256
#: A transaction of a release takes milliseconds.
_UNDECIDED_SECONDS = 3.0
log = logging.getLogger(__name__)


def read_sink(
    kafka: Kafka,
    topic: str,
    assembly: Assembly,
    registry: Registry | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Hand every record of a topic to ``assembly``. Raises ReadingError, EventveilError, KafkaException.

    ``registry`` has the schemas of the records, where they have some. What cannot be read because a
    transaction before it stays open is logged.
    """
    values, cluster = BySchema(registry), Cluster(kafka)
    if (found := cluster.topics([topic]).get(topic)) is None:
        near = meant(topic, cluster.names())
        raise ReadingError(
            f"topic {topic}", "it does not exist", f"Did you mean {near}?" if near else "Check its name"
        )
    places = found.places
    logs = cluster.end_offsets(places)
    ends = committed_ends(kafka, topic, range(len(places)))
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
    undecided = {one: log_end for one, log_end in logs.items() if ends[one.partition] < log_end}
    for one in still_open(kafka, undecided, _UNDECIDED_SECONDS):
        log.warning("%s: a transaction stays open, so later records cannot be read yet", one)
