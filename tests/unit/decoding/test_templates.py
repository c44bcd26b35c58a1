"""Shapes: which values fit one, and what is read of them. That it is what others read: ``test_bulk``."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventveil.decoding import dictionary, templates
from eventveil.decoding.columns import Kind
from eventveil.decoding.dictionary import Texts
from eventveil.decoding.templates import Shape, ShapeReader, Spans

WANTED: dict[str, Kind] = {"/user": "string", "/page/id": "integer", "/time": "time"}


@pytest.fixture(autouse=True)
def worth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "_WORTH", 2)


def visit(user: str = "u", page: Any = 7, time: Any = 1000, more: str = "") -> bytes:
    return f'{{"user":"{user}","page":{{"id":{page},"tags":["a","b"]}},"time":{time}{more}}}'.encode()


def read(reader: ShapeReader, *values: bytes) -> tuple[list[Spans], list[int]]:
    parts, left = reader.read(values)
    assert all(isinstance(part, Spans) for part in parts)
    return [part for part in parts if isinstance(part, Spans)], left.tolist()


def test_values_that_differ_in_strings_and_integers_are_read_at_once() -> None:
    values = [visit("", 0, 1), visit("é" * 40, 12345678, 10**15), visit("x" * 100, 1234567890123456, 99)]
    (found,), left = read(ShapeReader(WANTED, 1000), *values)
    assert left == []
    assert found.rows.tolist() == [0, 1, 2]
    assert found.values("/user") == ["", "é" * 40, "x" * 100]
    assert found.values("/page/id") == [0, 12345678, 1234567890123456]
    assert found.times("/time").tolist() == [1, 10**15, 99]
    assert found.integers("/user") is None


@pytest.mark.parametrize(
    "value",
    [
        visit(page="07"), visit(page="-7"), visit(page="7.0"), visit(page="7e1"), visit(page=""),
        visit(page=10**16), visit(page="1:"), visit(page="1/"), visit(page="1 "), visit(page="true"),
        visit("\\u0041"), visit("a\tb"), visit("a\nb"), visit('a"b'), visit("\x00"), visit('","user":"b'),
        visit().replace(b'"u"', b'"\xff"'), visit() + b" ", b" " + visit(), visit()[:-1], visit()[1:],
        visit().replace(b"user", b"User"), visit(more=',"x":1'), visit("u" * 1000), b"", visit() + visit(),
    ],
)  # fmt: skip
def test_whatever_differs_in_more_is_left_to_others_and_its_neighbours_are_not(value: bytes) -> None:
    reader = ShapeReader(WANTED, 1000)
    read(reader, visit(), visit())
    (found,), left = read(reader, visit("a"), value, visit("b"))
    assert left == [1]
    assert found.values("/user") == ["a", "b"]


@pytest.mark.parametrize(
    "value",
    [
        visit(page="1.5"), visit(page='"7"'), visit(time="null"), visit(time="1.5"), b"[1]", b"{}", b"7",
        b'{"user":"u","user":"v","page":{"id":1},"time":1}', b'{"user":7,"page":{"id":1},"time":1}',
        b'{"user":"u","page":[{"id":1}],"time":1}', visit()[:-1], visit("\\n"), visit("u" * 5000),
    ],
)  # fmt: skip
def test_what_does_not_show_every_wanted_field_plainly_has_no_shape(value: bytes) -> None:
    assert Shape.of(value, WANTED) is None


def test_a_value_with_more_strings_than_events_have_has_no_shape() -> None:
    for strings, known in ((40, True), (70, False)):
        tags = ",".join('"a"' for _ in range(strings))
        shape = Shape.of(visit().replace(b'"a","b"', tags.encode()), WANTED)
        assert (shape is not None) == known


def test_a_large_value_that_nobody_will_look_at_takes_no_more_than_itself() -> None:
    reader = ShapeReader(WANTED, 1000)
    for filling in (b"\0", b'"', b"\\", b"z"):
        values = [visit(), filling * 10_000_000, visit()]
        tracemalloc.start()
        (found,), left = read(reader, *values)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (found.rows.tolist(), left) == ([0, 2], [1])
        assert peak < 1_000_000


def test_two_ways_to_write_one_pointer_have_no_shape() -> None:
    assert Shape.of(b'{"~":"u"}', {"/~0": "string", "/~": "string"}) is None


def test_times_may_be_texts() -> None:
    values = [visit(time='"1970-01-01T00:00:01Z"'), visit(time='"1970-01-01T00:00:02.5Z"')]
    (found,), _ = read(ShapeReader(WANTED, 1000), *values)
    assert found.times("/time").tolist() == [1000, 2500]


def test_several_shapes_are_learned_one_with_every_chunk_and_the_oldest_forgotten() -> None:
    reader = ShapeReader(WANTED, 1000)
    kinds = [visit(more=f',"x{number}":true') for number in range(templates._SHAPES)]
    for number, one in enumerate(kinds):
        found, left = read(reader, *(kind for kind in kinds for _ in range(3)))
        assert len(found) == number + 1
        assert len(left) == 3 * (len(kinds) - number - 1)
        assert one
    assert read(reader, visit(), visit())[1] == []
    assert read(reader, kinds[0], visit())[1] == [0]


def test_a_few_strangers_are_not_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = ShapeReader(WANTED, 1000)
    read(reader, visit(), visit())
    monkeypatch.setattr(templates, "_WORTH", 3)
    assert read(reader, visit(), visit(more=',"x":1'), visit(more=',"x":2'))[1] == [1, 2]
    assert read(reader, visit(), visit()) == ([], [0, 1])


_TEXTS = st.lists(st.text(alphabet="ab\0\1é", max_size=20) | st.text(max_size=12), max_size=12, unique=True)


@settings(max_examples=150, deadline=None)
@given(_TEXTS, _TEXTS)
def test_texts_are_found_that_have_numbers_and_no_others(known: Sequence[str], asked: Sequence[str]) -> None:
    numbers = dictionary.Numbers(5)
    numbers.of(Texts.of(known).words())
    expected = [known.index(text) + 5 if text in known else -1 for text in [*asked, *known]]
    assert numbers.find(Texts.of([*asked, *known]).words()).tolist() == expected


def test_texts_are_found_although_their_hashes_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionary, "_FACTORS", np.zeros(17, np.uint64))
    numbers = dictionary.Numbers(0)
    numbers.of(Texts.of(["a", "b", "a" * 9]).words())
    assert numbers.find(Texts.of(["b", "c", "a" * 9, "a" * 8, "a", "b" * 60]).words()).tolist() == [
        1, -1, 2, -1, 0, -1,
    ]  # fmt: skip
