"""Releases and readings as they come: those that a sink has already, then those to come."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

from eventveil.kafka.barrier import is_nonce
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.log import follow, offset_of
from eventveil.model.topology import AnyStream, ReadingStream, Stream, Topology
from eventveil.read.assembling import Assembly
from eventveil.read.by_schema import BySchema
from eventveil.read.newest import MOST_BYTES, newest_releases, sink_ends
from eventveil.read.readings import Reading, newest_readings, reading_of
from eventveil.read.records import decode
from eventveil.read.releases import Releases


class Followed(NamedTuple):
    """A committed release or reading of a sink as JSON, and where it was found, for errors."""

    stream: AnyStream
    record: bytes
    place: str

    def taken(self) -> Releases | Reading | None:
        """What it is: of a stream of counts see ``assembled``. Raises ReadingError."""
        if isinstance(self.stream, ReadingStream):
            return reading_of(self.stream, self.record, self.place)
        return assembled(self.stream, self.record, self.place)


def followed(
    topology: Topology,
    streams: Sequence[AnyStream],
    number: Callable[[AnyStream], int],
    most_bytes: int = MOST_BYTES,
) -> Generator[Followed | None, None, None]:
    """The last ``number`` releases of each stream, then those to come, without end.

    Of a value stream as many readings of each partition.

    None when all that was there has been told, and in each quiet second from then on. What is read are
    committed records of the sinks, and nothing else. Raises EventveilError and KafkaException.
    """
    cluster = Cluster(topology.kafka)
    # What comes while the newest are read is told after them, and not among them.
    starts = {place: end for one in streams for place, end in sink_ends(cluster, one).items()}

    def newest(stream: AnyStream, wanted: int) -> Iterator[Followed]:
        if isinstance(stream, ReadingStream):
            for place, some in newest_readings(cluster, stream, wanted, starts).items():
                for one in some:
                    yield Followed(stream, one.value or b"", f"{place}, offset {one.offset}")
            return
        found = newest_releases(cluster, stream, wanted, topology.registry, most_bytes, starts)
        for timestamp, record in found.items():
            yield Followed(stream, record, f"{stream.sink.topic}, timestamp {timestamp}")

    for one in streams:
        if wanted := number(one):
            yield from newest(one, wanted)
    yield None
    by_sink, values = {one.sink_topic: one for one in streams}, BySchema(topology.registry)
    with closing(follow(topology.kafka, starts)) as messages:
        for message in messages:
            if message is None:
                yield None
                continue
            if is_nonce(message.key()):
                continue
            stream, record = by_sink[str(message.topic())], message.value() or b""
            place = f"{message.topic()}, offset {offset_of(message)}"
            yield Followed(stream, values.json(record, place), place)


def assembled(stream: Stream, record: bytes, place: str) -> Releases | None:
    """A single release; None of local reports whose threshold is not chosen yet. Raises ReadingError."""
    if decode(record, place).phase == "distribution":
        return None
    assembly = Assembly(place, stream.name, stream.columns)
    assembly.add(record, place)
    return assembly.releases()
