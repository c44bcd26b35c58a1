"""Modules that privacy rests on open with what they promise and why it holds."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import eventveil
from eventveil.mechanisms.pan_private import PAN_PRIVATE
from eventveil.mechanisms.registry import KINDS

ROOT = Path(eventveil.__file__).parent
MODULES = [f"values/{name}.py" for name in ("stream", "threshold", "tree", "tops", "pak", "smoothers")]
MODULES += ["local/sampling.py", "local/reports.py", "mechanisms/local_estimator.py"]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_states_guarantee_source_and_changes(module: str) -> None:
    statement = statement_of(ROOT / module)
    for part in ("**Guarantee.**", "**Source.**", "**Changed.**"):
        assert part in statement, f"{module} lacks {part}"
    assert "None of its own" in statement or "**Proof.**" in statement, f"{module} lacks a proof"
    assert "ssumptions" in statement or module in UNCONDITIONAL, f"{module} lacks assumptions"


# Post-processing, and reports that are private whatever else holds.
UNCONDITIONAL = {
    "values/smoothers.py",
    "local/sampling.py",
    "local/reports.py",
    "mechanisms/local_estimator.py",
}


MECHANISMS = ROOT / "mechanisms"
#: Every module of the mechanisms promises something, except for these: interfaces, names, arithmetic.
WITHOUT_PROMISE = {
    "__init__", "arithmetic", "base", "groups", "movement", "nested", "packing", "plugins", "registry",
    "sampling", "segmentation", "sizes",
}  # fmt: skip
STATING = sorted(
    path.stem
    for path in MECHANISMS.glob("*.py")
    if path.stem not in WITHOUT_PROMISE and f"mechanisms/{path.name}" not in MODULES
)
SOURCE = r"\b(CCS|PVLDB|CIKM|STOC|NeurIPS|Jian Xue Bao|Zhang and Meng)\b"
PARTS = {
    "a guarantee": r"\*\*Guarantee\.\*\*",
    "neighbours": r"\b[Nn]eighbours\b",
    "assumptions": r"\b[Aa]ssumptions\b",
    "a proof": r"\*\*Proof(\.\*\*|\*\* \()",
}
#: What was changed is asked of a module that has its algorithm from somewhere.
OF_A_KIND = {"a source": SOURCE, "what was changed": r"\b[Cc]hanged\b"}


def lacking(statement: str, parts: dict[str, str]) -> list[str]:
    return [part for part, pattern in parts.items() if not re.search(pattern, statement)]


def statement_of(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def modules_of_kinds() -> Iterator[str]:
    for mechanism in (*KINDS.values(), *PAN_PRIVATE.values()):
        yield Path(str(sys.modules[mechanism.__module__].__file__)).stem


@pytest.mark.parametrize("module", STATING)
def test_a_mechanism_states_guarantee_assumptions_source_and_proof(module: str) -> None:
    statement = statement_of(MECHANISMS / f"{module}.py")
    parts = PARTS if module == "publishing" else PARTS | OF_A_KIND
    assert lacking(statement, parts) == []


def test_no_kind_is_excused() -> None:
    assert set(modules_of_kinds()) <= set(STATING)


@pytest.mark.parametrize("part", PARTS | OF_A_KIND)
def test_a_statement_without_one_of_its_parts_is_found(part: str) -> None:
    statement = statement_of(MECHANISMS / "budget_absorption.py")
    without = re.sub((PARTS | OF_A_KIND)[part], "", statement)
    assert lacking(without, PARTS | OF_A_KIND) == [part]
