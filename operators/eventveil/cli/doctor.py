"""``eventveil doctor``: what would happen to the events that a source holds now, and what to change."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click
import orjson

from eventveil.cli.files import refuse_existing
from eventveil.cli.loading import EXIT_UNWELL, load_or_exit
from eventveil.cli.words import exit_on_error
from eventveil.doctor.proposal import commented, propose
from eventveil.doctor.report import DoctorReport, report_on
from eventveil.doctor.sample import SourceSample
from eventveil.doctor.sampling import newest_of_file, newest_of_topic, topics_of
from eventveil.kafka.cluster import Cluster
from eventveil.model.errors import EventveilError
from eventveil.model.topology import Topology
from eventveil.replay.files import open_file
from eventveil.schema_registry.known import known_schemas
from eventveil.topology.loading import load_text


@click.command()
@click.argument("topology")
@click.option(
    "--records", type=click.IntRange(1, 1_000_000), default=1000, show_default=True,
    help="How many of the newest records of each source are read.",
)  # fmt: skip
@click.option(
    "--input", "path", metavar="FILE",
    help="Read the last events of a file instead of the topics: an event per line, or Parquet.",
)  # fmt: skip
@click.option("--output", metavar="FILE", help="Write the proposed topology there.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(
    topology: str, records: int, path: str | None, output: str | None, force: bool, as_json: bool
) -> None:
    """Show what would happen to the newest events of the sources of TOPOLOGY, before anything runs.

    How many would count, and why the others would not, with an example and the line of the file to change;
    which partitioner keys were written with; whether brokers or producers set the times of records; users in
    several partitions; values of the column field that are not listed; and a topology that fits better.
    Nothing is written to Kafka and no budget is spent. What is printed is raw data.

    Exit status 0 if all is well; 3 if a tenth or more of the events that a stream asks for would not count,
    if its filter or list of columns leaves out nearly all, or if a worker would refuse a source;
    1 if a source cannot be read; 78 if the topology is invalid.
    """
    refuse_existing({"--output": output}, force)
    loaded = load_or_exit(topology)
    with exit_on_error("doctor", OSError, ValueError, place=path):
        report = _examine(loaded, records, path)
        if output is not None:
            _write(report, output)
    if as_json:
        click.echo(orjson.dumps(report.fields(), option=orjson.OPT_INDENT_2).decode())
    else:
        click.echo("\n".join(report.lines()))
        if report.proposal.changes and output is None:
            click.echo("  --output FILE writes the proposed topology")
    sys.exit(0 if report.is_well else EXIT_UNWELL)


def _examine(topology: Topology, records: int, path: str | None) -> DoctorReport:
    """Raises EventveilError, KafkaException, OSError and ValueError."""
    text = Path(topology.path).read_text(encoding="utf-8-sig")
    samples = _samples(topology, records, path)
    now = time.time_ns() // 1_000_000
    proposal = propose(topology, text, samples, os.environ, now)
    return report_on(topology, text, samples, proposal, now)


def _samples(topology: Topology, records: int, path: str | None) -> dict[str, SourceSample]:
    sources = topics_of(topology)
    if path is None:
        cluster = Cluster(topology.kafka)
        known = known_schemas(topology)
        return {topic: newest_of_topic(topology, cluster, topic, records, known) for topic in sources}
    if len(sources) > 1:
        raise EventveilError(
            f"--input holds events of one source, and {topology.path} has {', '.join(sources)}; write a file"
            " for each"
        )
    pointers = {pointer for stream in topology.streams for pointer in stream.source.pointers}
    ((topic, streams),) = sources.items()
    return {topic: newest_of_file(open_file(path, pointers), path, streams, records)}


def _write(report: DoctorReport, output: str) -> None:
    """Write the proposed topology, if it is valid where it is to be. Raises TopologyInvalid and OSError."""
    text = commented(report.proposal)
    load_text(output, text, os.environ)
    Path(output).write_text(text, encoding="utf-8")
    what = (
        "the proposed topology"
        if report.proposal.changes
        else "the topology, to which no change is proposed,"
    )
    click.echo(f"eventveil doctor: {what} is in {output}", err=True)
