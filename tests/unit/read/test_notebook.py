"""docs/examples/reading.ipynb runs from top to bottom in a kernel of its own."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[3] / "docs" / "examples" / "reading.ipynb"


def test_the_notebook_runs_and_shows_its_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # So that the kernel finds the command of this environment.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "keep the notebook without outputs"
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    (told,) = (output["text"] for output in outputs if output.get("name") == "stdout")
    covered, independent = map(int, re.findall(r"(\d+)%", told))
    assert covered >= 85
    assert independent <= covered
