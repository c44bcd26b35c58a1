"""What the kernel reads of record batches is what aiokafka finds when it walks through them, or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

import pytest
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.util import encode_varint

from eventveil.decoding.packing import PackedHeaders
from eventveil.worker.faust import record_batches
from eventveil.worker.faust.record_batches import Body
from tests.fuzz.ways import read_by

Record = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
_HEADER = 61


@pytest.fixture(autouse=True)
def native() -> Iterator[None]:
    with read_by("kernel"):
        yield


def varint(number: int) -> bytes:
    made = bytearray()
    encode_varint(number, made.append)
    return bytes(made)


def encoded(
    offset: int, key: bytes | None, value: bytes | None, time: int = 0, headers: bytes = b"\0"
) -> bytes:
    """A record as it lies in a batch."""
    fields = b"\0" + varint(time) + varint(offset)
    for text in (key, value):
        fields += varint(-1) if text is None else varint(len(text)) + text
    fields += headers
    return varint(len(fields)) + fields


def body_of(records: Sequence[bytes], base_offset: int = 0) -> Body:
    return Body(b"".join(records), len(records), base_offset)


def walked(body: Body) -> list[Record] | None:
    """What aiokafka finds; None where it refuses."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, 0, 0, 100)
    batch = bytearray(builder.build())[:_HEADER] + body.data
    batch[:8] = body.base_offset.to_bytes(8, "big")
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[57:61] = body.number.to_bytes(4, "big", signed=True)
    found: list[Record] = []
    try:
        for record in DefaultRecordBatch(bytes(batch)):
            found.append((record.offset, record.key, record.value, [*record.headers]))
    except CorruptRecordException:
        return None
    return found


def read(bodies: Sequence[Body]) -> list[Record] | None:
    found = record_batches.read(bodies)
    if found is None:
        return None
    headers = found.headers or [[]] * len(found.offsets)
    return [*zip(found.offsets.tolist(), found.keys, found.values, headers, strict=True)]


def is_right(bodies: Sequence[Body]) -> bool:
    """Whether anything was read; raise AssertionError if it is not what a walk finds."""
    found = read(bodies)
    if found is None:
        return False
    expected = [walked(body) for body in bodies]
    assert [record for records in expected for record in records or [None]] == found, bodies
    return True


def json(number: int) -> bytes:
    return b'{"user":"u%d","column":"c","time":%d}' % (number, 10**number % (10**12 + 39))


def events(chance: Random, number: int) -> list[bytes]:
    """Records as producers of events write them: the first has the time that others are relative to."""
    return [
        encoded(
            offset,
            chance.choice((None, b"u%d" % offset, b"u%d" % offset * chance.randrange(1, 90))),
            chance.choice((None, json(offset), json(offset), json(offset) * chance.randrange(1, 300))),
            chance.choice((0, 0, offset, 3 * offset, -offset, 10**10 * offset)),
        )
        for offset in range(number)
    ]


def test_events_are_read() -> None:
    chance = Random(1)
    for number in (1, 2, 63, 64, 65, 3000):
        bodies = [body_of(events(chance, number), 10_000 * index) for index in range(3)]
        assert is_right(bodies)


def test_holes_of_compaction_and_long_offsets_are_read() -> None:
    offsets = (0, 1, 5, 70, 71, 9_000, 2_000_000, 2**27 - 1)
    assert is_right([body_of([encoded(offset, b"k", json(1)) for offset in offsets], 2**60)])
    # The base of a batch whose first records are gone may be any offset.
    assert is_right([body_of([encoded(7, b"k", b"v"), encoded(9, b"k", b"v")], 2**40)])


@pytest.mark.parametrize(
    "records",
    [
        [encoded(0, b"k", b"v", headers=varint(1) + varint(-1) + varint(1) + b"v")],
        [encoded(0, b"k", b"v", headers=varint(-1))],
        [encoded(0, b"k", b"v"), encoded(0, b"k", b"v")],
        [encoded(1, b"k", b"v"), encoded(0, b"k", b"v")],
        [encoded(2**31, b"k", b"v")],
        [encoded(-1, b"k", b"v")],
        [b"\x0e\0" + b"\xff" * 9 + b"\x02" + encoded(0, b"k", b"v")[4:]],
        [encoded(0, b"k", b"v") + b"\0"],
        [encoded(0, b"k", b"v")[:-1]],
        [b""],
    ],
    ids=[
        "header without name",
        "headers below none",
        "offset twice",
        "descending",
        "far offset",
        "below base",
        "far time",
        "more",
        "less",
        "none",
    ],
)
def test_what_is_unusual_is_left_to_the_walk(records: list[bytes]) -> None:
    assert read([body_of(records)]) is None
    assert read([body_of([encoded(0, b"k", b"v")]), body_of(records, 100)]) is None


@pytest.mark.parametrize("number", [-1, 0, 1, 3, 2**31 - 1])
def test_the_number_of_records_is_that_of_the_header(number: int) -> None:
    records = b"".join(encoded(offset, b"k", b"v") for offset in range(2))
    assert read([Body(records, number, 0)]) is None
    # Nor do two batches make up for each other.
    assert read([Body(records, 1, 0), Body(records, 3, 10)]) is None


def test_headers_are_read_when_they_are_asked_for() -> None:
    told = varint(3) + b"".join(
        varint(len(name)) + name + (varint(-1) if value is None else varint(len(value)) + value)
        for name, value in ((b"h", b"1"), (b"h", None), ("é".encode(), b""))
    )
    body = body_of([encoded(0, b"k", b"v"), encoded(1, b"k", b"v", headers=told), encoded(2, b"k", b"v")])
    assert is_right([body])
    found = record_batches.read([body])
    assert found is not None
    assert found.headers[1:][0] == [("h", b"1"), ("h", None), ("é", b"")]
    assert [*found.headers[2:]] == [[]]
    with pytest.raises(IndexError):
        found.headers[3]


def test_names_that_are_not_utf8_are_read_with_replacements() -> None:
    told = varint(1) + varint(5) + b"a\xff\xe2\x82b" + varint(1) + b"v"
    body = body_of([encoded(0, b"k", b"v", headers=told), encoded(1, b"k", b"v")])
    assert read([body]) == [(0, b"k", b"v", [("a\ufffd\ufffdb", b"v")]), (1, b"k", b"v", [])]
    found = record_batches.read([body])
    assert found is not None
    assert isinstance(found.headers, PackedHeaders)
    assert [*found.headers.sizes(5)] == [len("a\ufffd\ufffdb".encode()) + len(b"v") + 5, 0]


@pytest.mark.parametrize(
    "spoilt",
    [
        [encoded(0, b"k", b"v")[:-1]],
        [encoded(0, b"k", b"v") + b"\0"],
        [varint(9) + encoded(0, b"k", b"v")[1:]],
        [encoded(0, b"k", b"v", headers=varint(1) + varint(-1) + varint(1) + b"v")],
        [encoded(0, b"k", b"v", headers=varint(1) + varint(90) + b"n")],
    ],
    ids=["less", "more", "another length", "header without name", "beyond the end"],
)
def test_a_walk_with_replacements_refuses_damage(spoilt: list[bytes]) -> None:
    batch = DefaultRecordBatch(bytes(DefaultRecordBatchBuilder(2, 0, False, -1, 0, 0, 100).build()))
    whole = body_of([encoded(0, b"k", b"v", time=3), encoded(1, None, None)])
    assert [one[:5] for one in record_batches.walk(batch, whole)] == [
        (0, batch.first_timestamp + 3, 0, b"k", b"v"),
        (1, batch.first_timestamp, 0, None, None),
    ]
    with pytest.raises(CorruptRecordException, match="Found invalid record structure"):
        [*record_batches.walk(batch, body_of(spoilt))]


def crafted(chance: Random) -> bytes:
    """A value that holds beginnings, ends or all of records, and whatever else misleads."""
    inner = encoded(chance.randrange(4), chance.choice((None, b"", b"v")), json(chance.randrange(9)))
    parts = (
        json(1),
        b"\0",
        b"\0\0",
        b"\0" + inner,
        inner,
        inner[: chance.randrange(len(inner))],
        b"\0" + varint(chance.randrange(9)) + b"\0",
        varint(chance.randrange(-2, 10**4)),
        b"\x80\0",
    )
    return b"".join(chance.choices(parts, k=chance.randrange(1, 5)))


def batch_of(chance: Random, number: int, base_offset: int) -> Body:
    """Some events among whose keys and values are crafted ones."""
    records = events(chance, number)
    for offset in range(number):
        if chance.random() < 0.3:
            key, value = chance.choice(((b"k", crafted(chance)), (crafted(chance), json(1))))
            records[offset] = encoded(offset, key, value, chance.choice((0, 0, offset)))
    return body_of(records, base_offset)


def test_crafted_keys_and_values_never_change_what_is_read() -> None:
    chance, told = Random(2), 0
    for _ in range(2000):
        told += is_right([batch_of(chance, chance.randrange(1, 5), 10 * index) for index in range(3)])
    assert told == 2000


def test_damage_is_never_read_as_anything_else() -> None:
    chance, told = Random(3), 0
    for _ in range(4000):
        bodies = [batch_of(chance, chance.randrange(1, 4), 10 * index) for index in range(2)]
        hit = chance.randrange(2)
        data = bytearray(bodies[hit].data)
        for _ in range(chance.choice((1, 1, 2))):
            at = chance.randrange(len(data))
            change = chance.choice(
                (b"", b"\0", b"\0\0", varint(chance.randrange(-70, 70)), chance.randbytes(1))
            )
            data[at : at + chance.randrange(3)] = change
        bodies[hit] = bodies[hit]._replace(data=bytes(data))
        told += is_right(bodies)
    assert 500 < told < 3900
