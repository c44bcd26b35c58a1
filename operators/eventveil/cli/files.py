"""Files that a command writes, and what becomes of those that are there."""

from __future__ import annotations

import os
from pathlib import Path

import click

from eventveil.advise.writing import TopologyPlan, listed_apart, topology_text
from eventveil.process.atomic_file import STANDARD_OUTPUT


def refuse_existing(paths: dict[str, str | None], force: bool, *, read: str | None = None) -> None:
    """Raises UsageError, which names the option, if a file is not to be replaced, or is written twice.

    ``paths`` are by option, ``read`` is the file given as ``--input``. An empty file holds nothing to lose.
    """
    used = {} if read is None else {os.path.realpath(read): "--input"}
    for option, path in paths.items():
        if path is None:
            continue
        place = os.path.realpath(path)
        # A device, such as /dev/null, may be written to by several.
        if place in used and (not os.path.exists(place) or os.path.isfile(place)):
            raise click.UsageError(f"{option} and {used[place]} are the same file, {path}")
        used[place] = option
        if path != STANDARD_OUTPUT and os.path.isfile(path) and os.path.getsize(path) and not force:
            raise click.UsageError(f"{option}: {path} exists; --force replaces it")


def write_topology(path: str, plan: TopologyPlan) -> tuple[str, ...]:
    """Write a topology, to standard output for ``-``; the names of all files. Raises OSError.

    Many columns are in a file beside it, which is replaced.
    """
    if path == STANDARD_OUTPUT:
        click.echo(topology_text(plan), nl=False)
        return ()
    if not listed_apart(plan.columns):
        Path(path).write_text(topology_text(plan), encoding="utf-8")
        return (path,)
    beside = Path(path).with_suffix(".columns.txt")
    beside.write_text("".join(f"{label}\n" for label in plan.columns), encoding="utf-8")
    Path(path).write_text(topology_text(plan, beside.name), encoding="utf-8")
    return path, str(beside)
