"""``eventveil migrate``: goes on with streams whose topology changed, where that is sound."""

from __future__ import annotations

import sys

import click
from confluent_kafka import KafkaException

from eventveil.cli.loading import EXIT_FAILED, load_or_exit
from eventveil.errors import EventveilError
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.layout import Layout
from eventveil.kafka.lives import Keeper, Step, pan_private_genesis
from eventveil.privacy.changes import Crossing, Terms
from eventveil.privacy.guarantee import number
from eventveil.streams import merged_streams, plan_streams
from eventveil.topology.changes import SAME_LIFE
from eventveil.topology.model import Topology


@click.command()
@click.argument("topology")
@click.option("--apply", is_flag=True, help="Write the changes; without it nothing is written or fenced.")
@click.option(
    "--lost",
    is_flag=True,
    help="Go on even where events are gone that were not released yet: without them.",
)
@click.option(
    "--partitions-from",
    "since",
    type=int,
    metavar="TIMESTAMP",
    help="Where a source got more partitions: the first timestamp that is counted in all of them; default: "
    "the first that is possible.",
)
def migrate(topology: str, apply: bool, lost: bool, since: int | None) -> None:
    """Let the streams of TOPOLOGY go on under the settings that it has now.

    What was spent is kept: a window across the change, of the larger width, stays within the larger epsilon,
    and what cannot be paid is repeated. A change that cannot be sound is refused by name. The workers must be
    stopped. Exit status 1 if anything was refused; a stream is changed entirely or not at all.
    """
    loaded = load_or_exit(topology)
    try:
        changed = _migrate(loaded, apply=apply, lost=lost, since=since)
    except (EventveilError, KafkaException) as error:
        click.echo(f"eventveil migrate: {error}", err=True)
        sys.exit(EXIT_FAILED)
    if changed and not apply:
        click.echo("nothing was written; stop the workers and add --apply")


def _migrate(topology: Topology, *, apply: bool, lost: bool, since: int | None) -> bool:
    cluster = Cluster(topology.kafka)
    layout = Layout(topology, cluster) if topology.streams else None
    keepers = [Keeper(topology, cluster, plan, layout=layout) for plan in merged_streams(topology)]
    # Refuse before the first stream is changed, not after.
    pan_private = [plan for plan in plan_streams(topology) if plan.stream.is_pan_private]
    for plan in pan_private:
        pan_private_genesis(topology, cluster, plan)
    steps = [keeper.migrate(apply=False, lost=lost, since=since) for keeper in keepers]
    if apply and layout is not None and any(steps):
        keepers[0].check_stopped()
        for name, number in layout.arrange():
            click.echo(f"the state of {name}, partition {number}, was moved to make room")
    for keeper, plan, step in zip(keepers, merged_streams(topology), steps, strict=True):
        written = keeper.migrate(apply=True, lost=lost, since=since) if apply and step else step
        if written is None:
            click.echo(f"{plan.name}: unchanged")
        else:
            _show(written, apply=apply)
    for plan in pan_private:
        click.echo(f"{plan.name}: unchanged, as a pan-private stream has to be")
    for stream in topology.readings:
        click.echo(f"{stream.name}: a value stream is never migrated; to change one, give it a new name")
    return any(steps)


def _show(step: Step, *, apply: bool) -> None:
    click.echo(f"{step.stream}: {'goes' if apply else 'would go'} on from timestamp {step.start} with")
    for name, one in step.differences.items():
        click.echo(f"  {name} {one.new}" + (f", was {one.old}" if one.old is not None else ""))
    if all(name.startswith(SAME_LIFE) for name in step.differences):
        return
    limit = Crossing.between(step.start, step.before, step.after)
    click.echo(
        f"  windows of {limit.window} timestamps across the change stay within epsilon "
        f"{number(limit.epsilon)}: what they cannot pay is repeated"
    )
    if step.after.window > step.before.window:
        click.echo("  but what was spent before in such a window may be more already: nothing is added then")


def words(terms: Terms) -> str:
    """Terms in words."""
    return f"epsilon {number(terms.epsilon)} for any {terms.window} timestamps"
