"""Folders say what they are, docs/architecture.md walks all of them, and one does not load the others."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import eventveil

ROOT = Path(__file__).parents[2]
PACKAGE = Path(eventveil.__file__).parent
FOLDERS = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
#: What is imported from outside, with names in its ``__init__``.
FACES = {"", "local", "read", "mechanisms/contract"}


def name_of(folder: Path) -> str:
    return folder.relative_to(PACKAGE).as_posix().removeprefix(".")


def layers() -> list[set[str]]:
    """The heights of the import rule, from the lowest."""
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    return [set(height.split(" | ")) for height in reversed(rules["contracts"][0]["layers"])]


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_a_folder_opens_with_one_line_that_says_what_it_is(folder: Path) -> None:
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    first, _, rest = text.partition("\n")
    assert re.fullmatch(r"[A-Z].{20,}\.", first), f"{folder} opens with {first!r}"
    assert not rest or rest.startswith("\n")


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_only_what_is_imported_from_outside_has_names_in_its_init(folder: Path) -> None:
    body = ast.parse((folder / "__init__.py").read_text(encoding="utf-8")).body
    assert (len(body) > 1) == (name_of(folder) in FACES)


def test_the_page_walks_every_folder_from_the_lowest_to_the_highest() -> None:
    walked = re.findall(r"^\| `([a-z_]+)/` \|", PAGE, re.MULTILINE)
    assert set(walked) == {name_of(folder) for folder in FOLDERS if folder.parent == PACKAGE}
    heights = [next(at for at, names in enumerate(layers()) if name in names) for name in walked]
    assert heights == sorted(heights)


def test_a_mechanism_loads_little() -> None:
    program = (
        "import sys, eventveil.mechanisms.uniform; "
        "print(sum(name.partition('.')[0] == 'eventveil' for name in sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 10 < int(shown.stdout) <= 20


def test_a_class_name_stands_once() -> None:
    defined = [
        node.name
        for file in sorted(PACKAGE.rglob("*.py"))
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    ]
    assert len(defined) > 500
    assert [name for name, count in Counter(defined).items() if count > 1] == []
