"""What advice is wanted on: events in a file, or those of a stream of a topology."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import click

from eventveil.advise.planning import with_columns
from eventveil.advise.reading import find_columns, types_of
from eventveil.advise.writing import TopologyPlan
from eventveil.cli.loading import load_or_exit
from eventveil.describe.guarantee import count
from eventveil.doctor.editing import Edits
from eventveil.doctor.pointers import absent
from eventveil.doctor.sample import SampledRecord
from eventveil.kinds.registry import kind_of
from eventveil.model.errors import EventveilError
from eventveil.model.fields import listed
from eventveil.model.topology import Counts, MechanismSettings, Sink, Source, Stream, Timeline, Topology
from eventveil.replay.files import open_file
from eventveil.replay.inputs import Input
from eventveil.replay.rekeying import open_topic
from eventveil.topology.periods import HOUR
from eventveil.topology.spec import LONGEST_NAME

FOUND = "found"
_TOPIC = "topic:"
#: How many events are looked at for their fields.
_SEEN = 1_000
#: What is carried over as it is written: places and secrets are those of the file.
_SECTIONS = ("kafka", "registry", "topics")
_TIMES = ("lateness", "max_ahead", "clock_skew", "on_missing", "grace")
#: Behind names, so that the recommended file can run beside the one that it came from.
_ADVISED = "-advised"


@dataclass(frozen=True, slots=True)
class AdviceSubject:
    """Events, the stream that says where user, column and time are in them, and the topology's name.

    ``open`` begins to read them, each time anew. ``file`` is the topology, None where there is none: then
    nothing is known of columns and types either.
    """

    name: str
    stream: Stream
    open: Callable[[], Input]
    file: str | None = None

    def carried(self, plan: TopologyPlan) -> TopologyPlan:
        """The plan with all settings of the file that advice does not try, beside the file's own topics.

        Raises OSError.
        """
        if self.file is None:
            return plan
        written = Edits(Path(self.file).read_text(encoding="utf-8"))
        sections = (written.written((name,)) for name in _SECTIONS)
        timeline = ("streams", self.stream.name, "timeline")
        times = (written.written((*timeline, name)) for name in _TIMES)
        return replace(
            plan,
            name=plan.name[: LONGEST_NAME - len(_ADVISED)] + _ADVISED,
            sections="".join(f"{section}\n" for section in sections if section is not None),
            times=tuple(line for line in times if line is not None),
            sink=self.stream.sink.topic + _ADVISED,
            dead_letter=self.stream.dead_letter + _ADVISED,
        )


def of_topology(path: str, source: str | None, only: str | None) -> AdviceSubject:
    """A stream of a topology; exits with 78 if that is invalid. UsageError unless one stream is meant."""
    topology = load_or_exit(path)
    if source is None:
        raise click.UsageError(f"{path} is a topology; --input FILE or topic:NAME says where events are")
    every = [one for one in topology.streams if kind_of(one).raw_events and one.source.keyed_by == "user"]
    streams = [one for one in every if only in {None, one.name}]
    if source.startswith(_TOPIC):
        topic = source.removeprefix(_TOPIC)
        streams = [one for one in streams if topic in {one.source.topic, one.source.topic_of_events}]
    if len(streams) != 1:
        names = ", ".join(one.name for one in every) or "there is none"
        raise click.UsageError(f"name one stream of counts, by --stream or by the topic of --input: {names}")
    return AdviceSubject(topology.name, streams[0], lambda: _open(topology, streams[0], source), path)


def _open(topology: Topology, stream: Stream, source: str) -> Input:
    if not source.startswith(_TOPIC):
        return _open_file(source, stream.source)
    return open_topic(topology, source.removeprefix(_TOPIC))


def of_file(path: str, user: str, column: str, time: str) -> AdviceSubject:
    """A file of events. Nothing but the pointers is known of them."""
    stem = "".join(one if one.isascii() and one.isalnum() else "-" for one in Path(path).stem.lower())
    name = stem.strip("-")[:60] or "advised"
    stream = Stream(
        name="counts",
        source=Source(f"{name}.events", user, column, time),
        timeline=Timeline(HOUR, 0),
        counts=Counts(()),
        mechanism=MechanismSettings("seasonal", Fraction(1), "1", 24),
        sink=Sink(f"{name}.sanitized"),
        dead_letter=f"{name}.dead",
    )
    return AdviceSubject(name, stream, lambda: _open_file(path, stream.source))


def check_fields(subject: AdviceSubject, warn: Callable[[str], object]) -> None:
    """See that some of the first events have a user, a column and a time where the options point.

    Raises EventveilError with fields that may be meant, and what reading the events raises.
    """
    source, events = subject.stream.source, subject.open()
    events.begin(0, source.max_bytes)
    for warning in events.warnings:
        warn(f"warning: {warning}")
    values = next((chunk.values[:_SEEN] for chunk in events.chunks()), ())
    records = [SampledRecord(0, number, value) for number, value in enumerate(values)]
    for option in ("user", "column", "time"):
        for one in absent(listed(getattr(source, option)), records, source):
            similar = [f"{name} (in {number})" for name, number in one.similar]
            meant = f"; did you mean {' or '.join(similar)}?" if similar else "."
            raise EventveilError(
                f"none of the first {count(one.readable, 'event')} has a {option} at {one.field}{meant}"
                f" --{option} names the field"
            )


def _open_file(path: str, fields: Source) -> Input:
    try:
        return open_file(path, fields.pointers)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def with_found_columns(subject: AdviceSubject, columns: str | None) -> Stream:
    """The subject's stream with the columns that were asked for; None: those that it has.

    Raises EventveilError if there are none, and what reading the events raises.
    """
    stream = subject.stream
    if columns is None:
        return stream
    if columns == FOUND:
        found = find_columns(subject.open(), stream.source)
        return with_columns(stream, found.columns, found.user_type, found.column_type)
    labels = _listed(columns)
    if subject.file is not None:
        return with_columns(stream, labels, stream.source.user_type, stream.counts.column_type)
    seen = types_of(subject.open(), stream.source)
    return with_columns(stream, labels, seen.user_type, seen.column_type)


def _listed(columns: str) -> tuple[str, ...]:
    """From a file with one a line, or from the text itself, with commas between."""
    if os.path.isfile(columns):
        lines = Path(columns).read_text(encoding="utf-8").splitlines()
        given = [line.strip() for line in lines if not line.startswith("# ")]
    else:
        given = [label.strip() for label in columns.split(",")]
    labels = tuple(dict.fromkeys(label for label in given if label))
    if not labels:
        raise EventveilError(f"--columns {columns} names no column; list some, or say found")
    return labels
