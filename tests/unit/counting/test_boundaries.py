"""Boundaries: which event is late, which too far ahead, and how few of them a state has to hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eventveil.counting.boundaries import Boundaries, Boundary
from eventveil.model.topology import Timeline

RULES = Timeline(interval=10, origin=1000, lateness=5, max_ahead=7, clock_skew=3)


def boundaries(*pairs: tuple[int, int], rules: Timeline = RULES, first: int = 1) -> Boundaries:
    return Boundaries(rules, first, tuple(Boundary(*pair) for pair in pairs))


def test_a_boundary_is_wanted_once_when_its_timestamp_is_due() -> None:
    one = boundaries()
    assert not one.wanted(1017)
    assert one.wanted(1018)
    assert not one.capture(1018, 5).wanted(1018)
    assert one.capture(1018, 5).wanted(1028)


def test_one_capture_is_the_boundary_of_every_timestamp_that_an_outage_left_open() -> None:
    one = boundaries((2, 5)).capture(1058, 9)
    assert one.captured == ((2, 5), (5, 9))
    assert [one.of(timestamp) for timestamp in range(1, 7)] == [5, 5, 9, 9, 9, None]


def test_a_clock_that_goes_back_captures_nothing() -> None:
    one = boundaries((5, 9))
    assert one.capture(1040, 12) is one


def test_the_log_reached_the_last_boundary_when_that_was_captured() -> None:
    assert boundaries().end == 0
    assert boundaries((1, 5), (3, 12)).end == 12


def test_a_timestamp_is_reached_at_its_boundary() -> None:
    one = boundaries((2, 5), (3, 5), (4, 9))
    assert [one.reached(offset) for offset in (4, 5, 8, 9, 100)] == [0, 3, 3, 4, 4]
    assert boundaries(first=7).reached(100) == 6


def test_an_event_may_be_ahead_of_the_next_boundary_by_max_ahead() -> None:
    one = boundaries((2, 5))
    # The next boundary is due at the end of its timestamp (1010, 1030) plus lateness and clock skew.
    assert one.latest_time(4) == 1010 + 5 + 7
    assert one.latest_time(5) == 1030 + 5 + 7


def test_what_is_below_the_first_known_boundary_is_measured_by_its_timestamp() -> None:
    one = Boundaries(RULES, 1, (Boundary(8, 5), Boundary(9, 9)), known=8)
    assert [one.latest_time(offset) for offset in (4, 5)] == [1080 + 5 + 7, 1090 + 5 + 7]
    assert one.latest_times(np.array([4, 5])).tolist() == [1080 + 5 + 7, 1090 + 5 + 7]
    assert one.reached(4) == 0, "a timestamp would be closed before its events were read"
    assert one.of(1) == 5


LOGS = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 3)), max_size=40)


def captured_in(steps: list[tuple[int, int]], max_ahead: int, offset: int = 0) -> Boundaries:
    """Boundaries as many timestamps and offsets apart as ``steps`` say, the first behind ``offset``."""
    captured, last = [], 0
    for ahead, more in steps:
        last, offset = last + ahead, offset + more
        captured.append((last, offset))
    return boundaries(*captured, rules=Timeline(10, 1000, 5, max_ahead, 3))


@given(LOGS, st.integers(0, 3000), st.integers(1, 600), st.integers(0, 60))
def test_what_a_state_leaves_out_changes_no_verdict_to_come(
    steps: list[tuple[int, int]], max_ahead: int, following: int, resume: int
) -> None:
    every = captured_in(steps, max_ahead)
    kept = every.needed(following, resume)
    assert kept.last == every.last
    for later in range(following, following + 20):
        begin = every.begin(later, 0)
        assert begin == kept.begin(later, 0)
        if begin is not None:
            resume = min(resume, begin)
    for at in range(resume, resume + 130):
        assert kept.latest_time(at) == every.latest_time(at)
        assert max(kept.reached(at), following - 1) == max(every.reached(at), following - 1)
    for timestamp in range(following, every.last + 2):
        assert kept.of(timestamp) == every.of(timestamp)


@given(LOGS, st.integers(0, 3000), st.integers(1, 600))
def test_below_its_beginning_every_event_of_a_timestamp_is_too_far_ahead(
    steps: list[tuple[int, int]], max_ahead: int, timestamp: int
) -> None:
    one = captured_in(steps, max_ahead, offset=5)
    admitting = [
        at for at in range(3, max(5, one.end) + 9) if one.latest_time(at) >= 1000 + 10 * (timestamp - 1)
    ]
    begin = one.begin(timestamp, 3)
    if begin is None:
        first = one.captured[:1]
        assert not first or admitting[:1] == [first[0].offset], "no boundary shows that nothing is before"
    else:
        assert admitting[:1] in ([], [begin])


def test_an_event_far_ahead_that_keeps_the_resume_offset_back_does_not_let_the_state_grow() -> None:
    rules: Any = Timeline(interval=1, origin=0, max_ahead=100_000, clock_skew=0)
    one = boundaries(rules=rules)
    for now in range(1, 100_001):
        one = one.capture(now, now)
        if now % 100 == 0:
            one = one.needed(now + 1, 0)
    assert len(one.captured) < 70
