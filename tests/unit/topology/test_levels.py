"""What epsilon covers: a window, single timestamps or a horizon, each with its own settings and cost."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from eventveil.cli.check import report
from eventveil.describe.guarantee import describe
from eventveil.describe.sums import cost_of, periods, timestamps_met
from eventveil.mechanisms import event_level, groups
from eventveil.mechanisms.registry import of_stream
from eventveil.privacy.noise import SystemNoise
from eventveil.topology.fingerprints import fingerprint_fields
from eventveil.topology.options import LONGEST_PERIOD, LONGEST_SPAN, MOST_GROUPS
from eventveil.topology.schema import json_schema
from tests.unit.topology.examples import as_data, changed, load_text, problems_of

NO_BUDGET = ("budget: {epsilon: 5, span: 5d}\n", "")
MECHANISM = "kind: budget-absorption\n      epsilon: 1.0\n      window: 120"
ONE_COLUMN = ("[ATL, BOS]", "[ATL]")
HOUR, DAY = 3_600_000, 86_400_000
VALIDATOR = Draft202012Validator(json_schema())

VALID = {
    "time-unit": (["span: 24"], {"span": 24}),
    "retroactive-grouping": (
        ["share: 1/4", "sampling: 0.25", "factor: 2"],
        {"span": 1, "share": Fraction(1, 4), "sampling": Fraction(1, 4), "factor": 2},
    ),
    "totals": (["blocks: [12, 168]"], None),
    "shp-point": (["horizon: 48", "on_horizon: renew"], {"span": 1, "on_horizon": "renew"}),
    "shp-window": (["horizon: 48", "span: 5", "delta: 1/9"], None),
    "shp-adaptive": (["horizon: 48", "samples: 0.5"], None),
}
INVALID = [
    ("time-unit", ["window: 1"], "21:15", "time-unit has no window, its epsilon covers single timestamps"),
    ("totals", ["window: 1"], "21:15", "totals has no window, its epsilon covers single timestamps"),
    ("totals", ["blocks: 24"], "21:15", "blocks: found the number 24, expected a list"),
    ("time-unit", ["horizon: 1"], "21:16", "time-unit has no horizon, its epsilon covers single timestamps"),
    ("time-unit", ["span: 4097"], "21:13", "expected a whole number from 1 to 4096"),
    ("shp-point", ["span: 1"], "19:7", "mechanism lacks horizon; add horizon: timestamps for which"),
    (
        "shp-point",
        ["horizon: 4", "window: 4"],
        "22:15",
        "has no window, its epsilon covers a horizon; remove",
    ),
    ("shp-point", ["horizon: 4", "on_horizon: stop"], "22:19", "expected one of repeat, renew"),
    ("retroactive-grouping", ["sampling: most"], "21:17", "expected best, or an exact number above 0"),
]
BEYOND_A_SCHEMA = [
    ("shp-point", ["horizon: 4", "span: 5"], "22:13", "span: found 5, expected a whole number from 1 to 4"),
    ("shp-point", ["horizon: 4", "parts: 2"], "22:14", "parts: found 2, expected 1"),
    ("totals", ["blocks: [24, 36]"], "21:15", "found [24, 36], expected lengths in timestamps, each"),
    ("totals", ["blocks: []"], "21:15", "found [], expected a list of 1 to 4 different periods"),
    ("totals", ["blocks: [2000]"], "21:15", "at most 1024 times as long"),
    ("retroactive-grouping", ["share: 1"], "21:14", "share: found 1, expected a part of epsilon between"),
    ("retroactive-grouping", ["sampling: 0.125"], "21:17", "expected best, or whole percents such as 0.25"),
]


def text(kind: str, lines: list[str], *changes: tuple[str, str]) -> str:
    mechanism = "\n      ".join([f"kind: {kind}", "epsilon: 1.0", *lines])
    return changed((MECHANISM, mechanism), NO_BUDGET, *changes)


def columns(kind: str) -> list[tuple[str, str]]:
    return [ONE_COLUMN] if kind.startswith("shp") else []


@pytest.mark.parametrize("kind", VALID)
def test_a_kind_takes_its_own_settings(tmp_path: Path, kind: str) -> None:
    lines, options = VALID[kind]
    file = text(kind, lines, *columns(kind))
    (stream,) = load_text(tmp_path, file).streams
    assert stream.mechanism.window == (48 if kind.startswith("shp") else 1)
    assert options is None or stream.mechanism.options == options
    assert list(VALIDATOR.iter_errors(as_data(file))) == []
    assert of_stream(stream, SystemNoise()).guarantee.window == stream.mechanism.window


@pytest.mark.parametrize(("kind", "lines", "place", "message"), INVALID)
def test_settings_of_another_level_are_refused_at_their_place(
    tmp_path: Path, kind: str, lines: list[str], place: str, message: str
) -> None:
    file = text(kind, lines, *columns(kind))
    (problem,) = problems_of(tmp_path, file)
    assert f"{problem.line}:{problem.column}" == place
    assert message in problem.message
    assert not VALIDATOR.is_valid(as_data(file))


@pytest.mark.parametrize(("kind", "lines", "place", "message"), BEYOND_A_SCHEMA)
def test_settings_that_a_mechanism_cannot_honour_are_refused_at_their_place(
    tmp_path: Path, kind: str, lines: list[str], place: str, message: str
) -> None:
    (problem,) = problems_of(tmp_path, text(kind, lines, *columns(kind)))
    assert f"{problem.line}:{problem.column}" == place
    assert message in problem.message


def test_a_horizon_is_for_one_column(tmp_path: Path) -> None:
    (problem,) = problems_of(tmp_path, text("shp-point", ["horizon: 5"]))
    assert str(problem).endswith(
        "17:16: streams.destinations.counts.columns: shp-point takes one column, not 2"
    )


def test_a_long_span_of_many_columns_is_more_than_state_can_hold(tmp_path: Path) -> None:
    (problem,) = problems_of(
        tmp_path, text("time-unit", ["span: 4096"], ("[ATL, BOS]", "{range: [1, 1000]}"))
    )
    assert (problem.line, problem.column) == (21, 13)
    assert problem.message.endswith("expected a smaller span")


def test_the_longest_span_of_a_topology_is_that_of_the_mechanisms() -> None:
    assert LONGEST_SPAN == event_level.SPAN_LIMIT
    assert (MOST_GROUPS, LONGEST_PERIOD) == (groups.GROUP_LIMIT, groups.PERIOD_LIMIT)


@pytest.mark.parametrize(
    ("kind", "lines", "epsilon"),
    [
        ("time-unit", [], 25),  # a day meets 25 hours, each at epsilon
        ("shp-point", ["horizon: 12"], 1),
        ("shp-point", ["horizon: 12", "on_horizon: renew"], 3),  # 25 hours: one, twelve, twelve
        ("shp-point", ["horizon: 24", "on_horizon: renew"], 2),
    ],
)
def test_the_cost_of_a_day(tmp_path: Path, kind: str, lines: list[str], epsilon: int) -> None:
    (stream,) = load_text(tmp_path, text(kind, lines, *columns(kind))).streams
    assert cost_of(stream, DAY).epsilon == epsilon
    budget = (
        "      topic: flights.sanitized\n",
        "      topic: flights.sanitized\nbudget: {epsilon: 0.5, span: 1d}\n",
    )
    (problem,) = problems_of(tmp_path, text(kind, lines, budget, *columns(kind)))
    assert f"cost {epsilon} together" in problem.message


@pytest.mark.parametrize("horizon", range(1, 7))
@pytest.mark.parametrize("met", range(2, 14))
def test_horizons_that_timestamps_meet_by_trying_every_beginning(met: int, horizon: int) -> None:
    most = max(len({(first + i) // horizon for i in range(met)}) for first in range(horizon))
    assert periods("user", timestamps_met((met - 1) * 10, 10), horizon, renews=True) == most


def test_check_says_what_each_level_protects(tmp_path: Path) -> None:
    def words(kind: str, lines: list[str]) -> str:
        (stream,) = load_text(tmp_path, text(kind, lines, *columns(kind))).streams
        return "\n".join(describe(stream, of_stream(stream, SystemNoise()).guarantee))

    event = words("time-unit", ["span: 24"])
    assert "Epsilon 1.0 for any one timestamp of 1 hour" in event
    assert "present at n timestamps, epsilon is n times as large" in event
    assert "two streams that differ in one user at one timestamp" in event
    assert "Each release covers the last 24 timestamps (1 day): counts are sums over them." in event
    assert "Noise of a timestamp's count, which window sums add up: scale 1," in event
    once = words("shp-point", ["horizon: 24"])
    assert "for a horizon of 24 timestamps of 1 hour (1 day)" in once
    assert "the last release is repeated, marked as exhausted" in once
    assert "two streams that differ in one user within such a horizon" in once
    renewed = words("shp-adaptive", ["horizon: 24", "span: 6", "on_horizon: renew"])
    assert "After the horizon a new one begins and costs epsilon again" in renewed
    assert "Each release covers the last 6 timestamps (6 hours): with history and groups." in renewed


def test_check_adds_up_each_level_in_its_own_words(tmp_path: Path) -> None:
    def sums(kind: str, lines: list[str]) -> str:
        return "\n".join(report(load_text(tmp_path, text(kind, lines, *columns(kind))), ()))

    assert "2 timestamps, 2 timestamps at epsilon each, epsilon 2" in sums("time-unit", [])
    assert "25 timestamps, 1 horizon, epsilon 1" in sums("shp-point", ["horizon: 24"])
    assert "25 timestamps, 2 horizons, epsilon 2" in sums("shp-point", ["horizon: 24", "on_horizon: renew"])


def test_every_option_changes_the_fingerprint(tmp_path: Path) -> None:
    def fields(lines: list[str]) -> dict[str, str | int]:
        (stream,) = load_text(tmp_path, text("shp-adaptive", lines, ONE_COLUMN)).streams
        return fingerprint_fields(stream, 4, 4)

    base = ["horizon: 24", "span: 20"]
    before = fields(base)
    for line, name in [
        ("on_horizon: renew", "on_horizon"),
        ("samples: 0.3", "samples"),
        ("parts: 3", "parts"),
        ("delta: 0.1", "delta"),
    ]:
        after = fields([*base, line])
        assert {key for key in after if after[key] != before.get(key)} == {f"mechanism.{name}"}
