"""docs/reading.md: its blocks run one after the other, as a reader would run them."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eventveil.cli.main import main
from eventveil.read.correlation import FILTERED, NOISY
from eventveil.read.summing import Sums

PAGE = (Path(__file__).parents[3] / "docs" / "reading.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^(<!-- needs a broker -->\n)?```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    before = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


def commands(block: str) -> Iterator[list[str]]:
    for line in block.splitlines():
        if line.startswith("eventveil "):
            yield shlex.split(line)[1:]


def test_the_blocks_of_the_page_run_in_their_order(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    run, shown, printed = 0, 0, ""
    for broker, language, block in BLOCK.findall(PAGE):
        if language == "yaml":
            (folder / "shop.yaml").write_text(block, encoding="utf-8")
        elif language == "python" and not broker:
            exec(compile(block, f"block {run} of docs/reading.md", "exec"), names)
            printed = capsys.readouterr().out
            run += 1
        elif language == "text":
            assert printed == block
            shown += 1
        for arguments in commands(block) if not language else ():
            result = CliRunner().invoke(main, arguments)
            assert result.exit_code == 0, result.output
            run += 1
    assert (run, shown) == (14, 6)
    assert {"views.parquet", "days.csv", "baskets.csv"} <= set(os.listdir(folder))


def test_the_table_of_sums_has_every_attribute() -> None:
    table = PAGE[PAGE.index("| attribute | is |") :].partition("\n\n")[0]
    told = [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(told) == sorted(one.name for one in fields(Sums))


def test_the_broker_blocks_of_the_page_compile() -> None:
    blocks = [block for broker, language, block in BLOCK.findall(PAGE) if broker]
    assert len(blocks) == 1
    assert "read.topic(" in blocks[0]
    compile(blocks[0], "docs/reading.md", "exec")


def test_the_rule_of_the_page_is_that_of_the_code() -> None:
    assert f"fully, {FILTERED.between} with the next, {FILTERED.between**2:.2f} with the one after" in PAGE
    assert f"{FILTERED.lasting} of the rest where releases are flat, and less where they go" in PAGE
    moved, filtered = NOISY.columns, FILTERED.columns
    assert (
        f"a correlation of {moved} between columns, and errors of kinds that filter have one of {filtered}"
        in PAGE
    )
