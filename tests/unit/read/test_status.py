"""How a stream is doing, by its releases alone."""

from __future__ import annotations

from dataclasses import replace

from eventveil.cli.status import lines
from eventveil.cli.tail import fields, shown_release
from eventveil.read.following import assembled
from eventveil.read.status import Status, status_of
from tests.unit.read.making import HOUR, ORIGIN, record
from tests.unit.support import stream

VIEWS = stream(
    "views",
    interval=HOUR,
    origin=ORIGIN,
    lateness=60_000,
    clock_skew=1000,
    window=24,
    labels=("home", "basket"),
)


def records(number: int, count: int = 500) -> dict[int, bytes]:
    counts = {"home": count, "basket": -1}
    return {at: record(at, counts=counts, error=10.0, window_spent=75) for at in range(1, number + 1)}


def seen(number: int, late: int = 0, count: int = 500) -> Status:
    """The status ``late`` seconds after the next release was due."""
    due = ORIGIN + (number + 1) * HOUR + 61_000
    return status_of(VIEWS, records(number, count), due + 1000 * late)


def test_a_stream_that_keeps_up() -> None:
    found = seen(5, -10)
    assert (found.last, found.following, found.overdue, found.is_late) == (5, 6, 0, False)
    assert (found.spent, found.epsilon, found.state) == (0.75, 1.0, "counting")
    assert found.fields()["released_until"] == "2026-03-01T05:00:00Z"
    assert found.fields()["next_due"] == "2026-03-01T06:01:01Z"
    told = "\n".join(lines(found))
    assert "0.75 of 1 spent in the window, 0.25 left" in told
    assert "overdue" not in told


def test_a_stream_whose_releases_have_stopped_is_late_after_a_minute() -> None:
    assert not seen(5, 59).is_late
    assert seen(5, 61).is_late
    assert "overdue for 61 s: late" in "\n".join(lines(seen(5, 61)))


def test_a_stream_in_which_nothing_counts() -> None:
    assert seen(5, count=1).state == "nothing"
    assert "nothing can be told from noise" in "\n".join(lines(seen(5, count=1)))


def test_a_stream_without_releases() -> None:
    found = status_of(VIEWS, {}, ORIGIN)
    assert (found.last, found.state, found.is_late) == (None, "unknown", False)
    assert "no release yet" in "\n".join(lines(found))
    begun = replace(VIEWS, timeline=replace(VIEWS.timeline, start=ORIGIN))
    assert status_of(begun, {}, ORIGIN + 3 * HOUR).is_late


def test_a_release_is_shown_with_its_intervals() -> None:
    release = assembled(VIEWS, record(3, counts={"home": 30, "basket": 4}, error=10.0), "here")
    assert release is not None
    told = fields(release, 0.95)
    # One Laplace number of standard deviation 10: 95 % lie within 10 ln(20) / root(2).
    assert told["low"] == {"home": 8.8, "basket": -17.2}
    assert told["high"] == {"home": 51.2, "basket": 25.2}
    shown = shown_release(release, 0.95, 1)
    assert shown.splitlines() == [
        "2026-03-01T02:00:00Z  views, timestamp 3, fresh",
        "  home        30  9 to 51",
        "  and 1 columns more; --columns shows them",
    ]
