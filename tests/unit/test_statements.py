"""Modules that privacy rests on open with what they promise and why it holds."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import operators

ROOT = Path(operators.__file__).parent
MODULES = [f"values/{name}.py" for name in ("stream", "threshold", "tree", "tops", "pak", "smoothers")]
MODULES += [f"local/{name}.py" for name in ("sampling", "reports", "server")]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_states_guarantee_source_and_changes(module: str) -> None:
    statement = ast.get_docstring(ast.parse((ROOT / module).read_text())) or ""
    for part in ("**Guarantee.**", "**Source.**", "**Changed.**"):
        assert part in statement, f"{module} lacks {part}"
    assert "None of its own" in statement or "**Proof.**" in statement, f"{module} lacks a proof"
    assert "ssumptions" in statement or module in UNCONDITIONAL, f"{module} lacks assumptions"


# Post-processing, and reports that are private whatever else holds.
UNCONDITIONAL = {"values/smoothers.py", "local/sampling.py", "local/reports.py", "local/server.py"}
