"""What the events of a test come to is what they come to in a worker that keeps up."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventveil.mechanisms.registry import KINDS
from eventveil.testing.document import TestsInvalid
from tests.unit.testing.support import outcome, passes

ONE_EVENT = """
events:
  - value: {user: a, page: home, at: 2026-01-01T00:10:00Z}
"""
REPARTITION = {"time: /at}": "time: /at, repartition: true}"}
BOUNDARY = {
    "time: /at}": "time: /at, append_time: boundary}",
    "lateness: 5m}": "lateness: 5m, max_ahead: 1h}",
}
FRAMED = {"time: /at}": "time: /at, repartition: true, format: json-schema}"}
BY_SCHEMA = {
    "time: /at}": "time: /at, repartition: true, format: avro}",
    "streams:": "registry: {url: 'https://registry'}\nstreams:",
}
BOTH = {**BOUNDARY, "time: /at}": "time: /at, append_time: boundary, repartition: true}"}

IN_TIME_AND_LATE = """
partitions: 3
until: 2026-01-01T02:05:01Z
events:
  - value: {user: a, page: home, at: 2026-01-01T00:10:00Z}
  - value: {user: a, page: news, at: 2026-01-01T00:20:00Z}
  - value: {user: b, page: news, at: 2026-01-01T00:20:00Z}
    appended: 2026-01-01T01:04:59.999Z
  - value: {user: c, page: news, at: 2026-01-01T00:20:00Z}
    appended: 2026-01-01T01:05:02Z
  - raw: "{"
  - value: {user: c, page: news, at: 2026-01-01T01:20:00Z}
expect:
  counts:
    2026-01-01T00:00:00Z: {home: 1, news: 1}
    2026-01-01T01:00:00Z: {news: 1}
  dead_letters:
    - {event: 4, reason: late}
    - {event: 5, reason: not-json}
  left_out: [{event: 2, why: bounded}]
  closed: {2026-01-01T00:00:00Z: 3, 2026-01-01T01:00:00Z: 6}
"""


@pytest.mark.parametrize(
    "changes",
    [{}, REPARTITION, BOUNDARY, BOTH, FRAMED, BY_SCHEMA],
    ids=["keyed", "re-keyed", "boundaries", "re-keyed by boundaries", "re-keyed with schema ids", "Avro"],
)
def test_the_same_events_count_alike_whatever_tells_their_order(
    tmp_path: Path, changes: dict[str, str]
) -> None:
    passes(tmp_path, IN_TIME_AND_LATE, changes)


def test_re_keyed_events_may_come_through_any_partition_and_others_may_not(tmp_path: Path) -> None:
    elsewhere = """
partitions: 3
events:
  - {value: {user: a, page: home, at: 2026-01-01T00:10:00Z}, partition: 0}
  - {value: {user: a, page: home, at: 2026-01-01T00:11:00Z}, partition: 1}
  - {value: {user: b, page: news, at: 2026-01-01T00:12:00Z}, partition: 2}
expect:
  counts: {2026-01-01T00:00:00Z: {home: 1, news: 1}}
"""
    passes(tmp_path, elsewhere, REPARTITION)
    refused = outcome(tmp_path, elsewhere)
    assert any("wrong-partition" in line for line in refused.lines())


def test_a_late_record_is_late_by_its_boundary_although_its_own_times_are_unknown(tmp_path: Path) -> None:
    """The deadline is that of append times, the boundary a second (clock_skew) later."""
    between = """
until: 2026-01-01T01:05:01Z
events:
  - value: {user: a, page: home, at: 2026-01-01T00:10:00Z}
    appended: 2026-01-01T01:05:00.999Z
  - value: {user: b, page: home, at: 2026-01-01T00:10:00Z}
    appended: 2026-01-01T01:05:01Z
expect:
  counts: {2026-01-01T00:00:00Z: {home: 1}}
  dead_letters: [{event: 2, reason: late}]
"""
    passes(tmp_path, between, BOUNDARY)
    passes(tmp_path, between, BOTH)
    assert not outcome(tmp_path, between).passed


OWN_TIME = """
partitions: 3
until: 2026-01-01T02:05:01Z
events:
  - value: {user: a, page: home}
    appended: 2026-01-01T00:10:00Z
  - value: {user: b, page: home}
    created: 2026-01-01T00:20:00Z
    appended: 2026-01-01T01:05:00.999Z
  - value: {user: c, page: home}
    created: 2026-01-01T00:20:00Z
    appended: 2026-01-01T01:05:02Z
  - value: {user: d, page: news}
    created: 2026-01-01T09:20:00Z
    appended: 2026-01-01T01:05:02Z
  - value: {user: e, page: news}
    created: 2026-01-01T01:06:00Z
expect:
  counts:
    2026-01-01T00:00:00Z: {home: 2}
    2026-01-01T01:00:00Z: {news: 1}
  dead_letters:
    - {event: 3, reason: late}
    - {event: 4, reason: too-far-ahead}
"""


@pytest.mark.parametrize("changes", [BOUNDARY, BOTH], ids=["boundaries", "re-keyed by boundaries"])
def test_the_time_that_a_record_carries_is_its_events_where_boundaries_say_who_is_late(
    tmp_path: Path, changes: dict[str, str]
) -> None:
    own = {
        old: new.replace("time: /at", "time: $time") if old == "time: /at}" else new
        for old, new in changes.items()
    }
    passes(tmp_path, OWN_TIME, own)
    with pytest.raises(TestsInvalid, match="remove created"):
        outcome(tmp_path, OWN_TIME, changes)


def test_the_clock_closes_what_is_due_before_the_next_event_and_nothing_else(tmp_path: Path) -> None:
    passes(
        tmp_path,
        """
until: 2026-01-01T03:05:00.999Z
events:
  - value: {user: a, page: home, at: 2026-01-01T00:10:00Z}
  - value: {user: a, page: home, at: 2026-01-01T02:05:00.999Z}
  - value: {user: b, page: home, at: 2026-01-01T02:05:01Z}
expect:
  counts: {2026-01-01T00:00:00Z: {home: 1}}
  closed: {2026-01-01T00:00:00Z: 1, 2026-01-01T01:00:00Z: 2}
""",
    )


def test_an_event_is_appended_when_it_happened_but_never_before_the_one_above_it(tmp_path: Path) -> None:
    passes(
        tmp_path,
        """
events:
  - value: {user: a, page: home, at: 2026-01-01T02:30:00Z}
  - value: {user: b, page: home, at: 2026-01-01T01:40:00Z}
expect:
  counts: {2026-01-01T02:00:00Z: {home: 1}}
  dead_letters: [{event: 2, reason: late}]
""",
    )


def test_repeated_events_are_numbered_and_their_reasons_are_counted(tmp_path: Path) -> None:
    passes(
        tmp_path,
        """
events:
  - value: {user: "u{n}", page: home, at: 2026-01-01T00:10:00Z}
    repeat: 1000
  - value: {user: a, page: home, at: 2026-01-01T00:10:00Z}
    repeat: 10
  - raw: "{n}"
    repeat: 3
expect:
  counts: {2026-01-01T00:00:00Z: {home: 1001}}
  left_out: [{event: 2, why: bounded, times: 9}]
  dead_letters: [{event: 3, reason: missing-field}]
""",
    )


def test_numbers_keep_their_digits_and_texts_stay_texts(tmp_path: Path) -> None:
    passes(
        tmp_path,
        """
events:
  - value: {user: 9007199254740993, page: home, at: 1767225600000}
  - value: {user: 9007199254740992, page: home, at: 1767225600000}
  - value: {user: "7", page: home, at: 1767225600000}
expect:
  counts: {2026-01-01T00:00:00Z: {home: 2}}
  dead_letters: [{event: 3, reason: wrong-type}]
""",
        {"time: /at}": "time: /at, user_type: integer}"},
    )


def test_spends_are_told_exactly_and_by_window(tmp_path: Path) -> None:
    passes(
        tmp_path,
        ONE_EVENT
        + """
until: 2026-01-01T06:05:01Z
expect:
  partial: true
  spent: {2026-01-01T00:00:00Z: 1/4, 2026-01-01T05:00:00Z: 0.25}
  most_spent: 1
""",
    )
    less = outcome(tmp_path, f"{ONE_EVENT}expect: {{partial: true, spent: {{2026-01-01T00:00:00Z: 0.26}}}}")
    assert [str(one) for one in less.differences] == ["spent, 2026-01-01T00:00:00Z: expected 0.26, found 1/4"]
    passes(
        tmp_path,
        f"{ONE_EVENT}expect: {{partial: true, spent: {{2026-01-01T00:00:00Z: 0.3}}}}",
        {"window: 4": "window: 3"},  # a third, to one digit
    )


USER_LEVEL = {"columns: [home, news, other], unknown: other": "columns: [home]", "window: 4": "horizon: 4"}
EVENT_LEVEL = {", window: 4": ""}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_runs_with_the_noise_off(tmp_path: Path, kind: str) -> None:
    level = KINDS[kind].level
    changes = {"user": USER_LEVEL, "event": EVENT_LEVEL, "w-event": {}}[level]
    result = outcome(
        tmp_path,
        """
until: 2026-01-01T06:05:01Z
events:
  - {value: {user: "u{n}", page: home, at: 2026-01-01T00:10:00Z}, repeat: 500}
  - {value: {user: "u{n}", page: home, at: 2026-01-01T01:10:00Z}, repeat: 500}
  - {value: {user: "u{n}", page: home, at: 2026-01-01T03:10:00Z}, repeat: 20}
expect: {partial: true, released: {2026-01-01T00:00:00Z: {counts: {home: 500}, fresh: true}}}
""",
        {"kind: uniform": f"kind: {kind}", **changes},
    )
    assert result.broken is None
    assert result.played is not None
    assert sorted(result.played.records) == [1, 2, 3, 4, 5, 6]
    assert all(record["seeded"] for record in result.played.records.values())
    if kind not in FILTERED:
        assert result.passed, "\n".join(result.lines())


#: These release what a filter makes of noisy counts.
FILTERED = {"paced", "seasonal", "fast"}


@pytest.mark.parametrize("look", ["single", "announced"])
def test_a_pan_private_stream_runs_with_the_noise_off(tmp_path: Path, look: str) -> None:
    passes(
        tmp_path,
        f"""{ONE_EVENT}
expect:
  counts: {{2026-01-01T00:00:00Z: {{home: 1}}}}
""",
        {
            "kind: uniform": f"kind: budget-distribution, pan_private: {look}, adjacency: substitute",
            "unknown: other": "unknown: other, contributions: trusted",
        },
    )


def test_sampled_events_are_the_expected_share(tmp_path: Path) -> None:
    passes(
        tmp_path,
        """
events:
  - {value: {user: "u{n}", page: home, at: 2026-01-01T00:10:00Z}, repeat: 500}
  - {value: {user: "u{n}", page: home, at: 2026-01-01T01:10:00Z}, repeat: 900}
expect:
  partial: true
  released:
    2026-01-01T00:00:00Z: {counts: {home: 500}}
    2026-01-01T01:00:00Z: {counts: {home: 900}}
""",
        {**EVENT_LEVEL, "kind: uniform": "kind: retroactive-grouping, sampling: 0.5"},
    )


def test_a_kind_that_needs_noise_is_named_with_the_reason(tmp_path: Path) -> None:
    result = outcome(
        tmp_path,
        f"{ONE_EVENT}expect: {{partial: true}}",
        {"kind: uniform": "kind: tests.unit.testing.needy:Needy"},
    )
    assert result.broken is not None
    assert "tests.unit.testing.needy:Needy cannot be run with the noise off" in result.broken
    assert "seems to wait for a number other than 0" in result.broken


def test_a_test_without_events_releases_what_is_due(tmp_path: Path) -> None:
    passes(
        tmp_path,
        """
until: 2026-01-01T02:05:01Z
events: []
expect:
  closed: {2026-01-01T00:00:00Z: 0, 2026-01-01T01:00:00Z: 0}
  spent: {2026-01-01T00:00:00Z: 0.25, 2026-01-01T01:00:00Z: 0.25}
""",
    )
