"""``eventveil export``: releases as a table, in Parquet or CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import click
import numpy as np
import yaml
from confluent_kafka import KafkaException

from eventveil.cli.files import refuse_existing
from eventveil.cli.loading import is_topology, load_or_exit
from eventveil.cli.options import TimeOption
from eventveil.cli.progress import Told, progress
from eventveil.cli.words import fail, stop_if_unread, words_of
from eventveil.describe.guarantee import count
from eventveil.model.errors import EventveilError
from eventveil.process.atomic_file import appearing
from eventveil.read.exporting import WRITERS
from eventveil.read.problems import ReadingError
from eventveil.read.releases import Releases
from eventveil.read.sources import file, stream_of, topic
from eventveil.read.tables import Table


@click.command()
@click.argument("source", metavar="TOPOLOGY|FILE")
@click.option("--output", metavar="FILE", required=True, help="Where the table goes; - is standard output.")
@click.option(
    "--format", "kind", type=click.Choice([*WRITERS]),
    help="Default: by the extension of the output, csv for standard output.",
)  # fmt: skip
@click.option("--stream", help="The stream to export; optional if there is only one.")
@click.option(
    "--from", "start", type=TimeOption(), metavar="TIME", help="Leave out releases that begin before TIME."
)
@click.option(
    "--to", "end", type=TimeOption(), metavar="TIME", help="Leave out releases that end after TIME."
)
@click.option(
    "--long/--wide", "is_long", default=True,
    help="A row for each time and column, with interval (default), or for each time, with a column each.",
)  # fmt: skip
@click.option("--every", metavar="SPAN", help="Sum over spans such as 6h, 1d or 1w, or over all.")
@click.option(
    "--zone", metavar="ZONE", help="Time zone in which days begin, such as Europe/Berlin; default: UTC."
)
@click.option("--average", is_flag=True, help="Report averages per timestamp instead of sums.")
@click.option("--partial", is_flag=True, help="Also sum spans that are only partly covered.")
@click.option("--columns", metavar="NAME,...", help="Only these columns, in this order.")
@click.option(
    "--groups", metavar="FILE", help="Sum over groups of columns: a YAML file with names and their columns."
)
@click.option(
    "--non-negative", is_flag=True,
    help="Adjust counts to at least 0, keeping the sum of each release; not for sums.",
)  # fmt: skip
@click.option(
    "--level", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95, show_default=True,
    help="Confidence level of the intervals.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace a file that exists.")
def export(
    source: str,
    output: str,
    kind: str | None,
    stream: str | None,
    start: int | None,
    end: int | None,
    is_long: bool,
    every: str | None,
    zone: str | None,
    average: bool,
    partial: bool,
    columns: str | None,
    groups: str | None,
    non_negative: bool,
    level: float,
    force: bool,
) -> None:
    """Write the releases of a stream as a table.

    They are read from its sink, if a TOPOLOGY (.yaml) is given, or from a FILE that `eventveil replay` wrote.
    It costs no budget. Every count comes with its expected error and an interval; so do sums.
    """
    write = WRITERS[_kind(kind, output)]
    refuse_existing({"--output": output}, force)
    if every is None and groups is None and (average or partial or zone is not None):
        raise click.UsageError("--average, --partial and --zone apply to sums: add --every or --groups")
    if non_negative and (every is not None or groups is not None):
        raise click.UsageError(
            "--non-negative with --every or --groups: sums of adjusted counts are biased (upwards in small "
            "columns), so their intervals would be wrong. Leave out --non-negative to sum released counts"
        )
    form: Literal["long", "wide"] = "long" if is_long else "wide"
    empty = 0
    try:
        named = _groups(groups)
        releases = _read(source, stream, start, end)
        if columns is not None:
            releases = releases.select(columns.split(","))
        if non_negative:
            releases = releases.non_negative()
        if every is None and named is None:
            pieces, total, unit = releases.pieces(form, level), len(releases), "timestamp"
        else:
            sums = releases.totals(every, zone=zone, groups=named, level=level, partial=partial)
            empty = 0 if partial else len(sums) - int(sums.complete.sum())
            pieces, total, unit = (sums.per_timestamp() if average else sums).pieces(form), len(sums), "total"
        with appearing(output) as opened, progress("writing") as told:
            write(_counted(pieces, total, told), opened)
    except (EventveilError, KafkaException) as error:
        fail("export", words_of(error))
    except OSError as error:
        stop_if_unread(error)
        what = f"{error.filename or output}: {error.strerror or error}"
        fail("export", f"{what}; check the path and its permissions")
    click.echo(f"eventveil export: {count(total, unit)} of {releases.stream}, in {output}", err=True)
    if empty:
        which = f"{empty} of them {'is' if empty == 1 else 'are'} empty"
        click.echo(f"eventveil export: {which}: no release for a part of the span; see --partial", err=True)


def _kind(kind: str | None, output: str) -> str:
    found = kind or ("csv" if output == "-" else output.rpartition(".")[2])
    if found not in WRITERS:
        raise click.UsageError(f"--output {output} does not end with .csv or .parquet: add --format")
    return found


def _read(source: str, stream: str | None, start: int | None, end: int | None) -> Releases:
    first, last = _time(start), _time(end)
    if not is_topology(source):
        with progress("reading") as told:
            return file(source, stream, start=first, end=last, progress=told)
    loaded = load_or_exit(source)
    stream_of(loaded, stream)
    with progress("reading") as told:
        return topic(loaded, stream=stream, start=first, end=last, progress=told)


def _time(milliseconds: int | None) -> np.datetime64 | None:
    return None if milliseconds is None else np.datetime64(milliseconds, "ms")


def _groups(path: str | None) -> Mapping[str, Sequence[str]] | None:
    """The groups in a file. Raises ReadingError and OSError."""
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as opened:
            found = yaml.safe_load(opened)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ReadingError(path, f"it is not YAML ({error})", _SUCH_AS) from None
    if not isinstance(found, dict) or not all(isinstance(one, list) for one in found.values()):
        raise ReadingError(path, "it is not a mapping from names to lists of columns", _SUCH_AS)
    return {str(name): [str(column) for column in columns] for name, columns in found.items()}


_SUCH_AS = "Write it like `north: [oslo, bergen]`, a line for each group"


def _counted(pieces: Iterator[Table], total: int, told: Told) -> Iterator[Table]:
    done = 0
    for piece in pieces:
        yield piece
        done += len(np.unique(piece["time"]))
        told(done, total)
