"""How a stream is doing, by its releases alone."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from eventveil.cli.status import _is_well, lines
from eventveil.cli.tail import awaited, fields, released, shown_release
from eventveil.model.topology import Discover
from eventveil.read.following import Followed, assembled
from eventveil.read.problems import ReadingError
from eventveil.read.status import Status, status_of
from tests.unit.read.making import HOUR, ORIGIN, record
from tests.unit.support import stream, topology

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


@pytest.mark.parametrize(
    ("before", "windows", "changed"),
    [
        ({"epsilon": "2"}, (24, 24), 4),
        ({"epsilon": "2"}, (3, 3), None),  # the window that follows no longer reaches back beyond the change
        ({"epsilon": "2"}, (4, 3), 4),
        ({"mechanism": "sample"}, (24, 24), 4),
        ({}, (12, 24), 4),
        ({}, (24, 24), None),
    ],
)
def test_after_a_change_of_terms_it_says_that_less_may_be_left(
    before: dict[str, Any], windows: tuple[int, int], changed: int | None
) -> None:
    former, now = windows
    released = {at: record(at, window=former, **before) for at in range(1, 4)}
    released |= {at: record(at, window=now, window_spent=50) for at in range(4, 6)}
    found = status_of(VIEWS, released, ORIGIN + 6 * HOUR)
    assert found.changed == found.fields()["terms_changed_at"] == changed
    told = "\n".join(lines(found))
    after = "since the terms changed at timestamp 4; what was spent before may leave less"
    assert (f"0.5 of 1 spent {after}" in told) is (changed is not None)
    assert ("0.5 of 1 spent in the window, 0.5 left" in told) is (changed is None)


def test_a_gaussian_stream_has_spent_the_epsilon_of_its_mu_squared_by_its_record_alone() -> None:
    """After 1 of 24 timestamps, of which a share of epsilon would be 0.042."""
    fields: dict[str, Any] = {"noise": "gaussian", "delta": "1/1000000000", "noise_scale": None, "units": 24}
    due = ORIGIN + 2 * HOUR + 61_000
    found = status_of(VIEWS, {1: record(1, **fields, window_spent=1)}, due)
    assert found.spent == pytest.approx(0.191, abs=1e-3)
    assert found.delta == 1e-9
    assert found.fields()["delta"] == 1e-9
    assert found.fields()["remaining"] == pytest.approx(0.809, abs=1e-3)
    told = "\n".join(lines(found))
    assert "of 1 at delta 1e-09 spent in the window, 0.8" in told
    whole = status_of(VIEWS, {1: record(1, **fields, window_spent=24)}, due)
    assert whole.spent == 1.0
    assert status_of(VIEWS, {1: record(1, **fields, window_spent=0)}, due).spent == 0.0


def test_an_epsilon_that_is_a_fraction_is_read_and_what_is_no_number_is_refused() -> None:
    due = ORIGIN + 2 * HOUR + 61_000
    third = status_of(VIEWS, {1: record(1, epsilon="1/3", window_spent=100)}, due)
    assert third.spent == third.epsilon == 1 / 3
    with pytest.raises(ReadingError, match="not an epsilon or delta"):
        status_of(VIEWS, {1: record(1, epsilon="much")}, due)


def test_a_stream_whose_releases_have_stopped_is_late_after_a_minute() -> None:
    assert not seen(5, 59).is_late
    assert seen(5, 61).is_late
    assert "overdue for 61 s: late" in "\n".join(lines(seen(5, 61)))


def test_a_stream_in_which_nothing_counts() -> None:
    assert seen(5, count=1).state == "nothing"
    assert "no count stands out from noise" in "\n".join(lines(seen(5, count=1)))


def test_a_stream_without_releases() -> None:
    found = status_of(VIEWS, {}, ORIGIN)
    assert (found.last, found.following, found.state, found.is_late) == (None, None, "unknown", False)
    told = "\n".join(lines(found))
    assert "released  nothing yet" in told
    assert "next      the first timestamp, due at 2026-03-01T01:01:01Z or before, if the topics" in told
    assert found.fields()["next_due"] is None
    assert found.fields()["next_due_by"] == "2026-03-01T01:01:01Z"


def test_a_stream_without_releases_whose_start_is_set_says_when_the_first_is_due() -> None:
    begun = replace(VIEWS, timeline=replace(VIEWS.timeline, start=ORIGIN + 4 * HOUR))
    waits = status_of(begun, {}, ORIGIN)
    assert (waits.following, waits.is_late) == (5, False)
    assert "timestamp 5, due at 2026-03-01T05:01:01Z" in "\n".join(lines(waits))
    late = status_of(begun, {}, ORIGIN + 6 * HOUR)
    assert late.is_late
    assert "due at 2026-03-01T05:01:01Z, overdue for 3539 s: late" in "\n".join(lines(late))


def test_tail_says_when_the_first_release_is_due() -> None:
    told = "views: nothing released yet; the first release is due at 2026-03-01T0"
    assert (
        awaited(topology(VIEWS), "views", ORIGIN)
        == f"{told}1:01:01Z at the latest, if the topics exist and a worker is ready"
    )
    begun = replace(VIEWS, timeline=replace(VIEWS.timeline, start=ORIGIN + 4 * HOUR))
    assert awaited(topology(begun), "views", ORIGIN) == f"{told}5:01:01Z"
    assert (
        awaited(topology(begun), "views", ORIGIN + 6 * HOUR)
        == f"{told}5:01:01Z: is a worker running and ready?"
    )


def test_tail_tells_of_streams_without_releases_once_all_others_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = replace(VIEWS, name="visits")
    come = [Followed(VIEWS, record(1), "here"), None, None, Followed(VIEWS, record(2), "here")]
    monkeypatch.setattr("eventveil.cli.tail.followed", lambda *_: (one for one in come))
    told: list[str] = []
    made = topology(VIEWS, other)
    for one in released(made, made.all_streams, 1, lambda stream: told.append(f"none of {stream.name}")):
        told.append(one.stream)
    assert told == ["views", "none of visits", "views"]
    assert len([*released(made, made.all_streams, 0, lambda _: pytest.fail("none were asked for"))]) == 2


def test_a_release_is_shown_with_its_intervals() -> None:
    release = assembled(VIEWS, record(3, counts={"home": 30, "basket": 4}, error=10.0), "here")
    assert release is not None
    told = fields(release, 0.95)
    # One Laplace number of standard deviation 10: 95 % lie within 10 ln(20) / root(2).
    assert told["low"] == {"home": 8.8, "basket": -17.2}
    assert told["high"] == {"home": 51.2, "basket": 25.2}
    shown = shown_release(release, 0.95, 1)
    assert shown.splitlines() == [
        "2026-03-01T02:00:00Z  views, timestamp 3, fresh; 95 % intervals",
        "  home        30  9 to 51",
        "  and 1 more column; --columns shows more",
    ]


@pytest.mark.parametrize(
    ("mechanism", "changes", "how"),
    [
        ("seasonal", {}, "predicted"),
        ("seasonal", {"fresh": True}, "fresh"),
        ("uniform", {}, "repeated"),
        ("shp-adaptive", {}, "predicted"),
        ("shp-adaptive", {"exhausted": True}, "repeated"),
        ("some.plugin:Kind", {}, "repeated"),
    ],
)
def test_a_release_is_called_predicted_where_it_is(mechanism: str, changes: dict[str, Any], how: str) -> None:
    value = record(3, **{"fresh": False, "mechanism": mechanism, "noise_scale": None, **changes})
    release = assembled(VIEWS, value, "here")
    assert release is not None
    assert shown_release(release, 0.95, 1).splitlines()[0].endswith(f"timestamp 3, {how}; 95 % intervals")
    status = status_of(VIEWS, {3: value}, ORIGIN + 3 * HOUR)
    assert f"timestamp 3, until 2026-03-01T03:00:00Z, {how}" in "\n".join(lines(status))


def test_a_file_that_the_stream_does_not_run_under_is_told() -> None:
    assert "terms" not in "\n".join(lines(seen(5)))
    other = status_of(VIEWS, {1: record(1, epsilon="2")}, ORIGIN + 2 * HOUR)
    assert other.foreign
    assert not other.fields()["terms_of_file"]
    assert "terms     not those of this file: it was edited and not migrated" in "\n".join(lines(other))


def test_times_are_those_of_the_release_where_the_file_has_another_timeline() -> None:
    """A file with another interval told of the year 2027, and that all was well."""
    value = record(5, interval=HOUR // 2, origin=ORIGIN + HOUR, counts={"home": 500, "basket": 1})
    found = status_of(VIEWS, {5: value}, ORIGIN + 4 * HOUR)
    assert found.fields()["released_until"] == "2026-03-01T03:30:00Z"
    assert found.fields()["next_due"] == "2026-03-01T04:01:01Z"
    assert not found.fields()["timeline_of_file"]
    assert not found.is_of_file
    assert (
        "timeline  not that of this file: the releases have the interval 30m and the origin"
        " 2026-03-01T01:00:00Z, this file has the interval 1h and the origin 2026-03-01T00:00:00Z: is it the"
        " file that the workers run?"
    ) in "\n".join(lines(found))
    assert seen(5).is_of_file
    assert "timeline" not in "\n".join(lines(seen(5)))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (
            {"counts": {"home": 1, "korb": 2}},
            "only the releases have the column korb, and only this file has basket: is it the file",
        ),
        (
            {"counts": {"home": 1, "basket": 2, "map": 3}},
            "the releases have the column map, which this file does not have",
        ),
        ({"counts": {"home": 1}}, "this file has the column basket, which the releases do not have"),
        ({"counts": {"basket": 1, "home": 2}}, "the releases have the columns of this file in another order"),
        ({"counts": [1, 2, 3], "error": None}, "the releases have 3 columns, this file has 2"),
        (
            {"counts": [1, 2], "error": None, "columns_digest": "00"},
            "the names of the columns, or their order, differ between the releases and this file",
        ),
    ],
)
def test_other_columns_than_those_of_the_file_are_told(fields: dict[str, Any], told: str) -> None:
    found = status_of(VIEWS, {3: record(3, **fields)}, ORIGIN + 4 * HOUR)
    assert not found.is_of_file
    assert not found.fields()["columns_of_file"]
    assert f"  columns   not those of this file: {told}" in "\n".join(lines(found))


def test_columns_that_are_found_may_be_others_behind_the_first() -> None:
    how = Discover(Fraction(1, 10), Fraction(1, 10**9), Fraction(1, 10), 5, 64)
    one = replace(VIEWS, counts=replace(VIEWS.counts, labels=("home",), discover=how))
    assert status_of(one, {3: record(3)}, ORIGIN + 4 * HOUR).is_of_file
    other = record(3, counts={"basket": 1, "home": 2})
    assert not status_of(one, {3: other}, ORIGIN + 4 * HOUR).is_of_file


def test_a_release_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(ReadingError, match="timestamp 1 cannot lie at"):
        status_of(VIEWS, {1: record(1, interval=-HOUR)}, ORIGIN)


def test_releases_of_another_file_are_not_well() -> None:
    assert _is_well(seen(5))
    assert not _is_well(status_of(VIEWS, {3: record(3, counts={"home": 500})}, ORIGIN + 4 * HOUR))
