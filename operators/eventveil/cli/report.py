"""``eventveil report``: one page for a privacy officer to sign and file."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

import click
import orjson
from confluent_kafka import KafkaException

from eventveil.audit.periods import ChargedPeriods
from eventveil.audit.versions import Versions
from eventveil.cli.auditing import Audited, AuditedStream, run_audit, timelines_of
from eventveil.cli.files import refuse_existing
from eventveil.cli.ledger import describe, is_overdue, read_up_to
from eventveil.cli.loading import load_or_exit
from eventveil.cli.options import witness_file
from eventveil.cli.words import fail, words_of
from eventveil.kafka.cluster import Cluster
from eventveil.model.errors import EventveilError
from eventveil.model.timeline import format_rfc3339
from eventveil.model.topology import Topology
from eventveil.report.content import Document, document
from eventveil.report.facts import AuditFacts, StreamFacts
from eventveil.report.page import page


@click.command()
@click.argument("topology")
@click.option("--output", metavar="FILE", help="The page to write; by default NAME-report.html.")
@click.option("--force", is_flag=True, help="Replace the page if it exists.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of writing a page.")
@click.option(
    "--without-audit", is_flag=True, help="Read nothing from the brokers; the page says it was not audited."
)
@click.option(
    "--witness",
    type=witness_file,
    metavar="FILE",
    help="As in `eventveil ledger`: first check that no record noted there is gone.",
)
@click.option("--barrier", is_flag=True, help="As in `eventveil ledger`; needs the right to write.")
def report(
    topology: str,
    output: str | None,
    force: bool,
    as_json: bool,
    without_audit: bool,
    witness: Path | None,
    barrier: bool,
) -> None:
    """Write one HTML page that says what TOPOLOGY promises, and whether what was released keeps it.

    What is protected and what not, parameters, the budget of a person who is always there, who may read which
    topic, the audit over the ledger's whole life, known limits, open points to tick off. Nothing on it is raw
    data; it needs no other file, and prints on A4.

    The audit is that of `eventveil ledger`, and needs the same rights. If it finds violations, the page says
    that first, and the exit status is 1. If it cannot be done, the exit status is 1 and no page is written.
    """
    if without_audit and (witness is not None or barrier):
        raise click.UsageError(
            "--without-audit reads nothing: it cannot be combined with --witness or --barrier"
        )
    if as_json and output is not None:
        raise click.UsageError("--json cannot be combined with --output")
    loaded = load_or_exit(topology)
    path = None if as_json else output or f"{loaded.name}-report.html"
    refuse_existing({"--output" if output else "the page": path}, force)
    try:
        found = None if without_audit else _audit(loaded, witness, barrier=barrier)
        digest = hashlib.sha256(Path(topology).read_bytes()).hexdigest()
        made = document(loaded, digest, format_rfc3339(_now()), found)
        _write(made, path)
    except (EventveilError, KafkaException, OSError) as error:
        # A witness that misses something says what to do; a page without an audit is no remedy for that.
        hint = (
            "" if witness is not None or isinstance(error, OSError) else "; --without-audit needs no broker"
        )
        fail("report", f"{words_of(error)}{hint}")
    if made.state == "violated":
        fail("report", made.verdict)


def _write(made: Document, path: str | None) -> None:
    """Raises OSError."""
    if path is None:
        click.echo(orjson.dumps(asdict(made), option=orjson.OPT_INDENT_2, default=_exact).decode())
        return
    Path(path).write_text(page(made), encoding="utf-8")
    click.echo(f"{path}: {made.verdict}")


def _exact(value: object) -> str:
    """A rational as an exact text. Raises TypeError for everything else."""
    if isinstance(value, Fraction):
        return str(value)
    raise TypeError


def _audit(topology: Topology, witness: Path | None, *, barrier: bool) -> AuditFacts:
    """Raises EventveilError, also if the ledger lacks what the witness noted, and KafkaException."""
    timelines = timelines_of(topology)
    life, versions = ChargedPeriods(timelines), Versions(timelines)
    audited = run_audit(topology, witness, barrier=barrier, watch=(life.see, versions.see))
    notes, now = tuple(audited.keep_witness()), _now()
    return AuditFacts(
        at=format_rfc3339(now),
        cluster=Cluster(topology.kafka).id(),
        barrier=barrier,
        witness=witness is not None,
        streams=tuple(_stream(topology, one, now, barrier=barrier) for one in audited.streams),
        findings=tuple(map(str, _findings(audited))),
        others=audited.others,
        notes=notes,
        life=life.periods(),
        versions=versions.streams(),
        violations=audited.violations,
    )


def _stream(topology: Topology, one: AuditedStream, now: int, *, barrier: bool) -> StreamFacts:
    lines = [line for report in one.reports for line in describe(report, one.sink)]
    if (told := read_up_to(topology, one, now, barrier=barrier)) is not None:
        lines.append(told)
    violations = sum(report.violations for report in one.reports)
    return StreamFacts(one.stream, tuple(lines), violations, is_overdue(topology, one, now))


def _findings(audited: Audited) -> Iterator[object]:
    for one in audited.streams:
        for report in one.reports:
            yield from report.findings
    yield from audited.strangers


def _now() -> int:
    return time.time_ns() // 1_000_000
