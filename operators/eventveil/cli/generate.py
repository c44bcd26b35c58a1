"""``eventveil generate``: events of nobody, to try things out."""

from __future__ import annotations

import re

import click

from eventveil.advise.generating import Events, Traffic, draw, json_lines, labels, user_names
from eventveil.advise.writing import TopologyPlan
from eventveil.cli.files import refuse_existing, write_topology
from eventveil.cli.options import TimeOption
from eventveil.cli.words import exit_on_error
from eventveil.model.errors import EventveilError
from eventveil.model.timeline import format_rfc3339
from eventveil.topology.periods import HOUR
from eventveil.topology.spec import NAME, NAME_EXPECTED

_MOST = 100_000_000
#: How many events a user has on average, if nobody says how many users there are.
_EACH = 20


def _name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not re.fullmatch(NAME, value):
        raise click.BadParameter(f"{value!r} should be {NAME_EXPECTED}")
    return value


@click.command()
@click.argument("name", callback=_name)
@click.option(
    "--output", metavar="FILE", required=True,
    help="Parquet if it ends in .parquet, else JSON lines; - is standard output.",
)  # fmt: skip
@click.option("--events", type=click.IntRange(1, _MOST), default=90_000, show_default=True)
@click.option("--days", type=click.IntRange(1, 3_660), default=7, show_default=True)
@click.option("--columns", type=click.IntRange(1, 100_000), default=8, show_default=True)
@click.option(
    "--users", type=click.IntRange(1, _MOST),
    help=f"Number of users; some visit often, some never; default: one per {_EACH} events.",
)  # fmt: skip
@click.option(
    "--from", "start", type=TimeOption(), metavar="TIME", default="2026-01-05T00:00:00Z", show_default=True,
    help="When the first day begins, at a full hour; the default is a Monday.",
)  # fmt: skip
@click.option(
    "--skew", type=click.FloatRange(0, 4), default=1.0, show_default=True,
    help="The share of events in the column of rank k is proportional to 1/k^skew; 0: equal shares.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Random seed.")
@click.option(
    "--topology", metavar="FILE", help="Also write a topology that counts them; - is standard output."
)
@click.option("--force", is_flag=True, help="Replace files that exist.")
def generate(
    name: str,
    output: str,
    events: int,
    days: int,
    columns: int,
    users: int | None,
    start: int,
    skew: float,
    seed: int,
    topology: str | None,
    force: bool,
) -> None:
    """Generate events that look like the traffic of a web site called NAME.

    Users come in sessions of several views, more by day than by night and more at weekends. An event has the
    fields user, column and time. They are synthetic: replay and compare on them as often as you like.
    """
    refuse_existing({"--output": output, "--topology": topology}, force)
    if output == topology == "-":
        raise click.UsageError("--output and --topology cannot both be standard output")
    if start % HOUR:
        raise click.UsageError("--from: the first day should begin at a full hour")
    traffic = Traffic(start, days, events, columns, users or max(1, events // _EACH), skew, seed)
    with exit_on_error("generate", OSError):
        _write(output, draw(traffic), traffic)
        if topology is not None:
            write_topology(topology, _plan(name, traffic))
    begins, ends = format_rfc3339(start), format_rfc3339(start + days * 24 * HOUR)
    click.echo(
        f"eventveil generate: {events:,} events of {traffic.users:,} users in {columns:,} columns,"
        f" from {begins} to {ends}",
        err=True,
    )


def _write(output: str, events: Events, traffic: Traffic) -> None:
    if output.endswith(".parquet"):
        _write_parquet(output, events, traffic)
        return
    lines = json_lines(events, user_names(traffic.users), labels(traffic.columns))
    if output == "-":
        click.get_binary_stream("stdout").writelines(lines)
        return
    with open(output, "wb") as file:
        file.writelines(lines)


def _write_parquet(output: str, events: Events, traffic: Traffic) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise EventveilError(
            f"{output} would be a Parquet file, and pyarrow, which writes these, is missing; install "
            "Eventveil with its extra arrow (pip install '.[arrow]'), or choose another extension for "
            "JSON lines"
        ) from None
    names = {
        "user": (events.users, user_names(traffic.users)),
        "column": (events.columns, labels(traffic.columns)),
    }
    table = {
        field: pa.DictionaryArray.from_arrays(pa.array(numbers.astype("int32")), pa.array(texts, pa.string()))
        for field, (numbers, texts) in names.items()
    }
    table["time"] = pa.array(events.times, pa.timestamp("ms", tz="UTC"))
    pq.write_table(pa.table(table), output)


def _plan(name: str, traffic: Traffic) -> TopologyPlan:
    return TopologyPlan(
        name=name,
        stream="views",
        topic=f"{name}.views",
        user="/user",
        column="/column",
        time="/time",
        interval=HOUR,
        origin=traffic.start,
        columns=labels(traffic.columns),
        kind="seasonal",
        epsilon="1",
        window=24,
        remarks=(
            "Counts what `eventveil generate` writes: each hour, how many users viewed each section first.",
            "`contributions: 1` counts only a user's first view of the hour. A larger number counts more",
            "views, with proportionally more noise; `eventveil advise` compares that, and days with hours.",
        ),
    )
