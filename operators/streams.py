"""What the worker, ``topics`` and ``ledger`` need to know of a stream beyond its topology."""

from __future__ import annotations

import zlib
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


def plan_streams(topology: Topology) -> list[StreamPlan]:
    """The plans of all streams, in the order of the file."""
    return [StreamPlan(stream, topology.topics.partials) for stream in topology.streams]
