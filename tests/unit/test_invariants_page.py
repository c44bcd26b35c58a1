"""docs/invariants.md has every invariant that is cited, and what it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest
from click.testing import CliRunner

from eventveil.audit.findings import Invariant
from eventveil.cli.main import main
from tests.chaos.mutants import MUTANTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "invariants.md").read_text(encoding="utf-8")
SECTIONS = {part[:2]: part for part in PAGE.split("\n## ")[1:]}
NAMED = re.findall(r"`((?:operators|tests)/[a-z_/]+(?:\.py)?)(?:::(test_[a-z0-9_]+))?`", PAGE)


def test_there_are_eight_and_each_says_what_keeps_it_and_what_shows_it() -> None:
    assert list(SECTIONS) == [f"I{number}" for number in range(1, 9)]
    for section in SECTIONS.values():
        kept, shown = (section.index(f"\n- *{part} by*: ") for part in ("Kept", "Shown"))
        assert "`operators/" in section[kept:shown]
        assert "`tests/" in section[shown:]


def test_every_invariant_that_code_cites_is_on_the_page() -> None:
    sources = [*(ROOT / "operators").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    cited = {name for path in sources for name in re.findall(r"\bI[1-9]\b", path.read_text(encoding="utf-8"))}
    assert {"I1", "I2", "I5", "I6", "I7"} <= cited <= set(SECTIONS)
    assert set(get_args(Invariant)) <= set(SECTIONS)


def test_the_audit_points_to_the_page() -> None:
    assert "docs/invariants.md" in CliRunner().invoke(main, ["ledger", "--help"]).output


@pytest.mark.parametrize(("file", "test"), NAMED, ids=lambda part: part.rpartition("/")[2])
def test_what_the_page_names_exists(file: str, test: str) -> None:
    path = ROOT / file
    assert path.exists()
    if test:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert test in {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }


def test_the_workers_that_were_broken_on_purpose_are_of_the_chaos_run() -> None:
    broken = "".join(re.findall(r"^- \*Broken on purpose\*: (.*)$", PAGE, re.MULTILINE))
    assert set(re.findall(r"`([a-z-]+)`", broken)) <= set(MUTANTS)
