"""Re-keyed events in columns are those that are made and read one by one, to the last byte."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from eventveil.decoding.packing import texts_at
from eventveil.decoding.places import Envelope, last_of
from eventveil.kafka import outgoing
from eventveil.kafka.outgoing import Part, Producer, batches, by_partition
from eventveil.model.errors import StateRefused
from eventveil.model.fields import HEADERS
from eventveil.model.records import NO_APPEND_TIME, NO_OWN_TIME, Chunk, Headers, Outgoing, Records
from eventveil.tasks import passed_on
from eventveil.tasks.passed_on import Passing, read_passed_on
from eventveil.worker.faust.record_batches import Body, read
from tests.fuzz.decoding import packed
from tests.fuzz.values import similar
from tests.unit.support import stream

_HEADER = 61
_PRODUCER = Producer(7, 3)
#: Sources that find the user in every way.
SOURCES = tuple(
    stream(raw="raw", topic="re-keyed", **changes).source
    for changes in (
        {},
        {"user_type": "integer"},
        {"user_type": "either"},
        {"user": "/page/n"},
        {"user": '["/user","/id"]'},
        {"user": "$key"},
        {"user": '["$headers/who","/user"]'},
        {"user": '["$headers/who","$key"]'},
    )
)
_NAMES = ("who", "trace", "é", "", "eventveil.key", "eventveil.headers/who", "eventveil.passed", "n\ufffdm")
#: What the last of them may have been before the bytes that are not UTF-8 were replaced; as long.
_NOT_UTF8 = b"n\xf0\x9f\x98m"


def compare(seed: int) -> Counter[str]:
    """Pass on random records, write them, and read them again, in the way that is chosen.

    Raises AssertionError at the first difference from what the rules do one by one.
    """
    chance = Random(seed)
    chunk, times = random_chunk(chance)
    _compare_texts(chunk)
    names = "_USUAL", "_LARGEST_HEADERS", "LARGEST_REKEYED", "_STAND_IN"
    limits = dict(zip(names, (150, 60, 400, bytes(401)), strict=True))
    if chance.random() < 0.5:
        limits = {name: getattr(passed_on, name) for name in names}
    with patch.multiple(passed_on, **limits), patch.object(outgoing.time, "time_ns", lambda: 10**18):
        passing = Passing(
            chance.choice(SOURCES), chance.randrange(9), chance.choice((1, 2, 7)), own_times=seed % 2 == 0
        )
        together = [*passing.of(chunk, times)]
        alone = [passing._one(chunk, row, int(times[row])) for row in range(len(times))]
        assert [*Records(together)] == alone
        found = Counter(records=len(alone), alone=sum(isinstance(one, Outgoing) for one in together))
        _compare_written(together, alone)
        _compare_users(passing, chunk, alone)
        for one in {record.partition for record in alone}:
            _compare_read([record for record in alone if record.partition == one])
    _compare_read([replace_headers(record, chance) for record in alone])
    return found


def random_chunk(chance: Random) -> tuple[Chunk, Any]:
    """Records as they are fetched, as lists or packed, and their append times."""
    number = chance.choice((1, 9, 10, 30, 100))
    values = similar(chance, number) if chance.random() < 0.9 else [None] * number
    keys = [chance.choice((None, b"", b"7", b"session-1", b"k" * 200)) for _ in range(number)]
    names = chance.choice(((), ("trace",), ("who",), _NAMES))
    every = [
        [
            (name, chance.choice((b"", b"7", b"someone", b"v" * 90, None, None)))
            for name in chance.choices(names, k=chance.randrange(3 * len(names)))
        ]
        if names
        else []
        for _ in range(number)
    ]
    offsets = sorted(chance.sample(range(10**6), number))
    own_times = [chance.choice((NO_OWN_TIME, 0, 10**12)) for _ in range(number)]
    times = np.array([chance.choice((NO_APPEND_TIME, 0, 10**12, 2**62)) for _ in range(number)])
    chunk = Chunk("raw", 0, 0, offsets[0], offsets, times.tolist(), keys, values, offsets[-1] + 1)
    chunk = replace(chunk, own_times=own_times if chance.random() < 0.7 else [])
    if any(every):
        chunk = replace(chunk, headers=every)
    if chance.random() < 0.5:
        chunk = replace(chunk, keys=packed(keys, chance), values=packed(values, chance))
    if chance.random() < 0.6 and (as_read := fetched([*zip(keys, values, every, strict=True)])):
        chunk = replace(chunk, keys=as_read.keys, values=as_read.values, headers=as_read.headers)
    return chunk, times


def fetched(records: Sequence[tuple[bytes | None, bytes | None, Headers]]) -> Any:
    """Records as the kernel reads them in a batch; None without it."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, 0, 2**30)
    for offset, (key, value, headers) in enumerate(records):
        builder.append(offset, 0, key, value, list(headers))
    data = bytes(builder.build())[_HEADER:].replace(_NAMES[-1].encode(), _NOT_UTF8)
    return read([Body(data, len(records), 0)])


def _compare_texts(chunk: Chunk) -> None:
    """Headers by name are what looking through those of each record finds."""
    every = chunk.headers if len(chunk.headers) else [()] * len(chunk.offsets)
    for name in (*_NAMES, "nobody"):
        found = texts_at(HEADERS + name, chunk.keys, chunk.headers, len(chunk.offsets))
        assert [*found] == [last_of(one or (), name) for one in every]


def _compare_users(passing: Passing, chunk: Chunk, alone: Sequence[Outgoing]) -> None:
    """Who counts a re-keyed record finds the user in it by whom it was placed, or cannot read it."""
    number = len(alone)
    rekeyed = Chunk("re-keyed", 0, 0, 0, [*range(number)], [0] * number, [None] * number,
                    [one.value for one in alone], number, [one.headers for one in alone])  # fmt: skip
    again, _, _ = read_passed_on(replace(rekeyed, schemas=chunk.schemas))
    for row, record in enumerate(alone):
        if record.value is not None and len(record.value) <= passed_on.LARGEST_REKEYED:
            headers = again.headers[row] if len(again.headers) else None
            around = Envelope(again.keys[row], headers or (), 0, NO_OWN_TIME)
            assert passing._user(again.values[row], around, again.schemas) == record.key


def _compare_written(together: Sequence[Part], alone: Sequence[Outgoing]) -> None:
    """Columns become the batches that their records become."""
    made = by_partition(together, lambda _: 1)
    expected = by_partition(alone, lambda _: 1)
    assert made.keys() == expected.keys()
    for place, records in made.items():
        contents = [one.content for one in batches(records, _PRODUCER, 5)[0]]
        whole = [one.content for one in batches(expected[place], _PRODUCER, 5)[0]]
        # Columns in pieces, with records alone between them, are more batches.
        assert contents == whole or (len(records) > 1 and len(contents) > len(whole))
        assert [*Records(records)] == expected[place]


def replace_headers(record: Outgoing, chance: Random) -> Outgoing:
    """The record with headers that say less, more or something else."""
    headers: list[Any] = [*record.headers]
    for _ in range(chance.choice((0, 0, 1, 2))):
        at = chance.randrange(len(headers) + 1)
        names = (*passed_on._NAMES, "other", "eventveil.headers/other")
        value = chance.choice((None, b"", b"7", b"-7", b"+7", b"007", b" 7", b"7_0", b"x", b"%d" % 2**70))
        if chance.random() < 0.5:
            headers.insert(at, (chance.choice(names), value))
        elif at < len(headers):
            headers[at] = (headers[at][0], value)
    return record._replace(headers=headers)


def _compare_read(records: Sequence[Outgoing]) -> None:
    """What is read of re-keyed records in columns is what is read of them one by one."""
    as_read = fetched([(one.key, one.value, one.headers) for one in records])
    if as_read is None:
        return
    number = len(records)
    chunk = Chunk(
        "re-keyed", 0, 0, 0, [*range(number)], [0] * number, as_read.keys, as_read.values, number,
        as_read.headers,
    )  # fmt: skip
    plain = replace(
        chunk, keys=[*chunk.keys], values=[*chunk.values], headers=[one.headers for one in records]
    )
    assert _told(chunk) == _told(plain)


def _told(chunk: Chunk) -> Any:
    try:
        events, origins, marks = read_passed_on(chunk)
    except StateRefused as refused:
        return str(refused)
    _compare_texts(events)
    columns = events.offsets, events.append_times, events.keys, events.values, events.own_times
    headers = [[*(one or ())] for one in events.headers] or [[]] * len(origins)
    return [[*one] for one in columns], headers, origins.tolist(), marks
