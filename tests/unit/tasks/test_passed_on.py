"""Re-keyed events are made and read in columns as one by one; ``python -m tests.fuzz`` tries many more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eventveil.decoding.packing import Header, PackedHeaders, PackedRecords
from eventveil.kafka.outgoing import Producer, batches, by_partition
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


def test_the_comparison_notices_a_reader_that_leaves_out_null_headers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = passed_on._own_headers
    monkeypatch.setattr(passed_on, "_own_headers", lambda given: [one for one in whole(given) if one[1]])
    with read_by("plain"), pytest.raises(AssertionError):
        compare_many()


def test_the_comparison_notices_a_reader_that_forgets_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = passed_on._from_kernel
    monkeypatch.setattr(passed_on, "_from_kernel", lambda *parts: (*whole(*parts)[:2], []))
    with read_by("kernel"), pytest.raises(AssertionError):
        compare_many()


def passed(values: Sequence[bytes | None], headers: Any = (), here: int = 0) -> list[Any]:
    """Records of a chunk as they are passed on to three partitions."""
    number = len(values)
    chunk = Chunk("raw", here, 0, 0, [*range(number)], [5] * number, [b"k"] * number, values, number, headers)
    return [*Passing(SOURCES[0], here, 3, own_times=False).of(chunk, np.array(chunk.append_times))]


@pytest.mark.parametrize("way", WAYS)
def test_a_chunk_is_one_piece_where_nothing_is_unusual(way: str) -> None:
    values = [event("u1"), b"{", None, event("u2")]
    with read_by(way):
        (one,) = passed(values * 5, here=1)
        several = passed(values, here=1)
    assert isinstance(one, PackedRecords)
    assert [record.key for record in one] == [b"u1", None, None, b"u2"] * 5
    # A few are made one by one.
    assert [record.key for record in Records(several)] == [b"u1", None, None, b"u2"]
    assert not any(isinstance(record, PackedRecords) for record in several)


@pytest.mark.parametrize("number", [1, 20])
@pytest.mark.parametrize("way", WAYS)
def test_who_has_no_user_stays_in_its_partition_as_long_as_there_is_one(way: str, number: int) -> None:
    """The topic of events may have more partitions than there are to go to."""
    with read_by(way):
        for here, there in ((1, 1), (2, 2), (3, 0), (5, 2)):
            records = [*Records(passed([b"{"] * number, here=here))]
            assert {record.partition for record in records} == {there}
            assert {record.headers[0][1] for record in records} == {b"%d" % here}


@pytest.mark.parametrize("large", [False, True], ids=["headers", "sizes"])
@pytest.mark.parametrize("way", WAYS)
def test_unusual_records_here_and_there_do_not_make_a_batch_each(
    way: str, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction sends the batches of a partition one after the other, and has seconds for all of them."""
    monkeypatch.setattr(passed_on, "_USUAL", 200)
    values = [event("u" * (300 if large and at % 9 == 0 else 3)) for at in range(2_000)]
    headers = [[("trace", b"7")] if not large and at % 9 == 0 else [] for at in range(2_000)]
    with read_by(way):
        for place in by_partition(passed(values, headers), lambda _: 3).values():
            assert len(batches(place, Producer(1, 1), 0)[0]) == 1


def test_a_piece_of_a_header_has_no_more_texts_than_it_has_records() -> None:
    """Each of many partitions gets its own: the work must not grow with their number."""
    one = Header("key", np.arange(1000), [b"%d" % at for at in range(1000)])
    piece = one.where(np.array([7, 900]))
    assert [*piece] == [("key", b"7"), ("key", b"900")]
    assert piece.texts is not None
    assert len(piece.texts) == 2


def test_plain_events_are_passed_on_and_read_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("one by one")

    records = [(b"k", event(user), [("trace", b"7")]) for user in "uvwu" * 5]
    number = len(records)
    with read_by("kernel"):
        read = fetched(records)
        chunk = Chunk(
            "raw", 0, 0, 0, [*range(number)], [5] * number, read.keys, read.values, number, read.headers
        )
        monkeypatch.setattr(Passing, "_one", refuse)
        monkeypatch.setattr(Passing, "_user", refuse)
        monkeypatch.setattr(passed_on, "_one_by_one", refuse)
        (one,) = Passing(SOURCES[0], 1, 1, own_times=False).of(chunk, np.array([5] * number))
        written = fetched([(each.key, each.value, each.headers) for each in Records([one])])
        events, origins, marks = read_passed_on(
            replace(chunk, keys=written.keys, values=written.values, headers=written.headers)
        )
    assert origins.tolist() == [[5, 1, offset] for offset in range(number)]
    assert [*zip(events.keys, events.values, events.headers, strict=True)] == records
    assert [*events.headers[1:3]] == [one[2] for one in records[1:3]]
    assert not marks
