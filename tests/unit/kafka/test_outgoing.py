"""Records in columns are written as the same ones after the other are: same bytes, places and portions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import numpy as np
import pytest
from confluent_kafka import KafkaException

from eventveil.counting.rejections import REASONS, Letters, Rejections
from eventveil.kafka import outgoing
from eventveil.kafka.outgoing import Part, Producer, batches, by_partition, portions
from eventveil.model.partitioners import murmur2_partition
from eventveil.model.records import Chunk, Outgoing, Records, TopicPartition
from eventveil.process import kernel
from eventveil.replay.log import MemoryLog
from tests.crashes.world import Table
from tests.fuzz.decoding import packed
from tests.fuzz.ways import WAYS, read_by
from tests.unit.support import stream

PRODUCER = Producer(7, 3)


@pytest.fixture(autouse=True, params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every test with the kernel, and without; all batches have one time."""
    monkeypatch.setattr(outgoing.time, "time_ns", lambda: 1_700_000_000_000_000_000)
    with read_by(request.param):
        yield request.param


def make_letters(chance: Random, number: int, longest: int = 300) -> Letters:
    """Dead letters of a chunk, as lists or as parts of a text, re-keyed or not."""
    sizes = (0, 1, 7, 8, 63, 64, longest)
    keys = [
        None if chance.random() < 0.2 else chance.randbytes(chance.choice((0, 3, 4, 9)))
        for _ in range(number)
    ]
    values = [None if chance.random() < 0.1 else b"v" * chance.choice(sizes) for _ in range(number)]
    offsets = sorted(chance.sample(range(10**9), number))
    times = [10**12 + chance.choice((0, 0, 0, 1, 10**9)) for _ in range(number)]
    chunk = Chunk(
        "raw", chance.randrange(300), 0, 0, offsets, times,
        *((packed(one, chance) if chance.random() < 0.5 else one) for one in (keys, values)), 10**9,
    )  # fmt: skip
    rows = np.array(sorted(chance.sample(range(number), number * 3 // 4)), np.int64)
    texts = [b"", "é".encode(), b"x" * 200, b"y" * 200, b"the value is not a JSON document"]
    codes = np.array([chance.randrange(len(REASONS)) for _ in rows], np.int64)
    details = np.array([chance.randrange(len(texts)) for _ in rows], np.int64)
    origins = None
    if chance.random() < 0.5:
        origins = np.array(
            [[-1 if chance.random() < 0.1 else 10**12, chance.randrange(9), at] for at in offsets]
        )
    return Letters.of(stream(), chunk, Rejections(rows, codes, details, texts), origins)


def written(records: list[Part], sequence: int = 5) -> list[tuple[bytes, int]]:
    return [(one.content, one.count) for one in batches(records, PRODUCER, sequence)[0]]


def test_batches_of_columns_are_those_of_their_records(monkeypatch: pytest.MonkeyPatch) -> None:
    for most in (1_000_000, 20_000, 1_000, 10):
        monkeypatch.setattr(outgoing, "_BATCH_BYTES", most)
        for seed in range(12):
            letters = make_letters(Random(seed), 400)
            assert len(letters) == 300
            assert written([letters]) == written([*letters])
    # Places of records of two bytes, and a number of records that begins again at 0.
    monkeypatch.setattr(outgoing, "_BATCH_BYTES", 1_000_000)
    many = make_letters(Random(1), 12_000, 5)
    assert len(written([many])) > 1
    assert written([many], 2**31 - 100) == written([*many], 2**31 - 100)


def test_records_of_both_kinds_keep_their_order_and_are_numbered_on() -> None:
    chance = Random(3)
    one, other = make_letters(chance, 20), make_letters(chance, 30)
    state = Outgoing("visits.dead", b"state", b"key", 0)
    made, sequence = batches([state, one, state, other, state], PRODUCER, 0)
    assert sequence == sum(batch.count for batch in made) == 3 + len(one) + len(other)
    everything, _ = batches([state, *one, state, *other, state], PRODUCER, 0)
    assert sum(batch.count for batch in everything) == sequence


def test_keys_choose_the_partitions_that_they_choose_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing.random, "randrange", lambda count: count - 1)
    for seed, count in enumerate((1, 2, 7)):
        letters = make_letters(Random(seed), 100)
        found = by_partition([letters], lambda _, count=count: count)
        alone = by_partition([*letters], lambda _, count=count: count)
        assert {place: [*Records(those)] for place, those in found.items()} == alone
        for (_, number), those in alone.items():
            for one in those:
                assert isinstance(one, Outgoing)
                assert number == (count - 1 if one.key is None else murmur2_partition(one.key, count))


def test_many_are_held_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outgoing, "_HELD_BYTES", 2_000)
    letters = make_letters(Random(1), 400)
    held = [*portions([letters, letters])]
    assert [one for portion in held for one in Records(portion)] == [*letters, *letters]
    sizes = [sum(len(one.key or b"") + len(one.value or b"") for one in Records(portion)) for portion in held]
    assert max(sizes) < 2 * 2_000 + 310
    assert min(sizes[:-1]) >= 2_000


def test_a_record_that_no_broker_would_take_is_refused_in_columns_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    letters = make_letters(Random(1), 100)
    largest = int(letters.sizes().max())
    monkeypatch.setattr(outgoing, "MAX_MESSAGE_BYTES", largest)
    assert [*portions([letters])]
    monkeypatch.setattr(outgoing, "MAX_MESSAGE_BYTES", largest - 1)
    with pytest.raises(KafkaException, match=r"visits\.dead"):
        [*portions([letters])]


def test_a_fault_point_is_passed_for_each_record_in_columns() -> None:
    met: Counter[str] = Counter()
    log = MemoryLog()
    log.create("visits.dead", 2)
    log.create("changelog", 1)
    place = TopicPartition("changelog", 0)
    table = Table(log, "me", place, lambda name: met.update([name]))
    table.take_over()
    letters = make_letters(Random(1), 40)
    state = Outgoing("changelog", b"state", b"visits", 0)
    table.transact("judge", Records([letters, state]))
    assert met["judge:before-produce"] == met["judge:produced"] == 31
    assert met["judge:committed"] == 1
    found = [one for number in range(2) for one in log.records(TopicPartition("visits.dead", number))]
    assert Counter(one.value for one in found) == Counter(one.value for one in letters)


def test_the_kernel_refuses_columns_that_do_not_fit_together(way: str) -> None:
    if way == "plain":
        return
    native: Any = kernel.NATIVE
    none, far = np.zeros(1, np.int64), np.ones(1, np.int64)

    def take(content: bytes, count: int) -> None:
        raise AssertionError

    for keys, headers in (
        ([None, None], []),
        ([None], [("a", [b"x"], far)]),
        ([None], [("a", [b"x"], none - 1)]),
        ([None], [("a", None, np.zeros(2, np.int64))]),
        ((b"abc", none + 2, none + 2), []),
    ):
        with pytest.raises(ValueError, match=r"different lengths|1 texts|outside"):
            native.records(keys, [b"v"], headers, 100, take)
    with pytest.raises(ValueError, match="no partition"):
        native.partitions([b"k"], 0)
