"""Readings of values as `status`, `tail` and the page show them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eventveil.cli.status import value_lines
from eventveil.cli.tail import reading_fields, shown_reading
from eventveil.formats.reading import reading_record
from eventveil.live.page import page
from eventveil.live.recent import LAST, SeenReadings, kept_of
from eventveil.read.problems import ReadingError
from eventveil.read.readings import reading_of
from tests.unit.support import stream, topology
from tests.unit.values.streams import readings

MINUTES = readings()
BOTH = replace(topology(stream("views")), readings=(MINUTES,))


def record(position: int = 7, reading: int | None = 681, partition: int = 2) -> bytes:
    return reading_record(MINUTES, partition, position, 90, reading)


@pytest.mark.parametrize(
    ("reading", "value", "shown"),
    [(681, 340.5, "340.5"), (-3, -1.5, "-1.5"), (4_000_000, 2e6, "2,000,000"), (None, None, "held back")],
)
def test_a_reading_is_told_in_the_units_of_its_values(
    reading: int | None, value: float | None, shown: str
) -> None:
    found = reading_of(MINUTES, record(reading=reading), "here")
    assert found.value == value
    assert shown_reading(found) == f"minutes, partition 2, position 7: {shown}"
    assert reading_fields(found)["value"] == value


def test_a_record_that_is_no_reading_of_the_stream_is_refused_with_its_place() -> None:
    for wrong in (b"{}", b"", record().replace(b"minutes", b"hours"), record().replace(b'"0.5"', b'"half"')):
        with pytest.raises(ReadingError, match="sink, offset 3"):
            reading_of(MINUTES, wrong, "sink, offset 3")


def test_status_says_what_each_partition_read_last() -> None:
    newest = [reading_of(MINUTES, record(partition=at, position=at + 5), "here") for at in range(2)]
    assert [*value_lines(MINUTES, newest)] == [
        "minutes (tops, epsilon 1.0 for each value)",
        "  released  partition 0, position 5: 340.5",
        "  released  partition 1, position 6: 340.5",
    ]
    assert "no reading yet" in [*value_lines(MINUTES, [])][1]


def test_the_newest_readings_are_kept_and_what_is_none_is_told() -> None:
    kept = kept_of(MINUTES)
    for position in range(LAST + 5):
        kept.take(record(position), "here")
        kept.take(record(position, partition=1), "here")
    kept.take(b"{}", "sink, offset 9")
    seen = kept.seen()
    assert isinstance(seen, SeenReadings)
    newest = [*range(5, LAST + 5)][::-1]
    assert [(one.partition, one.position) for one in seen.readings] == [
        (partition, position) for position in newest for partition in (1, 2)
    ]
    assert "sink, offset 9" in seen.unread


def test_the_page_shows_the_newest_readings_of_a_stream_of_values() -> None:
    kept = kept_of(MINUTES)
    waits = page(BOTH, {"minutes": kept.seen()}, "", (), {}, 0)
    assert "Waiting for its first reading" in waits
    for position, reading in enumerate((None, 681, 682)):
        kept.take(record(position, reading), "here")
    text = page(BOTH, {"minutes": kept.seen()}, "", (), {}, 0)
    assert '<a href="#s1">views</a>' in text
    assert '<h2 id="s2">minutes</h2>' in text
    assert "epsilon of each value (tops)" in text
    rows = [text.index(f"partition 2, position {position}") for position in (2, 1, 0)]
    assert rows == sorted(rows)
    assert all(shown in text for shown in ("341", "340.5", "held back"))
