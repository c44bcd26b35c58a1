"""Whole fetches, cut and flipped at random bytes: read alike by the kernel, in plain Python and by aiokafka.

Damage behind a wrong checksum is refused by all; so most of what is damaged gets a checksum that is right
again, and the damage reaches codecs and records. Values that are no events cost a dead letter each, and
nothing of their neighbours.
"""

from __future__ import annotations

import struct
from collections import Counter
from random import Random
from typing import Any

from aiokafka.consumer.fetcher import READ_COMMITTED, READ_UNCOMMITTED
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

from eventveil.counting.counter import CounterState
from eventveil.model.records import Chunk
from eventveil.tasks.aggregate import PartitionAggregator
from eventveil.worker.faust import fetches
from tests.fuzz.values import mutated
from tests.fuzz.ways import WAYS, read_by
from tests.unit.support import counter_state, sparse, stream
from tests.unit.worker.faust.test_fetches import Fetched, Log, partition_records, read_blocks, read_stock

#: Where a batch has its length, its checksum, what that is of, and its records.
_LENGTH, _CHECKSUM, _CHECKED, _RECORDS = 8, 17, 21, 61
_BAD = (b"", b"{", b'{"user":"u"}', b"\xff\xfe", b"[]", b'{"user":"u","column":"a","time":"x"}', b"null")


def with_checksum(batch: bytes) -> bytes:
    """A batch whose length and checksum fit what it has become; too short ones stay as they are."""
    made = bytearray(batch)
    if len(made) > _CHECKED:
        struct.pack_into(">i", made, _LENGTH, len(made) - _LENGTH - 4)
        struct.pack_into(">I", made, _CHECKSUM, calc_crc32c(bytes(made[_CHECKED:])))
    return bytes(made)


def placed(damaged: bytes, batch: bytes) -> bytes:
    """A damaged batch with the offsets of ``batch``, its first and its last: brokers give both."""
    made = bytearray(damaged)
    if len(made) >= _RECORDS:
        for place in (slice(0, 8), slice(23, 27)):
            made[place] = batch[place]
    return bytes(made)


def damage(batch: bytes, chance: Random) -> bytes:
    """The batch, cut, or with bytes that are others, fewer or more."""
    made = bytearray(batch)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(_RECORDS if chance.random() < 0.8 and len(made) > _RECORDS else 0, len(made))
        match chance.randrange(4):
            case 0:
                made[at] ^= 1 << chance.randrange(8)
            case 1:
                made[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            case 2:
                del made[at : at + chance.randrange(1, 8)]
            case _:
                made[at:at] = chance.randbytes(chance.randrange(1, 4))
        if len(made) < _RECORDS:
            break
    return bytes(made)


def compare_damaged(seed: int) -> Counter[str]:
    """A fetch with some damaged batches, and cut somewhere; how it was read. Raises AssertionError."""
    log = Log(Random(seed))
    chance = log.chance
    for _ in range(chance.choice((1, 3, 8))):
        log.append()
    batches = [batch for _, batch in log.batches]
    for at in range(len(batches)):
        if chance.random() < 0.4:
            damaged = damage(batches[at], chance)
            batches[at] = with_checksum(placed(damaged, batches[at])) if chance.random() < 0.8 else damaged
    data = b"".join(batches)
    if chance.random() < 0.3:
        data = data[: chance.randrange(len(data) + 1)]
    isolation = chance.choice((READ_COMMITTED, READ_UNCOMMITTED))
    try:
        return compare_readings(data, isolation, log.aborted)
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from None


def compare_readings(data: bytes, isolation: int = READ_UNCOMMITTED, aborted: Any = ()) -> Counter[str]:
    """Read a fetch in all ways; raises AssertionError where they differ in what they find or refuse.

    What is refused is asked for again from the same place, until somebody looks: nothing of it is skipped.
    """

    def reading(read: Any) -> Any:
        try:
            return read(partition_records(data, 0, isolation, aborted))
        except Exception as error:  # of a codec, or of a batch that is shorter than it says
            return type(error).__name__

    found = {"aiokafka": reading(read_stock)}
    for way in WAYS:
        with read_by(way):
            found[way] = reading(read_blocks)
    if "AssertionError" in found.values():
        # The last offset of the batch, which says where to go on, lies before that of a record. No broker
        # has that, and ``read_blocks`` objects, in both ways.
        assert all(found[way] == "AssertionError" for way in WAYS), f"one goes on: {found!r}"
        return Counter(["refused"])
    if any(_out_of_order(one) for one in found.values()):
        # No broker has offsets that do not increase. aiokafka skips these records, the ways refuse them.
        assert found[WAYS[0]] == found[WAYS[1]], f"one goes on: {found!r}"
        return Counter(["refused"])
    refused = {name: isinstance(one, str) or bool(one[2]) for name, one in found.items()}
    assert len({*refused.values()}) == 1, f"one refuses: {found!r}"
    # Nothing where a codec failed: then nobody knows what was delivered before.
    records = [one[0] for one in found.values() if not isinstance(one, str)]
    if refused["aiokafka"]:
        # Which damage is met first differs, and what is delivered before it: of a run of batches in which
        # there is damage, a block delivers nothing. What is delivered is the same.
        longest: list[Any] = max(records, key=len, default=[])
        assert all(one == longest[: len(one)] for one in records), f"{found!r}"
        return Counter(["refused"])
    assert all(one == records[0] for one in records), f"{found!r}"
    return Counter(["whole"])


def _out_of_order(reading: Any) -> bool:
    return not isinstance(reading, str) and "Offsets do not increase" in reading[2]


def compare_letters(seed: int) -> Counter[str]:
    """A fetch of events among which some values are bad: each costs one dead letter, and nothing else."""
    chance = Random(seed)
    one, state = stream(), counter_state(first=1, next=1, resume=0, judged=0)
    good: dict[str, int] = {}
    values: list[bytes] = []
    bad = 0
    for number in range(chance.choice((1, 30, 300))):
        if chance.random() < 0.1:
            values.append(chance.choice(_BAD))
            bad += 1
        else:
            column = chance.choice("ab")
            good[column] = good.get(column, 0) + 1
            values.append(b'{"user":"u%d","column":"%s","time":1000}' % (number, column.encode()))
    data = _fetch(values, chance)
    for way in WAYS:
        with read_by(way):
            letters, counts = _counted(one, state, data)
        assert letters == bad, f"seed {seed}, {way}: {letters} dead letters of {bad} bad values"
        assert sum(counts.values()) == sum(good.values()), f"seed {seed}, {way}: {counts}, not {good}"
    return Counter(counted=sum(good.values()), letters=bad)


def compare_wild(seed: int) -> Counter[str]:
    """A fetch of crafted values: both ways count the same, and make the same dead letters."""
    chance = Random(seed)
    source = mutated(chance)
    values = [next(source) or b"" for _ in range(chance.choice((1, 40)))]
    data = _fetch(values, chance)
    found = []
    for way in WAYS:
        with read_by(way):
            found.append(_counted(stream(), counter_state(first=1, next=1, resume=0, judged=0), data))
    assert found[0] == found[1], f"seed {seed}: {found}"
    return Counter(letters=found[0][0])


def _fetch(values: list[bytes], chance: Random) -> bytes:
    """Values as record batches of the broker's time 1000."""
    made: list[bytes] = []
    at = 0
    while at < len(values):
        size = chance.choice((1, 10, 1000))
        builder = DefaultRecordBatchBuilder(2, chance.choice((0, 1, 2, 3, 4)), False, -1, -1, 0, 2**30)
        part = values[at : at + size]
        for offset, value in enumerate(part):
            builder.append(offset, 1000, None, value, [])
        batch = bytearray(builder.build())
        struct.pack_into(">q", batch, 0, at)
        attributes = struct.unpack_from(">h", batch, 21)[0] | fetches.LOG_APPEND_TIME << 3
        struct.pack_into(">h", batch, 21, attributes)
        made.append(with_checksum(bytes(batch)))
        at += len(part)
    return b"".join(made)


def _counted(one: Any, state: CounterState, data: bytes) -> tuple[int, dict[Any, int]]:
    """Dead letters, and the counts of the first timestamp that has any."""
    aggregator = PartitionAggregator(1, {one.name: (one, state)})
    source, letters = partition_records(data), 0
    fetches.take_over(Fetched(source))
    for block in source:
        chunk = Chunk(
            one.source.topic, 0, 1, block.offsets[0], block.offsets, block.append_times, block.keys,
            block.values, block.offsets[-1] + 1, block.headers,
        )  # fmt: skip
        while aggregator.position < chunk.next_offset:
            aggregator.process(chunk)
            if batch := aggregator.dead_letter_batch():
                letters += sum(1 for _ in batch.dead_letters)
                aggregator.durable(batch)
    counter = aggregator.counters[one.name]
    counts: Counter[Any] = Counter()
    while counter.last_open is not None:
        counts += Counter(sparse(counter.close()))
    return letters, dict(counts)
