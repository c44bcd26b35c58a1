"""Blocks hold what aiokafka's own unpacking gives, whatever a partition of Kafka may hold."""

from __future__ import annotations

import gc
import struct
import weakref
from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.codec import gzip_encode, lz4_encode, snappy_encode, zstd_encode
from aiokafka.consumer import fetcher
from aiokafka.consumer.fetcher import READ_COMMITTED, READ_UNCOMMITTED, PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c
from aiokafka.structs import TopicPartition

from eventveil.model.records import NO_APPEND_TIME, NO_EPOCH, NO_OWN_TIME
from eventveil.worker.faust import fetches, record_batches
from tests.fuzz.ways import WAYS, read_by

TP = TopicPartition("raw", 0)
_COMMIT, _ABORT = b"\0\0\0\1", b"\0\0\0\0"


class Log:
    """A random part of a partition, as a fetch returns it."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.end = chance.randrange(5)
        self.batches: list[tuple[int, bytes]] = []
        self.epoch = 3
        #: The end of each batch, and the epoch of its leader.
        self.epochs: list[tuple[int, int]] = []
        self.aborted: list[tuple[int, int]] = []

    def append(self) -> None:
        """One record batch: maybe compressed, of a transaction, with holes from compaction."""
        chance = self.chance
        producer = chance.choice((-1, 7, 8))
        transactional = producer >= 0 and chance.random() < 0.7
        count, size = chance.choice((1, 2, 30)), chance.randrange(40)
        builder = DefaultRecordBatchBuilder(
            2, chance.choice((0, 1, 2, 3, 4)), transactional, producer, 0, 0, 10**6
        )
        told, times = chance.random() < 0.2, Random(self.end)
        kept = [offset for offset in range(count) if chance.random() < 0.8] or [count - 1]
        for offset in kept:
            value = chance.choice((None, b"", chance.randbytes(size)))
            headers = chance.choice(([], [("h", b"1"), ("h", None)])) if told else []
            # Times go back too, and records may carry none.
            time = times.choice((1000 + offset, 1000 + offset, -1, -5, times.randrange(2**41)))
            builder.append(offset, time, chance.choice((None, b"k")), value, headers)
        self._add(bytes(builder.build()), kept[-1] + chance.choice((0, 3)), chance.random() < 0.7)
        if transactional and chance.random() < 0.5:
            self.mark(producer)

    def mark(self, producer: int) -> None:
        """The end of a transaction."""
        builder = DefaultRecordBatchBuilder(2, 0, True, producer, 0, 0, 1000)
        abort = self.chance.random() < 0.5
        if abort:
            self.aborted.append((producer, self.chance.randrange(self.end)))
        builder.append(0, 1, _ABORT if abort else _COMMIT, b"\0\0\0\0\0\0", [])
        self._add(bytes(builder.build()), 0, False, control=True)

    def _add(self, batch: bytes, last: int, append_time: bool, control: bool = False) -> None:
        made = bytearray(batch)
        struct.pack_into(">q", made, 0, self.end)
        attributes = struct.unpack_from(">h", made, 21)[0] | append_time << 3 | control << 5
        struct.pack_into(">hi", made, 21, attributes, last)
        struct.pack_into(">I", made, 17, calc_crc32c(bytes(made[21:])))
        # No checksum is of it.
        self.epoch += Random(self.end).choice((0, 0, 0, 1, 5))
        struct.pack_into(">i", made, 12, self.epoch)
        self.end += last + 1
        self.batches.append((self.end, bytes(made)))
        self.epochs.append((self.end, self.epoch))

    def epoch_before(self, position: int) -> int:
        return next(epoch for end, epoch in self.epochs if end >= position)

    def fetched(self, offset: int, isolation: int) -> PartitionRecords:
        data = b"".join(batch for end, batch in self.batches if end > offset)
        return partition_records(data, offset, isolation, self.aborted)


def partition_records(
    data: bytes, offset: int = 0, isolation: int = READ_COMMITTED, aborted: Any = ()
) -> PartitionRecords:
    return PartitionRecords(TP, fetches.Fetch(data), list(aborted), offset, None, None, True, isolation)


Read = tuple[list[Any], int, str]


def read_stock(source: PartitionRecords) -> Read:
    found: list[Any] = []
    try:
        for one in source:
            append_time = one.timestamp if one.timestamp_type == 1 else NO_APPEND_TIME
            own_time = -1 if one.timestamp is None else one.timestamp
            found.append((one.offset, append_time, own_time, one.key, one.value, tuple(one.headers)))
    except CorruptRecordException as error:
        return found, source.next_fetch_offset, str(error)
    return found, source.next_fetch_offset, ""


class Fetched:
    def __init__(self, source: PartitionRecords) -> None:
        self._partition_records = source


def read_blocks(source: PartitionRecords, positions: list[int] | None = None) -> Read:
    fetches.take_over(Fetched(source), own_times=True)
    found: list[Any] = []
    try:
        for block in source:
            fetches.take_over(Fetched(source))  # as every further drain does
            headers = [tuple(one) for one in block.headers or [()] * len(block.values)]
            columns = block.offsets, block.append_times, block.own_times, block.keys, block.values, headers
            found += zip(*columns, strict=True)
            assert block.offsets[-1] < source.next_fetch_offset
            if positions is not None:
                positions.append(source.next_fetch_offset)
    except CorruptRecordException as error:
        return found, source.next_fetch_offset, str(error)
    return found, source.next_fetch_offset, ""


def make_log(seed: int) -> Log:
    log = Log(Random(seed))
    for _ in range(log.chance.choice((0, 1, 6))):
        log.append()
    return log


@pytest.fixture(params=WAYS, autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every test with the kernel, and with aiokafka's walk."""
    with read_by(request.param):
        yield request.param


@pytest.fixture
def read_by_kernel(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many records were, of each run."""
    numbers: list[int] = []

    def read(bodies: Any, **asked: Any) -> Any:
        found = record_batches.read(bodies, **asked)
        numbers.append(0 if found is None else len(found.offsets))
        return found

    monkeypatch.setattr(fetches, "read", read)
    return numbers


@pytest.mark.parametrize("most", [1, 8192])
@pytest.mark.parametrize("isolation", [READ_COMMITTED, READ_UNCOMMITTED])
def test_blocks_hold_what_aiokafka_gives(
    isolation: int, most: int, way: str, read_by_kernel: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetches, "_MOST_RECORDS", most)
    monkeypatch.setattr(fetches, "_AT_ONCE", 7)
    seen = 0
    for seed in range(150):
        log = make_log(seed)
        start = log.chance.choice((0, 0, log.chance.randrange(log.end + 1)))
        expected = read_stock(log.fetched(start, isolation))
        assert read_blocks(log.fetched(start, isolation)) == expected, f"seed {seed}"
        seen += len(expected[0])
    assert seen > 1000
    assert sum(read_by_kernel) > 100 if way == "kernel" else not read_by_kernel


def test_times_that_nobody_asks_for_are_not_taken_and_all_else_is_the_same() -> None:
    for seed in range(40):
        log = make_log(seed)
        source = log.fetched(0, READ_UNCOMMITTED)
        fetches.take_over(Fetched(source))
        found: list[Any] = []
        for block in source:
            assert not block.own_times
            found += zip(block.offsets, block.append_times, block.values, strict=True)
        expected, _, _ = read_stock(log.fetched(0, READ_UNCOMMITTED))
        assert found == [(one[0], one[1], one[4]) for one in expected]


@pytest.mark.parametrize("append_time", [False, True])
def test_a_sum_of_times_beyond_64_bits_wraps_around_in_all_ways(append_time: bool) -> None:
    """As in brokers and librdkafka: otherwise a replay could see another time than the worker."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, 0, 0, 10**6)
    for offset in range(3):
        builder.append(offset, 1 + offset, None, b"v", [])
    batch = bytearray(builder.build())
    struct.pack_into(">qq", batch, 27, 2**63 - 2, 77)
    attributes = struct.unpack_from(">h", batch, 21)[0] | append_time << 3
    struct.pack_into(">h", batch, 21, attributes)
    struct.pack_into(">I", batch, 17, calc_crc32c(bytes(batch[21:])))
    found, _, _ = read_blocks(partition_records(bytes(batch)))
    wrapped = [2**63 - 2, 2**63 - 1, -(2**63)]
    assert [one[2] for one in found] == ([77] * 3 if append_time else wrapped)
    assert fetches.own_time_of(SimpleNamespace(timestamp=2**63)) == -(2**63)
    assert fetches.own_time_of(SimpleNamespace(timestamp=None)) == NO_OWN_TIME


@pytest.mark.parametrize("codec", range(5), ids=["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("walks", [False, True], ids=["as it is", "walked"])
def test_names_of_headers_that_are_not_utf8_are_replaced(
    codec: int, walks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers take them from any producer. aiokafka refuses the whole fetch."""
    if walks:  # as beside anything unusual in the same run
        monkeypatch.setattr(fetches, "read", lambda bodies, **asked: None)
    plain, spoilt = (batch_with_header(codec, name) for name in (b"plain", b"p\xffa\xfen"))
    records, position, _ = read_stock(partition_records(plain, offset=4))
    expected = [
        (*one, tuple((name.replace("plain", "p\ufffda\ufffdn"), value) for name, value in headers))
        for *one, headers in records
    ]
    assert read_blocks(partition_records(spoilt, offset=4)) == (expected, position, "")


def batch_with_header(codec: int, name: bytes) -> bytes:
    """A compressed batch some of whose records have headers of this name, which has five bytes."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, 0, 0, 10**6)
    for offset in range(20):
        builder.append(offset, 7 * offset, b"k", b"%d" % offset, [("plain", b"1")] * (offset % 3))
    made = bytearray(builder.build())
    compress = (bytes, gzip_encode, snappy_encode, lz4_encode, zstd_encode)[codec]
    made[61:] = compress(bytes(made[61:]).replace(b"plain", name))
    struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(">h", made, 21, codec)
    struct.pack_into(">I", made, 17, calc_crc32c(bytes(made[21:])))
    return bytes(made)


def test_whatever_stops_a_fetch_is_told_with_its_partition() -> None:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, 0, 0, 10**6)
    builder.append(0, 1, b"k", b"v", [])
    made = bytearray(builder.build())
    struct.pack_into(">h", made, 21, 4)  # zstd that it is not
    struct.pack_into(">I", made, 17, calc_crc32c(bytes(made[21:])))
    found, _, told = read_blocks(partition_records(bytes(made)))
    assert not found
    assert told.endswith(f" - {TP}"), told


def test_before_a_damaged_batch_everything_is_delivered_and_then_the_damage_is_told() -> None:
    log = Log(Random(7))
    while log.end < 60:
        log.append()
    whole = b"".join(batch for _, batch in log.batches)
    told = 0
    for _ in range(60):
        damaged = bytearray(whole)
        damaged[log.chance.randrange(len(damaged))] ^= 1 << log.chance.randrange(8)
        try:
            expected = read_stock(partition_records(bytes(damaged)))
        except Exception as error:  # the length of a batch was hit: neither may go on
            with pytest.raises(type(error)):
                read_blocks(partition_records(bytes(damaged)))
        else:
            found = read_blocks(partition_records(bytes(damaged)))
            # No checksum covers where a batch begins. aiokafka skips one that goes back.
            assert found == expected or "Offsets do not increase" in found[2]
            told += "Invalid CRC" in expected[2] and bool(expected[0])
    assert told > 10


@pytest.mark.parametrize(
    ("batches", "refused"),
    [
        ([(0, 1, [0, 1]), (2, 2, [0])], False),
        ([(0, 1, [1, 0])], True),
        ([(0, 1, [0, 0])], True),
        ([(0, 1, [0, 1]), (2, 2, [-1])], True),
        ([(0, 4, [0, 1]), (2, 2, [0])], True),
    ],
)  # fmt: skip
def test_records_whose_offsets_do_not_increase_are_refused_and_not_skipped(
    batches: list[tuple[int, int, list[int]]], refused: bool
) -> None:
    """Batches as their first and last offset, and the places of their records behind the first."""
    data = b""
    for first, last, places in batches:
        builder = DefaultRecordBatchBuilder(2, 0, False, -1, 0, 0, 10**6)
        for place in places:
            builder.append(place, 1000, None, b"v", [])
        made = bytearray(builder.build())
        struct.pack_into(">q", made, 0, first)
        struct.pack_into(">i", made, 23, last - first)
        struct.pack_into(">I", made, 17, calc_crc32c(bytes(made[21:])))
        data += made
    found, _, told = read_blocks(partition_records(data))
    assert (f"Offsets do not increase - {TP}" in told) == refused, told
    offsets = [one[0] for one in found]
    assert offsets == sorted({*offsets})
    assert not refused or len(offsets) < sum(len(places) for *_, places in batches)


def test_the_position_after_a_block_is_behind_its_last_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetches, "_MOST_RECORDS", 10)
    monkeypatch.setattr(fetches, "_AT_ONCE", 5)
    log = Log(Random(1))
    while log.end < 200:
        log.append()
    positions: list[int] = []
    whole = read_blocks(log.fetched(0, READ_UNCOMMITTED), positions)
    assert len(positions) > 5
    for position in positions:
        after = read_blocks(log.fetched(position, READ_UNCOMMITTED))
        assert after[0] == [one for one in whole[0] if one[0] >= position]


@pytest.mark.parametrize("isolation", [READ_COMMITTED, READ_UNCOMMITTED])
def test_the_epoch_before_the_position_is_told_also_of_what_is_passed_over(isolation: int) -> None:
    met, others = set[int](), 0
    for seed in range(300):
        log = make_log(seed)
        source = log.fetched(0, isolation)
        fetches.take_over(Fetched(source))
        assert fetches.epoch_of(source) == NO_EPOCH
        for _ in source:
            assert fetches.epoch_of(source) == log.epoch_before(source.next_fetch_offset)
        if log.batches:
            assert fetches.epoch_of(source) == log.epochs[-1][1] == log.epoch_before(source.next_fetch_offset)
            others += bool(read_stock(log.fetched(0, isolation))[0]) and log.epochs[0] != log.epochs[-1]
        met |= {epoch for _, epoch in log.epochs}
    assert len(met) > 10
    assert others > 50


def test_nothing_tells_the_epoch_of_a_fetch_without_its_bytes_or_of_an_older_format() -> None:
    new = DefaultRecordBatchBuilder(2, 0, False, -1, 0, 0, 10**6)
    new.append(0, 1000, None, b"v", [])
    old = LegacyRecordBatchBuilder(1, 0, 10**6)
    old.append(0, 1000, None, b"v")
    unkept = PartitionRecords(TP, MemoryRecords(bytes(new.build())), [], 0, None, None, True, READ_COMMITTED)
    for source in (unkept, partition_records(bytes(old.build()))):
        fetches.take_over(Fetched(source))
        assert [*source]
        assert fetches.epoch_of(source) == NO_EPOCH


@pytest.mark.parametrize(("records", "sizes"), [(10, [10]), (11, [6, 5]), (24, [8, 8, 8]), (21, [7, 7, 7])])
def test_blocks_of_a_run_are_alike(
    records: int, sizes: list[int], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetches, "_MOST_RECORDS", 10)
    monkeypatch.setattr(fetches, "_AT_ONCE", 5)
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, 0, 0, 10**6)
    for offset in range(records):
        builder.append(offset, 1, b"k", b"v", [])
    source = partition_records(bytes(builder.build()))
    fetches.take_over(Fetched(source))
    walked = [10] * (records // 10) + [records % 10] * (records % 10 > 0)
    assert [len(block.values) for block in source] == (sizes if way == "kernel" else walked)


def test_blocks_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetches, "_MOST_BYTES", 1000)
    monkeypatch.setattr(fetches, "_AT_ONCE", 2)
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, 0, 0, 10**6)
    for offset in range(40):
        builder.append(offset, 1, None, b"x" * 300, [])
    source = partition_records(bytes(builder.build()))
    fetches.take_over(Fetched(source))
    assert {len(block.values) for block in source} == {4}


def test_a_fetch_that_is_dropped_is_freed_at_once() -> None:
    log = make_log(5)
    gc.disable()
    try:
        for reads in (0, 1):
            source = log.fetched(0, READ_UNCOMMITTED)
            fetches.take_over(Fetched(source))
            for _ in range(reads):
                next(iter(source))
            alive = weakref.ref(source)
            del source
            assert alive() is None
    finally:
        gc.enable()


def test_records_of_an_older_format_are_read_too() -> None:
    builder = LegacyRecordBatchBuilder(1, 0, 10**6)
    for offset in range(3):
        builder.append(offset, 1000 + offset, None, b"v")
    data = bytes(builder.build())
    expected = read_stock(partition_records(data))
    assert len(expected[0]) == 3
    assert read_blocks(partition_records(data)) == expected


def test_a_fetch_that_did_not_keep_its_bytes_is_walked_through(read_by_kernel: list[int]) -> None:
    for seed in range(20):
        log = make_log(seed)
        expected = read_stock(log.fetched(0, READ_COMMITTED))
        source = log.fetched(0, READ_COMMITTED)
        source._records = MemoryRecords(b"".join(batch for _, batch in log.batches))
        assert read_blocks(source) == expected
    assert not read_by_kernel


def test_a_batch_that_grows_too_large_is_walked_through(
    read_by_kernel: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetches, "_MOST_BYTES", 5_000)
    builder = DefaultRecordBatchBuilder(2, 1, False, -1, 0, 0, 10**6)
    for offset in range(40):
        builder.append(offset, 1, b"k", b"x" * 300, [])
    data = bytes(builder.build())
    assert len(data) < 5_000
    assert read_blocks(partition_records(data)) == read_stock(partition_records(data))
    assert not read_by_kernel


def test_damage_that_the_checksum_does_not_show_changes_no_reading(
    way: str, read_by_kernel: list[int]
) -> None:
    log = Log(Random(4))
    while log.end < 300:
        log.append()
    refused = 0
    for _, batch in log.batches * 8:
        damaged = bytearray(batch)
        damaged[log.chance.randrange(61, len(batch))] ^= 1 << log.chance.randrange(8)
        struct.pack_into(">I", damaged, 17, calc_crc32c(bytes(damaged[21:])))
        found: list[Any] = []
        for one in (way, "plain"):
            with read_by(one):
                try:
                    found.append(read_blocks(partition_records(bytes(damaged), 0, READ_UNCOMMITTED)))
                except Exception as error:  # of a codec, or offsets that go back
                    found.append(str(type(error)))
        assert found[0] == found[1]
        refused += type(found[0]) is str or found[0][2] != ""
    assert 20 < refused < len(log.batches) * 8 - 20
    assert sum(read_by_kernel) > 100 or way == "plain"


def test_fetches_keep_their_bytes_once_that_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "MemoryRecords", MemoryRecords)
    fetches.keep_bytes()
    log = make_log(5)
    data = b"".join(batch for _, batch in log.batches)
    kept, stock = fetcher.MemoryRecords(data), MemoryRecords(data)
    assert kept.size_in_bytes() == stock.size_in_bytes()
    for _, batch in log.batches:
        assert kept.has_next()
        assert kept.next_batch().base_offset == stock.next_batch().base_offset
        assert kept.bytes_of_batch == batch
    assert not kept.has_next()
