"""``eventveil topics``: shows, checks, creates and deletes topics, and writes the genesis of the streams."""

from __future__ import annotations

import sys
import time

import click

from eventveil.cli.loading import EXIT_FAILED, load_or_exit
from eventveil.cli.words import exit_on_error, say
from eventveil.describe.guarantee import count
from eventveil.formats.release import schema_text
from eventveil.kafka.cluster import Cluster
from eventveil.lifecycle.apply import check_stopped
from eventveil.lifecycle.create import (
    Provision,
    check_sinks,
    check_useful,
    create_topics,
    inspect_topics,
    name_cluster,
    write_manifest,
)
from eventveil.lifecycle.fitting import refusals
from eventveil.lifecycle.leftovers import check_over, find_leftovers
from eventveil.lifecycle.leftovers import delete as delete_left
from eventveil.lifecycle.topics import TopicPlan, absent, plan_topics
from eventveil.model.timeline import due_of, format_rfc3339, start_of
from eventveil.model.topology import Topology
from eventveil.schema_registry.subjects import Subjects, subject_of

_PER_SOURCE = ("counting changelog", "state changelog")
_GUESSED = ": if a source exists with another number than above, correct this one"

#: A broker may take this long to show what another one has.
_SHOWN_SECONDS = 10


@click.command()
@click.argument("topology")
@click.option("--create", is_flag=True, help="Create what is missing and write the genesis records.")
@click.option("--sources", is_flag=True, help="With --create: create missing source topics too.")
@click.option(
    "--print", "print_only", is_flag=True, help="Print the commands that create the topics; needs no broker."
)
@click.option(
    "--delete", is_flag=True,
    help="List topics and state left under TOPOLOGY's name and what deleting them loses; --name deletes. "
        "Sinks, sources and dead letters stay.",
)  # fmt: skip
@click.option("--name", "typed", help="With --delete: confirm by the name of the topology.")
def topics(
    topology: str, create: bool, sources: bool, print_only: bool, delete: bool, typed: str | None
) -> None:
    """Show and check the topics of TOPOLOGY.

    Exit status 1 if any is missing, misconfigured or holds state that does not belong to the file.
    """
    if typed is not None and not delete:
        raise click.UsageError("--name requires --delete")
    if delete and (create or print_only):
        raise click.UsageError("--delete cannot be combined with --create or --print")
    if sources and not create:
        raise click.UsageError("--sources requires --create")
    if print_only and create:
        raise click.UsageError("--print cannot be combined with --create")
    loaded = load_or_exit(topology)
    if print_only:
        _print_commands(loaded)
        return
    if delete and typed not in (None, loaded.name):
        raise click.UsageError(f"the name in {topology} is {loaded.name}, not {typed}")
    with exit_on_error("topics"):
        if delete:
            good = _delete(loaded, apply=typed is not None)
        else:
            good = _check(loaded, create=create, sources=sources)
    sys.exit(0 if good else EXIT_FAILED)


def _check(topology: Topology, *, create: bool, sources: bool) -> bool:
    cluster = Cluster(topology.kafka)
    inspection = inspect_topics(topology, cluster)
    source_lacks = any(plan.is_source for plan in inspection.missing)
    if source_lacks or (inspection.missing and not inspection.mistakes):
        # Before anything is created that would have no use. Of a source that is not there, a wrong name is
        # told first: how many partitions it would get says nothing of those that there are.
        check_useful(topology, cluster, inspection, time.time_ns() // 1_000_000)
    creatable = [plan for plan in inspection.missing if create and (sources or not plan.is_source)]
    absent_sources = [plan for plan in inspection.missing if plan.is_source and plan not in creatable]
    if absent_sources:
        # The changelogs have one partition per source partition: without the sources nothing can be created.
        creatable = []
        if create:
            names = ", ".join(plan.name for plan in absent_sources)
            click.echo(f"nothing was created: a source is missing ({names})", err=True)
    meant = inspection.meant
    if creatable:
        check_sinks(topology, cluster)
        create_topics(topology, cluster, creatable)
        for plan in creatable:
            click.echo(f"created {plan.name} ({plan.role}, {count(plan.partitions, 'partition')})")
            if plan.name in meant:
                say(f"hint: topic {meant[plan.name]} has a similar name; is that the source you meant?")
        inspection = inspect_topics(topology, cluster)
    for plan in inspection.plans:
        if plan not in inspection.missing and plan not in creatable:
            click.echo(f"found {plan.name} ({plan.role})")
    for sentence in absent(absent_sources if create and absent_sources else inspection.missing, meant):
        say(sentence)
    for mistake in inspection.mistakes:
        say(mistake)
    for hint in inspection.hints:
        say(hint)
    good = not inspection.missing and not inspection.mistakes
    # Before there is anything to release.
    known = _check_schemas(topology, create=create and good)
    written = _write_manifest(topology, cluster) if good and create else False
    # What counts is in the changelogs: without them, `run` says first that topics are missing.
    refused = refusals(topology, cluster) if good else []
    give_up = time.monotonic() + _SHOWN_SECONDS
    while refused and written and time.monotonic() < give_up:
        # A broker may not show yet what was written just now.
        time.sleep(1)
        refused = refusals(topology, cluster)
    for one in refused:
        say(f"run would refuse: {one}")
    # What was asked for has been created; a migration may be the next step.
    return good and known and (create or not refused)


def _check_schemas(topology: Topology, *, create: bool) -> bool:
    """Whether the registry knows the schemas of all sinks; with ``create`` it is told those that it lacks.

    Raises EventveilError.
    """
    if topology.registry is None or not topology.with_schemas:
        return True
    subjects, good = Subjects(topology.registry, schema_text), True
    for stream in topology.with_schemas:
        name = subject_of(stream)
        if (found := subjects.find(stream)) is not None:
            click.echo(f"found the schema of {name} (id {found})")
        elif create:
            click.echo(f"registered the schema of {name} (id {subjects.register(stream)})")
        else:
            good = False
            say(
                f"the schema of {name} is not registered: `eventveil topics TOPOLOGY --create` registers it;"
                f" until then nothing of {stream.name} is released"
            )
    return good


def _delete(topology: Topology, *, apply: bool) -> bool:
    """Whether everything is gone, or could be."""
    cluster, now = Cluster(topology.kafka), time.time_ns() // 1_000_000
    if apply:
        check_stopped(topology, cluster)
    left = find_leftovers(topology, cluster)
    if apply and left.topics:
        # Before anything is said to be deleted.
        check_over(topology, cluster, left, now)
    for name, holds in left.topics.items():
        click.echo(f"{'deletes' if apply else 'would delete'} {name}: {holds}")
    for name, role in left.stays.items():
        click.echo(f"stays: {name} ({role})")
    for one in left.released:
        click.echo(
            f"stream {one.stream} was released up to timestamp {one.last}: no audit can show that any more, "
            "and it can restart only in another sink"
        )
    if not left.topics:
        click.echo(f"{topology.name} has left nothing behind")
        return True
    over = check_over(topology, cluster, left, now)
    if not left.released and topology.streams:
        click.echo("no count was released: what is lost can be counted again, and costs nothing")
    if topology.readings:
        click.echo("values that have no reading yet are lost; later ones are read once it is created again")
    if not apply:
        click.echo(f"nothing was deleted; stop the workers and add --name {topology.name}")
        return True
    delete_left(topology, cluster, left)
    say("deleted; `eventveil topics TOPOLOGY --create` begins anew", err=False)
    if over:
        click.echo(
            f"set timeline.start to {format_rfc3339(over)} or later: what is released again costs its "
            "epsilon again, and no record of the first time is left"
        )
    return True


def _write_manifest(topology: Topology, cluster: Cluster) -> bool:
    """Write the genesis records that are missing, and say so; whether there were any."""
    provision = write_manifest(topology, cluster, lambda: time.time_ns() // 1_000_000)
    timelines = {stream.name: stream.timeline for stream in topology.streams}
    for stream, first in sorted({(record.stream, record.first) for record in provision.written}):
        begins = "the next value of each partition"
        if (rules := timelines.get(stream)) is not None:
            start, due = (format_rfc3339(one) for one in (start_of(rules, first), due_of(rules, first)))
            begins = f"timestamp {first} (from {start}; its release is due at {due})"
        click.echo(f"{stream}: genesis written; it begins with {begins}")
    _name_cluster(topology, cluster, provision)
    return bool(provision.written)


def _name_cluster(topology: Topology, cluster: Cluster, provision: Provision) -> None:
    """Complete what an earlier version has written; not under a worker, which it would shut out."""
    streams = ", ".join(sorted({one.stream for found in provision.unnamed.values() for one in found}))
    if not streams:
        return
    if cluster.group_members(topology.name):
        click.echo(
            f"genesis of {streams}: it has no cluster id because an earlier version wrote it, and a "
            "worker is running. Stop the workers and run this again",
            err=True,
        )
        return
    name_cluster(topology, cluster, provision.unnamed)
    click.echo(f"genesis of {streams}: cluster id added")


def _width(topology: Topology, plan: TopicPlan) -> str:
    """Whose number of partitions a topic has, which no broker was asked for: that in the file is a guess."""
    if plan.is_source:
        return "; if it exists, leave this out"
    if plan.role in _PER_SOURCE:
        return f"; one per partition of the sources{_GUESSED}"
    if plan.role == "re-keying changelog":
        return f"; one per partition of {', '.join(topology.rekeyed)}{_GUESSED}"
    for raw, internal in topology.rekeyed.items():
        if plan.name == internal:
            return f"; as many partitions as {raw} has{_GUESSED}"
    for stream in topology.readings:
        if plan.name == stream.sink:
            return f"; one per partition of {stream.source.topic}{_GUESSED}"
    return ""


def _print_commands(topology: Topology) -> None:
    for plan in plan_topics(topology, {}):
        settings = " ".join(f"--config {name}={value}" for name, value in plan.settings.items())
        click.echo(f"# {plan.role}{_width(topology, plan)}")
        click.echo(
            f"kafka-topics.sh --bootstrap-server {topology.kafka.bootstrap} --create --topic {plan.name} "
            f"--partitions {plan.partitions} --replication-factor {topology.topics.replication} {settings}"
        )
    say("# then: `eventveil topics TOPOLOGY --create`, which writes the genesis records", err=False)
