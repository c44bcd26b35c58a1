"""The records of a fetch as columns, without one aiokafka ConsumerRecord for each.

aiokafka unpacks a fetch with a generator that makes an object of eleven fields per record. Here another
generator takes its place in the same PartitionRecords, with the same checks in the same order, and gives a
block of many records at a time. Consecutive batches are a run, which the compiled kernel reads at once
(``eventveil.worker.faust.record_batches``); where that is not possible, aiokafka walks from record to record,
and what one costs beyond its parsing is a slot in a list. It leans on private members of aiokafka
(``eventveil.worker.faust.compatibility``). The results are those of aiokafka's own.
"""

from __future__ import annotations

import weakref
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from math import ceil
from struct import Struct
from typing import Any

import cramjam
import numpy as np
from aiokafka import codec
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.memory_records import MemoryRecords
from numpy.typing import NDArray

from eventveil.model.records import NO_APPEND_TIME, NO_EPOCH, NO_OWN_TIME, Headers
from eventveil.process import kernel
from eventveil.worker.faust.record_batches import Body, RecordColumns, read, walk

LOG_APPEND_TIME = 1
#: Records that a block takes, and roughly the bytes of their values: a run, unless its batches are huge.
#: Each step of an array costs some microseconds, however few records there are.
_MOST_RECORDS = 65_536
_MOST_BYTES = 8_000_000
#: The bytes are checked after this many records: a record may have a megabyte of them.
_AT_ONCE = 128
#: A run has about this many records at most.
_RUN = 32_768
#: The attribute of a PartitionRecords that has the leader epoch of what was read of it.
_NOTED = "eventveil_epoch"
#: Where a batch of format 2 has the epoch of its leader, and as what.
_EPOCH_AT, _EPOCH = 12, Struct(">i")
#: Where a batch of format 2 has its checksum and what that is of, the number of its records, and these.
_CHECKSUM, _CHECKED, _COUNT, _RECORDS = 17, 21, 57, 61
#: As aiokafka has them, without its copies; but its gzip is Python's (``_gunzip``).
_UNCOMPRESSED: dict[int, Callable[[bytes | memoryview], Any]] = {
    0: lambda packed: packed, 1: codec.gzip_decode, 2: codec.snappy_decode, 3: cramjam.lz4.decompress,
    4: cramjam.zstd.decompress,
}  # fmt: skip
_GZIP = 1


class Fetch:
    """aiokafka's MemoryRecords, whose batches do not tell their bytes; this one tells them."""

    def __init__(self, data: bytes) -> None:
        self._records, self._data = MemoryRecords(data), data
        self._begin = self._next = 0

    @property
    def bytes_of_batch(self) -> memoryview:
        """The bytes of the batch that came last."""
        return memoryview(self._data)[self._begin : self._next]

    @property
    def epoch(self) -> int:
        """The leader epoch of the batch that came last; of format 2 only."""
        epoch: int = _EPOCH.unpack_from(self._data, self._begin + _EPOCH_AT)[0]
        return epoch

    def is_sound(self) -> bool:
        """Whether the checksum of the batch that came last is right, by the kernel; of format 2 only."""
        told = self._data[self._begin + _CHECKSUM : self._begin + _CHECKED]
        found: int = kernel.NATIVE.checksum(self._data, self._begin + _CHECKED, self._next)
        return found == int.from_bytes(told, "big")

    def has_next(self) -> bool:
        """See MemoryRecords."""
        return bool(self._records.has_next())

    def size_in_bytes(self) -> int:
        """See MemoryRecords."""
        return int(self._records.size_in_bytes())

    def next_batch(self) -> Any:
        """See MemoryRecords; raises CorruptRecordException if it is too short for one."""
        batch = self._records.next_batch()
        self._begin, behind_length = self._next, self._next + 12
        self._next = behind_length + int.from_bytes(self._data[behind_length - 4 : behind_length], "big")
        return batch


def keep_bytes() -> None:
    """Let the consumers of this process keep the bytes of what they fetch, as ``Fetch``.

    There is no other place where they can be had. A fetch without them is walked through.
    """
    fetcher.MemoryRecords = Fetch


class Block:
    """Consecutive records of one partition, in columns; ``headers`` is empty if no record has any.

    ``own_times`` is empty unless they are asked for (``Chunk.own_times``).
    """

    def __init__(
        self,
        keys: Sequence[bytes | None] = (),
        values: Sequence[bytes | None] = (),
        headers: Sequence[Headers] = (),
    ) -> None:
        self.offsets, self.append_times, self.own_times = array("q"), array("q"), array("q")
        self.keys, self.values, self.headers = keys, values, headers


class WalkedBlock(Block):
    """Records that aiokafka gives one by one."""

    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers]

    def __init__(self, *, own_times: bool = False) -> None:
        super().__init__([], [], [])
        self._with_own_times = own_times

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
        with_own_times = self._with_own_times
        for record in records:
            offset_to(record.offset)
            if with_own_times:
                self.own_times.append(own_time_of(record))
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
            for column in (self.offsets, self.append_times, self.own_times, self.keys, self.values, headers):
                del column[begin:seen]
        return sum(map(len, filter(None, self.values[begin:])))


def append_time_of(record: Any) -> int:
    """The broker's time of a record, NO_APPEND_TIME if it has the producer's."""
    time: int = record.timestamp
    return time if record.timestamp_type == LOG_APPEND_TIME else NO_APPEND_TIME


def own_time_of(record: Any) -> int:
    """The time that a record carries, NO_OWN_TIME if none. The oldest format has no place for one.

    A sum beyond 64 bits is what it is in brokers and in the other clients: it wraps around.
    """
    time: int | None = record.timestamp
    return NO_OWN_TIME if time is None else (time + 2**63) % 2**64 - 2**63


def take_over(fetched: Any, *, own_times: bool = False) -> None:
    """Let a FetchResult of aiokafka give blocks, unless it does already. Nothing may have been read of it."""
    records = fetched._partition_records
    if records is not None and not isinstance(records._records_iterator, _Blocks):
        records._records_iterator = _Blocks(records, own_times)


def epoch_of(source: PartitionRecords) -> int:
    """The leader epoch of the last batch that was read of a fetch, NO_EPOCH where nothing tells it."""
    epoch: int = getattr(source, _NOTED, NO_EPOCH)
    return epoch


class _Blocks(Iterator[Block]):
    """What takes the place of the generator in a PartitionRecords."""

    def __init__(self, source: PartitionRecords, own_times: bool) -> None:
        # The source holds this, so that it must not hold the source: fetches that are dropped are large.
        self._blocks = _unpack(weakref.proxy(source), own_times)

    def __next__(self) -> Block:
        return next(self._blocks)


def _unpack(source: Any, own_times: bool) -> Iterator[Block]:
    """``PartitionRecords._unpack_records`` of aiokafka, block by block, each with batches of one epoch."""
    run, epoch = _BatchRun(source.next_fetch_offset, own_times), NO_EPOCH
    #: Where the next batch begins at the earliest; a fetch begins with the whole of its first one.
    behind = 0
    told = isinstance(source._records, Fetch)
    while source._records.has_next():
        batch = source._records.next_batch()
        if source._check_crcs and not _is_sound(source._records, batch):
            yield from run.blocks(source)
            raise CorruptRecordException(f"Invalid CRC - {source._tp}")
        of_now = _magic(batch) == 2
        if of_now and batch.base_offset < behind:
            yield from run.blocks(source)
            raise _out_of_order(source)
        its = source._records.epoch if told and of_now else NO_EPOCH
        if its != epoch:
            yield from run.blocks(source)
            run, epoch = _BatchRun(run.next_offset, own_times), its
            setattr(source, _NOTED, epoch)
        if not _is_passed_over(source, batch):
            run.add(batch, getattr(source._records, "bytes_of_batch", b""))
        # A batch keeps its last offset when compaction removes the record.
        run.next_offset = behind = batch.next_offset
        if run.is_full:
            yield from run.blocks(source)
            run = _BatchRun(run.next_offset, own_times)
    yield from run.blocks(source)


class _BatchRun:
    """Consecutive batches, and the offset behind them and behind those that were passed over."""

    def __init__(self, next_offset: int, own_times: bool) -> None:
        self.next_offset, self._with_own_times = next_offset, own_times
        #: Each with its bytes, and with its records unless they have to be walked through.
        self._batches: list[tuple[Any, bytes | memoryview, Body | None]] = []
        self._records = self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether it is enough for now."""
        return self._records >= _RUN or self._bytes >= _MOST_BYTES

    def add(self, batch: Any, data: bytes | memoryview) -> None:
        """Add a batch of these bytes; of none if they cannot be had."""
        body = _body(batch, data)
        self._batches.append((batch, data, body))
        if body is not None:
            self._records += body.number
            self._bytes += len(body.data)

    def blocks(self, source: Any) -> Iterator[Block]:
        """The records from the source's position on. With the last of them it is behind the run."""
        bodies = [body for _, _, body in self._batches if body is not None]
        whole = bodies and len(bodies) == len(self._batches)
        records = read(bodies, deltas=self._with_own_times) if whole else None
        yield from self._walk(source) if records is None else self._cut(records, bodies, source)
        source.next_fetch_offset = self.next_offset

    def _cut(self, records: RecordColumns, bodies: Sequence[Body], source: Any) -> Iterator[Block]:
        each = np.array([_append_time_of_all(batch) for batch, _, _ in self._batches], np.int64)
        numbers = [body.number for body in bodies]
        append_times = np.repeat(each, numbers)
        own_times = np.zeros(0, np.int64)
        if records.deltas is not None:
            own_times = _own_times([batch for batch, _, _ in self._batches], numbers, records.deltas)
        offsets = records.offsets
        # A fetch may begin within a batch.
        first, last = int(np.searchsorted(offsets, source.next_fetch_offset)), len(offsets)
        # As large as may be, and alike: a small block costs more for each of its records.
        size = ceil((last - first) / max(1, ceil((last - first) / _MOST_RECORDS))) or 1
        for begin, end in pairwise((*range(first, last, size), last)):
            source.next_fetch_offset = self.next_offset if end == last else int(offsets[end - 1]) + 1
            part = slice(begin, end)
            block = Block(records.keys[part], records.values[part], records.headers[part])
            block.offsets.frombytes(offsets[part].tobytes())
            block.append_times.frombytes(append_times[part].tobytes())
            block.own_times.frombytes(own_times[part].tobytes())
            yield block

    def _walk(self, source: Any) -> Iterator[Block]:
        block, size = WalkedBlock(own_times=self._with_own_times), 0
        for batch, data, _ in self._batches:
            append_time = _append_time_of_all(batch)
            for records in _parts(_in_order(batch, data, source)):
                size += block.add(records, source.next_fetch_offset, append_time)
                if block.offsets:
                    source.next_fetch_offset = max(source.next_fetch_offset, block.offsets[-1] + 1)
                if len(block.values) >= _MOST_RECORDS or size >= _MOST_BYTES:
                    yield block
                    block, size = WalkedBlock(own_times=self._with_own_times), 0
            source.next_fetch_offset = batch.next_offset
        source.next_fetch_offset = self.next_offset
        if block.values:
            yield block


def _in_order(batch: Any, data: bytes | memoryview, source: Any) -> Iterator[Any]:
    """The records of a batch; raises CorruptRecordException if an offset does not exceed the one before."""
    # A batch of an older format is known by the offset of its last record.
    last = batch.base_offset - 1 if _magic(batch) == 2 else -1
    for record in _each(batch, data, source):
        if record.offset <= last:
            raise _out_of_order(source)
        last = record.offset
        yield record


def _each(batch: Any, data: bytes | memoryview, source: Any) -> Iterator[Any]:
    """The records of a batch as aiokafka walks; as ``walk`` does behind the last that it can read."""
    read = 0
    try:
        for record in batch:
            read += 1
            yield record
    except Exception as error:
        if not data or not isinstance(error.__cause__ or error, UnicodeDecodeError):
            raise CorruptRecordException(f"{error} - {source._tp}") from error
        yield from islice(walk(batch, _unpacked(batch, data)), read, None)


def _out_of_order(source: Any) -> CorruptRecordException:
    """No broker has that. What lies before the position is skipped, so it would be lost without a word.

    The offsets are not named: differences between two in a log are exact counts.
    """
    return CorruptRecordException(f"Offsets do not increase - {source._tp}")


def _body(batch: Any, data: bytes | memoryview) -> Body | None:
    """The records of a batch, uncompressed; None if they have to be walked through."""
    if kernel.NATIVE is None or _magic(batch) != 2 or len(data) < _RECORDS:
        return None
    try:
        body = _unpacked(batch, data, gunzip=_gunzip)
    except Exception:
        # In the walk aiokafka says what is wrong with it.
        return None
    return body if len(body.data) <= 2 * _MOST_BYTES else None


def _unpacked(
    batch: Any, data: bytes | memoryview, gunzip: Callable[[bytes | memoryview], bytes] = codec.gzip_decode
) -> Body:
    unpack = gunzip if batch.compression_type == _GZIP else _UNCOMPRESSED[batch.compression_type]
    number = int.from_bytes(data[_COUNT:_RECORDS], "big", signed=True)
    return Body(unpack(data[_RECORDS:]), number, batch.base_offset)


def _gunzip(packed: bytes | memoryview) -> bytes:
    """Raises ValueError if it is damaged, or too large for a run."""
    unpacked: bytes | None = kernel.NATIVE.gunzip(bytes(packed), 2 * _MOST_BYTES)
    if unpacked is None:
        raise ValueError("no gzip of this size")
    return unpacked


def _is_sound(records: Any, batch: Any) -> bool:
    """Whether the checksum of the batch that came last of these records is right."""
    if kernel.NATIVE is not None and isinstance(records, Fetch) and _magic(batch) == 2:
        return records.is_sound()
    return bool(batch.validate_crc())


def _parts(records: Iterator[Any]) -> Iterator[Iterable[Any]]:
    """The records of a batch. It may be iterated over only once, and told only once that it has ended."""
    iterator = chain(records)
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
    if _magic(batch) < 2:
        return None
    return batch.max_timestamp if batch.timestamp_type == LOG_APPEND_TIME else NO_APPEND_TIME


def _own_times(
    batches: Iterable[Any], numbers: Sequence[int], deltas: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Those that the records of batches of the current format carry: the broker's if it has stamped them."""
    stamped = [batch.timestamp_type == LOG_APPEND_TIME for batch in batches]
    first = [
        batch.max_timestamp if one else batch.first_timestamp
        for batch, one in zip(batches, stamped, strict=True)
    ]
    # Arrays wrap around, as ``own_time_of`` does.
    return np.repeat(np.array(first, np.int64), numbers) + np.where(np.repeat(stamped, numbers), 0, deltas)


def _magic(batch: Any) -> int:
    """The number of its format; those before 2 do not all tell it."""
    magic: int = getattr(batch, "magic", 0)
    return magic
