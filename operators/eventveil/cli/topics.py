"""``eventveil topics``: shows, checks and creates the topics, and writes the genesis of the streams."""

from __future__ import annotations

import sys
import time

import click
from confluent_kafka import KafkaException

from eventveil.cli.loading import EXIT_FAILED, load_or_exit
from eventveil.kafka.cluster import Cluster
from eventveil.lifecycle.create import Provision, create_topics, inspect_topics, name_cluster, write_genesis
from eventveil.lifecycle.topics import TopicPlan, plan_topics
from eventveil.model.errors import EventveilError
from eventveil.model.topology import Topology

_PER_SOURCE = ("counting changelog", "state changelog")


@click.command()
@click.argument("topology")
@click.option("--create", is_flag=True, help="Create what is missing and write the genesis records.")
@click.option("--sources", is_flag=True, help="With --create: create missing source topics too.")
@click.option(
    "--print", "print_only", is_flag=True, help="Print the commands that create the topics; no broker."
)
def topics(topology: str, create: bool, sources: bool, print_only: bool) -> None:
    """Show and check the topics of TOPOLOGY; exit 1 if any is missing or set wrongly."""
    if sources and not create:
        raise click.UsageError("--sources goes with --create")
    if print_only and create:
        raise click.UsageError("--print does not create")
    loaded = load_or_exit(topology)
    if print_only:
        _print_commands(loaded)
        return
    try:
        good = _check(loaded, create=create, sources=sources)
    except (EventveilError, KafkaException) as error:
        click.echo(f"eventveil topics: {error}", err=True)
        sys.exit(EXIT_FAILED)
    sys.exit(0 if good else EXIT_FAILED)


def _check(topology: Topology, *, create: bool, sources: bool) -> bool:
    cluster = Cluster(topology.kafka)
    inspection = inspect_topics(topology, cluster)
    creatable = [plan for plan in inspection.missing if create and (sources or not plan.is_source)]
    absent_sources = [plan for plan in inspection.missing if plan.is_source and plan not in creatable]
    if absent_sources:
        # The changelogs have one partition per source partition: without the sources nothing can be created.
        creatable = []
        if create:
            names = ", ".join(plan.name for plan in absent_sources)
            click.echo(f"nothing was created: a source is missing ({names})", err=True)
    if creatable:
        create_topics(topology, cluster, creatable)
        for plan in creatable:
            click.echo(f"created {plan.name} ({plan.role}, {plan.partitions} partitions)")
        inspection = inspect_topics(topology, cluster)
    for plan in inspection.plans:
        if plan not in inspection.missing:
            click.echo(f"found {plan.name} ({plan.role})")
    for plan in absent_sources if create and absent_sources else inspection.missing:
        click.echo(f"topic {plan.name} ({plan.role}) does not exist: {_remedy(plan)}", err=True)
    for mistake in inspection.mistakes:
        click.echo(mistake, err=True)
    good = not inspection.missing and not inspection.mistakes
    if good and create:
        _write_genesis(topology, cluster)
    return good


def _write_genesis(topology: Topology, cluster: Cluster) -> None:
    provision = write_genesis(topology, cluster, lambda: time.time_ns() // 1_000_000)
    values = {stream.name for stream in topology.readings}
    for stream, first in sorted({(record.stream, record.first) for record in provision.written}):
        begins = "the next value of each partition" if stream in values else f"timestamp {first}"
        click.echo(f"genesis of {stream}: it begins with {begins}")
    _name_cluster(topology, cluster, provision)


def _name_cluster(topology: Topology, cluster: Cluster, provision: Provision) -> None:
    """Complete what an earlier version has written; not under a worker, which it would shut out."""
    streams = ", ".join(sorted({one.stream for found in provision.unnamed.values() for one in found}))
    if not streams:
        return
    if cluster.group_members(topology.name):
        click.echo(
            f"genesis of {streams}: it does not name its Kafka cluster, for an earlier version wrote it, and "
            "a worker is running. Stop the workers and run this again",
            err=True,
        )
        return
    name_cluster(topology, cluster, provision.unnamed)
    click.echo(f"genesis of {streams}: it names its Kafka cluster now")


def _remedy(plan: TopicPlan) -> str:
    if plan.is_source:
        return "create it, or let `eventveil topics --create --sources` do it"
    return "`eventveil topics --create` creates it"


def _print_commands(topology: Topology) -> None:
    for plan in plan_topics(topology, {}):
        settings = " ".join(f"--config {name}={value}" for name, value in plan.settings.items())
        note = "; one per partition of the sources" if plan.role in _PER_SOURCE else ""
        click.echo(f"# {plan.role}{note}")
        click.echo(
            f"kafka-topics.sh --bootstrap-server {topology.kafka.bootstrap} --create --topic {plan.name} "
            f"--partitions {plan.partitions} --replication-factor {topology.topics.replication} {settings}"
        )
    click.echo("# then: eventveil topics --create, which writes the genesis records")
