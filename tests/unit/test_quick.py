"""``make quick`` leaves out two dozen tests or files of tests at most, and ``make test`` none."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_at_most_two_dozen_tests_are_left_out() -> None:
    marks = re.compile(r"^.*\bpytest\.mark\.slow\b.*$", re.MULTILINE)
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if path != Path(__file__)
        for line in marks.findall(path.read_text(encoding="utf-8"))
    ]
    assert 1 <= len(found) <= 24, found
    assert all(one.startswith(("tests/unit/", "tests/contract/")) for one in found)


def test_only_the_quick_command_leaves_tests_out() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert makefile.count("not slow") == 1
    recipe = makefile.partition("\nquick:")[2].partition("\n\n")[0]
    assert "not slow" in recipe
    assert "addopts" not in re.findall(r"^.*not slow.*$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
