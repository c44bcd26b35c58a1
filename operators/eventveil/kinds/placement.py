"""What the worker, ``topics`` and ``ledger`` need to know of a stream beyond its topology."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from eventveil.formats.release import Asks, control_record
from eventveil.model.records import TopicPartition
from eventveil.model.topology import ReadingStream, Stream, Topology
from eventveil.topology.counts import facts
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

    merged: ClassVar[bool] = True
    """Whether partial counts of it are merged."""

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
        sink = {**facts("sink", self.stream.sink), "sink.topic_id": sink_id}
        return {**self.fields(partitions), **sink}

    def places(
        self, topology: Topology, partitions: Mapping[str, int]
    ) -> dict[TopicPartition, TopicPartition]:
        """Where state is kept, and which partition of which topic each place reads.

        ``partitions`` are the numbers of partitions of all sources.
        """
        ledger = TopicPartition(topology.ledger_changelog, self.partials_partition)
        return {
            **self.counting(topology, partitions),
            ledger: TopicPartition(topology.partials, self.partials_partition),
        }

    @property
    def asks(self) -> Asks | None:
        """The record that asks producers for the reports of a threshold; None where they send events."""
        return None

    def counting(
        self, topology: Topology, partitions: Mapping[str, int]
    ) -> dict[TopicPartition, TopicPartition]:
        """Those of them where the counting state is."""
        source = self.stream.source.topic
        places = counting_places(topology, source, partitions)
        return {place: TopicPartition(source, partition) for place, partition in places.items()}

    def manifest_fields(
        self, topology: Topology, topics: Mapping[str, Topic], place: TopicPartition
    ) -> dict[str, Any]:
        """What the genesis record in a place says, given the live topics."""
        partitions = topics[self.stream.source.topic].partitions
        if place[0] != topology.ledger_changelog:
            return self.fields(partitions)
        return self.budget_fields(partitions, topics[self.stream.sink.topic].id)

    def has_budget(self, topology: Topology, places: Collection[TopicPartition]) -> bool:
        """Whether these of its places hold the state of its budget."""
        return TopicPartition(topology.ledger_changelog, self.partials_partition) in places


@dataclass(frozen=True, slots=True)
class LocalPlan(StreamPlan):
    """A stream of local reports."""

    @property
    def asks(self) -> Asks:
        """See ``StreamPlan``."""
        return partial(control_record, self.stream)


@dataclass(frozen=True, slots=True)
class PanPrivatePlan(StreamPlan):
    """A pan-private stream: all of its state is where its one source partition is counted."""

    merged: ClassVar[bool] = False

    def announcements(self, topology: Topology) -> tuple[str, ...]:
        """The topic of announcements where looks are announced, else none."""
        announced = self.stream.mechanism.options["pan_private"] == "announced"
        return (topology.announcements,) if announced else ()

    def places(
        self, topology: Topology, partitions: Mapping[str, int]
    ) -> dict[TopicPartition, TopicPartition]:
        """See ``StreamPlan``."""
        return self.counting(topology, partitions)

    def manifest_fields(
        self, topology: Topology, topics: Mapping[str, Topic], place: TopicPartition
    ) -> dict[str, Any]:
        """See ``StreamPlan``: it is one record, and the topic of announcements counts too."""
        source, sink = topics[self.stream.source.topic], topics[self.stream.sink.topic]
        fields = self.budget_fields(source.partitions, sink.id)
        for announcements in self.announcements(topology):
            fields["announcements.topic_id"] = topics[announcements].id
        return fields

    def has_budget(self, topology: Topology, places: Collection[TopicPartition]) -> bool:
        """See ``StreamPlan``."""
        return bool(places)


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
