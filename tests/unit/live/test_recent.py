"""What is kept of the releases of a stream: the newest, by its sink alone."""

from __future__ import annotations

import numpy as np

from eventveil.live.recent import LAST, Recent
from tests.unit.read.making import HOUR, ORIGIN, record
from tests.unit.support import stream

VIEWS = stream(
    "views", interval=HOUR, origin=ORIGIN, lateness=60_000, clock_skew=1000, window=24,
    labels=("home", "basket"),
)  # fmt: skip


def release(timestamp: int, **fields: object) -> bytes:
    return record(timestamp, **{"counts": {"home": 500, "basket": -1}, **fields})


def test_the_newest_are_kept_with_their_intervals() -> None:
    kept = Recent(VIEWS)
    for at in range(1, LAST + 11):
        kept.take(release(at, error=10.0, noise_scale=None, fresh=at % 2 == 0), "here")
    rows = kept.seen().rows
    assert [row.timestamp for row in rows] == [*range(11, LAST + 11)]
    assert [row.fresh for row in rows[:3]] == [False, True, False]
    assert np.allclose([rows[0].low, rows[0].high], [[480.4, -20.6], [519.6, 18.6]], atol=0.01)
    assert rows[-1].start == ORIGIN + (LAST + 9) * HOUR
    assert kept.seen().unread == ""


def test_the_status_is_that_of_the_command() -> None:
    kept = Recent(VIEWS)
    for at in range(1, 31):
        kept.take(release(at, window_spent=75), "here")
    found = kept.seen().status(VIEWS, ORIGIN + 31 * HOUR + 61_000 + 5_000)
    assert (found.last, found.following, found.overdue) == (30, 31, 5_000)
    assert (found.spent, found.state, found.releases) == (0.75, "counting", 24)


def test_a_timestamp_that_is_released_again_shows_what_was_published_last() -> None:
    kept = Recent(VIEWS)
    for at, home in ((1, 10), (2, 20), (1, 11)):
        kept.take(release(at, counts={"home": home, "basket": 0}), "here")
    assert [(row.timestamp, int(row.counts[0])) for row in kept.seen().rows] == [(1, 11), (2, 20)]


def test_what_cannot_be_shown_is_told_until_enough_came_after_it() -> None:
    kept = Recent(VIEWS)
    kept.take(release(1, counts={"home": 1, "cart": 2}), "sink, offset 7")
    kept.take(b"{}", "sink, offset 8")
    kept.take(release(2), "sink, offset 9")
    told = kept.seen().unread
    assert told.startswith(f"2 of the last {LAST} records are not shown: sink, offset 8")
    assert [row.timestamp for row in kept.seen().rows] == [2]
    for at in range(3, LAST + 3):
        kept.take(release(at), "here")
    assert kept.seen().unread == ""


def test_of_wide_streams_fewer_releases_are_kept() -> None:
    labels = tuple(f"c{at}" for at in range(100_000))
    wide = stream("views", interval=HOUR, origin=ORIGIN, window=24, labels=labels, form="array")
    kept = Recent(wide)
    for at in range(1, 9):
        kept.take(record(at, counts=[1] * len(labels), error=1.0), "here")
    assert [row.timestamp for row in kept.seen().rows] == [4, 5, 6, 7, 8]


def test_local_reports_that_have_no_sums_yet_are_neither_shown_nor_a_problem() -> None:
    kept = Recent(VIEWS)
    kept.take(release(1, phase="distribution"), "here")
    assert kept.seen().rows == ()
    assert kept.seen().unread == ""
