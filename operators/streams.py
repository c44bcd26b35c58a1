"""What the worker, ``topics`` and ``ledger`` need to know of a stream beyond its topology."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from operators.topology import fingerprint_fields
from operators.topology.model import Stream, Topology


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
        return zlib.crc32(self.name.encode()) % self.partials

    def fields(self, partitions: int) -> dict[str, Any]:
        """The facts behind the fingerprint, for a source topic of ``partitions`` partitions."""
        return fingerprint_fields(self.stream, partitions, self.partials)

    def budget_fields(self, partitions: int, sink_id: str) -> dict[str, Any]:
        """The same, and the topic of the releases: what the genesis of the budget state records.

        Moving the sink changes neither counts nor noise, but the audit has to know of it.
        """
        sink = {"sink.topic": self.stream.sink.topic, "sink.topic_id": sink_id}
        return {**self.fields(partitions), **sink}


def plan_streams(topology: Topology) -> list[StreamPlan]:
    """The plans of all streams, in the order of the file."""
    return [StreamPlan(stream, topology.topics.partials) for stream in topology.streams]


def counting_places(
    topology: Topology, source: str, partitions: Mapping[str, int]
) -> dict[tuple[str, int], int]:
    """Where the counting state of a source is kept, and which of its partitions it is of.

    ``partitions`` are the numbers of partitions of all sources, which lie one after the other.
    """
    first = sum(partitions[name] for name in topology.sources[: topology.sources.index(source)])
    return {
        (topology.counting_changelog, first + partition): partition for partition in range(partitions[source])
    }


def writer_of(topology: Topology, topic: str, partition: int) -> str:
    """The transactional.id of the one writer of a changelog partition.

    Named after what it writes, so that a partition has one writer whatever the sources are called.
    """
    roles = {topology.ledger_changelog: "sanitize", topology.rekeying_changelog: "rekey"}
    role = roles.get(topic, "aggregate")
    return f"{topology.name}-{role}-{partition}"
