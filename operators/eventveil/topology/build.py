"""From a file that was read to the frozen model, and the defaults that depend on other settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from fractions import Fraction
from typing import Any, TypeVar, cast

from eventveil.describe.guarantee import number
from eventveil.mechanisms.gaussian import OPTIONS as GAUSSIAN_OPTIONS
from eventveil.mechanisms.registry import options_of
from eventveil.model.fields import TIME, listed
from eventveil.model.topology import (
    Budget,
    Counts,
    Discover,
    Kafka,
    KindOfStream,
    MechanismSettings,
    ReadingStream,
    Registry,
    Security,
    Sink,
    Source,
    Stream,
    Timeline,
    TopicSettings,
    Topology,
    ValueMechanism,
    ValueSource,
)
from eventveil.topology import local
from eventveil.topology.clients import clients_of
from eventveil.topology.columns import ColumnNames
from eventveil.topology.counts import repartitioned
from eventveil.topology.fields import Default, Section
from eventveil.topology.options import OPTIONS, TRUSTED, covered, option_of
from eventveil.topology.values import OPTIONS as VALUE_OPTIONS
from eventveil.topology.values import options_of as value_options_of

Part = TypeVar("Part")


def written_kind(stream: Section) -> KindOfStream:
    """What a stream that could be read will be (``Stream.kind``); pan-private ones are written as counts."""
    mechanism, source = stream.get("mechanism"), stream.get("source")
    kind = None if mechanism is None else mechanism.get("kind")
    if kind in VALUE_OPTIONS:
        return "values"
    if kind in local.OPTIONS:
        return "local"
    return "counts" if source is None or source.get("counts") is None else "engine"


def streams_of(file: Section) -> dict[str, Section]:
    """The streams of counts that could be read, by name."""
    return {name: one for name, one in all_streams_of(file).items() if written_kind(one) != "values"}


def local_streams_of(file: Section) -> dict[str, Section]:
    """Those of ``streams_of`` whose events are local reports."""
    return {name: one for name, one in all_streams_of(file).items() if written_kind(one) == "local"}


def value_streams_of(file: Section) -> dict[str, Section]:
    """The value streams that could be read, by name."""
    return {name: one for name, one in all_streams_of(file).items() if written_kind(one) == "values"}


def all_streams_of(file: Section) -> dict[str, Section]:
    """Both."""
    return file.get("streams") or {}


def parts_of(
    file: Section, part: str, streams: Callable[[Section], dict[str, Section]] = streams_of
) -> Iterator[tuple[str, Section, Section]]:
    """Every stream with that part of it (source, timeline, ...) which could be read: name, stream, part."""
    for name, stream in streams(file).items():
        section = stream.get(part)
        if section is not None:
            yield name, stream, section


def fill(file: Section) -> Iterator[Default]:
    """Set the defaults that depend on other settings; yields each one."""
    for stream in all_streams_of(file).values():
        sections = [one for one in stream.values.values() if isinstance(one, Section)]
        for section in (stream, *sections):
            yield from _derived(file, stream, section)
    for _, stream, mechanism in parts_of(file, "mechanism"):
        kind = mechanism.get("kind")
        for option in sorted(options_of(kind) if kind and written_kind(stream) != "local" else ()):
            pure = "noise" in options_of(kind) and option in GAUSSIAN_OPTIONS
            if option not in mechanism.positions and option not in mechanism.values and not pure:
                yield Default(mechanism.name(option), option_of(option).text)
    for _, _, mechanism in parts_of(file, "mechanism", value_streams_of):
        for one in VALUE_OPTIONS[mechanism.get("kind")]:
            if one.derived is not None and one.name not in mechanism.positions:
                yield Default(mechanism.name(one.name), one.derived)


def _derived(file: Section, stream: Section, section: Section) -> Iterator[Default]:
    for row in section.table.fields if section.table is not None else ():
        if row.derive is None or row.name in section.positions:
            continue
        found = row.derive(file, stream, section)
        if found is not None:
            section.values[row.name], text = found
            yield Default(section.name(row.name), text)


def build(file: Section, path: str, directory: str) -> Topology:
    """The model of a file without mistakes. Relative paths of certificates start at ``directory``."""
    kafka, topics = file.get("kafka"), file.get("topics")
    return Topology(
        path=path,
        version=file.get("version"),
        name=file.get("name"),
        registry=_registry(file.get("registry"), directory),
        kafka=Kafka(
            kafka.get("bootstrap"),
            Security(**_placed(kafka.get("security"), directory)),
            clients_of(kafka.get("clients")),
        ),
        topics=TopicSettings(**topics.values),
        streams=tuple(
            _stream(name, stream, file.get("name"), TopicSettings(**topics.values))
            for name, stream in streams_of(file).items()
        ),
        budget=_budget(file.get("budget")),
        readings=tuple(_readings(name, stream) for name, stream in value_streams_of(file).items()),
    )


def _placed(section: Section, directory: str) -> dict[str, Any]:
    """The values of a section whose relative paths start at ``directory``."""
    files = {"ca", "certificate", "key", "token_ca", "token_file"}
    return {
        key: os.path.join(directory, value) if key in files else value
        for key, value in section.values.items()
    }


def _registry(section: Section | None, directory: str) -> Registry | None:
    if section is None or section.get("url") is None:
        return None
    return Registry(**_placed(section, directory))


def _budget(section: Section | None) -> Budget | None:
    if section is None:
        return None
    delta = section.get("delta")
    return Budget(
        section.get("epsilon").value,
        section.get("span"),
        section.get("users"),
        None if delta is None else delta.value,
    )


def _stream(name: str, stream: Section, application: str, topics: TopicSettings) -> Stream:
    made = _of_reports if written_kind(stream) == "local" else _of_events
    counts, mechanism = made(stream, topics)
    return Stream(
        name=name,
        source=_source(stream.get("source"), application),
        timeline=_made(Timeline, stream.get("timeline")),
        counts=counts,
        mechanism=mechanism,
        sink=_made(Sink, stream.get("sink")),
        dead_letter=stream.get("dead_letter"),
    )


def _of_events(stream: Section, topics: TopicSettings) -> tuple[Counts, MechanismSettings]:
    counts, mechanism = stream.get("counts"), stream.get("mechanism")
    return _counts(counts, mechanism, topics), _mechanism(mechanism, _share(counts))


def _of_reports(stream: Section, topics: TopicSettings) -> tuple[Counts, MechanismSettings]:
    values, mechanism = stream.get("values"), stream.get("mechanism")
    return local.counts_of(values, mechanism), local.mechanism_of(values, mechanism)


def _made(part: type[Part], section: Section, **others: Any) -> Part:
    """A part of the model, from the settings that have the names of its fields, and ``others`` by name."""
    given = {one.name: section.get(one.name) for one in fields(cast(Any, part)) if one.name not in others}
    return part(**{name: value for name, value in given.items() if value is not None}, **others)


def _readings(name: str, stream: Section) -> ReadingStream:
    source, values, mechanism = stream.get("source"), stream.get("values"), stream.get("mechanism")
    epsilon, step = mechanism.get("epsilon"), values.get("step")
    return ReadingStream(
        name=name,
        source=_made(ValueSource, source, population=source.get("users")),
        maximum=int(values.get("maximum").value / step.value),
        step=step.value,
        step_text=step.text,
        mechanism=ValueMechanism(
            mechanism.get("kind"), epsilon.value, epsilon.text, value_options_of(mechanism)
        ),
        sink=stream.get("sink").get("topic"),
    )


def _source(section: Section, application: str) -> Source:
    column = section.get("column") or section.get("report")
    population = section.get("users")
    if section.get("counts") is not None:
        # Which partition a count belongs to says its column.
        return _made(Source, section, user=column, user_type="either", population=population, raw=None)
    # With append times $time is a fact of the broker's, without them a claim like any other.
    own_time = section.get("append_time") == "boundary" and TIME in listed(section.get("time"))
    source = _made(Source, section, column=column, population=population, raw=None, own_time=own_time)
    if section.get("repartition") == "false":
        return source
    return replace(source, topic=repartitioned(application, source.topic), raw=source.topic)


def _share(counts: Section) -> Fraction:
    """The part of epsilon that finding columns has."""
    discover = counts.get("columns").discover
    return Fraction(0) if discover is None else discover.get("share").value


def _discover(columns: ColumnNames, mechanism: Section, topics: TopicSettings) -> Discover | None:
    found = columns.discover
    if found is None:
        return None
    share, delta = found.get("share").value, found.get("delta").value
    epsilon, room = share * mechanism.get("epsilon").value, topics.message_bytes
    return _made(Discover, found, epsilon=epsilon, delta=delta, share=share, message_bytes=room)


def _counts(section: Section, mechanism: Section, topics: TopicSettings) -> Counts:
    columns: ColumnNames = section.get("columns")
    unknown = section.get("unknown")
    other = unknown not in ("dead-letter", "ignore")
    contributions, per_column = section.get("contributions"), section.get("per_column")
    contributions = 1 if contributions == TRUSTED else contributions
    return _made(
        Counts,
        section,
        labels=columns.labels,
        column_type=columns.type,
        contributions=contributions,
        per_column=None if per_column == contributions else per_column,
        unknown="column" if other else unknown,
        unknown_column=columns.labels.index(unknown) if other else None,
        expected=section.get("expected"),
        released=(),
        discover=_discover(columns, mechanism, topics),
    )


def _mechanism(section: Section, share: Fraction) -> MechanismSettings:
    """``share``: the part of epsilon that is for something else."""
    kind, epsilon = section.get("kind"), section.get("epsilon")
    own = epsilon.value * (1 - share)
    options = {}
    known = options_of(kind)
    for name in (*(name for name in OPTIONS if name in known), *sorted(known - OPTIONS.keys())):
        value = option_of(name).value(section.get(name))
        if value is not None:
            options[name] = value
    return MechanismSettings(
        kind=kind,
        epsilon=own,
        epsilon_text=number(own) if share else epsilon.text,
        window=covered(section) or 0,
        adjacency=section.get("adjacency"),
        options=options,
    )
