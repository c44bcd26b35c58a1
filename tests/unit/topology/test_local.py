"""Streams of local reports in a topology: what is accepted, what is refused and where, what is promised."""

# A table with one mistake per line is read by columns, so its lines may be long.
# ruff: noqa: E501

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from eventveil.cli.check import check
from eventveil.lifecycle.topics import plan_topics
from eventveil.local.control import reports
from eventveil.mechanisms.sizes import largest_release, largest_state
from eventveil.model.records import MAX_MESSAGE_BYTES
from eventveil.model.topology import Source, Stream
from eventveil.topology.fingerprints import fingerprint_fields
from eventveil.topology.loading import load_with_defaults
from eventveil.topology.schema import json_schema
from tests.unit.topology.examples import BASE, as_data, load_text, problems_of, replaced

TEXT = """\
version: 1
name: museum
streams:
  stays:
    source:
      topic: museum.reports
      user: /device
      report: /report
      time: /at
    timeline:
      interval: 1d
      origin: 2026-01-01T00:00:00Z
    values:
      maximum: 480
    mechanism:
      kind: topl
      epsilon: 0.5
    sink:
      topic: museum.stays
"""
COUNTS = BASE[BASE.index("  destinations:") : BASE.index("budget:")]
VALIDATOR = Draft202012Validator(json_schema())


def changed(old: str, new: str) -> str:
    return replaced(TEXT, (old, new))


def stays(directory: Path, text: str = TEXT) -> Stream:
    return load_text(directory, text).streams[0]


def test_a_stream_of_local_reports_is_read_with_its_defaults(tmp_path: Path) -> None:
    stream = stays(tmp_path)
    assert stream.kind == "local"
    assert stream.source == Source("museum.reports", "/device", "/report", "/at")
    assert stream.counts.labels == tuple(reports(Fraction(1, 2), 480))
    assert stream.columns == ("sum", "reports", "unused")
    assert (stream.counts.contributions, stream.counts.unknown) == (1, "dead-letter")
    assert stream.mechanism.options == {"maximum": 480, "estimate_after": 65536, "range": 2**20}
    assert stream.mechanism.epsilon == Fraction(1, 2)
    defaults = {one.setting: one.value for one in load_with_defaults(f"{tmp_path}/topology.yaml", {})[1]}
    assert defaults["streams.stays.mechanism.estimate_after"] == "65536"
    assert defaults["streams.stays.dead_letter"] == "museum.dead"


def test_the_control_topic_is_compacted_and_there_only_for_local_reports(tmp_path: Path) -> None:
    topology = load_text(tmp_path, TEXT + COUNTS)
    (control,) = [plan for plan in plan_topics(topology, {}) if plan.role == "control"]
    assert (control.name, control.partitions, control.exact_partitions) == ("museum-control", 1, True)
    assert control.settings["cleanup.policy"] == "compact"
    assert control.settings["unclean.leader.election.enable"] == "false"
    assert not [plan for plan in plan_topics(load_text(tmp_path, BASE), {}) if plan.role == "control"]


MISTAKES = [
    ("report left out", "      report: /report\n", "", "6:7", "lacks report; add report: JSON pointer to what `eventveil.local` made"),
    ("column of counts", "report: /report", "report: /report\n      column: /a", "9:7", "unknown key 'column'"),
    ("columns of counts", "    sink:\n", "    counts: {columns: [a]}\n    sink:\n", "18:5", "unknown key 'counts'"),
    ("window", "epsilon: 0.5", "epsilon: 0.5\n      window: 10", "18:7", "unknown key 'window'"),
    ("factor", "epsilon: 0.5", "epsilon: 0.5\n      factor: 2", "18:7", "unknown key 'factor'"),
    ("maximum 0", "maximum: 480", "maximum: 0", "14:16", "expected a whole number from 1 to 1000000"),
    ("maximum with a fraction", "maximum: 480", "maximum: 480.5", "14:16", "expected a whole number from 1 to 1000000"),
    ("epsilon too large", "epsilon: 0.5", "epsilon: 17", "17:16", "above 0 and at most 16"),
    ("epsilon next to nothing", "epsilon: 0.5", "epsilon: 0.0001", "17:16", "at least 1/1000"),
    ("estimate after nothing", "epsilon: 0.5", "epsilon: 0.5\n      estimate_after: 0", "18:23", "whole number from 1"),
    ("values left out", "    values:\n      maximum: 480\n", "", "5:5", "lacks values; add values: the range of values"),
    ("sink of another shape", "topic: museum.stays", "topic: museum.stays\n      counts: array", "20:7", "unknown key 'counts'"),
    ("sink is the control topic", "topic: museum.stays", "topic: museum-control", "19:14", "already internal to Eventveil"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "place", "message"), [one[1:] for one in MISTAKES], ids=[one[0] for one in MISTAKES]
)
def test_a_mistake_is_reported_at_its_place(
    tmp_path: Path, old: str, new: str, place: str, message: str
) -> None:
    problems = problems_of(tmp_path, changed(old, new))
    assert place in {f"{one.line}:{one.column}" for one in problems}, problems
    assert any(message in one.message for one in problems), problems


def test_a_kind_that_is_none_is_the_only_mistake(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, changed("kind: topl", "kind: toppl"))
    assert problem.message.endswith("; did you mean topl?")


def test_the_schema_knows_local_reports_beside_counts() -> None:
    assert list(VALIDATOR.iter_errors(as_data(TEXT + COUNTS))) == []
    seen = {"sink is the control topic", "epsilon next to nothing"}
    for name, old, new, *_ in MISTAKES:
        assert VALIDATOR.is_valid(as_data(changed(old, new))) == (name in seen), name


def test_no_cap_holds_for_local_reports(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, TEXT + "budget: {epsilon: 99, span: 1d}\n")
    assert (problem.line, problem.column) == (16, 13)
    assert "topl cannot be under a cap: a user with k reports pays k epsilon" in problem.message
    assert "name another population in streams.stays.source.users" in problem.message
    others = changed("time: /at", "time: /at\n      users: visitors")
    topology = load_text(tmp_path, others + COUNTS + "budget: {epsilon: 9, span: 1d}\n")
    assert [stream.kind for stream in topology.streams] == ["local", "counts"]


def test_check_says_in_words_what_is_protected_and_what_is_not(tmp_path: Path) -> None:
    (tmp_path / "museum.yaml").write_text(TEXT + COUNTS)
    result = CliRunner().invoke(check, [str(tmp_path / "museum.yaml")])
    assert result.exit_code == 0
    for words in (
        "Stream stays: museum.reports -> museum.stays, topl",
        "Epsilon 0.5 for any one report, made by its producer before it is sent",
        "For a user who sends k reports the bound is k times that epsilon, and one who reports in both"
        " phases pays both.",
        "Not protected: that a report was sent, by whom, for which stream and when.",
        "cut off at 0 and 480",
        "once 65536 Square Wave reports have come, a threshold is chosen once",
        "museum-control says",
    ):
        assert words in result.stdout
    # What nothing bounds is in no sum.
    sums = result.stdout[result.stdout.index("Sum over the streams") :]
    assert "stays:" not in sums
    assert "destinations: over any" in sums


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("maximum: 480", "maximum: 479", "mechanism.maximum"),
        ("maximum: 480", "maximum: 479", "counts.columns.digest"),
        ("maximum: 480", "maximum: 480\n      contributions: 2", "counts.contributions"),
        ("report: /report", "report: /other", "source.column"),
        ("epsilon: 0.5", "epsilon: 1", "mechanism.epsilon"),
        ("epsilon: 0.5", "epsilon: 1", "counts.columns.digest"),
        ("epsilon: 0.5", "epsilon: 0.5\n      estimate_after: 9", "mechanism.estimate_after"),
        ("epsilon: 0.5", "epsilon: 0.5\n      range: 9", "mechanism.range"),
    ],
)
def test_whatever_affects_sums_is_in_the_fingerprint(tmp_path: Path, old: str, new: str, name: str) -> None:
    before = fingerprint_fields(stays(tmp_path), 3, 4)
    after = fingerprint_fields(stays(tmp_path, changed(old, new)), 3, 4)
    assert name in {key for key in before if before[key] != after[key]}


def test_the_state_of_the_widest_stream_stays_a_kafka_message(tmp_path: Path) -> None:
    widest = changed("maximum: 480", "maximum: 1000000").replace("epsilon: 0.5", "epsilon: 0.001")
    stream = stays(tmp_path, widest)
    assert len(stream.counts.labels) > 30_000
    assert largest_state(stream) < MAX_MESSAGE_BYTES
    assert largest_release(stream) < 2**21
