"""``import eventveil`` gives what plug-ins need, and costs nothing until it is asked for."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import eventveil

ROOT = Path(__file__).parents[2]
TEXTS = sorted(
    path
    for folder in ("docs", "examples")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".md", ".py", ".ipynb"}
)
#: In a notebook a line of code is a JSON string, so it may begin after a quote.
IMPORT = re.compile(r"""^[\s"]*(?:from|import) (eventveil[\w.]*)""", re.MULTILINE)
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


@pytest.mark.parametrize("module", ["local", "read"])
def test_a_module_is_an_attribute_of_the_package_without_an_import_of_its_own(module: str) -> None:
    program = f"import eventveil; print(eventveil.{module}.__name__)"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout == f"eventveil.{module}\n"


def test_imports_are_found_in_every_form_of_text() -> None:
    assert IMPORT.findall("from eventveil.kafka import x\nimport eventveil\n") == [
        "eventveil.kafka",
        "eventveil",
    ]
    assert IMPORT.findall('    "import eventveil.kafka.log\\n",\n') == ["eventveil.kafka.log"]
    assert {path.suffix for path in TEXTS} == {".md", ".py", ".ipynb"}


@pytest.mark.parametrize("path", [ROOT / "README.md", *TEXTS], ids=lambda path: str(path.relative_to(ROOT)))
def test_the_docs_import_nothing_else(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for module in IMPORT.findall(text):
        assert PUBLIC.fullmatch(module), f"{path.name} imports {module}"
