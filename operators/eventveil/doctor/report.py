"""What the doctor has seen, as lines for people and as JSON: both are raw data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eventveil.describe.guarantee import count
from eventveil.doctor.counts_report import CountsReport
from eventveil.doctor.diagnosis import CountsDiagnosis, Diagnosis, ValuesDiagnosis
from eventveil.doctor.editing import Edits
from eventveil.doctor.proposal import Proposal
from eventveil.doctor.sample import SourceSample
from eventveil.doctor.stream_report import StreamReport, not_counting
from eventveil.doctor.wording import plain
from eventveil.model.topology import ReadingStream, Stream, Topology
from eventveil.topology.changes import NEW_STREAM, REFUSED
from eventveil.topology.scalars import duration_text


@dataclass(frozen=True)
class DoctorReport:
    """A topology and its ``text``, samples by source, what is said of its streams, and what is proposed."""

    topology: Topology
    text: str
    samples: Mapping[str, SourceSample]
    streams: Sequence[StreamReport]
    proposal: Proposal

    @property
    def before(self) -> Mapping[str, Diagnosis]:
        """The diagnoses by stream as the file is."""
        return {one.seen.stream.name: one.seen for one in self.streams}

    @property
    def after(self) -> Mapping[str, Diagnosis]:
        """The same as the proposal has it."""
        return {one.after.stream.name: one.after for one in self.streams}

    @property
    def is_well(self) -> bool:
        """Whether nothing is to be changed: few events are lost, and a worker would accept the topics."""
        refused = any(sample.mistakes for sample in self.samples.values())
        return not refused and all(one.seen.is_well for one in self.streams)

    def lines(self) -> Iterator[str]:
        """For people."""
        for sample in self.samples.values():
            yield from _source_lines(sample)
        for stream in self.streams:
            yield ""
            yield from stream.lines()
        yield ""
        yield from self._changes()

    def _changes(self) -> Iterator[str]:
        changes = self.proposal.changes
        if not changes:
            yield "No change of the file is proposed."
        else:
            yield "Proposed changes of the file"
        for one in changes:
            value = "leave it out" if one.value is None else one.value
            yield f"  {self._at(one.path)}: {one.setting}: {value}  ({plain(one.why)})"
        if fixed := [*dict.fromkeys(one.setting for one in changes if one.setting in REFUSED)]:
            begun = f"once a stream has begun, no migration changes {', '.join(fixed)}"
            yield f"  {begun}; in that case: {NEW_STREAM[0].lower()}{NEW_STREAM[1:]}"
        yield from (f"  {one}" for one in self.proposal.beside)
        if changes or self.proposal.beside:
            for name, seen in self.after.items():
                verdicts = seen.stamped
                counting = f"{verdicts.counting} of {verdicts.judged} events of {name} would count"
                yield f"  then {', '.join([counting, *not_counting(verdicts)])}"

    def _at(self, path: Sequence[str]) -> str:
        return Edits(self.text).place(self.topology.path, path)

    def fields(self) -> dict[str, Any]:
        """For programs; see docs/doctor.md."""
        return {
            "topology": self.topology.path,
            "well": self.is_well,
            "sources": [_source_fields(sample) for sample in self.samples.values()],
            "streams": [one.fields() for one in self.streams],
            "changes": [
                {"stream": one.stream, "setting": one.setting, "value": one.value, "why": one.why}
                | {"place": self._at(one.path)}
                for one in self.proposal.changes
            ],
            "beside": self.proposal.beside,
        }


def _source_lines(sample: SourceSample) -> Iterator[str]:
    places = "" if sample.is_file else f", {count(sample.partitions, 'partition')}"
    held = count(sample.held, "record")
    yield f"{sample.source}: read the newest {len(sample.records)} of {held}{places}"
    if not sample.is_file:
        yield f"  times: {times_of(sample)}; retention: {retention_of(sample)}"
    if not sample.records:
        yield "  the topic has no records, so no events can be checked: send some, and run this command again"
    yield from (f"  {one}" for one in (*sample.mistakes, *sample.notes))


def times_of(sample: SourceSample) -> str:
    """Whose times the records have."""
    appended = sum(one.appended for one in sample.records)
    stated = None if sample.settings is None else sample.settings.get("message.timestamp.type")
    found = f"{appended} of {count(len(sample.records), 'record')} stamped by the broker"
    return found if stated is None else f"{stated} ({found})"


def retention_of(sample: SourceSample) -> str:
    """How long the topic keeps records, as far as that is known."""
    text = (sample.settings or {}).get("retention.ms")
    if text is None:
        return "not known"
    return "without end" if int(text) < 0 else duration_text(int(text))


def _source_fields(sample: SourceSample) -> dict[str, Any]:
    return {
        "source": sample.source,
        "partitions": None if sample.is_file else sample.partitions,
        "read": len(sample.records),
        "held": sample.held,
        "stamped_by_broker": None if sample.is_file else sum(one.appended for one in sample.records),
        "timestamp_type": (sample.settings or {}).get("message.timestamp.type"),
        "retention_ms": (sample.settings or {}).get("retention.ms"),
        "mistakes": [*sample.mistakes],
        "notes": [*sample.notes],
    }


def report_on(
    topology: Topology, text: str, samples: Mapping[str, SourceSample], proposal: Proposal, now: int
) -> DoctorReport:
    """Diagnose every stream as the file is and as the proposal has it."""
    proposed: dict[str, Any] = {one.name: one for one in proposal.topology.all_streams}

    def counts(stream: Stream) -> StreamReport:
        seen = CountsDiagnosis(stream, samples[stream.source.topic_of_events], now)
        return CountsReport(seen, replace(seen, stream=proposed[stream.name]), topology, text)

    def values(stream: ReadingStream) -> StreamReport:
        seen = ValuesDiagnosis(stream, samples[stream.source.topic], now)
        return StreamReport(seen, replace(seen, stream=proposed[stream.name]), topology, text)

    told = [*map(counts, topology.streams), *map(values, topology.readings)]
    return DoctorReport(topology, text, samples, told, proposal)
