"""The commands of ``eventveil`` as objects."""

from __future__ import annotations

import click

from eventveil.cli.main import main


def made(name: str) -> click.Command:
    """The command of that name."""
    command = main.get_command(click.Context(main), name)
    assert command is not None, f"there is no command {name}"
    return command
