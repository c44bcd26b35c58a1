"""Releases as they come: those that a sink has already, then those to come."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from eventveil.formats.release import release_timestamp
from eventveil.kafka.barrier import is_nonce
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.log import committed_ends, follow, offset_of
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Stream, Topology
from eventveil.read.assembling import Assembly
from eventveil.read.newest import MOST_BYTES, newest_releases
from eventveil.read.records import decode
from eventveil.read.releases import Releases


class Found(NamedTuple):
    """A committed record of a sink, and where it was found, for errors."""

    stream: Stream
    record: bytes
    place: str


def followed(
    topology: Topology,
    streams: Sequence[Stream],
    number: Callable[[Stream], int],
    most_bytes: int = MOST_BYTES,
) -> Generator[Found | None, None, None]:
    """The last ``number`` releases of each stream, then those to come, without end.

    None when all that was there has been told, and in each quiet second from then on. What is read are
    committed records of the sinks, and nothing else. Raises EventveilError and KafkaException.
    """
    cluster = Cluster(topology.kafka)
    # Before the newest are read: what comes meanwhile is there twice, and told once.
    starts = {place: end for one in streams for place, end in _ends(cluster, one).items()}
    told: set[tuple[str, int]] = set()
    for one in streams:
        wanted = number(one)
        newest = newest_releases(cluster, one, wanted, most_bytes) if wanted else {}
        for timestamp, record in newest.items():
            told.add((one.name, timestamp))
            yield Found(one, record, f"{one.sink.topic}, timestamp {timestamp}")
    yield None
    by_sink = {one.sink.topic: one for one in streams}
    with closing(follow(topology.kafka, starts)) as messages:
        for message in messages:
            if message is None:
                yield None
                continue
            if is_nonce(message.key()):
                continue
            stream, record = by_sink[str(message.topic())], message.value() or b""
            if (stream.name, release_timestamp(record, stream.name)) not in told:
                yield Found(stream, record, f"{message.topic()}, offset {offset_of(message)}")


def _ends(cluster: Cluster, stream: Stream) -> Mapping[TopicPartition, int]:
    topic = cluster.topic(stream.sink.topic)
    ends = committed_ends(cluster.kafka, topic.name, range(topic.partitions))
    return {TopicPartition(topic.name, partition): end for partition, end in ends.items()}


def assembled(stream: Stream, record: bytes, place: str) -> Releases | None:
    """A single release; None of local reports whose threshold is not chosen yet. Raises ReadingError."""
    if decode(record, place).phase == "distribution":
        return None
    assembly = Assembly(place, stream.name, stream.columns)
    assembly.add(record, place)
    return assembly.releases()
