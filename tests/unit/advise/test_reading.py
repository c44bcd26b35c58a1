"""Events as arrays: every rule that a replay applies, and the same counts for any interval and bound."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eventveil.advise.generating import Events
from eventveil.advise.reading import ReadEvents, find_columns, read_events, types_of, without_apart
from eventveil.advise.tally import Tally, per_unit, rolled_up
from eventveil.model.errors import EventveilError
from eventveil.model.records import NO_APPEND_TIME, NO_OWN_TIME, Chunk
from eventveil.model.topology import Source
from eventveil.replay.run import replay
from eventveil.topology.periods import DAY
from tests.unit.replay.history import (
    COLUMNS,
    HOUR,
    ORIGIN,
    Recorded,
    event,
    random_events,
    stream,
    topology,
    write_lines,
    zero_noise,
)
from tests.unit.replay.test_run import in_partitions

BAD = [b"{", b"null", b'{"user": "u"}', event("u", "nowhere", ORIGIN), event("", "ATL", ORIGIN)]


@pytest.mark.parametrize(("interval", "bound"), [(HOUR // 4, 1), (HOUR, 3), (3 * HOUR, 2), (DAY, 40)])
def test_counts_are_those_of_a_replay_with_that_interval_and_bound(
    tmp_path: Path, interval: int, bound: int
) -> None:
    values = random_events(3_000, 48, seed=6, users=9)
    values[100:100] = BAD
    rules = stream(interval=interval, contributions=bound)
    read = read_events(rules, write_lines(tmp_path / "a", values))
    tally = Tally(read.events, len(COLUMNS), ORIGIN, DAY)
    source = write_lines(tmp_path / "b", values)
    made = [*replay(topology(rules), source, end=ORIGIN + 2 * DAY, noise=zero_noise, unbounded=True)]
    assert tally.counts(interval, bound).tolist() == [one.counts.tolist() for one in made]
    assert tally.counts(interval, None).tolist() == [
        one.events.tolist() for one in made if one.events is not None
    ]
    left_out = 1 - sum(int(one.counts.sum()) for one in made) / 3_000
    assert tally.left_out(interval, bound) == pytest.approx(left_out)
    assert read.outcomes == {
        "read": 3_000, "not-json": 1, "missing-field": 2, "unknown-column": 1, "empty-user": 1,
    }  # fmt: skip


@pytest.mark.parametrize(("bound", "limit"), [(2, 1), (4, 1), (6, 2), (9, 4)])
def test_counts_by_column_are_those_of_a_replay_with_that_limit(
    tmp_path: Path, bound: int, limit: int
) -> None:
    values = random_events(3_000, 48, seed=7, users=9)
    rules = stream(interval=3 * HOUR, contributions=bound, per_column=limit)
    read = read_events(rules, write_lines(tmp_path / "a", values))
    tally = Tally(read.events, len(COLUMNS), ORIGIN, DAY)
    source = write_lines(tmp_path / "b", values)
    made = [*replay(topology(rules), source, end=ORIGIN + 2 * DAY, noise=zero_noise)]
    counted = tally.counts_by_column(3 * HOUR, bound, limit, None)
    assert counted.tolist() == [one.counts.tolist() for one in made]
    assert (counted != tally.counts(3 * HOUR, bound)).any()
    # Where all columns but the first are one, they share its limit.
    rolled = tally.counts_by_column(3 * HOUR, bound, limit, (0,))
    assert (rolled[:, 0] >= counted[:, 0]).all()
    assert rolled[:, 1].sum() < counted[:, 1:].sum()


def test_partitions_of_a_topic_have_users_of_their_own_and_nothing_is_late() -> None:
    values = random_events(400, 24, seed=7)
    whole = read_events(stream(), Recorded({0: [(ORIGIN + 90 * DAY, value) for value in values]}))
    late = {
        number: [(ORIGIN + 90 * DAY, value) for _, value in records]
        for number, records in in_partitions(values, 3).items()
    }
    parts = read_events(stream(), Recorded(late, 7))
    assert len(np.unique(parts.events.users)) == len(np.unique(whole.events.users)) == 20
    for bound in (1, 2, 5):
        counts = [Tally(one.events, 3, ORIGIN, DAY).counts(HOUR, bound).sum() for one in (whole, parts)]
        assert counts[0] == counts[1]


class Carrying(Recorded):
    """The same; records carry times too, an hour after the append times."""

    def chunks(self) -> Iterator[Chunk]:
        for chunk in super().chunks():
            own_times = [NO_OWN_TIME if one == NO_APPEND_TIME else one + HOUR for one in chunk.append_times]
            yield replace(chunk, own_times=own_times)


@pytest.mark.parametrize("own_time", [False, True])
def test_times_of_records_are_those_that_the_stream_asks_for(own_time: bool) -> None:
    value = json.dumps({"user": "u", "to": "ATL"}).encode()
    times = [ORIGIN, ORIGIN + 7, NO_APPEND_TIME]
    rules = stream()
    kept = "boundary" if own_time else "broker"
    source = replace(rules.source, time="$time", append_time=kept, own_time=own_time)
    read = read_events(replace(rules, source=source), Carrying({0: [(time, value) for time in times]}))
    after = HOUR if own_time else 0
    assert read.events.times.tolist() == [ORIGIN + after, ORIGIN + 7 + after]
    assert read.outcomes == {"read": 2, "missing-field" if own_time else "no-append-time": 1}


@pytest.mark.parametrize(
    ("wrong", "left_out"),
    [
        ([0, 1, 4_294_967_295_000], [0, 1, 4_294_967_295_000]),
        ([ORIGIN - 300 * DAY, ORIGIN + 300 * DAY], []),
        ([ORIGIN - 367 * DAY, ORIGIN + 400 * DAY], [ORIGIN - 367 * DAY, ORIGIN + 400 * DAY]),
    ],
)
def test_what_is_years_away_is_left_out(wrong: list[int], left_out: list[int]) -> None:
    right = [ORIGIN + 7 * HOUR * number for number in range(20)]
    times = np.array([*wrong[:1], *right, *wrong[1:]])
    read = ReadEvents(Events(np.arange(len(times)), np.zeros_like(times), times), Counter(read=len(times)))
    kept = without_apart(read)
    assert kept.apart.tolist() == left_out
    assert kept.events.times.tolist() == [one for one in times.tolist() if one not in left_out]
    assert len(kept.events.users) == len(kept.events.columns) == len(kept.events.times)
    assert (len(kept.events.times) + len(kept.apart), kept.outcomes) == (len(times), read.outcomes)


def test_what_is_ignored_is_not_read_and_other_columns_count_where_they_should(tmp_path: Path) -> None:
    values = [event("u", "ATL", ORIGIN), event("u", "XYZ", ORIGIN)]
    ignoring = read_events(stream(unknown="ignore"), write_lines(tmp_path / "a", values))
    assert ignoring.outcomes == {"read": 1, "ignored": 1}
    taking = read_events(stream(unknown="column", unknown_column=2), write_lines(tmp_path / "b", values))
    assert taking.events.columns.tolist() == [0, 2]


def test_users_who_count_keep_their_numbers_when_others_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eventveil.counting.users._FREE", 64)  # kept without looking; else 65,536
    values = []
    for turn in range(8):
        values += [event(f"passing {turn} {number}", "XYZ", ORIGIN) for number in range(300)]
        values += [event(f"user {number}", "ATL", ORIGIN) for number in range(40 * (turn + 1))]
    records = [(ORIGIN, value) for value in values]
    users = read_events(stream(unknown="ignore"), Recorded({0: records}, 50)).events.users
    names = [number for turn in range(8) for number in range(40 * (turn + 1))]
    # Each name has one number, and each number one name.
    assert len({*zip(names, users.tolist(), strict=True)}) == len({*names}) == len({*users.tolist()})


FIELDS = Source("t", "/user", "/to", "/at")


def test_columns_are_found_the_most_frequent_first(tmp_path: Path) -> None:
    values = [event("u", to, ORIGIN) for to in ["B", "A", "C", "A", "C", "A"]]
    found = find_columns(write_lines(tmp_path / "a", [*BAD[:3], *values]), FIELDS)
    assert (found.columns, found.user_type, found.column_type) == (("A", "C", "B"), "string", "string")
    integers = [json.dumps({"user": 5, "to": number, "at": 1}).encode() for number in (7, -1, 7)]
    found = find_columns(write_lines(tmp_path / "b", integers), FIELDS)
    assert (found.columns, found.user_type, found.column_type) == (("7", "-1"), "integer", "integer")
    assert types_of(write_lines(tmp_path / "c", integers), FIELDS).user_type == "integer"


def test_events_without_columns_say_where_they_may_be(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a", [event("u", "A", 1)])
    with pytest.raises(EventveilError, match="both a user at /user and a column at /column; name the"):
        find_columns(source, replace(FIELDS, column="/column"))


def test_bounds_are_tried_until_hardly_anything_is_left_out() -> None:
    users = np.array([0] * 11 + [1])
    events = Events(users, np.zeros(12, np.int64), np.zeros(12, np.int64))
    tally = Tally(events, 1, 0, HOUR)
    assert tally.bounds(HOUR) == (1, 2, 4, 8, 16)
    assert tally.left_out(HOUR, 8) == 3 / 12


def test_rolled_up_columns_are_one_and_nothing_is_lost() -> None:
    counts = np.arange(12).reshape(3, 4)
    rolled = rolled_up(counts, np.array([2, 0]))
    assert rolled.tolist() == [[2, 0, 4], [6, 4, 12], [10, 8, 20]]
    assert per_unit(np.ones((6, 2), np.int64), 3).tolist() == [[2, 2]] * 3
