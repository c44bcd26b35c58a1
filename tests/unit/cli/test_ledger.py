"""What ``eventveil ledger`` prints, and what it does without a broker; the audit is an integration test."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eventveil.audit.findings import Finding, Report
from eventveil.audit.versions import StreamVersions, VersionSpan
from eventveil.cli.ledger import describe, largest_spent, seen, versions_in
from eventveil.cli.main import main
from eventveil.model.topology import Timeline
from tests.kafka.ports import reserve
from tests.unit.topology.examples import changed

UNITS = 1000
CLEAN = Report(
    stream="flights",
    releases=336,
    first=5,
    windows=217,
    largest=980,
    units=UNITS,
    epsilon=Fraction(1),
    findings=(),
    violations=0,
    matched_from=5,
    repeated=0,
    aborted=0,
    undecided=0,
    foreign=0,
)


def lines(**changes: Any) -> list[str]:
    return list(describe(replace(CLEAN, **changes), "sink"))


def test_a_clean_stream_is_one_line() -> None:
    assert lines() == ["flights: 336 releases, 217 windows checked, largest 0.98 of epsilon 1"]


def test_one_is_not_many() -> None:
    assert lines(releases=1, windows=1)[0].startswith("flights: 1 release, 1 window checked, ")


def test_a_stream_without_releases_says_so() -> None:
    nothing = {"releases": 0, "first": None, "windows": 0, "largest": 0, "matched_from": None}
    assert lines(**nothing) == ["flights: nothing released yet"]
    assert lines(**nothing, violations=1, findings=(finding(),)) == [
        "flights: nothing released yet; 1 violation"
    ]


def test_violations_are_counted_and_those_not_listed_too() -> None:
    found = lines(violations=12, findings=(finding(),) * 10)
    assert found[0].endswith("largest 0.98 of epsilon 1; 12 violations")
    assert found[1:] == ["  2 more violations of the same kinds, not listed"]


def test_the_versions_are_told_with_their_timestamps_and_times() -> None:
    spans = (
        VersionSpan(None, 4, 5, 9, "2026-01-01T00:00:00Z", "2026-01-06T00:00:00Z"),
        VersionSpan("0.2.0", 2, 7, 8, "2026-01-03T00:00:00Z", None),
    )
    assert [*versions_in(StreamVersions("flights", spans, 0))] == [
        "version not recorded: timestamps 5 to 9, 2026-01-01T00:00:00Z to 2026-01-06T00:00:00Z",
        "eventveil 0.2.0: timestamps 7 to 8",
    ]
    of_values = StreamVersions("minutes", (VersionSpan("0.2.0", 1, None, None, None, None),), 1)
    told, remark = versions_in(of_values)
    assert told == "eventveil 0.2.0: 1 span"
    assert remark.startswith("1 entry names no version, between others that do: ")
    assert [*versions_in(StreamVersions("flights", (), 0))] == []


def finding() -> Finding:
    return Finding("I2", "flights", 7, "sink, partition 0, offset 3", "wrong")


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"matched_from": 9}, "matched with sink from timestamp 9 on: retention or compaction has removed"),
        ({"matched_from": None}, "none of them could be matched: nothing of this stream is left in sink"),
        ({"matched_from": 9, "sink_since": 9}, "charges before timestamp 9 are not matched with records"),
        ({"windows_before": 9}, "9 windows before the change checked too, against the epsilon then in force"),
        ({"repeated": 1}, "1 record repeated byte for byte"),
        ({"aborted": 2}, "2 records of aborted transactions, the same as the committed ones"),
        ({"undecided": 3}, "3 records newer than the ledger that was read"),
        ({"foreign": 4}, "4 records in sink from another application"),
    ],
)
def test_what_else_there_is_to_know_is_a_note(changes: dict[str, Any], note: str) -> None:
    _, found = lines(**changes)
    assert found.startswith(f"  {note}")


def test_after_a_change_of_terms_the_sums_are_those_since() -> None:
    first, *_ = lines(windows=1, largest=0, windows_before=248)
    assert first == (
        "flights: 336 releases; since the change of terms: 1 window checked, largest 0 of epsilon 1"
    )


def test_what_the_former_sink_held_is_not_put_down_to_retention() -> None:
    moved, removed = lines(sink_since=9, matched_from=9), lines(sink_since=9, matched_from=12)
    assert len(moved) == 2
    assert [line.split(" ")[2] for line in removed[1:]] == ["matched", "charges"]


@pytest.mark.parametrize(
    ("largest", "epsilon", "text"),
    [
        (980, "1", "0.98"),
        (981, "1", "at most 0.99"),  # rounded up: a report may not understate
        (999, "1", "at most 1"),
        (UNITS, "1", "1"),
        (UNITS + 1, "1", "at most 1.01"),
        (500, "3", "1.5"),
        (UNITS, "1/3", "1/3"),
        (500, "1/3", "at most 0.167"),
        (123, "0.001", "at most 0.00013"),
        (0, "1", "0"),
    ],
)
def test_the_largest_window_is_told_in_terms_of_epsilon(largest: int, epsilon: str, text: str) -> None:
    assert largest_spent(largest, UNITS, Fraction(epsilon)) == text


def test_an_invalid_topology_exits_78(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(changed(("epsilon: 1.0", "epsilon: 0")))
    result = CliRunner().invoke(main, ["ledger", str(path)])
    assert result.exit_code == 78
    assert result.stderr.startswith(f"{path}:20:16:")


def test_a_broker_that_does_not_answer_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventveil.kafka.cluster._REACH_SECONDS", 1.0)
    nobody = reserve()
    try:
        path = tmp_path / "topology.yaml"
        path.write_text(changed(("localhost:9092", f"127.0.0.1:{nobody.port}")))
        result = CliRunner().invoke(main, ["ledger", str(path)])
    finally:
        nobody.release()
    assert result.exit_code == 1
    assert result.stderr.startswith("eventveil ledger: ")
    assert result.stdout == ""


RULES = Timeline(interval=1000, origin=0, lateness=100, max_ahead=0, clock_skew=50)


@pytest.mark.parametrize("barrier", [False, True])
def test_an_audit_tells_up_to_where_it_has_read_and_what_is_overdue_by_more_than_a_minute(
    barrier: bool,
) -> None:
    # Timestamp 7 is due at 7,150 ms, and 8 at 8,150 ms.
    told = "up to timestamp 7, due at 1970-01-01T00:00:07.150Z"
    assert seen(RULES, 7, 68_149, barrier=barrier) == told
    late = seen(RULES, 7, 68_150, barrier=barrier)
    assert late.startswith(f"{told}: nothing that fell due since has been released")
    assert ("--barrier" in late) == (not barrier)
