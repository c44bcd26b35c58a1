"""``eventveil replay`` of value streams from a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eventveil.cli.main import main
from tests.unit.topology.examples import BASE
from tests.unit.topology.test_values import TEXT

COUNTS = BASE[BASE.index("  destinations:") : BASE.index("budget:")]
SMALL = TEXT.replace("epsilon: 1.0", "epsilon: 1.0\n      held: 20\n      chunk: 64\n      smoothed: 0")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a topology and 200 values of which every seventh cannot be read."""
    monkeypatch.chdir(tmp_path)
    Path("t.yaml").write_text(SMALL)
    lines = ['{"minutes": "x"}' if i % 7 == 3 else f'{{"minutes": {i % 90}}}' for i in range(200)]
    Path("values.jsonl").write_text("\n".join(lines) + "\n\n")
    return tmp_path


def run(*options: str, output: str = "out.jsonl") -> Result:
    return CliRunner().invoke(
        main, ["replay", "t.yaml", "--input", "values.jsonl", "--output", output, *options]
    )


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_value_has_one_reading_in_order_and_each_span_one_line(folder: Path) -> None:
    result = run("--stream", "minutes", "--ledger", "l.jsonl", "--truth", "t.jsonl", "--show-drops")
    assert result.exit_code == 0, result.output
    out, truth = lines(folder / "out.jsonl"), lines(folder / "t.jsonl")
    assert [line["position"] for line in out] == [line["position"] for line in truth] == list(range(200))
    assert [line["reading"] is None for line in out] == [True] * 20 + [False] * 180
    assert [line["value"] for line in truth] == [0 if i % 7 == 3 else 2 * (i % 90) for i in range(200)]
    spans = [(line["purpose"], line["start"], line["stop"]) for line in lines(folder / "l.jsonl")]
    assert spans == [("threshold", 0, 20), ("tree", 20, 84), ("tree", 84, 148), ("tree", 148, 212)]
    assert all(line["spent"] == line["units"] for line in lines(folder / "l.jsonl"))
    assert "it adds epsilon 1.0 over one value" in result.stderr
    assert "t.jsonl will hold true values: raw data" in result.stderr
    assert "raw data, not to be published: 200 events in " in result.stderr
    assert "minutes had 171 read, 29 wrong-type; what was not read is 0 in its place" in result.stderr
    assert (folder / "t.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_seed_writes_the_same_readings_and_marks_them(folder: Path) -> None:
    for seed, output in (("3", "a"), ("3", "b"), ("4", "c")):
        assert run("--seed", seed, output=output).exit_code == 0
    assert (folder / "a").read_bytes() == (folder / "b").read_bytes() != (folder / "c").read_bytes()
    assert all(line["seeded"] for line in lines(folder / "a"))
    assert {line["stream"] for line in lines(folder / "a")} == {"minutes", "compared"}
    assert run("--seed", "3", "--stream", "minutes", output="d").exit_code == 0
    assert lines(folder / "d") == [line for line in lines(folder / "a") if line["stream"] == "minutes"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--to", "2013-01-01T00:00:00Z"), "a value stream has no timestamps"),
        (("--from", "2013-01-01T00:00:00Z"), "a value stream has no timestamps"),
        (("--stream", "minuets"), "there is no stream minuets, only compared, minutes"),
    ],
)
def test_what_value_streams_do_not_have_is_wrong_usage(
    folder: Path, options: tuple[str, ...], message: str
) -> None:
    result = run(*options, *(() if "--to" in options or "--from" in options else ("--to", "last")))
    assert result.exit_code == 2
    assert message in result.stderr


def test_counts_and_values_are_replayed_apart(folder: Path) -> None:
    Path("t.yaml").write_text(SMALL + COUNTS)
    result = run("--to", "last")
    assert result.exit_code == 2
    assert "select one kind with --stream (minutes, compared are of values)" in result.stderr
    assert run("--stream", "minutes", "--to", "last").exit_code == 0
    assert "Missing option '--to'" in run("--stream", "destinations", "--force").stderr
    # No value is an event of that stream.
    assert run("--stream", "destinations", "--to", "last", "--force").exit_code == 3
