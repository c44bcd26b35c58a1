"""Files that are complete or not there, whatever ends the writing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from eventveil.process.atomic_file import appearing


def test_a_file_gets_its_name_at_the_end_and_replaces_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    with appearing(str(path)) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["out"]
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("error", [OSError, SystemExit, KeyboardInterrupt])
def test_an_exception_leaves_nothing_behind(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), appearing(str(tmp_path / "out")):
        raise error
    assert [*tmp_path.iterdir()] == []


def test_a_signal_that_comes_when_the_file_was_just_made_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def interrupted(*arguments: Any) -> int:
        os.close(opened(*arguments))
        raise SystemExit

    monkeypatch.setattr(os, "open", interrupted)
    with pytest.raises(SystemExit), appearing(str(tmp_path / "out")):
        raise AssertionError
    assert [*tmp_path.iterdir()] == []
