"""Files that a command writes, and what becomes of those that are there."""

from __future__ import annotations

import os
from pathlib import Path

import click

from eventveil.advise.writing import TopologyPlan, listed_apart, topology_text


def refuse_existing(paths: dict[str, str | None], force: bool) -> None:
    """Raises UsageError, which names the option, if a file exists that is not to be replaced."""
    seen: dict[str, str] = {}
    for option, path in paths.items():
        if path is None or path == "-":
            continue
        if (other := seen.setdefault(os.path.realpath(path), option)) != option:
            raise click.UsageError(f"{other} and {option} are the same file, {path}")
        if os.path.isfile(path) and not force:
            raise click.UsageError(f"{option}: {path} exists; --force replaces it")


def write_topology(path: str, plan: TopologyPlan) -> tuple[str, ...]:
    """Write a topology, to standard output for ``-``; the names of all files. Raises OSError.

    Many columns are in a file beside it, which is replaced.
    """
    if path == "-":
        click.echo(topology_text(plan), nl=False)
        return ()
    if not listed_apart(plan.columns):
        Path(path).write_text(topology_text(plan), encoding="utf-8")
        return (path,)
    beside = Path(path).with_suffix(".columns.txt")
    beside.write_text("".join(f"{label}\n" for label in plan.columns), encoding="utf-8")
    Path(path).write_text(topology_text(plan, beside.name), encoding="utf-8")
    return path, str(beside)
