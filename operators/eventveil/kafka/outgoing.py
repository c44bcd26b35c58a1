"""Records on their way to the log: which partition, and batches as the log holds them."""

from __future__ import annotations

import random
import struct
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import cramjam
import numpy as np
from aiokafka.record.default_records import DefaultRecordBase, DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from confluent_kafka import KafkaError, KafkaException

from eventveil.model.partitioners import murmur2_partitions
from eventveil.model.records import MAX_MESSAGE_BYTES, NO_KEY, Columns, Outgoing, TopicPartition
from eventveil.process import kernel

#: Of a batch before compression, unless a single record is larger: what brokers take without being told to.
_BATCH_BYTES = 1_000_000
#: Of records that are held back before they are sent, before compression.
_HELD_BYTES = 8 * 1024 * 1024
_MAGIC = 2
_NO_LEADER_EPOCH = -1
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
class OutgoingBatch:
    """Records of one partition as they are sent, ``count`` of them."""

    content: bytes
    count: int


#: Records on their way: one, or many of a topic in columns.
Part = Outgoing | Columns


def portions(records: Iterable[Part]) -> Iterator[list[Part]]:
    """Records that are held at once. Raises KafkaException if one is too large."""
    held: list[Part] = []
    size = 0
    for record, length in _measured(records):
        held.append(record)
        size += length
        if size >= _HELD_BYTES:
            yield held
            held, size = [], 0
    if held:
        yield held


def _measured(records: Iterable[Part]) -> Iterator[tuple[Part, int]]:
    """Each with the bytes of keys and values; of columns pieces of about what may be held."""
    for record in records:
        if isinstance(record, Columns):
            sizes = record.sizes()
            _check_size(record, int(sizes.max(initial=0)))
            if sizes.sum() < _HELD_BYTES:
                yield record, int(sizes.sum())
                continue
            pieces = np.cumsum(sizes) // _HELD_BYTES
            edges = [0, *(np.flatnonzero(np.diff(pieces)) + 1).tolist(), len(record)]
            for begin, end in pairwise(edges):
                yield record.where(slice(begin, end)), int(sizes[begin:end].sum())
        else:
            length = len(record.key or b"") + len(record.value or b"")
            _check_size(record, length)
            yield record, length


def _check_size(record: Part, length: int) -> None:
    if length > MAX_MESSAGE_BYTES:
        told = f"{length} bytes for {record.topic}"
        raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, told))


def by_partition(records: Sequence[Part], count_of: Callable[[str], int]) -> dict[TopicPartition, list[Part]]:
    """The records of each partition, in their order; ``count_of`` topics in which keys or chance choose."""
    by_topic: defaultdict[str, list[Part]] = defaultdict(list)
    for record in records:
        by_topic[record.topic].append(record)
    found: defaultdict[TopicPartition, list[Part]] = defaultdict(list)
    for topic, those in by_topic.items():
        free = any(record.partition is None for record in those)
        for number, mine in _by_number(those, count_of(topic) if free else 0):
            found[TopicPartition(topic, number)].append(mine)
    return dict(found)


def _by_number(records: Sequence[Part], count: int) -> Iterator[tuple[int, Part]]:
    """Records of a topic, each with its partition; columns in pieces."""
    chance = random.randrange(count) if count else 0
    numbers = iter(partitions([one for one in records if not isinstance(one, Columns)], count, chance))
    for record in records:
        if isinstance(record, Columns):
            if not len(record):
                continue
            chosen = record.partitions(count)
            chosen = np.where(chosen == NO_KEY, chance, chosen)
            order = np.argsort(chosen, kind="stable")
            ordered = chosen[order]
            edges = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
            for begin, end in pairwise(edges):
                yield int(ordered[begin]), record if len(edges) == 2 else record.where(order[begin:end])
        else:
            yield next(numbers), record


def partitions(records: Sequence[Outgoing], count: int, chance: int) -> list[int]:
    """The partition of each record of a topic with ``count``: its own, or the one that its key chooses.

    As the Java client does it. Those without a key go to the one that ``chance`` chose.
    """
    keyed = [record.key for record in records if record.partition is None and record.key is not None]
    chosen = iter(murmur2_partitions(keyed, count).tolist() if keyed else ())
    return [
        record.partition if record.partition is not None else chance if record.key is None else next(chosen)
        for record in records
    ]


def batches(records: Sequence[Part], producer: Producer, sequence: int) -> tuple[deque[OutgoingBatch], int]:
    """Records of one partition as batches, numbered from ``sequence`` on; and the number after them."""
    made: deque[OutgoingBatch] = deque()
    now = time.time_ns() // 1_000_000
    alone: list[Outgoing] = []

    def take(content: bytes, count: int) -> None:
        nonlocal sequence
        made.append(OutgoingBatch(_joined(content, count, now, producer, sequence), count))
        sequence = (sequence + count) % _SEQUENCES

    def take_alone() -> None:
        nonlocal sequence
        for batch in _built(alone, now, producer, sequence):
            made.append(batch)
            sequence = (sequence + batch.count) % _SEQUENCES
        alone.clear()

    for record in records:
        if not isinstance(record, Columns):
            alone.append(record)
        elif record.packs:
            take_alone()
            record.pack(_BATCH_BYTES, take)
        else:
            alone += record
    take_alone()
    return made, sequence


def _built(
    records: Sequence[Outgoing], now: int, producer: Producer, sequence: int
) -> Iterator[OutgoingBatch]:
    if not records:
        return
    builder, count = _builder(producer, sequence), 0
    for record in records:
        headers = list(record.headers)
        if builder.append(count, now, record.key, record.value, headers) is None:
            yield OutgoingBatch(_compressed(*_split(builder.build())), count)
            sequence = (sequence + count) % _SEQUENCES
            builder, count = _builder(producer, sequence), 0
            builder.append(count, now, record.key, record.value, headers)
        count += 1
    yield OutgoingBatch(_compressed(*_split(builder.build())), count)


def _joined(content: bytes, count: int, now: int, producer: Producer, sequence: int) -> bytes:
    """A batch with this behind its header."""
    header = DefaultRecordBase.HEADER_STRUCT.pack(
        0, 0, _NO_LEADER_EPOCH, _MAGIC, 0, DefaultRecordBase.TRANSACTIONAL_MASK, count - 1, now, now,
        producer.id, producer.epoch, sequence, count,
    )  # fmt: skip
    return _compressed(bytearray(header), content)


def _split(batch: bytearray) -> tuple[bytearray, bytes]:
    return batch[:_AFTER_HEADER], bytes(batch[_AFTER_HEADER:])


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


def _compressed(header: bytearray, content: bytes) -> bytes:
    """The batch, lz4 if that is smaller, with its length and checksum."""
    # Brokers understand no blocks that are linked (KIP-57).
    compressor = cramjam.lz4.Compressor(level=_LEVEL, content_checksum=False, block_linked=False)
    compressor.compress(content)
    packed = bytes(compressor.finish())
    if len(packed) < len(content):
        content = packed
        (attributes,) = struct.unpack_from(">h", header, _AFTER_CHECKSUM)
        struct.pack_into(">h", header, _AFTER_CHECKSUM, attributes | DefaultRecordBatch.CODEC_LZ4)
    struct.pack_into(">i", header, _LENGTH_AT, len(header) + len(content) - _AFTER_LENGTH)
    checked = bytes(header[_AFTER_CHECKSUM:]) + content
    return bytes(header[:_CHECKSUM_AT]) + struct.pack(">I", _checksum(checked)) + checked


def _checksum(data: bytes) -> int:
    """CRC-32C."""
    if kernel.NATIVE is None:
        of_client: int = calc_crc32c(data)
        return of_client
    # By the processor's own instruction, in a fourteenth of the time.
    found: int = kernel.NATIVE.checksum(data, 0, len(data))
    return found
