"""The list of commands, which comes without importing them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import eventveil.cli
from eventveil.cli.main import COMMANDS, main
from tests.unit.cli.commands import made


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_list_exists_and_its_line_is_whole(name: str) -> None:
    assert made(name).name == name
    shown = CliRunner().invoke(main, ["--help"], terminal_width=80).output
    assert COMMANDS[name] in " ".join(shown.split())
    assert f"  {name}  " in shown


def test_every_command_of_the_folder_is_in_the_list() -> None:
    folder = Path(eventveil.cli.__file__).parent
    made_by_click = re.compile(r"^@click\.(command|group)\(", re.MULTILINE)
    modules = {path.stem for path in folder.glob("*.py") if made_by_click.search(path.read_text())}
    assert modules - {"main"} == set(COMMANDS)


def test_help_loads_no_command() -> None:
    program = (
        "import sys; from click.testing import CliRunner; from eventveil.cli.main import main;"
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0;"
        "print(sorted(name for name in sys.modules if name.startswith('eventveil')))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert shown.stdout == "['eventveil', 'eventveil.cli', 'eventveil.cli.main']\n"


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("chekc", "No such command 'chekc'. Did you mean check?"),
        ("audit", "No such command 'audit'. Did you mean ledger?"),
        ("xyz", "No such command 'xyz'.\n"),
    ],
)
def test_a_command_that_does_not_exist_is_wrong_usage(typed: str, told: str) -> None:
    result = CliRunner().invoke(main, [typed])
    assert (result.exit_code, isinstance(result.exception, SystemExit)) == (click.UsageError.exit_code, True)
    assert told in result.output
