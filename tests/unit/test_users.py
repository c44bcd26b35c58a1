"""Numbers for users: one each, for good until they are forgotten, and only for those who belong here."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators import users as module
from operators.bulk import BulkReader, Fields, fields_of
from operators.partitioner import PARTITIONERS
from operators.users import Users
from tests.unit.support import stream


def fields(*values: Any, **changes: Any) -> Fields:
    one = stream(**changes)
    events = [orjson.dumps({"user": value, "column": "a", "time": 1}) for value in values]
    return BulkReader(fields_of([(one.source, one.counts)]), 1_000_000).read(events)


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


class Colliding(str):
    def __hash__(self) -> int:
        return 1


def test_users_are_told_apart_although_their_hashes_collide() -> None:
    users = Users(stream().source, 1, 0)
    found = users.of(Fields(np.arange(3), {"/user": [Colliding("x"), Colliding("y"), Colliding("x")]}))
    assert found.tolist() == [0, 1, 0]


def test_neither_floats_nor_numbers_beyond_64_bits_are_integer_users() -> None:
    users = Users(stream(user_type="integer").source, 1, 0)
    found = users.of(fields(1, 1.0, 2**64 - 1, -1, user_type="integer"))
    assert users.belong(found).tolist() == [True, False, False, True]
    assert users.number(b"1") == found[0]


def test_who_is_neither_needed_nor_met_again_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FREE", 4)
    users = Users(stream().source, 1, 0)
    first = users.of(fields(*"abcdefghij"))
    assert users.crowded
    assert users.forget([]).tolist() == list(range(10))  # all were met
    assert not users.crowded
    users.of(fields("c", "k"))
    renumbered = users.forget([first[[7]]])
    assert len(users) == 3
    assert [int(renumbered[first["abcdefghij".index(name)]]) for name in "ch"] == [0, 1]
    assert users.of(fields("c", "h", "k", "a")).tolist() == [0, 1, 2, 3]
    assert users.belong(np.arange(4)).all()


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
