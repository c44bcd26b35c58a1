"""Re-keyed events are made and read in columns as one by one; ``python -m tests.fuzz`` tries many more."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eventveil.decoding.packing import Header, PackedHeaders, PackedRecords
from eventveil.model.records import Chunk, Records
from eventveil.tasks import passed_on
from eventveil.tasks.passed_on import Passing, read_passed_on
from tests.fuzz.passing import SOURCES, compare, fetched
from tests.fuzz.ways import WAYS, read_by
from tests.unit.support import event


@pytest.mark.parametrize("way", WAYS)
def test_random_records_are_passed_on_and_read_as_one_by_one(way: str) -> None:
    with read_by(way):
        found = compare_many()
    # Both ways are taken.
    assert 500 < found["alone"] < found["records"] - 500


def compare_many() -> Counter[str]:
    return sum(map(compare, range(400)), Counter[str]())


@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (PackedHeaders, "sizes", lambda self, more: np.zeros(len(self), np.int64)),
        (Passing, "_own_time", lambda self, chunk: []),
        (Header, "where", lambda self, chosen: Header(self.name, self.numbers[chosen][::-1], self.texts)),
        (passed_on, "partitions_of", lambda keys, count: np.zeros(len(keys), np.int64)),
        (passed_on, "are_some", lambda keys: False),
    ],
)
def test_the_comparison_notices_columns_that_are_wrong(
    owner: Any, name: str, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with read_by("kernel"):
        monkeypatch.setattr(owner, name, broken)
        with pytest.raises(AssertionError):
            compare_many()


def test_the_comparison_notices_a_reader_that_forgets_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = passed_on._from_kernel
    monkeypatch.setattr(passed_on, "_from_kernel", lambda *parts: (*whole(*parts)[:2], []))
    with read_by("kernel"), pytest.raises(AssertionError):
        compare_many()


@pytest.mark.parametrize("way", WAYS)
def test_a_chunk_is_one_piece_where_nothing_is_unusual(way: str) -> None:
    values = [event("u1"), b"{", None, event("u2")]
    chunk = Chunk("raw", 0, 0, 0, [0, 1, 2, 3], [5, 6, 7, 8], [None, b"k", None, b""], values, 4)
    with read_by(way):
        (one,) = Passing(SOURCES[0], 1, 3, own_times=False).of(chunk, np.array(chunk.append_times))
    assert isinstance(one, PackedRecords)
    assert [record.key for record in one] == [b"u1", None, None, b"u2"]
    # Who has no user stays where it was.
    assert one.partitions(3)[1:3].tolist() == [1, 1]


def test_plain_events_are_passed_on_and_read_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("one by one")

    records = [(b"k", event(user), [("trace", b"7")]) for user in "uvwu"]
    with read_by("kernel"):
        read = fetched(records)
        chunk = Chunk("raw", 0, 0, 0, [*range(4)], [5] * 4, read.keys, read.values, 4, read.headers)
        monkeypatch.setattr(Passing, "_one", refuse)
        monkeypatch.setattr(Passing, "_user", refuse)
        monkeypatch.setattr(passed_on, "_one_by_one", refuse)
        (one,) = Passing(SOURCES[0], 1, 1, own_times=False).of(chunk, np.array([5] * 4))
        written = fetched([(each.key, each.value, each.headers) for each in Records([one])])
        events, origins, marks = read_passed_on(
            replace(chunk, keys=written.keys, values=written.values, headers=written.headers)
        )
    assert origins.tolist() == [[5, 1, offset] for offset in range(4)]
    assert [*zip(events.keys, events.values, events.headers, strict=True)] == records
    assert not marks
