"""Which span of time a timestamp is summed up in."""

from __future__ import annotations

import numpy as np
import pytest

from eventveil.read import ReadingError
from eventveil.read.calendar import spans
from tests.unit.read.making import HOUR, ORIGIN

DAY = 24 * HOUR


def hours(count: int, first: int = ORIGIN) -> np.ndarray:
    return first + HOUR * np.arange(count, dtype=np.int64)


def instants(values: np.ndarray) -> list[str]:
    return [str(one)[5:16] for one in values.astype("datetime64[ms]")]


def test_days_begin_at_midnight_in_utc() -> None:
    found = spans(hours(50, ORIGIN + 20 * HOUR), HOUR, "1d", None)
    assert instants(found.starts) == ["03-01T00:00", "03-02T00:00", "03-03T00:00"]
    assert np.bincount(found.of).tolist() == [4, 24, 22]


def test_days_begin_at_midnight_in_a_time_zone_also_when_the_clock_is_changed() -> None:
    found = spans(hours(75, ORIGIN + 26 * DAY + 23 * HOUR), HOUR, "1d", "Europe/Berlin")
    assert instants(found.starts) == ["03-27T23:00", "03-28T23:00", "03-29T22:00", "03-30T22:00"]
    assert np.bincount(found.of).tolist() == [24, 23, 24, 4]


def test_hours_are_counted_from_midnight_and_the_last_one_may_be_short() -> None:
    found = spans(hours(24), HOUR, "5h", None)
    assert np.bincount(found.of).tolist() == [5, 5, 5, 5, 4]


def test_weeks_begin_on_monday() -> None:
    found = spans(hours(24 * 9), HOUR, "1w", None)
    assert instants(found.starts) == ["02-23T00:00", "03-02T00:00", "03-09T00:00"]
    assert np.bincount(found.of).tolist() == [24, 7 * 24, 24]


def test_all_is_one_span_and_none_keeps_timestamps_apart() -> None:
    assert spans(hours(30), HOUR, "all", None).ends.tolist() == [ORIGIN + 30 * HOUR]
    assert spans(hours(30), HOUR, None, None).of.tolist() == list(range(30))


def test_a_gap_makes_no_span_of_its_own() -> None:
    times = np.r_[hours(3), hours(3, ORIGIN + 3 * DAY)]
    assert instants(spans(times, HOUR, "1d", None).starts) == ["03-01T00:00", "03-04T00:00"]


@pytest.mark.parametrize(
    ("every", "zone", "words"),
    [
        ("1d", "Asia/Kolkata", "does not lie in one span"),
        ("30m", None, "does not lie in one span"),
        ("day", None, "not a length of time"),
        ("0h", None, "not a length of time"),
        ("36h", None, "not whole days"),
        ("1d", "Middle/Earth", "not a time zone"),
        ("1d", "../etc/passwd", "not a time zone"),
    ],
)
def test_spans_that_cannot_be_are_refused(every: str, zone: str | None, words: str) -> None:
    with pytest.raises(ReadingError, match=words):
        spans(hours(30), HOUR, every, zone)
