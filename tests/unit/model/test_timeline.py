"""Timestamps, their bounds, deadlines and due times, and the times that people and events write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventveil.model.timeline import (
    deadline_of,
    due_of,
    first_whole_timestamp,
    format_rfc3339,
    last_due,
    last_overdue,
    parse_rfc3339,
    start_of,
    timestamp_of,
)
from eventveil.model.topology import Timeline

RULES = Timeline(interval=10, origin=1000, lateness=5, max_ahead=7, clock_skew=3)
TIMES = st.integers(-(10**15), 10**15)
TIMELINES = st.builds(
    Timeline,
    interval=st.integers(1, 10**10),
    origin=TIMES,
    lateness=st.integers(0, 10**9),
    max_ahead=st.integers(0, 10**9),
    clock_skew=st.integers(0, 10**6),
    start=st.none() | TIMES,
)
FIRST_MOMENT, LAST_MOMENT = -62135596800000, 253402300799999


@pytest.mark.parametrize(
    ("time", "timestamp"),
    [(999, 0), (1000, 1), (1009, 1), (1010, 2), (1019, 2), (1020, 3), (990, 0), (989, -1)],
)
def test_a_timestamp_holds_its_first_millisecond_and_not_its_end(time: int, timestamp: int) -> None:
    assert timestamp_of(RULES, time) == timestamp


def test_the_bounds_of_timestamp_one() -> None:
    assert start_of(RULES, 1) == 1000
    assert start_of(RULES, 2) == 1010
    assert deadline_of(RULES, 1) == 1015
    assert due_of(RULES, 1) == 1018


@pytest.mark.parametrize(("now", "expected"), [(1017, 0), (1018, 1), (1027, 1), (1028, 2)])
def test_a_timestamp_is_due_from_its_due_time_on(now: int, expected: int) -> None:
    assert last_due(RULES, now) == expected


@pytest.mark.parametrize(("append_time", "expected"), [(1014, 0), (1015, 1), (1024, 1), (1025, 2)])
def test_a_timestamp_is_overdue_from_its_deadline_on(append_time: int, expected: int) -> None:
    assert last_overdue(RULES, append_time) == expected


@given(TIMELINES, TIMES)
def test_every_time_lies_in_its_timestamp(rules: Timeline, time: int) -> None:
    timestamp = timestamp_of(rules, time)
    assert start_of(rules, timestamp) <= time < start_of(rules, timestamp + 1)


@given(TIMELINES, TIMES)
def test_the_last_due_timestamp_is_due_and_the_next_is_not(rules: Timeline, now: int) -> None:
    last = last_due(rules, now)
    assert due_of(rules, last) <= now < due_of(rules, last + 1)


@given(TIMELINES, TIMES)
def test_the_last_overdue_timestamp_is_past_its_deadline_and_the_next_is_not(
    rules: Timeline, time: int
) -> None:
    last = last_overdue(rules, time)
    assert deadline_of(rules, last) <= time < deadline_of(rules, last + 1)


@given(TIMELINES, TIMES)
def test_the_first_whole_timestamp_is_the_smallest_that_begins_no_earlier_than_the_start(
    rules: Timeline, now: int
) -> None:
    first = first_whole_timestamp(rules, now)
    wanted = now if rules.start is None else rules.start
    assert first >= 1
    assert start_of(rules, first) >= wanted
    assert first == 1 or start_of(rules, first - 1) < wanted


@pytest.mark.parametrize(("now", "first"), [(0, 1), (1000, 1), (1001, 2), (1010, 2), (1011, 3)])
def test_a_stream_starts_with_a_whole_timestamp(now: int, first: int) -> None:
    assert first_whole_timestamp(RULES, now) == first


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00z", 0),
        ("1970-01-01 00:00:00Z", 0),
        ("1970-01-01T00:00:00-00:00", 0),
        ("1970-01-01T01:30:00+01:30", 0),
        ("1969-12-31T23:59:00-00:01", 0),
        ("1970-01-01T00:00:00.1Z", 100),
        ("1970-01-01T00:00:00.0019999999999Z", 1),
        ("1969-12-31T23:59:59.9999Z", -1),
        ("2013-01-01T00:00:00Z", 1356998400000),
        ("2016-02-29T00:00:00+23:59", 1456617660000),
        ("0001-01-01T00:00:00Z", FIRST_MOMENT),
        ("9999-12-31T23:59:59.999Z", LAST_MOMENT),
    ],
)
def test_an_rfc_3339_time_is_read(text: str, expected: int) -> None:
    assert parse_rfc3339(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2013-01-01",
        "2013-01-01T00:00:00",
        "2013-01-01T00:00Z",
        "2013-01-01T00:00:00.Z",
        "2013-01-01T00:00:00,5Z",
        "2013-01-01T00:00:00+0100",
        "2013-01-01T00:00:00+01",
        "2013-01-01T00:00:00 Z",
        " 2013-01-01T00:00:00Z",
        "2013-01-01T00:00:00Z\n",
        "2013-02-29T00:00:00Z",
        "2013-13-01T00:00:00Z",
        "2013-00-01T00:00:00Z",
        "2013-01-01T24:00:00Z",
        "2013-01-01T23:60:00Z",
        "2016-12-31T23:59:60Z",
        "2013-01-01T00:00:00+24:00",
        "2013-01-01T00:00:00+05:60",
        "2013-01-01T00:00:00-05:99",
        "0000-01-01T00:00:00Z",
        "12013-01-01T00:00:00Z",
        "\u0662013-01-01T00:00:00Z",
        "2013W011T00:00:00Z",
        "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
    ],
)
def test_what_is_no_rfc_3339_time_that_exists_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse_rfc3339(text)


@given(st.integers(FIRST_MOMENT, LAST_MOMENT))
def test_a_written_time_reads_back_as_itself(time: int) -> None:
    assert parse_rfc3339(format_rfc3339(time)) == time


@given(st.datetimes(min_value=datetime(1900, 1, 1)))
def test_times_are_written_as_python_writes_utc(moment: datetime) -> None:
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=UTC)
    time = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert datetime.fromisoformat(format_rfc3339(time)) == moment


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (1356998400000, "2013-01-01T00:00:00Z"),
    ],
)
def test_milliseconds_are_written_only_where_they_are_not_zero(time: int, text: str) -> None:
    assert format_rfc3339(time) == text
