"""Times on the command line."""

from __future__ import annotations

from typing import Any

import click

from eventveil.model.timeline import parse_rfc3339

LAST = "last"


class Time(click.ParamType):
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
