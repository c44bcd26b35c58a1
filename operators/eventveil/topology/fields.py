"""Shapes of a topology's parts: one table of fields drives both validation and the JSON Schema.

A shape reads a node of the file into plain values and notes every mistake it meets; what is invalid is
left out, so that the later checks look only at what could be read.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from eventveil.model.spelling import meant, remedy
from eventveil.topology.document import Broken, Items, Node, Scalar, Table, shorten
from eventveil.topology.problems import SHOWN, START, Position, Problems
from eventveil.topology.scalars import NAME_OF, Kind, Schema, UnavailableError, UnfitError, found


@dataclass(frozen=True, slots=True, order=True)
class Default:
    """A setting that the file leaves out and the value that it therefore has."""

    setting: str
    value: str


@dataclass
class ReadingPass:
    """One pass over a file: where mistakes and defaults are noted, and where relative paths start.

    ``around`` are the records that are being read, by name, the innermost last.
    """

    problems: Problems
    directory: str
    defaults: list[Default] = field(default_factory=list)
    around: list[tuple[str, RecordShape]] = field(default_factory=list)

    def invalid(self, position: Position, message: str) -> Invalid:
        """Note the mistake of a value that could not be read."""
        self.problems.add(position, message)
        return INVALID

    def home_of(self, key: str) -> str:
        """Where the nearest records that have the key are, in words; empty if there is none."""
        for path, record in reversed(self.around):
            prefix = f"{path}." if path else ""
            homes = [
                prefix + one.name
                for one in record.fields
                if isinstance(one.shape, RecordShape) and key in one.shape.keys
            ]
            homes += [path or "the top level"] if key in record.keys else []
            if homes:
                return " or ".join(homes)
        return ""


class Invalid:
    """The reading of a value that could not be read; its mistake has been noted."""


INVALID = Invalid()


@dataclass
class Section:
    """A mapping that was read: valid values by key, and the position of every value given in the file.

    ``table`` is what it was read by. ``misspelt``: the keys that unknown ones are probably meant to be, which
    nobody has to be told are lacking.
    """

    path: str
    position: Position
    problems: Problems
    values: dict[str, Any] = field(default_factory=dict)
    positions: dict[str, Position] = field(default_factory=dict)
    table: RecordShape | None = None
    misspelt: set[str] = field(default_factory=set)

    def get(self, key: str) -> Any:
        """The value of a key, or None if it is absent or invalid."""
        return self.values.get(key)

    def at(self, key: str) -> Position:
        """Where the value of a key stands; the section's own place if the file leaves it out."""
        return self.positions.get(key, self.position)

    def name(self, key: str) -> str:
        """The full name of a setting, such as ``streams.visits.sink.topic``."""
        return f"{self.path}.{key}" if self.path else key

    def note(self, key: str, message: str) -> None:
        """Note a mistake where a key stands."""
        self.problems.add(self.at(key), message)

    def wrong(self, key: str, what: str) -> None:
        """Note a mistake of a setting, which the message names first."""
        self.note(key, f"{self.name(key)}: {what}")


#: A default that other settings decide, and how a file would say it, or None where they could not be read or
#: say nothing: from the file, the stream, and the section that lacks it.
Derive = Callable[[Section, Section, Section], tuple[Any, str] | None]
#: Notes every broken rule between settings: of the file, the stream, and the section. It looks only at what
#: could be read, so that one mistake never hides another.
Check = Callable[[Section, Section, Section], None]


class Shape(ABC):
    """What may stand at one place of the file."""

    @abstractmethod
    def read(self, node: Node, name: str, reading: ReadingPass) -> Any:
        """The value, or INVALID with the mistakes noted in ``reading``."""

    @abstractmethod
    def schema(self) -> Schema:
        """The same rule as a JSON Schema."""


@dataclass(frozen=True)
class One(Shape):
    """A single value of a kind."""

    kind: Kind[Any]

    def read(self, node: Node, name: str, reading: ReadingPass) -> Any:
        """The kind's value."""
        if isinstance(node, Broken):
            return INVALID
        try:
            if not isinstance(node, Scalar):
                self.kind.parse(Scalar(node.position, ""))
                raise UnfitError("a single value")
            return self.kind.parse(node)
        except UnavailableError as unavailable:
            reading.problems.add(node.position, f"{name}: {unavailable.expected}")
        except UnfitError as unfit:
            actual = unfit.found or describe(node)
            reading.problems.add(node.position, f"{name}: found {actual}, expected {unfit.expected}")
        return INVALID

    def of(self, text: str) -> Any:
        """The value of a default. Raises UnfitError."""
        return self.kind.parse(Scalar(START, text))

    def schema(self) -> Schema:
        """The kind's schema."""
        return self.kind.schema()


@dataclass(frozen=True)
class Kept:
    """A fact that the state records of a setting: a worker refuses to continue where it is another one.

    ``why`` a migration may change it (``sound``), or may not; empty where streams cannot be migrated at all.
    ``value`` takes the fact from the section of the model; None: it is the attribute of the setting's name.
    ``parts`` are more facts of it, by what their names have after that of the setting; ``more`` are those
    that few streams have, by their whole names. ``newer``: earlier
    versions did not have the setting, so it is named only where it is not the default, and what they remember
    stays the same.
    """

    why: str = ""
    sound: bool = False
    value: Callable[[Any], Any] | None = None
    parts: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    newer: bool = False
    more: Callable[[Any], Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class Field:
    """One key of a record.

    ``default`` is YAML text that is read like a written value; a key with ``derived`` gets its default from
    other settings (the text says how; ``derive`` does it, where the value is not for the mechanism to find).
    Without either, a key that is not required may stay unset. ``kept`` is what the state records of it; None:
    it affects neither counts nor noise. ``shared``: two streams that read one topic must have the same.
    """

    name: str
    shape: Shape
    help: str
    required: bool = False
    default: str | None = None
    derived: str | None = None
    derive: Derive | None = None
    kept: Kept | None = None
    shared: bool = False

    def facts(self, section: Any) -> Iterator[tuple[str, Any]]:
        """What the state records of it, by name, in a stream of the model that has this ``section``."""
        if self.kept is None:
            return
        value = self.kept.value(section) if self.kept.value else getattr(section, self.name)
        if not self.kept.newer or value != self._usual:
            yield self.name, value
        for part, of in self.kept.parts.items():
            yield f"{self.name}.{part}", of(section)
        if self.kept.more is not None:
            yield from self.kept.more(section).items()

    @property
    def _usual(self) -> Any:
        if self.default is None:
            return None
        assert isinstance(self.shape, One)
        return self.shape.of(self.default)

    def schema(self) -> Schema:
        """The shape's schema with help and default."""
        text = self.help
        if self.derived or self.default:
            text += f" Default: {self.derived or self.default}."
        return {"description": text, **self.shape.schema()}


@dataclass(frozen=True)
class RecordShape(Shape):
    """A mapping with known keys. ``rules`` are schema keywords for what concerns several keys at once.

    ``later`` maps keys that this version does not have yet to what to do instead. Instead of an unknown key
    those that are ``offered`` are named, all of them where there are none. ``title`` names its
    schema among ``$defs``; left out: the key where it stands. ``check`` is for rules between settings.
    """

    fields: tuple[Field, ...]
    rules: Mapping[str, Any] = field(default_factory=dict)
    later: Mapping[str, str] = field(default_factory=dict)
    title: str | None = None
    check: Check | None = None
    offered: tuple[str, ...] = ()

    def read(self, node: Node, name: str, reading: ReadingPass) -> Section | Invalid:
        """A Section with every valid value and all defaults."""
        if isinstance(node, Scalar) and node.type == "nothing" and not any(f.required for f in self.fields):
            node = Table(node.position)
        if not isinstance(node, Table):
            return refused(node, name or "the file", f"a mapping with {self._in_words()}", reading)
        section = Section(name, node.position, reading.problems, table=self)
        reading.around.append((name, self))
        section.misspelt |= self._report_unknown(node, name, reading)
        for entry in self.fields:
            self._read_field(entry, node, section, reading)
        reading.around.pop()
        return section

    @property
    def keys(self) -> list[str]:
        """The names of the fields."""
        return [one.name for one in self.fields]

    def _in_words(self) -> str:
        """Its keys: those that are needed before those that are optional."""
        needed = [one.name for one in self.fields if one.required]
        optional = [one.name for one in self.fields if not one.required]
        words = [", ".join(needed)] if needed else []
        return " and optionally ".join([*words, ", ".join(optional)] if optional else words)

    def _read_field(self, entry: Field, node: Table, section: Section, reading: ReadingPass) -> None:
        name = section.name(entry.name)
        given = node.entries.get(entry.name)
        if given is not None:
            section.positions[entry.name] = given.position
            value = entry.shape.read(given, name, reading)
        elif entry.required:
            if entry.name not in section.misspelt:
                where = section.path or "the file"
                reading.problems.add(
                    node.position, f"{where} lacks {entry.name}; add {entry.name}: {entry.help}"
                )
            return
        elif isinstance(entry.shape, RecordShape) and not any(f.required for f in entry.shape.fields):
            value = entry.shape.read(Table(node.position), name, reading)
        elif entry.default is not None:
            reading.defaults.append(Default(name, entry.default))
            value = entry.shape.read(Scalar(node.position, entry.default), name, reading)
        else:
            return
        if value is not INVALID:
            section.values[entry.name] = value

    def _report_unknown(self, node: Table, name: str, reading: ReadingPass) -> set[str]:
        """Those that are probably meant."""
        known, misspelt = self.keys, set[str]()
        for index, key in enumerate(key for key in node.entries if key not in known):
            if key in self.later:
                message = f"{name}.{key}: {self.later[key]}"
            else:
                # Looking for the nearest word is slow: a file of nothing but unknown keys gets no more of it.
                offered = [*self.offered] or known
                what, near = _remedy(key, offered, reading) if index < SHOWN else ("remove it", set())
                misspelt |= near
                message = f"unknown key {shorten(key)}{' in ' + name if name else ''}; {what}"
            reading.problems.add(node.keys[key], message)
        return misspelt

    def schema(self) -> Schema:
        """An object schema that refuses unknown keys."""
        required = [f.name for f in self.fields if f.required]
        return {
            **({NAME_OF: self.title} if self.title else {}),
            "type": "object" if required else ["object", "null"],
            "properties": {f.name: f.schema() for f in self.fields},
            **({"required": required} if required else {}),
            "additionalProperties": False,
            **self.rules,
        }


@dataclass(frozen=True)
class Named(Shape):
    """A mapping from names that the user chooses to records; at least one."""

    record: Shape
    what: str
    pattern: str
    expected: str

    def read(self, node: Node, name: str, reading: ReadingPass) -> dict[str, Section] | Invalid:
        """The sections by name, in the order of the file."""
        if not isinstance(node, Table) or not node.entries:
            return refused(node, name, f"at least one {self.what} with its name", reading)
        sections = {}
        for key, value in node.entries.items():
            if not re.fullmatch(self.pattern, key):
                reading.problems.add(
                    node.keys[key], f"{name}: found the name {shorten(key)}, expected {self.expected}"
                )
            section = self.record.read(value, f"{name}.{key}", reading)
            if isinstance(section, Section):
                sections[key] = section
        return sections

    def schema(self) -> Schema:
        """An object schema with a rule for the names."""
        return {
            "type": "object",
            "minProperties": 1,
            "patternProperties": {f"^{self.pattern}$": self.record.schema()},
            "additionalProperties": False,
        }


def describe(node: Node) -> str:
    """What stands in the file, in words."""
    if isinstance(node, Scalar):
        return found(node)
    if isinstance(node, Items):
        return "a list" if node.items else "an empty list"
    return "a mapping" if isinstance(node, Table) and node.entries else "an empty mapping"


def _remedy(key: str, known: list[str], reading: ReadingPass) -> tuple[str, set[str]]:
    """What to do about an unknown key, and the known one that is probably meant, if there is one."""
    if home := reading.home_of(key):
        return f"it belongs in {home}", set()
    near = meant(key, known)
    return remedy(near, known), {near} if near else set()


def refused(node: Node, name: str, expected: str, reading: ReadingPass) -> Invalid:
    """INVALID, with the mistake noted unless it has been."""
    if not isinstance(node, Broken):
        reading.problems.add(node.position, f"{name}: found {describe(node)}, expected {expected}")
    return INVALID
