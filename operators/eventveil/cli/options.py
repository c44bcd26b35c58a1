"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from eventveil.model.timeline import parse_rfc3339
from eventveil.process.memory import DEFAULT_SHARE, default_limit, format_size, parse_size, resident

LAST = "last"


class Size(click.ParamType):
    """A size in bytes, such as 4GiB, or "off", which is None."""

    name = "size"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """How the help shows it."""
        return "SIZE|off"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """Fails, which is wrong usage, for anything else."""
        if value == "off":
            return None
        if isinstance(value, int):
            return value
        try:
            size = parse_size(value)
        except ValueError as error:
            self.fail(f"{value!r} {error}, or off", param, ctx)
        if size <= (taken := resident()):
            self.fail(f"{value!r} should be more than the {format_size(taken)} taken by now", param, ctx)
        return size


class TimeOption(click.ParamType):
    """An RFC 3339 time as epoch milliseconds; the word ``last``, where it is allowed, as None."""

    name = "time"

    def __init__(self, last: bool = False) -> None:
        self._last = last

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        """Fails, which is wrong usage, for anything else."""
        if isinstance(value, int) or (self._last and value == LAST):
            return value if isinstance(value, int) else None
        try:
            return parse_rfc3339(value)
        except ValueError as error:
            self.fail(f"{value!r} is {error}{', nor the word last' if self._last else ''}", param, ctx)


witness_file = click.Path(dir_okay=False, path_type=Path)

memory_limit = click.option(
    "--memory-limit",
    type=Size(),
    default=default_limit,
    show_default="{}/{} of the memory of the machine or the control group".format(*DEFAULT_SHARE),
    help="Stop, with status 75, when the process holds this much memory, such as 4GiB.",
)
