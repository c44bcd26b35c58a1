"""Records on their way to the log: which partition, and batches as the log holds them."""

from __future__ import annotations

import random
import struct
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import cramjam
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from confluent_kafka import KafkaError, KafkaException

from eventveil.model.partitioners import murmur2_partitions
from eventveil.model.records import MAX_MESSAGE_BYTES, Outgoing, TopicPartition

#: Of a batch before compression, unless a single record is larger: what brokers take without being told to.
_BATCH_BYTES = 1_000_000
#: Of records that are held back before they are sent, before compression.
_HELD_BYTES = 8 * 1024 * 1024
_MAGIC = 2
_SEQUENCES = 2**31
#: Where in the header of a batch its length is, from where on that counts, and the same of the checksum.
_LENGTH_AT, _AFTER_LENGTH, _CHECKSUM_AT, _AFTER_CHECKSUM, _AFTER_HEADER = 8, 12, 17, 21, 61
#: As fast as lz4 can; aiokafka's own level takes twenty times as long for a fifth less.
_LEVEL = 1


@dataclass(frozen=True, slots=True)
class Producer:
    """The number and epoch that a coordinator gave to a producer."""

    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one partition as they are sent, ``count`` of them."""

    content: bytes
    count: int


def portions(records: Iterable[Outgoing]) -> Iterator[list[Outgoing]]:
    """Records that are held at once. Raises KafkaException if one is too large."""
    held: list[Outgoing] = []
    size = 0
    for record in records:
        length = len(record.key or b"") + len(record.value or b"")
        if length > MAX_MESSAGE_BYTES:
            told = f"{length} bytes for {record.topic}"
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, told))
        held.append(record)
        size += length
        if size >= _HELD_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def by_partition(
    records: Sequence[Outgoing], count_of: Callable[[str], int]
) -> dict[TopicPartition, list[Outgoing]]:
    """The records of each partition, in their order; ``count_of`` topics in which keys or chance choose."""
    by_topic: defaultdict[str, list[Outgoing]] = defaultdict(list)
    for record in records:
        by_topic[record.topic].append(record)
    found: dict[TopicPartition, list[Outgoing]] = {}
    for topic, those in by_topic.items():
        by_number: defaultdict[int, list[Outgoing]] = defaultdict(list)
        free = any(record.partition is None for record in those)
        for record, number in zip(those, partitions(those, count_of(topic) if free else 0), strict=True):
            by_number[number].append(record)
        found |= {TopicPartition(topic, number): mine for number, mine in by_number.items()}
    return found


def partitions(records: Sequence[Outgoing], count: int) -> list[int]:
    """The partition of each record of a topic with ``partitions``: its own, or the one that its key chooses.

    As the Java client does it. Those without a key go to one that chance chooses.
    """
    chance = random.randrange(count) if count else 0
    keyed = [record.key for record in records if record.partition is None and record.key is not None]
    chosen = iter(murmur2_partitions(keyed, count).tolist() if keyed else ())
    return [
        record.partition if record.partition is not None else chance if record.key is None else next(chosen)
        for record in records
    ]


def batches(records: Sequence[Outgoing], producer: Producer, sequence: int) -> tuple[deque[Batch], int]:
    """Records of one partition as batches, numbered from ``sequence`` on; and the number after them."""
    made: deque[Batch] = deque()
    now = time.time_ns() // 1_000_000
    builder, count = _builder(producer, sequence), 0
    for record in records:
        headers = list(record.headers)
        if builder.append(count, now, record.key, record.value, headers) is None:
            made.append(Batch(_compressed(builder.build()), count))
            sequence = (sequence + count) % _SEQUENCES
            builder, count = _builder(producer, sequence), 0
            builder.append(count, now, record.key, record.value, headers)
        count += 1
    made.append(Batch(_compressed(builder.build()), count))
    return made, (sequence + count) % _SEQUENCES


def _builder(producer: Producer, sequence: int) -> Any:
    return DefaultRecordBatchBuilder(
        magic=_MAGIC,
        compression_type=DefaultRecordBatch.CODEC_NONE,
        is_transactional=1,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        batch_size=_BATCH_BYTES,
    )


def _compressed(batch: bytearray) -> bytes:
    """The same batch, lz4, if that is smaller."""
    # Brokers understand no blocks that are linked (KIP-57).
    compressor = cramjam.lz4.Compressor(level=_LEVEL, content_checksum=False, block_linked=False)
    compressor.compress(bytes(batch[_AFTER_HEADER:]))
    records = bytes(compressor.finish())
    if _AFTER_HEADER + len(records) >= len(batch):
        return bytes(batch)
    made = batch[:_AFTER_HEADER] + records
    (attributes,) = struct.unpack_from(">h", made, _AFTER_CHECKSUM)
    struct.pack_into(">h", made, _AFTER_CHECKSUM, attributes | DefaultRecordBatch.CODEC_LZ4)
    struct.pack_into(">i", made, _LENGTH_AT, len(made) - _AFTER_LENGTH)
    struct.pack_into(">I", made, _CHECKSUM_AT, calc_crc32c(made[_AFTER_CHECKSUM:]))
    return bytes(made)
