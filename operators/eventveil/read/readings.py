"""Readings of values, as the sinks of value streams have them (schemas/reading.schema.json)."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import msgspec

from eventveil.kafka.barrier import is_nonce
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.log import read_backwards
from eventveil.kafka.reader import StoredRecord
from eventveil.model.records import TopicPartition
from eventveil.model.topology import ReadingStream
from eventveil.read.newest import sink_ends
from eventveil.read.problems import ReadingError


class Reading(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sanitized reading of one value; see the schema. ``reading`` is in steps, None: it was held back."""

    stream: str
    partition: int
    position: int
    offset: int
    reading: int | None
    step: str
    mechanism: str
    epsilon: str
    delta: str | None = None
    seeded: bool = False

    @property
    def value(self) -> float | None:
        """In the units of the values; None: it was held back."""
        return None if self.reading is None else float(self.reading * Fraction(self.step))

    @property
    def shown(self) -> str:
        """The value for people."""
        return "held back" if self.value is None else f"{self.value:,.12g}"


_DECODER = msgspec.json.Decoder(Reading)


def reading_of(stream: ReadingStream, record: bytes, place: str) -> Reading:
    """A record of the sink of a stream. Raises ReadingError, which names the place and the field."""
    try:
        found = _DECODER.decode(record)
        Fraction(found.step)
    except (msgspec.DecodeError, ValueError, ZeroDivisionError) as error:
        raise ReadingError(place, f"no reading: {error}", "Is it the sink of a value stream?") from None
    if found.stream != stream.name:
        raise ReadingError(place, f"a reading of {found.stream}", "Each stream has a sink of its own")
    return found


def newest_readings(
    cluster: Cluster, stream: ReadingStream, number: int, ends: Mapping[TopicPartition, int] | None = None
) -> dict[TopicPartition, list[StoredRecord]]:
    """The last ``number`` committed records of each partition of a sink, in their order; none: left out.

    ``ends`` are the offsets up to which to read; without them all is read. Raises EventveilError and
    KafkaException.
    """
    topic = cluster.topic(stream.sink)
    firsts = cluster.first_offsets(topic.places)
    ends = sink_ends(cluster, stream) if ends is None else ends
    records = {place: _last(cluster, place, firsts[place], ends[place], number) for place in topic.places}
    return {place: some for place, some in records.items() if some}


def _last(cluster: Cluster, place: TopicPartition, first: int, end: int, number: int) -> list[StoredRecord]:
    found: list[StoredRecord] = []
    # Every transaction leaves a marker behind its records.
    for _, block in read_backwards(cluster.kafka, *place, first, end, size=2 * number + 10):
        found = [*(one for one in block if not is_nonce(one.key)), *found]
        if len(found) >= number:
            break
    return found[-number:]
