"""A file that cannot be opened is told alike by every command: which one, why, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from eventveil.cli.main import main

NOWHERE = "/nowhere/file"
TOPOLOGY = str(Path(__file__).parents[3] / "topologies" / "flights.yaml")


@pytest.mark.parametrize(
    "arguments",
    [
        ("advise", f"{NOWHERE}.jsonl"),
        ("doctor", TOPOLOGY, "--input", f"{NOWHERE}.jsonl"),
        ("generate", "shop", "--output", f"{NOWHERE}.jsonl", "--days", "1"),
        ("replay", TOPOLOGY, "--input", f"{NOWHERE}.jsonl", "--output", "-"),
        ("report", TOPOLOGY, "--without-audit", "--output", f"{NOWHERE}.html"),
    ],
    ids=lambda one: one[0],
)
def test_a_file_that_cannot_be_opened_is_told_with_its_path_and_the_remedy(
    arguments: tuple[str, ...],
) -> None:
    found = CliRunner().invoke(main, [*arguments])
    told = found.stderr.splitlines()[-1]
    assert (found.exit_code, "Errno" in told) == (1, False), told
    assert told.startswith(f"eventveil {arguments[0]}: {NOWHERE}")
    assert "No such file or directory" in told
    assert told.endswith("check the path and its permissions")
