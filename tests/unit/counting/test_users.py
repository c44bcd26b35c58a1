"""Numbers for users: one each, for good until they are forgotten, and only for those who belong here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventveil.counting import users as module
from eventveil.counting.users import Users
from eventveil.decoding.bulk import BulkReader, Documents, Fields, PlainNumbers, as_array, fields_of, numbers
from eventveil.model.partitioners import PARTITIONERS
from tests.fuzz.ways import WAYS, read_by
from tests.unit.support import stream


@pytest.fixture(autouse=True, params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every test with the kernel, and without."""
    with read_by(request.param):
        yield request.param


def fields(*values: Any, **changes: Any) -> Fields:
    one = stream(**changes)
    events = [orjson.dumps({"user": value, "column": "a", "time": 1}) for value in values]
    parts = BulkReader(fields_of([(one.source, one.counts)]), 1_000_000).read(events)
    return parts[0] if parts else Documents(np.zeros(0, np.int64), {})


@given(st.lists(st.text(max_size=3), max_size=30), st.sampled_from(["murmur2", "crc32"]), st.integers(1, 4))
def test_equal_users_have_equal_numbers_and_belong_where_the_partitioner_says(
    names: list[str], partitioner: Any, partitions: int
) -> None:
    users = Users(stream(partitioner=partitioner).source, partitions, 0)
    numbers = users.of(fields(*names)).tolist()
    assert len(set(zip(numbers, names, strict=True))) == len(set(numbers)) == len(set(names)) == len(users)
    expected = [bool(name) and PARTITIONERS[partitioner](name.encode(), partitions) == 0 for name in names]
    assert users.belong(np.array(numbers, np.int64)).tolist() == expected
    assert [users.number(name.encode()) for name in names if name] == [
        number for number, name in zip(numbers, names, strict=True) if name
    ]


def test_users_are_told_apart_by_all_of_their_bytes() -> None:
    users = Users(stream().source, 1, 0)
    names = ["x", "y", "x", "a" * 7, "a" * 8, "a" * 9, "", "\0", "\1", "é", "b" * 63, "b" * 64, "b" * 65]
    first = users.of(fields(*names)).tolist()
    assert first == users.of(fields(*names)).tolist()
    assert len(set(zip(first, names, strict=True))) == len(set(first)) == len(set(names))


def test_long_users_are_remembered_and_forgotten_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FREE", 4)
    users = Users(stream().source, 1, 0)
    long = [letter * 100 for letter in "abcdef"]
    first = users.of(fields(*long, "é" * 32))
    users.forget([])
    renumbered = users.forget([first[[1, 6]]])
    assert renumbered is not None
    assert len(users) == 2
    again = users.of(fields(long[1], "é" * 32, long[0], "z" * 100, long[1]))
    assert again.tolist() == [renumbered[first[1]], renumbered[first[6]], 3, 4, 1]


def test_an_integer_beyond_63_bits_is_no_negative_one() -> None:
    users = Users(stream(user_type="integer").source, 1, 0)
    assert users.number(b"-1") != users.number(b"%d" % (2**64 - 1))
    assert users.of(fields(-1, user_type="integer")).tolist() == [1]


def test_floats_are_no_integer_users() -> None:
    users = Users(stream(user_type="integer").source, 1, 0)
    found = users.of(fields(1, 1.0, True, -1, user_type="integer"))
    assert users.belong(found).tolist() == [True, True]
    assert users.number(b"1") == found[0]


def test_who_is_neither_needed_nor_met_again_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FREE", 4)
    users = Users(stream().source, 1, 0)
    first = users.of(fields(*"abcdefghij"))
    assert users.crowded
    assert users.forget([]) is None  # all were met
    assert not users.crowded
    users.of(fields("c", "k"))
    renumbered = users.forget([first[[7]]])
    assert renumbered is not None
    assert len(users) == 3
    assert [int(renumbered[first["abcdefghij".index(name)]]) for name in "ch"] == [1, 2]
    assert users.of(fields("c", "h", "k", "a")).tolist() == [1, 2, 3, 4]
    assert users.belong(np.arange(5)).tolist() == [False, True, True, True, True]


def test_users_who_no_longer_come_are_noticed_after_many_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FREE", 4)
    users = Users(stream().source, 1, 0)
    users.of(fields(*"abcdefgh"))
    users.forget([])
    for _ in range(33):
        assert not users.crowded
        users.of(fields("a"))
    assert users.crowded
    users.forget([])
    assert len(users) == 1


def _chunks(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[list[Any]]]:
    return st.lists(st.lists(values, min_size=1), max_size=6)


_TEXTS = st.text(alphabet="ab\0\1é", max_size=12) | st.text(max_size=40) | st.just("x" * 100)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([_TEXTS, st.integers(-9, 9)]).flatmap(_chunks))
def test_numbers_are_those_of_a_dictionary(chunks: list[list[str | int]]) -> None:
    numbered, expected = numbers(5), dict[str | int, int]()
    for chunk in chunks:
        before = len(expected)
        meanings = np.array([*expected.values(), -1], np.int64)
        found = as_array(numbered.translate(chunk, meanings))
        assert found.tolist() == [expected.get(one, -1) for one in chunk]
        found, new = numbered.of(chunk)
        for one, number in zip(chunk, found.tolist(), strict=True):
            assert expected.setdefault(one, number) == number
        assert sorted(expected.values()) == list(range(5, 5 + len(expected)))
        assert [*found[new].tolist()] == list(range(5 + before, 5 + len(expected)))
    kept = np.array([number % 2 == 0 for number in expected.values()], bool)
    plain = PlainNumbers(5)
    plain.of([*expected])
    plain.keep(kept)
    left = [one for one, number in expected.items() if number % 2 == 0]
    assert plain.of(left)[0].tolist() == [*range(5, 5 + len(left))]
