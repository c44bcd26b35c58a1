from __future__ import annotations

import json

import numpy as np
import pytest

from eventveil.advise.generating import HOUR, Events, Traffic, draw, json_lines, labels, user_names
from eventveil.topology.periods import DAY

MONDAY = 1_767_571_200_000  # 2026-01-05T00:00:00Z
SHOP = Traffic(MONDAY, 7, 90_000, 8, 4_500)


@pytest.fixture(scope="module")
def events() -> Events:
    return draw(SHOP)


def test_there_are_as_many_events_as_were_asked_for_in_order_and_within_the_days(events: Events) -> None:
    assert len(events.users) == len(events.columns) == len(events.times) == 90_000
    assert (np.diff(events.times) >= 0).all()
    assert events.times[0] >= MONDAY
    assert events.times[-1] < MONDAY + 7 * DAY
    assert events.users.min() >= 0
    assert events.users.max() < 4_500


@pytest.mark.parametrize(
    "traffic", [Traffic(0, 1, 1, 1, 1), Traffic(0, 1, 500, 3, 1), Traffic(0, 1, 7, 50, 9)]
)
def test_the_smallest_traffic_is_generated_too(traffic: Traffic) -> None:
    events = draw(traffic)
    assert len(events.times) == traffic.events
    assert 0 <= events.times.min() <= events.times.max() < DAY
    assert events.columns.max() < traffic.columns


def test_the_same_seed_gives_the_same_events_and_another_one_others(events: Events) -> None:
    assert np.array_equal(draw(SHOP).times, events.times)
    other = draw(Traffic(MONDAY, 7, 90_000, 8, 4_500, seed=2))
    assert not np.array_equal(other.times, events.times)


def test_columns_follow_their_rank(events: Events) -> None:
    shares = np.bincount(events.columns) / 90_000
    expected = (1 / np.arange(1, 9)) / (1 / np.arange(1, 9)).sum()
    assert np.abs(shares / expected - 1).max() < 0.2


def test_there_is_more_by_day_than_by_night_and_at_the_weekend(events: Events) -> None:
    hours = np.bincount(events.times // HOUR % 24, minlength=24)
    assert hours[20] > 8 * hours[3] > 0
    days = np.bincount((events.times - MONDAY) // DAY, minlength=7)
    assert days[5] > 1.15 * days[1]


def test_users_come_in_sessions_of_several_views_an_hour(events: Events) -> None:
    visits = np.unique(events.users * 1_000_000 + events.times // HOUR, return_counts=True)[1]
    assert 3 < visits.mean() < 6
    per_user = np.bincount(events.users, minlength=4_500)
    assert per_user.max() > 10 * np.median(per_user)


def test_lines_are_json_with_the_names(events: Events) -> None:
    lines = b"".join(json_lines(events, user_names(4_500), labels(8))).splitlines()
    assert len(lines) == 90_000
    first = json.loads(lines[0])
    assert first == {
        "user": f"u-{events.users[0]:06}",
        "column": labels(8)[events.columns[0]],
        "time": f"{np.datetime_as_string(events.times[:1].astype('datetime64[ms]'))[0]}Z",
    }


def test_every_column_has_a_name_of_its_own() -> None:
    assert labels(2) == ("home", "search")
    assert len(set(labels(1_000))) == 1_000
    assert labels(9)[-1] == "section-9"
