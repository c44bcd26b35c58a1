"""``eventveil check`` and ``eventveil schema``: what is printed, where, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eventveil.cli.check import check
from eventveil.cli.schema import schema
from eventveil.topology.schema import json_schema
from tests.unit.topology.examples import BASE, TOPOLOGIES, changed, two_streams

NO_BUDGET = ("budget: {epsilon: 5, span: 5d}\n", "")


def run(directory: Path, *texts: str) -> Result:
    paths = []
    for index, text in enumerate(texts):
        path = directory / f"{index}.yaml"
        path.write_text(text)
        paths.append(str(path))
    return CliRunner().invoke(check, paths, env={"KAFKA_SERVERS": "k:1"})


def test_a_valid_file_exits_0_and_prints_guarantee_sum_and_defaults(tmp_path: Path) -> None:
    result = run(tmp_path, BASE)
    assert result.exit_code == 0
    assert result.stderr == ""
    for line in (
        f"{tmp_path}/0.yaml: valid",
        "Stream destinations: flights.events -> flights.sanitized, budget-absorption",
        "Sum over the streams of population users",
        "  together at most epsilon 2 over any 5 days; within the cap of 5",
        "  streams.destinations.timeline.max_ahead: 1h",
        "  streams.destinations.mechanism.factor: 1",
    ):
        assert line in result.stdout.splitlines()
    assert "Epsilon 1.0 for any 120 consecutive timestamps" in result.stdout


def test_what_the_options_do_is_said(tmp_path: Path) -> None:
    options = "window: 2\n      shift: true\n      groups: 2\n      regroup: 7"
    result = run(tmp_path, changed(("window: 120", options), ("[ATL, BOS]", "{range: [1, 16]}"), NO_BUDGET))
    lines = result.stdout.splitlines()
    assert "  Shifted budget: tests take 0.25 of epsilon, publications the rest." in lines
    assert any(line.startswith("  2 groups of columns are published apart") for line in lines)
    assert any("formed anew every 7 timestamps" in line for line in lines)


def test_mistakes_go_to_standard_error_with_exit_78(tmp_path: Path) -> None:
    result = run(tmp_path, changed(("epsilon: 1.0", "epsilon: 0"), ("name: flights", "name: Flights")))
    assert result.exit_code == 78
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert [line.split(" ")[0] for line in lines] == [f"{tmp_path}/0.yaml:2:7:", f"{tmp_path}/0.yaml:20:16:"]


def test_every_file_is_checked_also_after_an_invalid_one(tmp_path: Path) -> None:
    result = run(tmp_path, changed(("epsilon: 1.0", "epsilon: 0")), BASE, "")
    assert result.exit_code == 78
    assert f"{tmp_path}/1.yaml: valid" in result.stdout
    assert f"{tmp_path}/0.yaml:20:16:" in result.stderr
    assert f"{tmp_path}/2.yaml:1:1:" in result.stderr


def test_no_file_is_a_mistake_of_usage() -> None:
    assert CliRunner().invoke(check, []).exit_code == 2


def test_a_missing_file_is_an_invalid_topology(tmp_path: Path) -> None:
    result = CliRunner().invoke(check, [str(tmp_path / "none.yaml")])
    assert result.exit_code == 78
    assert "none.yaml: the file cannot be read" in result.stderr


def test_variables_come_from_the_environment(tmp_path: Path) -> None:
    assert run(tmp_path, changed(("localhost:9092", "${KAFKA_SERVERS}"))).exit_code == 0


def test_a_file_without_budget_is_told_so(tmp_path: Path) -> None:
    result = run(tmp_path, changed(("budget: {epsilon: 5, span: 5d}", "")))
    assert result.exit_code == 0
    assert "no cap is set" in result.stdout
    assert "No budget: nothing caps what the streams of this file cost together." in result.stdout


def test_a_population_outside_the_budget_is_told_so(tmp_path: Path) -> None:
    result = run(tmp_path, two_streams(("/u,", "/u, users: staff,")))
    assert "Sum over the streams of population staff" in result.stdout
    assert "the budget caps users; this population is outside it" in result.stdout


def test_a_password_is_never_printed(tmp_path: Path) -> None:
    security = (
        "9092\n  security: {protocol: SASL_SSL, mechanism: PLAIN, username: u, password: '${file:secret}'}\n"
    )
    (tmp_path / "secret").write_text("hunter2")
    result = run(tmp_path, changed(("9092\n", security)))
    assert result.exit_code == 0
    assert "hunter2" not in result.output


def test_values_of_a_population_whose_counts_are_not_in_the_file_have_no_sum_and_are_named(
    tmp_path: Path,
) -> None:
    (air_time,) = (path for path in TOPOLOGIES if path.stem == "air-time")
    lines = run(tmp_path, air_time.read_text()).stdout.splitlines()
    at = lines.index("No sum over the streams of population users")
    assert lines[at + 1].startswith("  air-time (tops), epsilon 1 for each value; nothing bounds how many")


@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.name)
def test_the_topologies_to_start_from_pass(path: Path) -> None:
    assert CliRunner().invoke(check, [str(path)]).exit_code == 0


def test_there_are_nine_topologies_to_start_from() -> None:
    assert [path.stem for path in TOPOLOGIES] == [
        "air-time",
        "engine",
        "flights",
        "hospital-visits",
        "managed",
        "museum",
        "orders",
        "page-views",
        "web-shop",
    ]
    for page in ("README.md", "docs/topology.md"):
        told = (TOPOLOGIES[0].parents[1] / page).read_text(encoding="utf-8")
        assert "has nine files to start from" in told, page


def test_the_schema_is_printed_as_json() -> None:
    result = CliRunner().invoke(schema)
    assert result.exit_code == 0
    assert json.loads(result.stdout) == json_schema()


def test_what_is_hardly_ever_meant_is_noted(tmp_path: Path) -> None:
    quiet = run(tmp_path, BASE).stdout
    assert "Note: " not in quiet
    odd = changed(("origin: 2013-01-01T00:00:00Z", "origin: 2999-01-01T00:00:00Z\n      lateness: 30d"))
    (begins, late) = [line for line in run(tmp_path, odd).stdout.splitlines() if "Note: " in line]
    assert begins.startswith("  Note: it begins in the future, at 2999-01-01T00:00:00Z; events before that ")
    assert late.startswith("  Note: lateness is 720 intervals: each release comes at least 30d ")
