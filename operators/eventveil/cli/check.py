"""``eventveil check``: validates topologies without a broker and says what they promise."""

from __future__ import annotations

import os
from collections.abc import Iterator

import click

from eventveil.cli.loading import EXIT_INVALID
from eventveil.describe.guarantee import describe
from eventveil.describe.local import describe as describe_local
from eventveil.describe.sums import describe_total, describe_unbounded, totals, unbounded
from eventveil.describe.values import describe as describe_values
from eventveil.mechanisms.registry import of_stream, plugin_of
from eventveil.model.topology import Budget, Stream, Topology
from eventveil.privacy.noise import SystemNoise
from eventveil.topology.fields import Default
from eventveil.topology.loading import load_with_defaults
from eventveil.topology.problems import TopologyInvalid
from eventveil.values.kinds import build as build_values


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
    yield f"{topology.path}: valid"
    for stream in topology.streams:
        yield ""
        topics = f"{stream.source.topic_of_events} -> {stream.sink.topic}"
        yield f"Stream {stream.name}: {topics}, {stream.mechanism.kind}"
        if stream.is_local:
            yield from (f"  {line}" for line in describe_local(stream, topology.control))
            continue
        mechanism = of_stream(stream, SystemNoise())
        yield from (f"  {line}" for line in describe(stream, mechanism.guarantee))
        yield from (f"  {line}" for line in (*mechanism.notes, *_clipped(stream)))
        yield from (f"  {line}" for line in _origin(stream.mechanism.kind))
    for readings in topology.readings:
        yield ""
        yield f"Stream {readings.name}: {readings.source.topic} -> {readings.sink}, {readings.mechanism.kind}"
        lines = describe_values(readings, build_values(readings, SystemNoise()))
        yield from (f"  {line}" for line in lines)
    yield from _sums(topology)
    if defaults:
        yield ""
        yield "Defaults that this file relies on"
        yield from (f"  {default.setting}: {default.value}" for default in defaults)
    yield ""


def _clipped(stream: Stream) -> Iterator[str]:
    """What the minimum of a sink does to sums."""
    if stream.sink.minimum is not None:
        yield (
            f"Counts below {stream.sink.minimum} are released as {stream.sink.minimum} (minimum in the sink):"
            " it costs no budget and protects as before. Single counts err less; sums over columns or"
            " timestamps are biased upwards, by up to half the noise scale for each count that is really 0."
        )


def _origin(kind: str) -> Iterator[str]:
    """Whose word the guarantee is, if it is not that of Eventveil."""
    plugin = plugin_of(kind)
    if plugin is not None:
        yield (
            f"Plug-in {plugin.target} ({plugin.distribution}, source {plugin.source[:12]}): all of this is"
            f" its author's promise; `eventveil mechanisms test {kind}` tries what can be tried."
        )


def _sums(topology: Topology) -> Iterator[str]:
    budget, others = topology.budget, unbounded(topology)
    for total in totals(topology.streams, budget):
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
