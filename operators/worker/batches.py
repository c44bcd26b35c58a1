"""The records of a fetch as columns, without one aiokafka ConsumerRecord for each.

aiokafka unpacks a fetch with a generator that makes an object of eleven fields per record. Here another
generator takes its place in the same PartitionRecords, with the same checks in the same order, and gives a
block of many records at a time: what a record costs beyond its parsing is a slot in a list. It leans on
private members of aiokafka; where they are not as expected (``unsupported``), aiokafka's own stays in place,
and the results are the same.
"""

from __future__ import annotations

import weakref
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

import aiokafka
from aiokafka.consumer.fetcher import READ_COMMITTED, FetchResult, PartitionRecords
from aiokafka.errors import CorruptRecordException

from operators.records import NO_APPEND_TIME, Headers

LOG_APPEND_TIME = 1
#: What the generator was written for; the member functions and attributes that it uses.
_VERSION = "0.14.0"
_METHODS = ("_unpack_records", "_consume_aborted_up_to", "_contains_abort_marker")
_ATTRIBUTES = {
    PartitionRecords: ("_tp", "_records", "_check_crcs", "_isolation_level", "_aborted_producers",
                       "_records_iterator", "next_fetch_offset"),
    FetchResult: ("_partition_records",),
}  # fmt: skip
#: Records that a block takes, and roughly the bytes of their values.
_MOST_RECORDS = 8192
_MOST_BYTES = 8_000_000
#: The bytes are looked at after so many: a record may have a megabyte of them.
_AT_ONCE = 128


def unsupported() -> str:
    """Why this version of aiokafka has to unpack its fetches itself; empty if it has not."""
    if aiokafka.__version__ != _VERSION:
        return f"aiokafka {aiokafka.__version__} instead of {_VERSION}"
    missing = [name for name in _METHODS if not hasattr(PartitionRecords, name)]
    for owner, names in _ATTRIBUTES.items():
        missing += [name for name in names if name not in owner.__init__.__code__.co_names]
    return f"aiokafka without {', '.join(missing)}" if missing else ""


class Block:
    """Consecutive records of one partition, in columns; ``headers`` is empty if no record has any."""

    def __init__(self) -> None:
        self.offsets = array("q")
        self.append_times = array("q")
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[Headers] = []

    def add(self, records: Iterable[Any], since: int, append_time: int | None) -> int:
        """Add the records from offset ``since`` on, with this append time or, if None, their own.

        The bytes of their values. Records of the current format are not kept, not even for a moment: the
        garbage collector would look through them again and again, at several times the cost of unpacking.
        """
        if append_time is None:
            records = [*records]
            self.append_times.extend(map(append_time_of, records))
        begin, headers = len(self.values), self.headers
        offset_to, key_to, value_to = self.offsets.append, self.keys.append, self.values.append
        for record in records:
            offset_to(record.offset)
            key_to(record.key)
            value_to(record.value)
            if record.headers:
                headers += [()] * (len(self.values) - 1 - len(headers))
                headers.append(record.headers)
        if headers:
            headers += [()] * (len(self.values) - len(headers))
        if append_time is not None:
            self.append_times.extend(array("q", [append_time]) * (len(self.values) - begin))
        seen = bisect_left(self.offsets, since, begin)
        if seen > begin:
            # The fetch began within the batch.
            for column in (self.offsets, self.append_times, self.keys, self.values, headers):
                del column[begin:seen]
        return sum(map(len, filter(None, self.values[begin:])))


def append_time_of(record: Any) -> int:
    """The broker's time of a record, NO_APPEND_TIME if it has the producer's."""
    time: int = record.timestamp
    return time if record.timestamp_type == LOG_APPEND_TIME else NO_APPEND_TIME


def take_over(fetched: Any) -> None:
    """Let a FetchResult of aiokafka give blocks, unless it does already. Nothing may have been read of it."""
    records = fetched._partition_records
    if records is not None and not isinstance(records._records_iterator, _Blocks):
        records._records_iterator = _Blocks(records)


class _Blocks(Iterator[Block]):
    """What takes the place of the generator in a PartitionRecords."""

    def __init__(self, source: PartitionRecords) -> None:
        # The source holds this, so that it must not hold the source: fetches that are dropped are large.
        self._blocks = _unpack(weakref.proxy(source))

    def __next__(self) -> Block:
        return next(self._blocks)


def _unpack(source: Any) -> Iterator[Block]:
    """``PartitionRecords._unpack_records`` of aiokafka, block by block."""
    block, size = Block(), 0
    while source._records.has_next():
        batch = source._records.next_batch()
        if source._check_crcs and not batch.validate_crc():
            if block.values:
                yield block
            raise CorruptRecordException(f"Invalid CRC - {source._tp}")
        if _is_passed_over(source, batch):
            source.next_fetch_offset = batch.next_offset
            continue
        append_time = _append_time_of_all(batch)
        for records in _parts(batch):
            size += block.add(records, source.next_fetch_offset, append_time)
            if block.offsets:
                source.next_fetch_offset = max(source.next_fetch_offset, block.offsets[-1] + 1)
            if len(block.values) >= _MOST_RECORDS or size >= _MOST_BYTES:
                yield block
                block, size = Block(), 0
        # A batch keeps its last offset when compaction removes the record.
        source.next_fetch_offset = batch.next_offset
    if block.values:
        yield block


def _parts(batch: Any) -> Iterator[Iterable[Any]]:
    """The records of a batch. It may be iterated over only once, and told only once that it has ended."""
    iterator = chain(batch)
    for first in iterator:
        yield chain((first,), islice(iterator, _AT_ONCE - 1))


def _is_passed_over(source: Any, batch: Any) -> bool:
    """Whether it is a control batch, or one of an aborted transaction."""
    if source._isolation_level == READ_COMMITTED and batch.producer_id is not None:
        source._consume_aborted_up_to(batch.base_offset)
        if batch.is_control_batch and source._contains_abort_marker(batch):
            source._aborted_producers.discard(batch.producer_id)
        if batch.is_transactional and batch.producer_id in source._aborted_producers:
            return True
    return bool(batch.is_control_batch)


def _append_time_of_all(batch: Any) -> int | None:
    """Records of the current format have the append time of their batch; of older ones, their own."""
    if getattr(batch, "magic", 0) < 2:
        return None
    return batch.max_timestamp if batch.timestamp_type == LOG_APPEND_TIME else NO_APPEND_TIME
