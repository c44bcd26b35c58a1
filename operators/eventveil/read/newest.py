"""The newest records of a sink, read from its end, so that a long one costs no more than a short one."""

from __future__ import annotations

from collections.abc import Mapping

from eventveil.formats.release import release_timestamp
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.log import committed_ends, read_backwards
from eventveil.model.records import TopicPartition
from eventveil.model.topology import AnyStream, Registry, Stream
from eventveil.read.by_schema import BySchema

#: Of wide streams fewer releases are read.
MOST_BYTES = 64_000_000


def newest_releases(
    cluster: Cluster,
    stream: Stream,
    number: int,
    registry: Registry | None = None,
    most_bytes: int = MOST_BYTES,
    ends: Mapping[TopicPartition, int] | None = None,
) -> dict[int, bytes]:
    """The committed releases of the last ``number`` timestamps in a sink as JSON, by timestamp, ascending.

    Fewer if there are fewer, or if they have more than ``most_bytes``. ``registry`` has their schemas, where
    they have some. ``ends`` are the offsets up to which to read, as ``sink_ends`` tells them; without them
    all is read. Raises EventveilError and KafkaException.
    """
    topic = cluster.topic(stream.sink.topic)
    firsts = cluster.first_offsets(topic.places)
    ends = sink_ends(cluster, stream) if ends is None else ends
    found: dict[int, bytes] = {}
    for place in topic.places:
        for timestamp, record in _of(
            cluster, stream.name, place, firsts[place], ends[place], number, most_bytes
        ):
            found.setdefault(timestamp, record)
    values = BySchema(registry)
    return {
        timestamp: values.json(found[timestamp], f"{topic.name}, timestamp {timestamp}")
        for timestamp in sorted(found)[-number:]
    }


def sink_ends(cluster: Cluster, stream: AnyStream) -> dict[TopicPartition, int]:
    """Where the committed records of a sink end. Raises EventveilError and KafkaException."""
    topic = cluster.topic(stream.sink_topic)
    ends = committed_ends(cluster.kafka, topic.name, range(topic.partitions))
    return {TopicPartition(topic.name, partition): end for partition, end in ends.items()}


def _of(
    cluster: Cluster, stream: str, place: TopicPartition, first: int, end: int, number: int, most_bytes: int
) -> list[tuple[int, bytes]]:
    """Those of one partition, the newest record first."""
    found: list[tuple[int, bytes]] = []
    size = 0
    # Every transaction leaves a marker behind its records.
    for _, block in read_backwards(cluster.kafka, *place, first, end, size=2 * number + 10):
        for one in reversed(block):
            record = one.value or b""
            if timestamp := release_timestamp(record, stream):
                found.append((timestamp, record))
                size += len(record)
        if len({timestamp for timestamp, _ in found}) >= number or size > most_bytes:
            break
    return found
