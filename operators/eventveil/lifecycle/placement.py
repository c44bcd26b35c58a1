"""What the worker, ``topics`` and ``ledger`` need to know of a stream beyond its topology."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eventveil.model.records import TopicPartition
from eventveil.model.topology import ReadingStream, Stream, Topology
from eventveil.topology.fingerprints import fingerprint_fields, reading_fields

if TYPE_CHECKING:
    from eventveil.kafka.cluster import Topic


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """A stream and its place in the internal topics.

    ``partials`` is the number of partitions of the partials topic, of the ledger and of the ledger changelog;
    ``partials_partition`` the one that this stream has in all three. It depends on the name of the stream and
    on ``partials`` only, so that a new stream moves no other.
    """

    stream: Stream
    partials: int

    @property
    def name(self) -> str:
        """The name of the stream."""
        return self.stream.name

    @property
    def partials_partition(self) -> int:
        """The partition of the partials topic, of the ledger and of its changelog."""
        return ledger_partition(self.name, self.partials)

    def fields(self, partitions: int) -> dict[str, Any]:
        """The facts behind the fingerprint, for a source topic of ``partitions`` partitions."""
        return fingerprint_fields(self.stream, partitions, self.partials)

    def budget_fields(self, partitions: int, sink_id: str) -> dict[str, Any]:
        """The same, and the topic of the releases: what the genesis of the budget state records.

        Moving the sink changes neither counts nor noise, but the audit has to know of it.
        """
        sink = {"sink.topic": self.stream.sink.topic, "sink.topic_id": sink_id}
        return {**self.fields(partitions), **sink}

    def pan_private_fields(self, topics: Mapping[str, Topic], announcements: str) -> dict[str, Any]:
        """The same for a pan-private stream, given its live topics.

        ``announcements`` names the one of announcements, which counts where looks are announced.
        """
        source, sink = topics[self.stream.source.topic], topics[self.stream.sink.topic]
        announced = {"announcements.topic_id": topics[announcements].id} if self.stream.is_announced else {}
        return {**self.budget_fields(source.partitions, sink.id), **announced}


@dataclass(frozen=True, slots=True)
class ReadingPlan:
    """A value stream and its partition of the ledger, chosen as for other streams (``StreamPlan``)."""

    stream: ReadingStream
    partials: int

    @property
    def name(self) -> str:
        """The name of the stream."""
        return self.stream.name

    @property
    def ledger_partition(self) -> int:
        """Where the charges of all of its source partitions are."""
        return ledger_partition(self.name, self.partials)

    def fields(self, partitions: int, sink_id: str) -> dict[str, Any]:
        """What the genesis records: the facts behind the fingerprint, and the topic of the readings."""
        sink = {"sink.topic": self.stream.sink, "sink.topic_id": sink_id}
        return {**reading_fields(self.stream, partitions), **sink}


def ledger_partition(stream: str, partials: int) -> int:
    """The partition of the ledger, of ``partials``, that a stream of that name has."""
    return zlib.crc32(stream.encode()) % partials


def plan_readings(topology: Topology) -> list[ReadingPlan]:
    """The plans of all value streams, in the order of the file."""
    return [ReadingPlan(stream, topology.topics.partials) for stream in topology.readings]


def plan_streams(topology: Topology) -> list[StreamPlan]:
    """The plans of all streams of counts, in the order of the file."""
    return [StreamPlan(stream, topology.topics.partials) for stream in topology.streams]


def merged_streams(topology: Topology) -> list[StreamPlan]:
    """Those of them whose partial counts are merged: pan-private streams have none."""
    return [plan for plan in plan_streams(topology) if not plan.stream.is_pan_private]


def counting_places(
    topology: Topology, source: str, partitions: Mapping[str, int]
) -> dict[TopicPartition, int]:
    """Where the counting state of a source is kept, and which of its partitions it is of.

    ``partitions`` are the numbers of partitions of all sources, which lie one after the other.
    """
    return _places(topology.counting_changelog, topology.sources, source, partitions)


def value_places(topology: Topology, source: str, partitions: Mapping[str, int]) -> dict[TopicPartition, int]:
    """The same for the state of value streams, ``partitions`` being those of all topics of values."""
    return _places(topology.state_changelog, topology.value_sources, source, partitions)


def rekeying_places(topology: Topology, raw: str, partitions: Mapping[str, int]) -> dict[TopicPartition, int]:
    """The same for the state of the re-keying stage, ``partitions`` being those of the topics it reads."""
    return _places(topology.rekeying_changelog, topology.rekeyed, raw, partitions)


def first_partitions(sources: Iterable[str], partitions: Mapping[str, int]) -> dict[str, int]:
    """Where the partitions of each source begin in a changelog: they lie one after the other."""
    first = 0
    found = {}
    for source in sources:
        found[source] = first
        first += partitions[source]
    return found


def _places(
    changelog: str, sources: Iterable[str], source: str, partitions: Mapping[str, int]
) -> dict[TopicPartition, int]:
    first = first_partitions(sources, partitions)[source]
    return {
        TopicPartition(changelog, first + partition): partition for partition in range(partitions[source])
    }


def writer_of(topology: Topology, topic: str, partition: int) -> str:
    """The transactional.id of the one writer of a changelog partition.

    Named after what it writes, so that a partition has one writer whatever the sources are called.
    """
    roles = {
        topology.ledger_changelog: "sanitize",
        topology.rekeying_changelog: "rekey",
        topology.state_changelog: "perturb",
    }
    role = roles.get(topic, "aggregate")
    return f"{topology.name}-{role}-{partition}"
