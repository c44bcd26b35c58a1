"""``eventveil check``: validates topologies without a broker and says what they promise."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import click

from eventveil.cli.loading import EXIT_INVALID
from eventveil.describe.sums import describe_total, describe_unbounded, totals
from eventveil.kinds.registry import in_sums, kind_of, unbounded
from eventveil.model.timeline import format_rfc3339
from eventveil.model.topology import Budget, Timeline, Topology
from eventveil.topology.fields import Default
from eventveil.topology.loading import load_with_defaults
from eventveil.topology.problems import TopologyInvalid
from eventveil.topology.scalars import duration_text

#: Above this many intervals, lateness is probably a mistake.
_LATE = 10


@click.command()
@click.argument("topologies", metavar="TOPOLOGY...", nargs=-1, required=True, type=click.Path())
@click.pass_context
def check(context: click.Context, topologies: tuple[str, ...]) -> None:
    """Validate topology files and print what they promise.

    Every mistake is printed as file:line:column: what is wrong, what would be right. Exit status 78 if any
    file has one. No broker is needed.
    """
    valid = True
    for path in topologies:
        try:
            topology, defaults = load_with_defaults(path, os.environ)
        except TopologyInvalid as invalid:
            click.echo(str(invalid), err=True)
            valid = False
        else:
            click.echo("\n".join(report(topology, defaults)))
    context.exit(0 if valid else EXIT_INVALID)


def report(topology: Topology, defaults: tuple[Default, ...]) -> Iterator[str]:
    """The lines that are printed for a valid topology."""
    timelines = {stream.name: stream.timeline for stream in topology.streams}
    yield f"{topology.path}: valid"
    for stream in topology.all_streams:
        kind = kind_of(stream)
        yield ""
        topics = f"{stream.source.topic_of_events} -> {stream.sink_topic}"
        yield f"Stream {stream.name}: {topics}, {stream.mechanism.kind}"
        yield from (f"  {line}" for line in kind.describe(topology, stream))
        if (timeline := timelines.get(stream.name)) is not None:
            yield from (f"  Note: {line}" for line in _doubtful(timeline, time.time_ns() // 1_000_000))
    yield from _sums(topology)
    if defaults:
        yield ""
        yield "Defaults that this file relies on"
        yield from (f"  {default.setting}: {default.value}" for default in defaults)
    yield ""


def _doubtful(timeline: Timeline, now: int) -> Iterator[str]:
    """What is allowed and rarely intended; ``now`` in epoch milliseconds."""
    begins = timeline.origin if timeline.start is None else max(timeline.origin, timeline.start)
    if begins > now:
        yield f"it begins in the future, at {format_rfc3339(begins)}; events before that do not count."
    intervals = timeline.lateness // timeline.interval
    if intervals > _LATE:
        yield (
            f"lateness is {intervals} intervals: each release comes at least"
            f" {duration_text(timeline.lateness)} after its timestamp ends, and {intervals} timestamps or"
            " more are open at once."
        )


def _sums(topology: Topology) -> Iterator[str]:
    budget, others = topology.budget, unbounded(topology)
    for total in totals(in_sums(topology), budget):
        yield ""
        yield f"Sum over the streams of population {total.population}"
        yield from (f"  {line}" for line in describe_total(total, others.pop(total.population, ())))
        yield from _outside(budget, total.population)
    for population, streams in others.items():
        yield ""
        yield f"No sum over the streams of population {population}"
        yield from (f"  {describe_unbounded(one)}" for one in streams)
        yield from _outside(budget, population)
    if budget is None:
        yield ""
        yield "No budget: nothing caps what the streams of this file cost together."
        yield "Other topologies over the same people add to it."


def _outside(budget: Budget | None, population: str) -> Iterator[str]:
    if budget is not None and budget.population != population:
        yield f"  the budget caps {budget.population}; this population is outside it"
