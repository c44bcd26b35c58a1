"""Where the events of a replay come from: a file or a source topic, delivered as chunks."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

from confluent_kafka import KafkaException, Message

from eventveil.counting.boundaries import Boundary
from eventveil.counting.counter import Partial
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.log import committed_ends, read_partition, read_topic
from eventveil.kafka.rights import is_denied
from eventveil.model.errors import EventveilError
from eventveil.model.fields import in_envelope
from eventveil.model.records import Chunk, TopicPartition
from eventveil.model.timeline import format_rfc3339, start_of, timestamp_of
from eventveil.model.topology import ENDLESS, Kafka, Registry, Stream
from eventveil.schema_registry.client import Client
from eventveil.schema_registry.known import KnownSchemas
from eventveil.topology.scalars import END_OF_TIME

_BLOCK_BYTES = 1 << 20
#: How files of rows begin. No JSON begins so.
PARQUET, ARROW_FILE, ARROW_STREAM = b"PAR1", b"ARRO", b"\xff\xff\xff\xff"


@dataclass(frozen=True, slots=True)
class Share:
    """Some partitions of an input, and an input of these alone."""

    partitions: Sequence[int]
    source: Input


class Input(ABC):
    """A source of chunks. ``begin`` comes first, then ``chunks``, once each.

    ``topic`` is the source topic whose streams can be replayed, None if any stream can. ``done`` of
    ``total`` (bytes or offsets; None: unknown) have been read. ``warnings`` are for people.
    """

    #: Whether values are JSON, however those of the topic are written.
    is_json = False

    def __init__(self, topic: str | None) -> None:
        self.topic = topic
        self.done = 0
        self.total: int | None = None
        self.warnings: list[str] = []
        #: Once it has begun: the partitions of the topic that re-keyed events come from, 0 if nobody knows.
        self.events = 0

    @abstractmethod
    def rules(self, stream: Stream, last: int | None) -> Stream:
        """The stream with the rules that judge its events here, up to timestamp ``last`` if given."""

    def boundaries(
        self, stream: Stream, first: int, partials: TopicPartition
    ) -> Mapping[int, tuple[Boundary, ...]]:
        """By partition, for a stream that is judged by them from timestamp ``first`` on.

        ``partials`` is the partition in which the worker left them. Raises EventveilError or KafkaException.
        """
        return {}

    @abstractmethod
    def begin(self, earliest: int, longest: int) -> Mapping[int, int]:
        """The first offset of each partition.

        Records appended before ``earliest`` may be left out, values longer than ``longest`` bytes cut off
        behind that. Raises EventveilError or KafkaException.
        """

    @abstractmethod
    def chunks(self) -> Iterator[Chunk]:
        """All records, in chunks, each partition in order. Raises OSError or KafkaException."""

    @abstractmethod
    def ended(self, partition: int) -> bool:
        """Whether all records of a partition have been delivered."""

    def split(self, count: int) -> list[Share]:
        """At most this many shares, alike in size, for processes of their own, instead of ``chunks``.

        Empty if it cannot be divided.
        """
        return []

    def is_limited_by_range(self, stream: Stream) -> bool:
        """Whether no event of ``stream`` is too far ahead but those after the last timestamp.

        True of a file, which has no append times.
        """
        return True


def never_late(stream: Stream, last: int | None) -> Stream:
    """A stream whose events have no append times: none is late, too far ahead what ends after ``last``."""
    timeline = replace(stream.timeline, lateness=ENDLESS, max_ahead=_end_of(stream, last) - 1)
    return replace(stream, timeline=timeline, source=replace(stream.source, append_time="broker"))


def _end_of(stream: Stream, last: int | None) -> int:
    """Where timestamp ``last`` ends, or the last one that there can be."""
    if last is None:
        last = timestamp_of(stream.timeline, END_OF_TIME) - 1
    return start_of(stream.timeline, last + 1)


class FileInput(Input):
    """One JSON event per line, in any order; blank lines are passed over.

    A file has no append times: it knows neither late nor early events. It has no partitions to check either.
    The first events of a user, in the order of the lines, are those that count. Since any line can belong to
    any timestamp, nothing is complete before the end of the file.
    """

    is_json = True

    def __init__(self, path: str) -> None:
        """Raises OSError if the file cannot be opened."""
        super().__init__(None)
        self._file: BinaryIO = open(path, "rb")  # noqa: SIM115, closed when ``chunks`` ends
        size = os.fstat(self._file.fileno()).st_size
        self.total = size or None
        self._longest = 0
        self._ended = False

    def rules(self, stream: Stream, last: int | None) -> Stream:
        """Nothing is late. Too far ahead, of an append time that is always 0, is what ends after ``last``.

        Raises EventveilError for a stream that looks at more of records than their values.
        """
        around = sorted(field for field in stream.source.looked_at if in_envelope(field))
        if around:
            raise EventveilError(
                f"stream {stream.name} looks at {', '.join(around)}, which a file does not have;"
                f" read the topic: --input topic:{stream.source.topic_of_events}"
            )
        # Lines and rows are JSON, however the topic is written.
        return never_late(replace(stream, source=replace(stream.source, raw=None, format="json")), last)

    def begin(self, earliest: int, longest: int) -> Mapping[int, int]:
        """The one partition begins with the first line."""
        self._longest = longest
        return {0: 0}

    def chunks(self) -> Iterator[Chunk]:
        """One chunk per portion of the file."""
        with self._file as file:
            line = 0
            for values in self._portions(file):
                count = len(values)
                yield Chunk(
                    topic=file.name,
                    partition=0,
                    generation=0,
                    start=line,
                    offsets=array("q", range(line, line + count)),
                    append_times=array("q", bytes(8 * count)),
                    keys=[None] * count,
                    values=values,
                    next_offset=line + count,
                )
                line += count
        self._ended = True

    def _portions(self, file: BinaryIO) -> Iterator[Sequence[bytes | None]]:
        for lines in self._lines(file):
            yield [value for value in lines if value and not value.isspace()]

    def _lines(self, file: BinaryIO) -> Iterator[list[bytes]]:
        rest = file.read(3).removeprefix(b"\xef\xbb\xbf")  # a byte order mark would spoil the first line
        while block := file.read(_BLOCK_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            # Enough of it is kept to be judged too large.
            rest = rest[: self._longest + 1]
            self.done = file.tell() if file.seekable() else 0
            yield lines
        yield rest.split(b"\n")

    def ended(self, partition: int) -> bool:
        """See ``Input.ended``."""
        return self._ended


class TopicInput(Input):
    """A source topic, read committed, to the ends that its partitions have when the replay begins.

    The rules are the live ones. Records below the log's first offset are gone, and so are boundaries that the
    retention of the partials has removed.
    """

    def __init__(
        self,
        kafka: Kafka,
        topic: str,
        *,
        rekeyed: bool = False,
        envelope: bool = False,
        registry: Registry | None = None,
        protobuf: bool = True,
    ) -> None:
        """``envelope``: streams look at what is around the values of its records.

        ``rekeyed``: their headers tell where the events come from. ``registry`` has the schemas that values
        name, None where they name none; ``protobuf``: see ``Client``.
        """
        super().__init__(topic)
        self._registry, self._protobuf = registry, protobuf
        self._kafka, self._name, self._rekeyed, self._envelope = kafka, topic, rekeyed, envelope
        self._starts: Mapping[int, int] = {}
        self._ends: Mapping[int, int] = {}
        self._reached: dict[int, int] = {}
        self._raw: str | None = None
        #: Streams of which no boundary is known, though boundaries say what is too far ahead.
        self._unbounded: set[str] = set()

    def rules(self, stream: Stream, last: int | None) -> Stream:
        """As they are, unless a stream that is judged by boundaries has none."""
        self._raw = stream.source.raw
        if stream.name not in self._unbounded:
            return stream
        timeline = replace(stream.timeline, max_ahead=_end_of(stream, last) - 1)
        return replace(stream, timeline=timeline)

    def is_limited_by_range(self, stream: Stream) -> bool:
        """See ``Input.is_limited_by_range``: where no boundary is known."""
        return stream.name in self._unbounded

    def boundaries(
        self, stream: Stream, first: int, partials: TopicPartition
    ) -> Mapping[int, tuple[Boundary, ...]]:
        """See ``Input.boundaries``: those of the worker's partial counts that are still there."""
        found: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for message in self._left_by_worker(partials):
            if message.key() == stream.name.encode():
                one = Partial.decode(message.value() or b"", f"{partials[0]}, offset {message.offset()}")
                if one.boundary is not None:
                    found[one.partition][one.timestamp] = one.boundary
        earliest = max((min(of) for of in found.values()), default=None)
        if earliest is None:
            self._unbounded.add(stream.name)
            self.warnings.append(
                f"{stream.name}: the worker's partial counts have no boundary: no event is late or too far "
                "ahead here"
            )
        elif earliest > first:
            begins = format_rfc3339(start_of(stream.timeline, earliest))
            self.warnings.append(
                f"{stream.name}: the worker's partial counts have no boundary for timestamps before "
                f"{earliest}, so no event that was appended before the boundary of {earliest} is late here. "
                "Counts of earlier timestamps may include events that a worker would have left out; "
                f"--from {begins} skips these timestamps"
            )
        return {
            partition: tuple(Boundary(timestamp, offset) for timestamp, offset in sorted(of.items()))
            for partition, of in found.items()
        }

    def _left_by_worker(self, partials: TopicPartition) -> Iterator[Message]:
        """The records of the partial counts, none if no worker's topics have been created."""
        if Cluster(self._kafka).topics({partials.topic}):
            yield from read_partition(self._kafka, *partials)

    def begin(self, earliest: int, longest: int) -> Mapping[int, int]:
        """See ``Input.begin``; captures the ends. Raises StateRefused if the topic does not exist."""
        cluster = Cluster(self._kafka)
        self.events = self._partitions_of_events(cluster)
        partitions = range(cluster.topic(self._name).partitions)
        places = [TopicPartition(self._name, partition) for partition in partitions]
        ends = committed_ends(self._kafka, self._name, partitions)
        log_starts = cluster.first_offsets(places)
        # With producers' times in the log, a search by time finds nothing that can be relied on.
        found = log_starts if earliest <= 0 else cluster.offsets_at(places, earliest)
        starts = {place.partition: min(found[place], ends[place.partition]) for place in places}
        for place in places:
            start = starts[place.partition]
            if 0 < start == log_starts[place]:
                self.warnings.append(
                    f"{place}: the log begins at offset {start}; what was before "
                    "it is gone, so the first timestamps may lack events"
                )
        self._starts, self._ends, self._reached = starts, ends, dict(starts)
        self.total = sum(ends.values()) - sum(starts.values())
        return starts

    def _partitions_of_events(self, cluster: Cluster) -> int:
        """See ``events``: the right to read re-keyed events need not include the topic they came from."""
        try:
            found = cluster.topics({self._raw} if self._rekeyed and self._raw is not None else ())
        except KafkaException as error:
            if not is_denied(error.args[0]):
                raise
            self.warnings.append(f"{self._raw}: no right to ask how many partitions it has")
            return 0
        return max((topic.partitions for topic in found.values()), default=0)

    def chunks(self) -> Iterator[Chunk]:
        """See ``Input.chunks``. Raises RegistryUnavailable too."""
        around = self._rekeyed or self._envelope
        chunks = read_topic(self._kafka, self._name, self._starts, self._ends, with_envelope=around)
        known = None
        if self._registry is not None:
            known = KnownSchemas(Client(self._registry, self._protobuf).schema)
        for chunk in chunks:
            if known is not None:
                chunk = replace(chunk, schemas=known.of(chunk.values))
            self._reached[chunk.partition] = chunk.next_offset
            self.done += chunk.next_offset - chunk.start
            yield chunk

    def ended(self, partition: int) -> bool:
        """See ``Input.ended``."""
        return self._reached[partition] >= self._ends[partition]

    def split(self, count: int) -> list[Share]:
        """See ``Input.split``."""
        sizes = {partition: self._ends[partition] - start for partition, start in self._starts.items()}
        shares: list[list[int]] = [[] for _ in range(min(count, len(sizes)))]
        for partition in sorted(sizes, key=lambda one: (-sizes[one], one)):
            min(shares, key=lambda share: sum(sizes[one] for one in share)).append(partition)
        return [Share(sorted(share), self._part(share)) for share in shares]

    def _part(self, partitions: Sequence[int]) -> TopicInput:
        part = TopicInput(
            self._kafka,
            self._name,
            rekeyed=self._rekeyed,
            envelope=self._envelope,
            registry=self._registry,
            protobuf=self._protobuf,
        )
        part._starts = {partition: self._starts[partition] for partition in partitions}
        part._ends = {partition: self._ends[partition] for partition in partitions}
        part._reached = dict(part._starts)
        return part
