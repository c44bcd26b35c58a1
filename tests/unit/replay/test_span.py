from __future__ import annotations

import pytest

from eventveil.replay.run import ReplaySpan, plan_span
from tests.unit.replay.history import HOUR, ORIGIN, stream

HOURLY, DAILY = stream("hourly"), stream("daily", interval=24 * HOUR)


def test_a_range_begins_with_the_origin_unless_told() -> None:
    assert plan_span([HOURLY], None, ORIGIN + 5 * HOUR) == ReplaySpan({"hourly": 1}, {"hourly": 5})


def test_a_timestamp_that_ends_with_the_range_is_in_it_and_one_that_ends_later_is_not() -> None:
    for end, last in ((5 * HOUR - 1, 4), (5 * HOUR, 5), (5 * HOUR + 1, 5), (6 * HOUR - 1, 5)):
        assert plan_span([HOURLY], None, ORIGIN + end).last == {"hourly": last}


def test_timestamps_count_from_the_origin_wherever_the_range_begins() -> None:
    assert plan_span([HOURLY], ORIGIN + 7 * HOUR, ORIGIN + 9 * HOUR) == ReplaySpan(
        {"hourly": 8}, {"hourly": 9}
    )


def test_the_end_can_be_left_to_the_data() -> None:
    assert plan_span([HOURLY, DAILY], ORIGIN, None) == ReplaySpan({"hourly": 1, "daily": 1}, None)


def test_a_start_inside_a_timestamp_is_refused_with_the_nearest_boundaries() -> None:
    with pytest.raises(
        ValueError, match=r"hourly begins: the nearest are 2013-01-01T02:00:00Z and 2013-01-01T03:"
    ):
        plan_span([HOURLY], ORIGIN + 2 * HOUR + 1, None)


def test_a_start_must_suit_every_stream() -> None:
    with pytest.raises(
        ValueError, match=r"stream daily begins: .*2013-01-01T00:00:00Z and 2013-01-02T00:00:00Z"
    ):
        plan_span([HOURLY, DAILY], ORIGIN + 2 * HOUR, None)


def test_a_start_before_the_origin_is_refused_with_the_origin() -> None:
    with pytest.raises(ValueError, match="the first one begins at 2013-01-01T00:00:00Z"):
        plan_span([HOURLY], ORIGIN - HOUR, None)


def test_a_range_without_any_timestamp_is_refused_with_where_the_first_one_ends() -> None:
    with pytest.raises(
        ValueError, match=r"ends by 2013-01-01T00:59:59.999Z: .* of hourly ends at 2013-01-01T01:00:00Z"
    ):
        plan_span([HOURLY], None, ORIGIN + HOUR - 1)


def test_a_stream_may_have_no_timestamp_in_the_range_if_another_has() -> None:
    assert plan_span([HOURLY, DAILY], None, ORIGIN + HOUR).last == {"hourly": 1, "daily": 0}
