"""``eventveil reset``: runs a stream again, as a new generation that costs its epsilon again."""

from __future__ import annotations

import time
from fractions import Fraction

import click

from eventveil.cli.loading import load_or_exit
from eventveil.cli.migrate import delta_words, words
from eventveil.cli.words import exit_on_error
from eventveil.describe.guarantee import number
from eventveil.kafka.cluster import Cluster
from eventveil.kinds.placement import StreamPlan
from eventveil.kinds.registry import kind_of, plan_streams
from eventveil.lifecycle.apply import StreamMigrator, read_histories
from eventveil.lifecycle.cap import check_cap
from eventveil.model.timeline import start_of
from eventveil.model.topology import Topology


@click.command()
@click.argument("topology")
@click.option("--stream", "name", required=True, help="The stream to run again.")
@click.option("--from", "start", type=int, metavar="TIMESTAMP", help="Default: the stream's first one.")
@click.option(
    "--adds-epsilon", "adds", metavar="EPSILON",
    help="Perform the reset and confirm that it adds this epsilon, the stream's, to what was released "
        "before.",
)  # fmt: skip
def reset(topology: str, name: str, start: int | None, adds: str | None) -> None:
    """Release a stream of TOPOLOGY again, from an earlier timestamp, into a new sink.

    It begins a new generation in the ledger, with a fresh budget. What the old one released stays released:
    over the same people and times the epsilons add up. Nothing is written unless --adds-epsilon names the
    stream's epsilon. The workers must be stopped.
    """
    loaded = load_or_exit(topology)
    stream = next((stream for stream in loaded.all_streams if stream.name == name), None)
    if stream is None:
        raise click.UsageError(f"there is no stream {name!r} in {topology}")
    if what := kind_of(stream).no_second_run:
        raise click.UsageError(f"{name} is {what}; to run it again, give it a new name and sink")
    plan = next(plan for plan in plan_streams(loaded) if plan.name == name)
    apply = _accepted(plan, adds)
    with exit_on_error("reset"):
        _reset(loaded, plan, start, apply=apply)


def _accepted(plan: StreamPlan, adds: str | None) -> bool:
    if adds is None:
        return False
    try:
        same = Fraction(adds) == plan.stream.mechanism.epsilon
    except (ValueError, ZeroDivisionError):
        same = False
    if not same:
        raise click.UsageError(f"this adds epsilon {plan.stream.mechanism.epsilon_text}, not {adds}")
    return True


def _reset(topology: Topology, plan: StreamPlan, start: int | None, *, apply: bool) -> None:
    cluster = Cluster(topology.kafka)
    migrator = StreamMigrator(topology, cluster, plan)
    if apply:
        migrator.take_over()
    history = migrator.decided_history()
    begins = history.first if start is None else start
    histories = {**read_histories(topology, cluster, {}), plan.name: history}
    check_cap(topology, histories, start_of(plan.stream.timeline, begins), plan.name)
    step = migrator.reset(start, time.time_ns() // 1_000_000, apply=apply)
    lives = [*history.lives, [step.after]]
    zero = Fraction(0)
    total = sum((max((one.epsilon for one in terms), default=zero) for terms in lives), zero)
    delta = sum((max((one.delta or zero for one in terms), default=zero) for terms in lives), zero)
    click.echo(
        f"{plan.name}: generation {len(lives)} {'begins' if apply else 'would begin'} at timestamp "
        f"{step.start}, into {plan.stream.sink.topic}"
    )
    click.echo(
        f"  it adds {words(step.after)} to what was released before: over the same people and times "
        f"{len(lives)} generations together cost epsilon {number(total)}"
        f"{delta_words(delta or None)}"
    )
    click.echo("  the releases of earlier generations stay where they are; dead letters are written again")
    if not apply:
        epsilon = plan.stream.mechanism.epsilon_text
        click.echo(f"nothing was written; stop the workers and add --adds-epsilon {epsilon}")
