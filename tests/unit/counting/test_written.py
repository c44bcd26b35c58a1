"""Which partitioner keys were written with."""

from __future__ import annotations

import random

import pytest

from eventveil.counting.written import WORDS, written
from eventveil.model.partitioners import RECOGNIZED

KEYS = [f"user-{number}".encode() for number in range(300)]


@pytest.mark.parametrize("name", RECOGNIZED)
def test_a_hash_is_told_by_where_keys_are(name: str) -> None:
    pairs = [(key, RECOGNIZED[name](key, 20)) for key in KEYS]
    found = written(pairs, 20)
    assert found.name() == name
    assert (found.keys, found.places, found.scattered) == (300, 300, 0)
    assert all(fit < 60 for other, fit in found.fits.items() if other != name)


def test_a_few_records_of_another_producer_do_not_hide_it() -> None:
    pairs = [(key, RECOGNIZED["crc32"](key, 20)) for key in KEYS]
    pairs += [(key, 0) for key in KEYS[:9]]
    assert written(pairs, 20).name("murmur2") == "crc32"


def test_keys_in_several_partitions_were_hashed_by_nothing() -> None:
    choice = random.Random(1)
    assert written([(key, choice.randrange(20)) for key in KEYS * 5], 20).name() == "random"


def test_a_hash_that_is_not_known_is_not_called_random() -> None:
    pairs = [(key, sum(key) % 20) for key in KEYS]
    assert written(pairs * 2, 20).name() == "unknown"
    # Of keys that do not come again nobody can know whether they would be in the same partition.
    assert written(pairs, 20).name() == "rare"


def test_where_nothing_decides_it_is_what_was_stated() -> None:
    assert written([(b"one", 0)], 1).name("crc32") == "any"
    assert written([], 20).name("crc32") == "none"
    alike = next(key for key in KEYS if RECOGNIZED["murmur2"](key, 2) == RECOGNIZED["crc32"](key, 2))
    pair = (alike, RECOGNIZED["crc32"](alike, 2))
    assert (written([pair], 2).name("crc32"), written([pair], 2).name("murmur2")) == ("crc32", "murmur2")


def test_every_name_has_words() -> None:
    assert set(RECOGNIZED) | {"random", "unknown", "rare", "any", "none"} == set(WORDS)
