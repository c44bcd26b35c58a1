"""``eventveil ledger``: what the audit of a topology (``eventveil.cli.auditing``) prints."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import ceil, floor, log10
from pathlib import Path

import click

from eventveil.audit.findings import Finding, ReadingsReport, Report
from eventveil.audit.mu import mu_squared
from eventveil.audit.versions import StreamVersions, Versions, VersionSpan
from eventveil.cli.auditing import AuditedStream, run_audit, timelines_of
from eventveil.cli.loading import EXIT_FAILED, load_or_exit
from eventveil.cli.options import witness_file
from eventveil.cli.words import exit_on_error
from eventveil.describe.guarantee import count, number
from eventveil.formats.change import change_limits
from eventveil.model import timeline
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Timeline, Topology

#: A release is late if it is missing this long after it was due.
_LATE_SECONDS = 60
#: What holds epsilon, at each level.
_PERIOD = {"w-event": "window", "event": "timestamp", "user": "horizon", "local": "timestamp"}


@click.command()
@click.argument("topology")
@click.option(
    "--witness", type=witness_file, metavar="FILE",
    help="Note each stream's newest record in FILE, outside Kafka; first check that no record noted "
        "there is gone.",
)  # fmt: skip
@click.option(
    "--barrier",
    is_flag=True,
    help="Make sure to read up to the newest record, whichever brokers answer; needs the right to write.",
)
def ledger(topology: str, witness: Path | None, barrier: bool) -> None:
    """Audit the releases of TOPOLOGY: each charged, none in two versions, every window within epsilon.

    For a value stream: consecutive spans of values, each within epsilon, and every reading in a span.

    For local reports: one threshold, the same in the ledger and in the control topic.

    Reads the ledger, the sinks and the control topic; a worker may run at the same time. Prints up to which
    timestamp each stream was read, because an isolated broker may show a ledger that ends early. --barrier
    rules that out, by writing records in transactions that it aborts.

    A FILE that does not exist is created; one of another topology or cluster is refused. So is a ledger that
    lacks a record noted in FILE, because it was restored to an earlier point. FILE is then left unchanged.
    See `eventveil run --witness`.

    Exit status 1 if anything is violated. Each violation is a line on standard error: the invariant (I1 one
    draw, I2 charge first, I7 auditable; docs/invariants.md has them), the stream, the timestamp, the record,
    and what is wrong.
    """
    loaded = load_or_exit(topology)
    with exit_on_error("ledger"):
        clean = _audit(loaded, witness, barrier=barrier)
    sys.exit(0 if clean else EXIT_FAILED)


def _audit(topology: Topology, witness: Path | None, *, barrier: bool) -> bool:
    versions = Versions(timelines_of(topology))
    audited = run_audit(topology, witness, barrier=barrier, watch=[versions.see])
    decided_by = {one.stream: one for one in versions.streams()}
    now = time.time_ns() // 1_000_000
    for one in audited.streams:
        for report in one.reports:
            _show(describe(report, one.sink), report.findings)
        _show((f"  {line}" for line in versions_in(decided_by[one.stream])), ())
        if (told := read_up_to(topology, one, now, barrier=barrier)) is not None:
            click.echo(f"  {told}")
    if audited.others:
        click.echo(f"not in this file, so not checked: {', '.join(audited.others)}")
    _show((), audited.strangers)
    _show(audited.keep_witness(), ())
    return audited.violations == 0


def read_up_to(topology: Topology, one: AuditedStream, now: int, *, barrier: bool) -> str | None:
    """See ``seen``, of the newest generation of a stream; None if it has no timestamp."""
    found = _last(topology, one)
    return None if found is None else seen(*found, now, barrier=barrier)


def is_overdue(topology: Topology, one: AuditedStream, now: int) -> bool:
    """Whether a timestamp after the last one of a stream should have been released by ``now`` (epoch ms)."""
    found = _last(topology, one)
    return found is not None and _is_late(*found, now)


def versions_in(found: StreamVersions) -> Iterator[str]:
    """The versions of Eventveil that have decided the entries of a stream, and whether some are not told."""
    yield from map(_version, found.versions)
    if found.unnamed:
        entries = "entry names" if found.unnamed == 1 else "entries name"
        yield (
            f"{found.unnamed} {entries} no version, between others that do: an earlier version, which records"
            " none, ran in between"
        )


def _version(one: VersionSpan) -> str:
    by = "version not recorded" if one.version is None else f"eventveil {one.version}"
    if one.first is None:
        return f"{by}: {count(one.entries, 'span')}"
    when = "" if one.begin is None or one.end is None else f", {one.begin} to {one.end}"
    return f"{by}: timestamps {one.first} to {one.last}{when}"


def _last(topology: Topology, one: AuditedStream) -> tuple[Timeline, int] | None:
    report = one.reports[-1]
    if not isinstance(report, Report) or report.last is None:
        return None
    (rules,) = (stream.timeline for stream in topology.streams if stream.name == one.stream)
    return rules, report.last


def _is_late(rules: Timeline, last: int, now: int) -> bool:
    return now >= timeline.due_of(rules, last + 1) + 1000 * _LATE_SECONDS


def _show(lines: Iterable[str], findings: Iterable[Finding]) -> None:
    for line in lines:
        click.echo(line)
    for finding in findings:
        click.echo(str(finding), err=True)


def seen(rules: Timeline, last: int, now: int, *, barrier: bool) -> str:
    """Up to which timestamp was read, ``last``, and whether a later one is missing at ``now`` (epoch ms)."""
    due = timeline.due_of(rules, last)
    told = f"up to timestamp {last}, due at {timeline.format_rfc3339(due)}"
    if not _is_late(rules, last, now):
        return told
    if barrier:
        return f"{told}: nothing that fell due since has been released"
    return (
        f"{told}: nothing that fell due since has been released, or an isolated broker has answered"
        " (--barrier tells which)"
    )


def describe(report: Report | ReadingsReport, sink: str) -> Iterator[str]:
    """The lines for one stream: the result, then what else there is to know."""
    violations = f"; {count(report.violations, 'violation')}" if report.violations else ""
    if isinstance(report, ReadingsReport):
        readings, spans = count(report.readings, "reading"), count(report.spans, "span")
        yield (
            f"{report.stream}: {readings}, {report.held} values held back, {spans} checked, "
            f"each value within epsilon {report.epsilon}{violations}"
        )
    elif report.releases:
        limit = _limit(report)
        spent = largest_spent(report.largest, report.units, limit)
        releases, windows = count(report.releases, "release"), count(report.windows, _PERIOD[report.level])
        # What was spent before a change counts against the terms of then, and is told below.
        since = "; since the change of terms: " if report.windows_before else ", "
        yield (
            f"{report.stream}: {releases}{since}{windows} checked, "
            f"largest {spent} of {_promise(report, limit)}{violations}"
        )
    else:
        yield f"{report.stream}: nothing released yet{violations}"
    yield from (f"  {note}" for note in _notes(report, sink))


def _notes(report: Report | ReadingsReport, sink: str) -> Iterator[str]:
    yield from _matched(report, sink) if isinstance(report, ReadingsReport) else _history(report, sink)
    if report.repeated:
        yield f"{count(report.repeated, 'record')} repeated byte for byte"
    if report.aborted:
        yield f"{count(report.aborted, 'record')} of aborted transactions, the same as the committed ones"
    if report.undecided:
        yield f"{count(report.undecided, 'record')} newer than the ledger that was read: not judged yet"
    if report.foreign:
        yield f"{count(report.foreign, 'record')} in {sink} from another application"
    if report.violations > len(report.findings):
        yield f"{report.violations - len(report.findings)} more violations of the same kinds, not listed"


def _matched(report: ReadingsReport, sink: str) -> Iterator[str]:
    for partition, first in report.matched_from.items():
        yield (
            f"matched with {TopicPartition(sink, partition)}, from position {first} on: "
            "retention has removed older records there"
        )


def _history(report: Report, sink: str) -> Iterator[str]:
    if report.level == "local":
        yield "threshold: " + (
            "still to be chosen" if report.threshold is None else f"{report.threshold}, the only one"
        )
    if report.discovery is not None:
        yield (
            f"in addition, every window has paid epsilon {number(report.discovery.epsilon)} with delta"
            f" {float(report.discovery.delta):.3g} for finding columns"
        )
    for change in report.changes:
        fields = ", ".join(
            f"{name} {_told(one.old)} to {_told(one.new)}" for name, one in change.fields.items()
        )
        yield f"migrated at timestamp {change.start}: {fields}"
    if report.looks:
        yield f"{count(report.looks, 'timestamp')} published for an announced look"
    if report.forfeited:
        yield f"{count(report.forfeited, 'timestamp')} given up after failures, and charged"
    if report.windows_before:
        before = count(report.windows_before, _PERIOD[report.level])
        yield f"{before} before the change checked too, against the epsilon then in force"
    for limit in change_limits(report.changes, report.first) if report.first else ():
        yield (
            f"windows of {limit.window} timestamps across the change at timestamp {limit.start} cost at most"
            f" epsilon {number(limit.epsilon)}"
            + ("" if limit.delta is None else f" and delta {float(limit.delta):.3g}")
        )
    if report.releases and report.matched_from is None:
        yield f"none of them could be matched: nothing of this stream is left in {sink}"
    elif report.releases and report.matched_from != max(report.first or 0, report.sink_since):
        yield (
            f"matched with {sink} from timestamp {report.matched_from} on: "
            "retention or compaction has removed older records there"
        )
    if report.releases and report.sink_since > (report.first or 0):
        yield (
            f"charges before timestamp {report.sink_since} are not matched with records: "
            "they are in the former sink, which is not read"
        )


def _limit(report: Report) -> Fraction:
    """What the units of a window are worth: epsilon, or mu squared to about three digits, rounded down."""
    if report.delta is None:
        return report.epsilon
    exact = mu_squared(report.epsilon, report.delta)
    step = Fraction(10) ** (floor(log10(exact)) - 2)
    return floor(Fraction(exact) / step) * step


def _promise(report: Report, limit: Fraction) -> str:
    if report.delta is None:
        return f"epsilon {number(limit)}"
    return f"mu squared {number(limit)} (epsilon {number(report.epsilon)}, delta {float(report.delta):.3g})"


def largest_spent(largest: int, units: int, epsilon: Fraction) -> str:
    """The largest sum of a window in terms of epsilon, rounded up to about a hundredth, and told so."""
    if largest == units:
        return number(epsilon)
    step = Fraction(1, 100)
    while step > epsilon / 100:
        step /= 10
    exact = largest * epsilon / units
    rounded = ceil(exact / step) * step
    return number(rounded) if rounded == exact else f"at most {number(rounded)}"


def _told(value: str | int | None) -> str | int:
    return "unset" if value is None else value
