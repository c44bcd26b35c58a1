"""``eventveil ledger``: audits the ledger and the sinks of a topology.

A worker may run meanwhile: ``eventveil.kafka.ends`` says up to where is read. Aborted records are read as
well, for read_uncommitted readers have seen them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from fractions import Fraction
from math import ceil
from pathlib import Path

import click
from confluent_kafka import KafkaException

from eventveil.audit.findings import Finding, Kept, ReadingsReport, Report
from eventveil.audit.generations import GenerationsAudit
from eventveil.audit.readings import ReadingsAudit
from eventveil.audit.records import Found
from eventveil.audit.stream import stranger
from eventveil.cli.loading import EXIT_FAILED, load_or_exit
from eventveil.cli.options import witness_file
from eventveil.cli.witness import WitnessKeeper
from eventveil.describe.guarantee import number
from eventveil.formats.change import Change, crossings
from eventveil.kafka.barrier import is_nonce
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.ends import Offsets, proven_ends, shown_ends
from eventveil.kafka.log import offset_of, read_partition
from eventveil.kinds.kind import Audit
from eventveil.kinds.registry import beside, kind_of
from eventveil.model import timeline
from eventveil.model.errors import EventveilError
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Kafka, Timeline, Topology

#: A release is late if it is not there so long after it was due.
_LATE_SECONDS = 60
#: What holds epsilon, at each level.
_PERIOD = {"w-event": "window", "event": "timestamp", "user": "horizon", "local": "timestamp"}


@click.command()
@click.argument("topology")
@click.option(
    "--witness", type=witness_file, metavar="FILE",
    help="Note each stream's newest record in FILE, outside Kafka; first check that none noted is gone.",
)  # fmt: skip
@click.option(
    "--barrier",
    is_flag=True,
    help="Make sure to read up to the newest record, whichever brokers answer; needs the right to write.",
)
def ledger(topology: str, witness: Path | None, barrier: bool) -> None:
    """Audit what TOPOLOGY has released: each release charged, in one version, every window within epsilon.

    For a value stream: spans of values that follow each other, each within epsilon, and every reading in one.

    For local reports: one threshold, in the ledger and in the control topic.

    Reads the ledger, the sinks and the control topic; a worker may run meanwhile. Tells for each stream up to
    which timestamp: a broker that is cut off from the others may show a ledger that ends early. --barrier
    rules that out, by writing records in transactions that it aborts.

    A FILE that does not exist is created; one of another topology or cluster is refused. So is a ledger that
    lacks what FILE has noted, because it was restored to an earlier point. Then FILE stays as it is. See
    `eventveil run --witness`.

    Exit status 1 if anything is violated, each violation on a line of standard error: the invariant (I1 one
    draw, I2 charge first, I7 auditable; docs/invariants.md has them), the stream, the timestamp, the record,
    and what is wrong.
    """
    loaded = load_or_exit(topology)
    try:
        clean = _audit(loaded, witness, barrier=barrier)
    except (EventveilError, KafkaException) as error:
        click.echo(f"eventveil ledger: {error}", err=True)
        sys.exit(EXIT_FAILED)
    sys.exit(0 if clean else EXIT_FAILED)


def _audit(topology: Topology, witness: Path | None, *, barrier: bool) -> bool:
    cluster = Cluster(topology.kafka)
    keeper = None if witness is None else WitnessKeeper(topology, cluster, witness)
    sinks = {stream.name: kind_of(stream).sink(stream) for stream in topology.all_streams}
    timelines = {stream.name: stream.timeline for stream in topology.streams}
    ledger_places = _places(cluster, topology.ledger)
    sink_places = {name: _places(cluster, sink) for name, sink in sinks.items()}
    control = _places(cluster, topology.control) if topology.control in beside(topology) else []
    all_sinks = [*control, *(place for places in sink_places.values() for place in places)]
    if barrier:
        decided, ledger_ends, sink_ends = proven_ends(topology, ledger_places, all_sinks)
    else:
        decided, ledger_ends, sink_ends = shown_ends(cluster, topology.kafka, ledger_places, all_sinks)

    changes = _changes(topology.kafka, ledger_ends)
    audits: dict[str, Audit] = {
        stream.name: kind_of(stream).audit(topology, stream, changes.get(stream.name, ()))
        for stream in topology.all_streams
    }
    strangers, others = _read_ledger(cluster, topology.kafka, ledger_ends, audits, keeper)
    clean = not strangers
    if control:
        others |= _read_control(cluster, topology.kafka, control, sink_ends, decided, audits)
    for name, audit in audits.items():
        ends = {place: sink_ends[place] for place in sink_places[name]}
        for report in _read_sink(cluster, topology.kafka, sinks[name], ends, decided, audit, keeper):
            _show(describe(report, sinks[name]), report.findings)
            clean = clean and not report.violations
        if isinstance(report, Report) and report.last is not None:
            click.echo(
                f"  {seen(timelines[name], report.last, time.time_ns() // 1_000_000, barrier=barrier)}"
            )
    if others:
        click.echo(f"not in this file, so not checked: {', '.join(sorted(others))}")
    _show((), strangers)
    _show(keeper.keep() if keeper else (), ())
    return clean


def _places(cluster: Cluster, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in range(cluster.topic(topic).partitions)]


def _changes(kafka: Kafka, ends: Offsets) -> dict[str, list[Change]]:
    """The changes in the ledger, by stream: an audit has to know the terms before the first of them."""
    found: dict[str, list[Change]] = {}
    for place, end in ends.items():
        with closing(read_partition(kafka, *place, least=end)) as messages:
            for message in messages:
                if offset_of(message) >= end:
                    break
                record = Found.read(place, offset_of(message), message.key(), message.value())
                if change := Change.read(record.fields):
                    found.setdefault(change.stream, []).append(change)
    return found


def _read_ledger(
    cluster: Cluster,
    kafka: Kafka,
    ends: Offsets,
    audits: Mapping[str, Audit],
    keeper: WitnessKeeper | None,
) -> tuple[list[Finding], set[str]]:
    """Hand the ledger to the audits; the answer is what is nobody's entry, and the names of other streams."""
    starts = cluster.first_offsets(ends)
    strangers: list[Finding] = []
    others: set[str] = set()
    for place, end in ends.items():
        for audit in audits.values():
            audit.ledger_begins(*place, starts[place])
        for found in _read(kafka, place, starts[place], end):
            if keeper is not None:
                keeper.see(found)
            audit_of = audits.get(found.stream)
            if audit_of is not None:
                audit_of.entry(found)
            elif finding := stranger(found):
                strangers.append(finding)
            elif found.committed:
                others.add(found.stream)
    return strangers, others


def _read_control(
    cluster: Cluster,
    kafka: Kafka,
    places: Sequence[TopicPartition],
    ends: Offsets,
    decided: Offsets,
    audits: Mapping[str, Audit],
) -> set[str]:
    """Hand what producers of local reports are asked for to the audits; the names of other streams."""
    others: set[str] = set()
    starts = cluster.first_offsets(places)
    for place in places:
        for found in _read(kafka, place, starts[place], ends[place]):
            name = (found.key or b"").decode(errors="replace")
            audit = audits.get(name)
            if isinstance(audit, GenerationsAudit):
                audit.asked(found, newer=found.offset >= decided[place])
            elif found.committed:
                others.add(name)
    return others


def _read_sink(
    cluster: Cluster,
    kafka: Kafka,
    topic: str,
    ends: Offsets,
    decided: Offsets,
    audit: Audit,
    keeper: WitnessKeeper | None,
) -> Sequence[Report | ReadingsReport]:
    compacted = "compact" in cluster.settings([topic])[topic]["cleanup.policy"]
    starts = cluster.first_offsets(ends)
    # Of counts, the ledger tells all that a witness keeps.
    watching = keeper if isinstance(audit, ReadingsAudit) else None
    for place, end in ends.items():
        if watching is not None:
            watching.begins(place, starts[place])
        for found in _read(kafka, place, starts[place], end):
            if watching is not None:
                watching.see(found)
            audit.record(found, newer=found.offset >= decided[place])
    kept: Kept = "last" if compacted else "newest" if any(starts.values()) else "everything"
    return audit.reports(kept)


def _read(kafka: Kafka, place: TopicPartition, start: int, end: int) -> Iterator[Found]:
    """The records of a partition below a settled end, aborted ones included and marked, nonces left out."""
    if start >= end:
        return
    with (
        closing(read_partition(kafka, *place, start=start, least=end)) as committed,
        closing(
            read_partition(kafka, *place, start=start, least=end, isolation="read_uncommitted")
        ) as everything,
    ):
        next_committed = next(committed, None)
        for message in everything:
            offset = offset_of(message)
            if offset >= end:
                return
            is_committed = next_committed is not None and offset_of(next_committed) == offset
            if is_committed:
                next_committed = next(committed, None)
            if not is_nonce(message.key()):
                yield Found.read(place, offset, message.key(), message.value(), is_committed)


def _show(lines: Iterable[str], findings: Iterable[Finding]) -> None:
    for line in lines:
        click.echo(line)
    for finding in findings:
        click.echo(str(finding), err=True)


def seen(rules: Timeline, last: int, now: int, *, barrier: bool) -> str:
    """Up to which timestamp was read, ``last``, and whether a later one is missing at ``now`` (epoch ms)."""
    due = timeline.due_of(rules, last)
    told = f"up to timestamp {last}, due at {timeline.format_rfc3339(due)}"
    if now < timeline.due_of(rules, last + 1) + 1000 * _LATE_SECONDS:
        return told
    if barrier:
        return f"{told}: no worker has released what has become due since"
    return (
        f"{told}: no worker has released what has become due since, or a broker that is cut off has answered"
        " (--barrier finds out)"
    )


def describe(report: Report | ReadingsReport, sink: str) -> Iterator[str]:
    """The lines for one stream: the result, then what else there is to know."""
    violations = f"; {_count(report.violations, 'violation')}" if report.violations else ""
    if isinstance(report, ReadingsReport):
        readings, spans = _count(report.readings, "reading"), _count(report.spans, "span")
        yield (
            f"{report.stream}: {readings}, {report.held} values held back, {spans} checked, "
            f"each value within epsilon {report.epsilon}{violations}"
        )
    elif report.releases:
        spent = largest_spent(report.largest, report.units, report.epsilon)
        releases, windows = _count(report.releases, "release"), _count(report.windows, _PERIOD[report.level])
        yield (
            f"{report.stream}: {releases}, {windows} checked, "
            f"largest {spent} of epsilon {number(report.epsilon)}{violations}"
        )
    else:
        yield f"{report.stream}: nothing released yet{violations}"
    yield from (f"  {note}" for note in _notes(report, sink))


def _notes(report: Report | ReadingsReport, sink: str) -> Iterator[str]:
    yield from _matched(report, sink) if isinstance(report, ReadingsReport) else _history(report, sink)
    if report.repeated:
        yield f"{_count(report.repeated, 'record')} repeated byte for byte"
    if report.aborted:
        yield f"{_count(report.aborted, 'record')} of aborted transactions, the same as the committed ones"
    if report.undecided:
        yield f"{_count(report.undecided, 'record')} newer than the ledger that was read: not judged yet"
    if report.foreign:
        yield f"{_count(report.foreign, 'record')} in {sink} of somebody else"
    if report.violations > len(report.findings):
        yield f"{report.violations - len(report.findings)} more violations of the same sorts, not listed"


def _matched(report: ReadingsReport, sink: str) -> Iterator[str]:
    for partition, first in report.matched_from.items():
        yield (
            f"matched with {sink}, partition {partition}, from position {first} on: "
            "retention has removed older records there"
        )


def _history(report: Report, sink: str) -> Iterator[str]:
    if report.level == "local":
        yield "threshold: " + (
            "still to be chosen" if report.threshold is None else f"{report.threshold}, the only one"
        )
    for change in report.changes:
        fields = ", ".join(f"{name} {one.old} to {one.new}" for name, one in change.fields.items())
        yield f"migrated at timestamp {change.start}: {fields}"
    if report.looks:
        yield f"{_count(report.looks, 'timestamp')} published for an announced look"
    if report.forfeited:
        yield f"{_count(report.forfeited, 'timestamp')} given up after failures, and charged"
    if report.windows_before:
        before = _count(report.windows_before, _PERIOD[report.level])
        yield f"{before} before that checked too, by the epsilon of that time"
    for crossing in crossings(report.changes, report.first) if report.first else ():
        yield (
            f"what was spent from timestamp {crossing.start} on kept windows of {crossing.window} "
            f"across it within epsilon {number(crossing.epsilon)}"
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
            "these went to the sink of that time, which is not read"
        )


def largest_spent(largest: int, units: int, epsilon: Fraction) -> str:
    """The largest sum of a window in terms of epsilon, rounded up to about a hundredth of it."""
    if largest == units:
        return number(epsilon)
    step = Fraction(1, 100)
    while step > epsilon / 100:
        step /= 10
    return number(ceil(largest * epsilon / units / step) * step)


def _count(amount: int, noun: str) -> str:
    return f"{amount} {noun}{'' if amount == 1 else 's'}"
