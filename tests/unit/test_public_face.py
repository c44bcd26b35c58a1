"""``import eventveil`` gives what plug-ins need, and costs nothing until it is asked for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import eventveil

DOCS = Path(__file__).parents[2] / "docs"
PUBLIC = re.compile(r"eventveil(\.local|\.read)?")


@pytest.mark.parametrize("name", eventveil.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(eventveil, name) is not None
    assert name in dir(eventveil)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'eventveil' has no attribute 'Worker'"):
        _ = eventveil.Worker  # type: ignore[attr-defined]


def test_importing_it_loads_none_of_its_modules() -> None:
    program = "import sys, eventveil; print([name for name in sys.modules if name.startswith('eventveil.')])"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")) + sorted(DOCS.rglob("*.py")), ids=str)
def test_the_docs_import_nothing_else(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for module in re.findall(r"^\s*(?:from|import) (eventveil[\w.]*)", text, re.MULTILINE):
        assert PUBLIC.fullmatch(module), f"{path.name} imports {module}"
