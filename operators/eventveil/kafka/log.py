"""Reading partitions up to an end that is fixed before the first record is read."""

from __future__ import annotations

import uuid
from array import array
from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from functools import partial
from itertools import chain, takewhile
from operator import methodcaller
from typing import cast

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import TopicPartition as AskedPartition

from eventveil.kafka.links import PASSING
from eventveil.kafka.reader import Isolation, LogReader, StoredRecord, read_records
from eventveil.kafka.rights import with_right
from eventveil.kafka.settings import librdkafka
from eventveil.model.errors import StateRefused
from eventveil.model.records import (
    MAX_MESSAGE_BYTES,
    NO_APPEND_TIME,
    NO_OWN_TIME,
    Chunk,
    Headers,
    TopicPartition,
)
from eventveil.model.topology import Kafka

_CHUNK_RECORDS = 5000
#: Messages are large objects: more of them at a time would take longer, as they would not fit the cache.
_AT_ONCE = 500
_SILENCE_SECONDS = 30.0
_FOLLOW_SECONDS = 1.0
#: What the consumers of one topic hold between them, at least 1 MiB each; a larger record still arrives.
_SHARED_QUEUE_KILOBYTES = 65_536
_SHARED_FETCH_BYTES = 1_048_576
#: Called from C: Python code may not notice that the client returns a value and sets an error.
_HEADERS = methodcaller("headers")
_PASSING = PASSING | {KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC}


def read_partition(
    kafka: Kafka,
    topic: str,
    partition: int,
    *,
    isolation: Isolation = "read_committed",
    start: int | None = None,
    least: int = 0,
) -> Generator[Message, None, None]:
    """The records that ``read_records`` gives, as the client library does: any name of a header may be."""
    reading = LogReader(kafka, TopicPartition(topic, partition), isolation)
    end = reading.end(least)
    position = reading.first() if start is None else start
    if position >= end:
        return
    consumer = _consumer(kafka, isolation)
    try:
        consumer.assign([AskedPartition(topic, partition, position)])
        yield from _until(consumer, end)
    finally:
        consumer.close()


def _consumer(kafka: Kafka, isolation: Isolation, settings: Mapping[str, int] | None = None) -> Consumer:
    return Consumer(
        {
            **librdkafka(kafka),
            "group.id": f"eventveil-reader-{uuid.uuid4().hex}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
            "fetch.queue.backoff.ms": 10,
            "fetch.message.max.bytes": MAX_MESSAGE_BYTES,
            "receive.message.max.bytes": 10 * MAX_MESSAGE_BYTES,
            **(settings or {}),
        }
    )


def _until(consumer: Consumer, end: int) -> Iterator[Message]:
    for message in chain.from_iterable(_batches(consumer)):
        if offset_of(message) >= end:
            return
        if message.error() is None:
            yield message


def _batches(consumer: Consumer) -> Iterator[list[Message]]:
    """Records and end-of-partition events, without end, as many as there are at a time."""
    while True:
        first = consumer.poll(_SILENCE_SECONDS)
        if first is None:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer while reading to the end"))
        messages = [first, *consumer.consume(_AT_ONCE, timeout=0)]
        for message in messages:
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise with_right(KafkaException(error), "Read", f"topic {message.topic()}")
        yield messages


def offset_of(message: Message) -> int:
    """The offset of a record, or the end of the partition that an end-of-partition event tells."""
    offset = message.offset()
    if offset is None:
        raise KafkaException(KafkaError(KafkaError._BAD_MSG, "a record without an offset"))
    return offset


def committed_ends(kafka: Kafka, topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """Where each partition ends now for a read_committed reader: before the oldest open transaction."""
    readings = {one: LogReader(kafka, TopicPartition(topic, one), "read_committed") for one in partitions}
    # Where records were deleted into an open transaction, a broker tells an end before the first offset.
    return {one: max(reading.end(0), reading.first()) for one, reading in readings.items()}


def follow(kafka: Kafka, starts: Mapping[TopicPartition, int]) -> Generator[Message | None, None, None]:
    """The committed records of partitions from these offsets on, without end; None in each quiet second.

    Raises KafkaException for a broker error that does not pass by itself.
    """
    consumer = _consumer(kafka, "read_committed", {"enable.partition.eof": False})
    try:
        consumer.assign([AskedPartition(*place, start) for place, start in starts.items()])
        while True:
            message = consumer.poll(_FOLLOW_SECONDS)
            error = None if message is None else message.error()
            if error is not None and not error.retriable() and error.code() not in _PASSING:
                raise KafkaException(error)
            yield None if error is not None else message
    finally:
        consumer.close()


def read_backwards(
    kafka: Kafka,
    topic: str,
    partition: int,
    first: int,
    end: int,
    *,
    isolation: Isolation = "read_committed",
    size: int = _CHUNK_RECORDS,
    least: int = 0,
) -> Iterator[tuple[int, list[StoredRecord]]]:
    """The records of [first, end) in blocks, the newest first: where each block begins, and its records.

    The first block has ``size`` offsets, each further one twice as many. Within a block the records are in
    order. ``least`` and what is raised: see ``read_records``.
    """
    while end > first:
        start = max(first, end - size)
        records = read_records(
            kafka, TopicPartition(topic, partition), isolation=isolation, start=start, least=least
        )
        yield start, list(takewhile(partial(_before, end), records))
        end, size = start, 2 * size


def _before(end: int, record: StoredRecord) -> bool:
    return record.offset < end


def read_topic(
    kafka: Kafka,
    topic: str,
    starts: Mapping[int, int],
    ends: Mapping[int, int],
    *,
    with_envelope: bool = False,
) -> Iterator[Chunk]:
    """The committed records of several partitions at once; ``starts`` and ``ends`` are offsets by partition.

    Their keys, headers and own times are left out unless they are asked for: two calls less for each record.
    The partition that is furthest behind by append time is always next, so that none is more than a chunk
    ahead of what the others have to say. The chunks of a partition are in order and end at the same offsets
    every time; the last one reaches its end, past control markers and aborted records. Raises as
    ``read_records`` does, and StateRefused for headers that are asked for and cannot be read.
    """
    settings = {
        "fetch.message.max.bytes": _SHARED_FETCH_BYTES,
        "queued.max.messages.kbytes": max(1024, _SHARED_QUEUE_KILOBYTES // max(1, len(starts))),
    }
    with ExitStack() as stack:
        readers = {
            one: stack.enter_context(
                closing(_read_chunks(kafka, topic, one, start, ends[one], settings, with_envelope))
            )
            for one, start in starts.items()
            if start < ends[one]
        }
        reached = dict.fromkeys(readers, NO_APPEND_TIME)
        while reached:
            behind = min(reached, key=lambda one: (reached[one], one))
            chunk = next(readers[behind], None)
            if chunk is None:
                del reached[behind]
            else:
                reached[behind] = max(reached[behind], max(chunk.append_times, default=NO_APPEND_TIME))
                yield chunk


def _read_chunks(
    kafka: Kafka,
    topic: str,
    partition: int,
    start: int,
    end: int,
    settings: Mapping[str, int],
    with_envelope: bool,
) -> Generator[Chunk, None, None]:
    consumer = _consumer(kafka, "read_committed", settings)
    waiting = _Columns(with_envelope)
    try:
        consumer.assign([AskedPartition(topic, partition, start)])
        for messages in _batches(consumer):
            waiting.add(messages)
            while len(waiting.offsets) >= _CHUNK_RECORDS and start < end:
                after = min(waiting.offsets[_CHUNK_RECORDS - 1] + 1, end)
                yield waiting.take(topic, partition, start, after)
                start = after
            if offset_of(messages[-1]) >= end:
                break
        if start < end:
            yield waiting.take(topic, partition, start, end)
    finally:
        consumer.close()


def headers_of(message: Message) -> Headers | None:
    """The headers of a record; None if a name among them is not UTF-8, which the client cannot give.

    To be asked for once, and nowhere else: the client keeps a list that it failed to make.
    """
    try:
        # The client's types allow a dict and texts, which it takes but never returns.
        return cast(Headers, _HEADERS(message) or ())
    except (SystemError, UnicodeDecodeError):
        return None


def _all_headers(message: Message) -> Headers:
    if (headers := headers_of(message)) is None:
        raise StateRefused(
            str(TopicPartition(message.topic() or "", message.partition() or 0)),
            f"the record at offset {message.offset()} has a header whose name is not UTF-8. A worker reads"
            " its headers, with such bytes replaced; the Kafka client of this command cannot read them",
            "Begin after the record, or read the events from a file",
        )
    return headers


class _Columns:
    """What was read of one partition and is in no chunk yet; without the messages, and with as few calls as
    possible for each of them."""

    def __init__(self, with_envelope: bool) -> None:
        self.offsets: array[int] = array("q")
        self._with_envelope = with_envelope
        self._append_times: array[int] = array("q")
        self._own_times: array[int] = array("q")
        self._values: list[bytes | None] = []
        self._keys: list[bytes | None] = []
        self._headers: list[Headers | None] = []

    def add(self, messages: list[Message]) -> None:
        """Add records; end-of-partition events among them are passed over."""
        if any(map(Message.error, messages)):
            messages = [message for message in messages if message.error() is None]
        if not messages:
            return
        first, last = offset_of(messages[0]), offset_of(messages[-1])
        if last - first + 1 == len(messages):
            # Offsets ascend, so there is no other way to have as many between these two.
            self.offsets.extend(range(first, last + 1))
        else:
            self.offsets.extend(map(offset_of, messages))
        kinds, times = zip(*map(Message.timestamp, messages), strict=True)
        if self._with_envelope:
            self._own_times.extend(
                NO_OWN_TIME if kind == TIMESTAMP_NOT_AVAILABLE else moment
                for kind, moment in zip(kinds, times, strict=True)
            )
        if {*kinds} != {TIMESTAMP_LOG_APPEND_TIME}:
            times = tuple(
                moment if kind == TIMESTAMP_LOG_APPEND_TIME else NO_APPEND_TIME
                for kind, moment in zip(kinds, times, strict=True)
            )
        self._append_times.extend(times)
        self._values.extend(map(Message.value, messages))
        if self._with_envelope:
            self._keys.extend(map(Message.key, messages))
            self._headers.extend(map(_all_headers, messages))

    def take(self, topic: str, partition: int, start: int, after: int) -> Chunk:
        """A chunk of the records below offset ``after``, and no more than a chunk has."""
        count = min(_CHUNK_RECORDS, bisect_left(self.offsets, after))
        chunk = Chunk(
            topic=topic,
            partition=partition,
            generation=0,
            start=start,
            offsets=self.offsets[:count],
            append_times=self._append_times[:count],
            keys=self._keys[:count] if self._with_envelope else [None] * count,
            values=self._values[:count],
            next_offset=after,
            headers=self._headers[:count],
            own_times=self._own_times[:count],
        )
        columns = self.offsets, self._append_times, self._own_times, self._keys, self._values, self._headers
        for column in columns:
            del column[:count]
        return chunk


def read_table(kafka: Kafka, topic: str, partition: int, least: int = 0) -> dict[bytes, bytes]:
    """The last value of every key of a compacted partition, read committed; tombstones delete.

    ``least`` and what is raised: see ``read_records``.
    """
    return values_of(read_latest(kafka, TopicPartition(topic, partition), least))


def read_latest(kafka: Kafka, place: TopicPartition, least: int = 0) -> dict[bytes, StoredRecord]:
    """The last record of every key, tombstones included; otherwise see ``read_table``."""
    records = read_records(kafka, place, least=least)
    return {record.key: record for record in records if record.key is not None}


def values_of(latest: Mapping[bytes, StoredRecord]) -> dict[bytes, bytes]:
    """The values by key; tombstones have none."""
    return {key: record.value for key, record in latest.items() if record.value is not None}
