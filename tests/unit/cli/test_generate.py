from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eventveil.cli.main import main


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def generate(*options: str) -> Result:
    return CliRunner().invoke(main, ["generate", "shop", "--events", "2000", *options])


def test_the_topology_that_is_written_counts_every_event_of_both_formats() -> None:
    made = generate("--output", "shop.jsonl", "--topology", "shop.yaml")
    assert made.exit_code == 0, made.output
    assert "2,000 events of 100 users in 8 columns, from 2026-01-05T00:00:00Z" in made.stderr
    assert generate("--output", "shop.parquet").exit_code == 0
    arguments = ["replay", "shop.yaml", "--to", "last", "--seed", "1", "--show-drops"]
    told = []
    for events in ("shop.jsonl", "shop.parquet"):
        result = CliRunner().invoke(main, [*arguments, "--input", events, "--output", f"{events}.out"])
        assert result.exit_code == 0, result.output
        told += [line for line in result.stderr.splitlines() if "views read" in line]
    assert told[0] == told[1]
    assert sum(int(word) for word in told[0].replace(",", "").split() if word.isdigit()) == 2_000
    assert Path("shop.jsonl.out").read_bytes() == Path("shop.parquet.out").read_bytes()


def test_files_that_exist_are_replaced_by_force_only() -> None:
    Path("shop.jsonl").write_text("mine")
    refused = generate("--output", "shop.jsonl")
    assert (refused.exit_code, Path("shop.jsonl").read_text()) == (2, "mine")
    assert generate("--output", "shop.jsonl", "--force").exit_code == 0
    same = generate("--output", "x.jsonl", "--topology", "./x.yaml/../x.jsonl")
    assert (same.exit_code, Path("x.jsonl").exists()) == (2, False)


@pytest.mark.parametrize(
    "options", [("--from", "2026-01-05T00:30:00Z"), ("--events", "0"), ("--from", "Monday")]
)
def test_what_cannot_be_generated_is_wrong_usage(options: tuple[str, ...]) -> None:
    assert generate("--output", "-", *options).exit_code == 2


def test_a_name_that_no_topology_can_have_is_wrong_usage() -> None:
    result = CliRunner().invoke(main, ["generate", "My Shop", "--output", "-"])
    assert result.exit_code == 2
    assert "lower-case letters" in result.stderr
