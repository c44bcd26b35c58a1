"""Reads the ledger and the sinks of a topology for its audit.

A worker may run meanwhile: ``eventveil.kafka.ends`` says up to where is read. Aborted records are read as
well, for read_uncommitted readers have seen them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from eventveil.audit.findings import Finding, Kept, ReadingsReport, Report
from eventveil.audit.generations import GenerationsAudit
from eventveil.audit.readings import ReadingsAudit
from eventveil.audit.records import FoundRecord
from eventveil.audit.stream import stranger
from eventveil.cli.witness import WitnessUpdater
from eventveil.formats.change import Change
from eventveil.kafka.barrier import is_nonce
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.ends import Offsets, proven_ends, shown_ends
from eventveil.kafka.log import offset_of, read_partition
from eventveil.kinds.kind import Audit
from eventveil.kinds.registry import beside, kind_of
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Kafka, Timeline, Topology
from eventveil.read.by_schema import BySchema
from eventveil.read.problems import ReadingError

Watch = Callable[[FoundRecord], None]
"""What sees every record of the ledger beside the audits."""


@dataclass(frozen=True, slots=True)
class AuditedStream:
    """What was found of one stream, by generation, the newest last."""

    stream: str
    sink: str
    reports: tuple[Report | ReadingsReport, ...]


@dataclass(frozen=True, slots=True)
class Audited:
    """What an audit found; ``strangers`` are records of the ledger that are nobody's entry.

    ``others`` are the streams of other files, which are not checked. ``keep_witness`` holds the ledger
    against the witness, if there is one, and brings that up to date; it raises EventveilError if something
    is gone.
    """

    streams: tuple[AuditedStream, ...]
    strangers: tuple[Finding, ...]
    others: tuple[str, ...]
    keep_witness: Callable[[], Iterable[str]]

    @property
    def violations(self) -> int:
        """How many there are."""
        return len(self.strangers) + sum(report.violations for one in self.streams for report in one.reports)


def run_audit(
    topology: Topology, witness: Path | None = None, *, barrier: bool = False, watch: Sequence[Watch] = ()
) -> Audited:
    """Audit a topology; each of ``watch`` sees every record of the ledger, in the order of each partition.

    Raises EventveilError and KafkaException.
    """
    cluster = Cluster(topology.kafka)
    updater = None if witness is None else WitnessUpdater(topology, cluster, witness)
    sinks = {stream.name: stream.sink_topic for stream in topology.all_streams}
    ledger_places = cluster.topic(topology.ledger).places
    sink_places = {name: cluster.topic(sink).places for name, sink in sinks.items()}
    control = cluster.topic(topology.control).places if topology.control in beside(topology) else []
    all_sinks = [*control, *(place for places in sink_places.values() for place in places)]
    if barrier:
        decided, ledger_ends, sink_ends = proven_ends(topology, ledger_places, all_sinks)
    else:
        decided, ledger_ends, sink_ends = shown_ends(cluster, ledger_places, all_sinks)

    changes = _changes(topology.kafka, ledger_ends)
    audits: dict[str, Audit] = {
        stream.name: kind_of(stream).audit(topology, stream, changes.get(stream.name, ()))
        for stream in topology.all_streams
    }
    watching = [*([updater.see] if updater else ()), *watch]
    strangers, others = _read_ledger(cluster, ledger_ends, audits, watching)
    if control:
        others |= _read_control(cluster, control, sink_ends, decided, audits)
    found, schemas = [], BySchema(topology.registry)
    for name, audit in audits.items():
        ends = {place: sink_ends[place] for place in sink_places[name]}
        reports = _read_sink(cluster, sinks[name], ends, decided, audit, updater, schemas)
        found.append(AuditedStream(name, sinks[name], tuple(reports)))
    keep = updater.keep if updater else tuple
    return Audited(tuple(found), tuple(strangers), tuple(sorted(others)), keep)


def timelines_of(topology: Topology) -> dict[str, Timeline | None]:
    """The timelines of all streams by name; None for a value stream, whose ledger has no times."""
    known = {stream.name: stream.timeline for stream in topology.streams}
    return {stream.name: known.get(stream.name) for stream in topology.all_streams}


def _changes(kafka: Kafka, ends: Offsets) -> dict[str, list[Change]]:
    """The changes in the ledger, by stream: an audit has to know the terms before the first of them."""
    found: dict[str, list[Change]] = {}
    for place, end in ends.items():
        with closing(read_partition(kafka, *place, least=end)) as messages:
            for message in messages:
                if offset_of(message) >= end:
                    break
                record = FoundRecord.read(place, offset_of(message), message.key(), message.value())
                if change := Change.read(record.fields):
                    found.setdefault(change.stream, []).append(change)
    return found


def _read_ledger(
    cluster: Cluster, ends: Offsets, audits: Mapping[str, Audit], watch: Sequence[Watch]
) -> tuple[list[Finding], set[str]]:
    """Hand the ledger to the audits; the answer is what is nobody's entry, and the names of other streams."""
    starts = cluster.first_offsets(ends)
    strangers: list[Finding] = []
    others: set[str] = set()
    for place, end in ends.items():
        for audit in audits.values():
            audit.ledger_begins(*place, starts[place])
        for found in _read(cluster.kafka, place, starts[place], end):
            for see in watch:
                see(found)
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
    places: Sequence[TopicPartition],
    ends: Offsets,
    decided: Offsets,
    audits: Mapping[str, Audit],
) -> set[str]:
    """Hand what producers of local reports are asked for to the audits; the names of other streams."""
    others: set[str] = set()
    starts = cluster.first_offsets(places)
    for place in places:
        for found in _read(cluster.kafka, place, starts[place], ends[place]):
            name = (found.key or b"").decode(errors="replace")
            audit = audits.get(name)
            if isinstance(audit, GenerationsAudit):
                audit.asked(found, newer=found.offset >= decided[place])
            elif found.committed:
                others.add(name)
    return others


def _read_sink(
    cluster: Cluster,
    topic: str,
    ends: Offsets,
    decided: Offsets,
    audit: Audit,
    updater: WitnessUpdater | None,
    schemas: BySchema,
) -> Sequence[Report | ReadingsReport]:
    compacted = "compact" in cluster.settings([topic])[topic]["cleanup.policy"]
    starts = cluster.first_offsets(ends)
    # Of counts, the ledger tells all that a witness keeps.
    watching = updater if isinstance(audit, ReadingsAudit) else None
    for place, end in ends.items():
        if watching is not None:
            watching.begins(place, starts[place])
        for found in _read(cluster.kafka, place, starts[place], end, schemas):
            if watching is not None:
                watching.see(found)
            audit.record(found, newer=found.offset >= decided[place])
    kept: Kept = "last" if compacted else "newest" if any(starts.values()) else "everything"
    return audit.reports(kept)


def _read(
    kafka: Kafka, place: TopicPartition, start: int, end: int, schemas: BySchema | None = None
) -> Iterator[FoundRecord]:
    """The records of a partition below a settled end, aborted ones included and marked, nonces left out.

    ``schemas`` reads those of sinks.
    """
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
            # Past the one before, and what compaction has removed since: of a sink that somebody set so.
            while next_committed is not None and offset_of(next_committed) < offset:
                next_committed = next(committed, None)
            is_committed = next_committed is not None and offset_of(next_committed) == offset
            if not is_nonce(message.key()):
                value = message.value()
                content = None if schemas is None else _content(schemas, value, f"{place}, offset {offset}")
                yield FoundRecord.read(place, offset, message.key(), value, is_committed, content)


def _content(schemas: BySchema, value: bytes | None, place: str) -> bytes:
    """A record of a sink as JSON; what no schema reads as it is, which the audit finds."""
    try:
        return schemas.json(value, place)
    except ReadingError:
        return value or b""
