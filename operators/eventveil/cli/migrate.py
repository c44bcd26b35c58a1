"""``eventveil migrate``: continues streams whose topology changed, where that is sound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import click

from eventveil.cli.loading import load_or_exit
from eventveil.cli.words import exit_on_error, say
from eventveil.describe.guarantee import number
from eventveil.formats.change import Difference, Terms
from eventveil.kafka.cluster import Cluster
from eventveil.kinds.registry import kind_of, merged_streams, plan_readings, plan_streams
from eventveil.lifecycle.apply import (
    MigrationStep,
    StreamMigrator,
    check_stopped,
    count_pending,
    pan_private_manifest,
    read_histories,
)
from eventveil.lifecycle.cap import check_cap
from eventveil.lifecycle.layout import Layout
from eventveil.lifecycle.migration import counts_alike
from eventveil.lifecycle.relocation import SINCE, doubtful
from eventveil.lifecycle.stage import StageMigrator
from eventveil.lifecycle.values import Moved, ValuesMigrator
from eventveil.mechanisms.base import Mechanism
from eventveil.mechanisms.registry import OWN
from eventveil.model.errors import Unsettled
from eventveil.model.timeline import format_rfc3339, start_of
from eventveil.model.topology import Topology
from eventveil.process.patience import PATIENCE_SECONDS, Patience, look
from eventveil.topology.changes import as_written

_NOT_BEGUN = (
    "it has not begun, or its state is lost; `eventveil topics TOPOLOGY --create` begins a new stream"
)


@click.command()
@click.argument("topology")
@click.option("--apply", is_flag=True, help="Write the changes; without it nothing is written or fenced.")
@click.option(
    "--lost",
    is_flag=True,
    help="Continue even if events that are not yet released were lost; they are not counted.",
)
@click.option(
    "--partitions-from",
    "since",
    type=int,
    metavar="TIMESTAMP",
    help="Where a source got more partitions: the first timestamp that is counted in all of them; default: "
    "the first that is not due yet.",
)
def migrate(topology: str, apply: bool, lost: bool, since: int | None) -> None:
    """Continue the streams of TOPOLOGY under its current settings.

    Spends carry over: across the change, a window of the larger width stays within the larger epsilon, and a
    release that it cannot pay for repeats the last one. An unsound change is refused, and its field is named.
    The workers must be stopped. Exit status 1 if anything was refused; a stream is changed entirely or not at
    all.
    """
    loaded = load_or_exit(topology)
    with exit_on_error("migrate"):
        changed = _migrate(loaded, apply=apply, lost=lost, since=since)
    if changed and not apply:
        click.echo("nothing was written; stop the workers and add --apply")


def _migrate(topology: Topology, *, apply: bool, lost: bool, since: int | None) -> bool:
    seen: set[str] = set()

    def tell(doubt: Unsettled) -> None:
        """Once, however often it is looked at."""
        if str(doubt) not in seen:
            say(f"checking again: {doubt}")
        seen.add(str(doubt))

    # Refuse before the first stream is changed, not after.
    plan = look(
        lambda: _plan(topology, lost, since),
        lambda found: next(filter(None, map(_doubtful, found.all_steps)), None),
        Patience(PATIENCE_SECONDS),
        tell,
    )
    _check_budget(topology, [step for step in plan.all_steps if step is not None])
    if apply:
        _make_room(topology, plan)
    moved = {name for stage in plan.stages for name in _move(topology, stage, apply=apply, lost=lost)}
    for migrator, merged, step in zip(plan.migrators, merged_streams(topology), plan.steps, strict=True):
        if merged.name in moved:
            continue
        changes = apply and step
        written = migrator.migrate(apply=True, lost=lost, since=since, expected=step) if changes else step
        if written is None:
            click.echo(f"{merged.name}: unchanged")
        else:
            _show(topology, written, apply=apply, chosen=since is not None)
    grown = {step.stream for one in plan.values for step in _grow(one, apply=apply, lost=lost)}
    begun = {name for one in plan.values for name in one.migrator.begun}
    for name in (one.name for one in plan_readings(topology) if one.name not in grown):
        say(f"{name}: {'unchanged' if name in begun else _NOT_BEGUN}", err=False)
    if plan.lacks_room and not apply:
        click.echo(f"{topology.state_changelog} would get its missing partitions")
    for stream in topology.all_streams:
        if (told := kind_of(stream).no_migration) is not None:
            click.echo(f"{stream.name}: {told}")
    return any(plan.steps) or bool(moved or grown) or plan.lacks_room


def _check_budget(topology: Topology, steps: Sequence[MigrationStep]) -> None:
    """Raise StateRefused if new terms cost too much beside what earlier generations have released."""
    timelines = {stream.name: stream.timeline for stream in topology.streams}
    begins = [start_of(timelines[one.stream], one.start) for one in steps if one.before != one.after]
    if begins:
        histories = read_histories(topology, Cluster(topology.kafka), {})
        for one in steps:
            if one.stream in histories:
                count_pending(histories[one.stream], one.stream, one.pending)
        check_cap(topology, histories, min(begins))


def _make_room(topology: Topology, plan: _Plan) -> None:
    """Give the state of every source partition its place, before anything is written there."""
    check = partial(check_stopped, topology, plan.cluster)
    for layout in plan.crowded:
        check()
        for name, partition in layout.arrange(check):
            click.echo(f"the state of {name}, partition {partition}, was moved to make room")


def _move(topology: Topology, stage: _Stage, *, apply: bool, lost: bool) -> list[str]:
    """Move a re-keying stage, or say how; the streams that continue behind it."""
    steps = stage.steps
    if apply and steps:
        steps = stage.migrator.migrate(apply=True, lost=lost, expected=steps)
    for step in steps:
        _show(topology, step, apply=apply)
    return [step.stream for step in steps]


def _grow(values: _ValuesPlan, *, apply: bool, lost: bool) -> list[Moved]:
    """Let the value streams over a topic continue, or say how; those that could not continue as they were."""
    steps = values.steps
    if apply and steps:
        steps = values.migrator.migrate(apply=True, lost=lost, expected=steps)
    for step in steps:
        goes = "continues" if apply else "would continue"
        click.echo(f"{step.stream}: {goes}{' with' if step.differences else ''}")
        _show_differences(step.differences)
        if step.differences:
            click.echo("  added partitions are read from their first value on")
        for place in step.lost:
            click.echo(f"  values of {place} were lost before they were read")
    return steps


@dataclass(frozen=True, slots=True)
class _ValuesPlan:
    """What one look has found is to be done with the value streams over a topic."""

    migrator: ValuesMigrator
    steps: list[Moved]


@dataclass(frozen=True, slots=True)
class _Stage:
    """What one look has found is to be done with the re-keying of a topic of events, by stream behind it."""

    migrator: StageMigrator
    steps: list[MigrationStep]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What one look has found is to be done, by stream, and what does it."""

    cluster: Cluster
    layouts: list[Layout | None]
    migrators: list[StreamMigrator]
    steps: list[MigrationStep | None]
    stages: list[_Stage]
    values: list[_ValuesPlan]

    @property
    def all_steps(self) -> list[MigrationStep | None]:
        """Those of streams by themselves, and those behind re-keying stages."""
        return [*self.steps, *(step for stage in self.stages for step in stage.steps)]

    @property
    def crowded(self) -> list[Layout]:
        """The changelogs in which state has to move, or that lack partitions.

        Where counts are kept, only for streams that continue; of value streams, also for one that is still to
        begin.
        """
        counted, rekeyed, values = self.layouts
        wanted = (
            (counted, any(self.steps)),
            (rekeyed, any(stage.steps for stage in self.stages)),
            (values, self.lacks_room),
        )
        return [layout for layout, due in wanted if layout is not None and due]

    @property
    def lacks_room(self) -> bool:
        """Whether a changelog of value streams has to be arranged."""
        values = self.layouts[-1]
        return values is not None and values.is_due


def _plan(topology: Topology, lost: bool, since: int | None) -> _Plan:
    """One look at everything, through clients that may learn of other brokers than those before."""
    cluster = Cluster(topology.kafka)
    counted = Layout(topology, cluster) if topology.streams else None
    rekeyed = Layout(topology, cluster, reader="rekeying") if topology.rekeyed else None
    values = Layout(topology, cluster, reader="values") if topology.value_sources else None
    migrators = [StreamMigrator(topology, cluster, plan, layout=counted) for plan in merged_streams(topology)]
    for plan in plan_streams(topology):
        if not plan.merged:
            pan_private_manifest(topology, cluster, plan)
    steps = [one.migrate(apply=False, lost=lost, since=since) for one in migrators]
    stages = [] if rekeyed is None else list(_stages(topology, cluster, migrators, rekeyed, lost))
    of_values = [] if values is None else list(_values(topology, cluster, values, lost))
    return _Plan(cluster, [counted, rekeyed, values], migrators, steps, stages, of_values)


def _values(topology: Topology, cluster: Cluster, layout: Layout, lost: bool) -> Iterator[_ValuesPlan]:
    for source in topology.value_sources:
        migrator = ValuesMigrator(topology, cluster, source, layout)
        yield _ValuesPlan(migrator, migrator.migrate(apply=False, lost=lost))


def _stages(
    topology: Topology, cluster: Cluster, migrators: Sequence[StreamMigrator], layout: Layout, lost: bool
) -> Iterator[_Stage]:
    streams = [plan.stream for plan in merged_streams(topology)]
    for target in topology.rekeyed.values():
        behind = [
            (one, migrator)
            for one, migrator in zip(streams, migrators, strict=True)
            if one.source.topic == target
        ]
        migrator = StageMigrator(topology, cluster, behind[0][0].source, [one for _, one in behind], layout)
        yield _Stage(migrator, migrator.migrate(apply=False, lost=lost))


def _doubtful(step: MigrationStep | None) -> Unsettled | None:
    return None if step is None else doubtful(step.stream, step.differences)


def _show(topology: Topology, step: MigrationStep, *, apply: bool, chosen: bool = False) -> None:
    timeline = next(one.timeline for one in topology.streams if one.name == step.stream)

    def named(timestamp: int) -> str:
        return f"timestamp {timestamp} ({format_rfc3339(start_of(timeline, timestamp))})"

    goes = "continues" if apply else "would continue"
    click.echo(f"{step.stream}: {goes} from {named(step.start)} with")
    _show_differences(step.differences)
    if SINCE in step.differences and not apply and not chosen:
        since = step.differences[SINCE].new
        assert isinstance(since, int)
        click.echo(
            f"  users who moved to other partitions count from {named(since)} on (by the clock: later if you"
            " apply later); events that they sent there before become dead letters. If producers have used"
            " the new partitions for longer, name the timestamp with --partitions-from: it cannot be changed"
            " afterwards"
        )
    limit = step.limit
    if limit is None:
        return
    click.echo(
        f"  windows of {limit.window} timestamps across the change cost at most epsilon "
        f"{number(limit.epsilon)}{delta_words(limit.delta)}: a release that would cost more repeats the one"
        " before it"
    )
    if limit.until > step.start:
        click.echo(f"  releases may repeat until {named(limit.until - 1)}")
    if _forgets(step):
        click.echo(
            f"  {step.after.mechanism} does not take over what it has learned: until it has learned again,"
            " fresh releases may be 0 too"
        )
    if step.after.window > step.before.window:
        click.echo("  if such a window has cost more already, nothing more is spent in it")


def _forgets(step: MigrationStep) -> bool:
    """Whether a kind that predicts begins to learn anew."""
    kind = OWN.get(step.after.mechanism)
    if kind is None or not kind.predicts:
        return False
    recalls = kind.recall is not Mechanism.recall and step.before.mechanism == step.after.mechanism
    return not (recalls and counts_alike(step.differences) and "mechanism.periods" not in step.differences)


def _show_differences(differences: Mapping[str, Difference]) -> None:
    for name, one in differences.items():
        before = "" if one.old is None else f", was {as_written(name, one.old, quoted=False)}"
        click.echo(f"  {name} {as_written(name, one.new, quoted=False)}{before}")


def words(terms: Terms) -> str:
    """Terms in words."""
    return f"epsilon {number(terms.epsilon)}{delta_words(terms.delta)} for any {terms.window} timestamps"


def delta_words(delta: Fraction | None) -> str:
    """What follows epsilon where noise is Gaussian."""
    return "" if delta is None else f" and delta {float(delta):.3g}"
