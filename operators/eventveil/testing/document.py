"""Reads a file of tests and checks it against its topology; finds all its mistakes at once."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar, Generic

from eventveil.model import timeline
from eventveil.model.errors import EventveilError
from eventveil.model.spelling import nearest, suggestion
from eventveil.model.topology import BY_SCHEMA, ReadingStream, Stream, Topology
from eventveil.testing.model import At, Case, EventEntry, Expectation, OneStream, TestFile
from eventveil.testing.playing import play, play_values
from eventveil.testing.spec import layout
from eventveil.topology.document import SIZE_LIMIT, Node, compose
from eventveil.topology.fields import ReadingPass, Section
from eventveil.topology.loading import load
from eventveil.topology.problems import Position, Problems, TopologyInvalid

#: How the name of a file of tests ends.
SUFFIX = "_test.yaml"
_BY_TIME = ("counts", "closed", "released", "spent")
_BY_EVENT = ("dead_letters", "left_out", "unreadable")


class TestsInvalid(EventveilError):
    """A file of tests has mistakes; the text names each with file, line and column."""

    __test__ = False


def load_tests(path: str, environ: Mapping[str, str]) -> TestFile:
    """The tests in a file, with their topology, for which ``environ`` has what the file does not set itself.

    Raises TestsInvalid with every mistake of the file, TopologyInvalid with those of the topology.
    """
    problems = Problems(path)
    try:
        section = _read(path, problems)
        topology = load(_topology_path(path, section), {**environ, **_environment(section)})
    except TopologyInvalid as invalid:
        if problems.count:
            raise TestsInvalid(str(invalid)) from None
        raise
    cases = tuple(_case(topology, one.value, problems) for one in section.get("tests"))
    _check_names(cases, problems)
    _raise(problems)
    return TestFile(path, topology, tuple(case for case in cases if case is not None))


def topology_beside(path: str) -> str:
    """The topology that a file of tests is of, if it does not say otherwise."""
    return f"{path.removesuffix(SUFFIX)}.yaml"


def _raise(problems: Problems) -> None:
    try:
        problems.raise_if_any()
    except TopologyInvalid as invalid:
        raise TestsInvalid(str(invalid)) from None


def _read(path: str, problems: Problems) -> Section:
    """Raises TestsInvalid."""
    try:
        with open(path, "rb") as file:
            data = file.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise TestsInvalid(
            f"{path}: the file cannot be read ({error.strerror}); check the path and its permissions"
        ) from None
    if len(data) > SIZE_LIMIT:
        raise TestsInvalid(f"{path}: the file is larger than 1 MiB; divide it, or use repeat for many events")
    root: Node | None = compose(data, problems, "a file of tests needs tests")
    section = None if root is None else layout().read(root, "", ReadingPass(problems, os.path.dirname(path)))
    _raise(problems)
    if not isinstance(section, Section):
        raise AssertionError("a file without a section has a problem")
    return section


def _topology_path(path: str, section: Section) -> str:
    given = section.get("topology")
    return topology_beside(path) if given is None else os.path.join(os.path.dirname(path), given)


def _environment(section: Section) -> dict[str, str]:
    return {name: one.value for name, one in (section.get("environment") or {}).items()}


def _check_names(cases: Iterable[Case[Any] | None], problems: Problems) -> None:
    known: dict[str, Position] = {}
    for case in cases:
        if case is not None and case.name in known:
            problems.add(
                case.position,
                f"a test on line {known[case.name].line} has the name {case.name!r} too; choose another one",
            )
        elif case is not None:
            known[case.name] = case.position


def _case(topology: Topology, section: Section, problems: Problems) -> Case[Any] | None:
    """A test, or None where it cannot be told which stream it is of."""
    resolvers: dict[str, _Resolver[Any]] = {
        **{one.name: _OfCounts(one, section, problems) for one in topology.streams},
        **{one.name: _OfValues(one, section, problems) for one in topology.readings},
    }
    name = section.get("stream")
    if name is None and len(resolvers) == 1:
        (name,) = resolvers
    if name is None:
        message = f"the topology has several streams; add stream: one of {', '.join(resolvers)}"
        problems.add(section.position, message)
    elif name not in resolvers:
        section.note("stream", f"there is no stream {name}; {suggestion(name, resolvers)}")
    return resolvers[name].case() if name in resolvers else None


def _written_out(stream: OneStream) -> OneStream:
    """The stream, with values that are records as JSON has them where a schema would say how to read them."""
    if stream.source.format not in BY_SCHEMA:
        return stream
    return replace(stream, source=replace(stream.source, format="json"))


class _Resolver(ABC, Generic[OneStream]):
    """One test, checked against its stream. Mistakes go to ``problems``."""

    what: ClassVar[str]
    """What such streams have, in words."""
    sections: ClassVar[tuple[str, ...]]
    """What can be expected of such a stream alone."""

    def __init__(self, stream: OneStream, section: Section, problems: Problems) -> None:
        self._section, self._problems = section, problems
        self._stream: OneStream = _written_out(stream)

    @abstractmethod
    def case(self) -> Case[OneStream]:
        """The test."""

    def _events(self) -> tuple[EventEntry, ...]:
        events = tuple(map(self._event, self._section.get("events")))
        partitions = self._section.get("partitions")
        for one in events:
            if one.partition is not None and one.partition >= partitions:
                self._problems.add(
                    one.position,
                    f"partition {one.partition} is not one of {partitions}; raise the test's partitions",
                )
        return events

    def _event(self, one: At[Section]) -> EventEntry:
        event, position = one.value, one.position
        raw, given = event.get("raw"), event.get("value")
        if (raw is None) == (given is None):
            self._problems.add(position, "an event needs either value or raw, and not both")
        if event.get("created") is not None and not self._stream.source.own_time:
            event.note(
                "created",
                f"{self._stream.name} does not look at the times that records carry, as time: $time with"
                " append_time: boundary does; remove created",
            )
        # A producer's serializer puts the id of a schema before the value; which one does not matter.
        prefix = "\0\0\0\0\1" if self._stream.source.format == "json-schema" else ""
        payload = f"{prefix}{given}" if raw is None else raw.value
        headers = tuple((name, one.value) for name, one in (event.get("headers") or {}).items())
        where = event.get("partition"), event.get("appended")
        return EventEntry(
            position, payload, event.get("repeat"), *where, event.get("key"), headers, event.get("created")
        )

    def _expected(
        self, events: tuple[EventEntry, ...], by_time: Callable[[Any], Any] | None = None
    ) -> Expectation:
        """``by_time`` is what is made of sections by timestamp."""
        section = self._section.get("expect")
        for key in (*_OfCounts.sections, *_OfValues.sections):
            if key not in self.sections and section.get(key) is not None:
                section.note(
                    key,
                    f"{key} does not apply to {self._stream.name}, a stream of {self.what}; use"
                    f" {', '.join(self.sections)}",
                )
        changes: dict[str, Callable[[Any], Any]] = {"readings": _readings}
        changes |= dict.fromkeys(_BY_EVENT, lambda found: self._fates(found, events))
        changes |= {} if by_time is None else dict.fromkeys(_BY_TIME, by_time)
        values: dict[str, Any] = {"partial": section.get("partial") == "true"}
        for key in {one.name for one in fields(Expectation)} - {"position", "partial"}:
            found = section.get(key)
            if found is not None:
                values[key] = At(section.at(key), changes.get(key, lambda same: same)(found))
        expected = Expectation(section.position, **values)
        self._check_events(expected, len(events))
        return expected

    def _fates(self, found: list[At[Section]], events: tuple[EventEntry, ...]) -> list[At[Any]]:
        return [At(one.position, self._fate(one.value, events)) for one in found]

    def _fate(self, section: Section, events: tuple[EventEntry, ...]) -> tuple[tuple[int, str], int]:
        event = section.get("event")
        if not 1 <= event <= len(events):
            section.note("event", f"there is no event {event}, only {len(events)}")
            return (event, ""), 1
        times = section.get("times") or events[event - 1].repeat
        return (event, section.get("reason") or section.get("why")), times

    def _check_events(self, expected: Expectation, number: int) -> None:
        named = [(one.value, one.position) for one in _all(expected.closed)]
        named += [] if expected.readings is None else [
            (event, one.position) for event, one in expected.readings.value.items()
        ]  # fmt: skip
        for event, position in named:
            if event > number:
                self._problems.add(position, f"there is no event {event}, only {number}")


class _OfCounts(_Resolver[Stream]):
    what = "counts"
    sections = ("counts", "dead_letters", "left_out", "closed", "released", "spent", "most_spent")

    def case(self) -> Case[Stream]:
        """See ``_Resolver``."""
        section, events, start = self._section, self._events(), self._start()
        expected = self._expected(events, lambda found: self._by_timestamp(found, start))
        self._check_columns(expected)
        return Case(
            section.get("name"), section.at("name"), self._stream, events, expected, play,
            section.get("partitions"), start, section.get("until"),
        )  # fmt: skip

    def _start(self) -> int:
        given, rules = self._section.get("from"), self._stream.timeline
        if given is None:
            return timeline.first_whole_timestamp(rules, rules.origin)
        return self._timestamp(At(self._section.at("from"), given))

    def _timestamp(self, time: At[int], first: int = 1) -> int:
        """The number of the timestamp that begins at a time."""
        rules = self._stream.timeline
        number = timeline.timestamp_of(rules, time.value)
        before, after = timeline.start_of(rules, number), timeline.start_of(rules, number + 1)
        told = f"{timeline.format_rfc3339(time.value)} is not where a timestamp of {self._stream.name} begins"
        if number < first:
            begins = timeline.format_rfc3339(timeline.start_of(rules, first))
            self._problems.add(time.position, f"{told} here: the first one begins at {begins}")
        elif time.value != before:
            near = f"{timeline.format_rfc3339(before)} and {timeline.format_rfc3339(after)}"
            self._problems.add(time.position, f"{told}: the nearest are {near}")
        return number

    def _by_timestamp(self, found: dict[int, At[Any]], start: int) -> dict[int, At[Any]]:
        return {
            self._timestamp(At(one.position, time), start): At(one.position, _plain(one.value), one.text)
            for time, one in found.items()
        }

    def _check_columns(self, expected: Expectation) -> None:
        stream = self._stream
        tables = [(one.value, stream.counts.labels) for one in (_all(expected.counts))]
        tables += [
            (one.value["counts"].value, stream.columns)
            for one in _all(expected.released)
            if "counts" in one.value
        ]
        for table, labels in tables:
            known = set(labels)
            for column, one in table.items():
                if column not in known:
                    remedy = nearest(column, known) or "name one of its public columns"
                    self._problems.add(one.position, f"{column!r} is not a column of {stream.name}; {remedy}")


class _OfValues(_Resolver[ReadingStream]):
    """Values have no timestamps."""

    what = "values"
    sections = ("readings", "unreadable")

    def case(self) -> Case[ReadingStream]:
        """See ``_Resolver``."""
        section, events = self._section, self._events()
        for key in ("from", "until"):
            if section.get(key) is not None:
                section.note(key, f"{self._stream.name} has values and no timestamps; remove {key}")
        expected = self._expected(events)
        return Case(
            section.get("name"), section.at("name"), self._stream, events, expected, play_values,
            section.get("partitions"),
        )  # fmt: skip

    def _event(self, one: At[Section]) -> EventEntry:
        if one.value.get("appended") is not None:
            one.value.note("appended", f"{self._stream.name} does not use times; remove appended")
        return super()._event(one)


def _all(section: At[dict[int, At[Any]]] | None) -> list[At[Any]]:
    return [] if section is None else [*section.value.values()]


def _readings(found: dict[int, At[list[At[Any]]]]) -> dict[int, At[list[Any]]]:
    return {event: At(one.position, [reading.value for reading in one.value]) for event, one in found.items()}


def _plain(value: Any) -> Any:
    """A section as a table of what it has, with the place of each."""
    if not isinstance(value, Section):
        return value
    return {key: At(value.at(key), one) for key, one in value.values.items()}
