"""Where a topology says that events hold something: fields, filters, and maps of names.

Shapes of settings; the rules between them are in ``eventveil.topology.events``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import orjson

from eventveil.model import fields
from eventveil.model.spelling import nearest, suggestion
from eventveil.model.topology import Condition, NameMap
from eventveil.topology.document import Broken, Items, Node, Scalar, Table, shorten
from eventveil.topology.fields import (
    INVALID,
    Field,
    Invalid,
    One,
    ReadingPass,
    RecordShape,
    Shape,
    describe,
    refused,
)
from eventveil.topology.scalars import NAME_OF, Kind, Label, Pointer, Schema, UnfitError, found, is_text

#: The most fields that may stand for one setting, and values in one set or map.
MOST_FIELDS, MOST_VALUES = 8, 10_000
_LONGEST_TOLD = 500
_HEADER = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
_POINTER = Pointer().strict_schema()


@dataclass(frozen=True)
class Place(Kind[str]):
    """One field: a JSON pointer into the value, or a part of the record around it."""

    #: Which parts of the record may stand here; ``$headers/`` for any header.
    around: tuple[str, ...] = (fields.KEY, fields.HEADERS, fields.VALUE)
    title: str = "place"

    def parse(self, scalar: Scalar) -> str:
        """The field as written."""
        text = scalar.text
        if is_text(scalar) and text.startswith("$"):
            return self._part(text)
        try:
            return Pointer().parse(scalar)
        except UnfitError as unfit:
            raise UnfitError(f"{unfit.expected}, or {self._words()}") from None

    def _part(self, text: str) -> str:
        name = text.removeprefix(fields.HEADERS)
        if fields.HEADERS in self.around and name != text and _HEADER.fullmatch(name):
            return text
        if text in self.around and text != fields.HEADERS:
            return text
        known = [one for one in self.around if one != fields.HEADERS]
        if fields.HEADERS in self.around and re.match(r"\$[Hh]eaders?\b", text):
            near = (
                f"did you mean {fields.HEADERS}{re.sub(r'^.[Hh]eaders?[^A-Za-z0-9]*', '', text) or 'NAME'}?"
            )
        else:
            near = nearest(text, known)
        raise UnfitError(f"a JSON pointer, or {self._words()}{'; ' if near else ''}{near}")

    def _words(self) -> str:
        return " or ".join(f"{one}NAME" if one == fields.HEADERS else one for one in self.around)

    def strict_schema(self) -> Schema:
        """A string that is a pointer, or a part of the record."""
        exact = "|".join(rf"\{one}" for one in self.around if one != fields.HEADERS)
        header = r"|\$headers/[^\x00-\x1f\x7f]{1,200}" if fields.HEADERS in self.around else ""
        pointer = _POINTER["pattern"].removeprefix("^").removesuffix("$")
        return {
            NAME_OF: self.title, "type": "string", "pattern": f"^({pointer}|{exact}{header})$",
        }  # fmt: skip


#: A time may also be that of the record.
PLACE, TIME_PLACE = Place(), Place((fields.TIME, fields.KEY, fields.HEADERS, fields.VALUE), "place-of-time")


@dataclass(frozen=True)
class PlacesShape(Shape):
    """One field, or a list of several."""

    kind: Kind[str]

    def read(self, node: Node, name: str, reading: ReadingPass) -> str | Invalid:
        """The fields as one text; see ``eventveil.model.fields.joined``."""
        if not isinstance(node, Items):
            return One(self.kind).read(node, name, reading)  # type: ignore[no-any-return]
        if not 2 <= len(node.items) <= MOST_FIELDS:
            return reading.invalid(
                node.position,
                f"{name}: found a list of {len(node.items)}, expected a JSON pointer or 2 to"
                f" {MOST_FIELDS} fields",
            )
        read = [One(self.kind).read(item, name, reading) for item in node.items]
        if any(one is INVALID for one in read):
            return INVALID
        for place, one in enumerate(read):
            if one in read[:place]:
                return reading.invalid(
                    node.items[place].position, f"{name}: {shorten(one)} is listed a second time; remove one"
                )
        return fields.joined(read)

    def schema(self) -> Schema:
        """A field, or an array of them."""
        one = self.kind.schema()
        several = {"type": "array", "items": one, "minItems": 2, "maxItems": MOST_FIELDS, "uniqueItems": True}
        return {NAME_OF: f"{one[NAME_OF]}-or-several", "anyOf": [one, several]}


_TESTS = ("not", "present")
_CONDITION = "a value, a list of values, {not: a value or list} or {present: true}"


class FilterShape(Shape):
    """Fields, each with what is asked of it."""

    def read(self, node: Node, name: str, reading: ReadingPass) -> tuple[Condition, ...] | Invalid:
        """The conditions in the order of the file."""
        if not isinstance(node, Table) or not node.entries:
            return refused(node, name, f"fields, each with {_CONDITION}", reading)
        read = [_condition(key, node, f"{name}.{key}", reading) for key in node.entries]
        return tuple(one for one in read if one is not None) if None not in read else INVALID

    def schema(self) -> Schema:
        """An object of conditions."""
        value = {NAME_OF: "filter-value", "type": ["string", "integer", "boolean"]}
        values = {
            NAME_OF: "filter-values",
            "anyOf": [value, {"type": "array", "items": value, "minItems": 1, "maxItems": MOST_VALUES}],
        }
        table = {
            "type": "object",
            "properties": {
                "not": {"description": "The field is none of these, or not there.", **values},
                "present": {"description": "Whether it is there, and not null.", "type": "boolean"},
            },
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": False,
        }
        return {
            NAME_OF: "filter",
            "type": "object",
            "minProperties": 1,
            "propertyNames": PLACE.schema(),
            "additionalProperties": {NAME_OF: "filter-condition", "anyOf": [*values["anyOf"], table]},
        }


def _condition(key: str, node: Table, name: str, reading: ReadingPass) -> Condition | None:
    field, asked = _key(key, node, reading, PLACE, name), node.entries[key]
    if field is None:
        return None
    if not isinstance(asked, Table):
        values = _values(asked, field, name, reading)
        return None if values is None else Condition(field, "in", values)
    if [*asked.entries] == ["not"]:
        values = _values(asked.entries["not"], field, f"{name}.not", reading)
        return None if values is None else Condition(field, "not-in", values)
    wanted = asked.entries.get("present")
    if len(asked.entries) == 1 and isinstance(wanted, Scalar) and wanted.type == "boolean":
        return Condition(field, "present" if wanted.text.lower() == "true" else "absent")
    if unknown := [one for one in asked.entries if one not in _TESTS]:
        what = suggestion(unknown[0], _TESTS)
        reading.problems.add(asked.keys[unknown[0]], f"unknown key {shorten(unknown[0])} in {name}; {what}")
        return None
    reading.problems.add(asked.position, f"{name}: found {describe(asked)}, expected {_CONDITION}")
    return None


def _key(key: str, node: Table, reading: ReadingPass, kind: Kind[str], name: str) -> str | None:
    """A field that is the key of a table."""
    try:
        return kind.parse(Scalar(node.keys[key], key, quoted=True))
    except UnfitError as unfit:
        where = name.removesuffix(f".{key}")
        reading.problems.add(
            node.keys[key], f"{where}: found the field {shorten(key)}, expected {unfit.expected}"
        )
        return None


def _values(node: Node, field: str, name: str, reading: ReadingPass) -> tuple[str | int | bool, ...] | None:
    items = node.items if isinstance(node, Items) else [node]
    if not 1 <= len(items) <= MOST_VALUES:
        reading.problems.add(node.position, f"{name}: found {len(items)} values, expected 1 to {MOST_VALUES}")
        return None
    read = [_value(item, field, name, reading) for item in items]
    return None if None in read else tuple(one for one in read if one is not None)


def _value(node: Node, field: str, name: str, reading: ReadingPass) -> str | int | bool | None:
    if isinstance(node, Broken):
        return None
    if isinstance(node, Scalar):
        kind = node.type
        if is_text(node):
            return node.text
        if fields.is_text(field):
            reading.problems.add(
                node.position,
                f"{name}: found {found(node)}, but {field} can only hold text; put the value in quotes",
            )
            return None
        if kind == "boolean":
            return node.text.lower() == "true"
        if kind == "integer" and len(node.text) <= 18:
            return int(node.text)
    reading.problems.add(
        node.position,
        f"{name}: found {describe(node)}, expected text, a whole number, true or false;"
        " for a field that is null or not there use {present: false}",
    )
    return None


_MAP = RecordShape(
    (
        Field("values", One(Label()), "Names of whole texts, such as {/: home}."),
        Field("prefixes", One(Label()), "Names of what begins so; the longest prefix counts."),
        Field("otherwise", One(Label()), "The name of everything else; left out: it stays as it is."),
    ),
    title="name-map",
)


class Maps(Shape):
    """Fields of the column, each with the names that its contents get."""

    def read(self, node: Node, name: str, reading: ReadingPass) -> tuple[NameMap, ...] | Invalid:
        """The maps in the order of the file."""
        if not isinstance(node, Table) or not node.entries:
            expected = "fields of the column, each with values, prefixes or otherwise"
            return refused(node, name, expected, reading)
        read = [_map(key, node, f"{name}.{key}", reading) for key in node.entries]
        return tuple(one for one in read if one is not None) if None not in read else INVALID

    def schema(self) -> Schema:
        """An object of maps."""
        table = {
            NAME_OF: "names",
            "type": "object",
            "additionalProperties": Label().schema(),
            "minProperties": 1,
            "maxProperties": MOST_VALUES,
        }
        one = _MAP.schema()
        properties = one["properties"]
        for key in ("values", "prefixes"):
            properties[key] = {"description": properties[key]["description"], **table}
        return {
            NAME_OF: "maps",
            "type": "object",
            "minProperties": 1,
            "propertyNames": PLACE.schema(),
            "additionalProperties": {**one, "type": "object", "minProperties": 1},
        }


def _map(key: str, node: Table, name: str, reading: ReadingPass) -> NameMap | None:
    field, given = _key(key, node, reading, PLACE, name), node.entries[key]
    if field is None:
        return None
    known = ("values", "prefixes", "otherwise")
    if not isinstance(given, Table) or not given.entries or not given.entries.keys() <= set(known):
        refused(given, name, f"a mapping with {', '.join(known)}", reading)
        return None
    before = reading.problems.count
    values, prefixes = (_names(given.entries.get(one), f"{name}.{one}", reading) for one in known[:2])
    last = given.entries.get("otherwise")
    otherwise = None if last is None else One(Label()).read(last, f"{name}.otherwise", reading)
    return NameMap(field, values, prefixes, otherwise) if reading.problems.count == before else None


def _names(node: Node | None, name: str, reading: ReadingPass) -> tuple[tuple[str, str], ...]:
    if node is None:
        return ()
    if not isinstance(node, Table) or not 1 <= len(node.entries) <= MOST_VALUES:
        reading.problems.add(
            node.position,
            f"{name}: found {describe(node)}, expected 1 to {MOST_VALUES} texts with their names",
        )
        return ()
    return tuple(
        (text, One(Label()).read(value, f"{name}.{text}", reading)) for text, value in node.entries.items()
    )


@dataclass(frozen=True)
class Zone(Kind[str]):
    """A time zone by its name in the IANA database."""

    def parse(self, scalar: Scalar) -> str:
        """The name."""
        expected = "a time zone such as Europe/Berlin or UTC"
        if not is_text(scalar) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_+/-]{0,63}", scalar.text):
            raise UnfitError(expected)
        try:
            ZoneInfo(scalar.text)
        except (KeyError, ValueError, OSError):
            remedy = "which this system knows; if the name is right, install the package tzdata"
            raise UnfitError(f"{expected}, {remedy}") from None
        return scalar.text

    def strict_schema(self) -> Schema:
        """A string in the form of a zone."""
        return {NAME_OF: "zone", "type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_+/-]{0,63}$"}


def each_name(one: NameMap) -> Iterator[str]:
    """The names that a map gives."""
    tables: tuple[tuple[tuple[str, str], ...], ...] = (one.values, one.prefixes)
    for table in tables:
        yield from (name for _, name in table)
    if one.otherwise is not None:
        yield one.otherwise


def told(value: Callable[[Any], Any]) -> Callable[[Any], str | None]:
    """What the state records of a setting that is not a single value: its canonical text; None if empty."""

    def text(section: Any) -> str | None:
        found = value(section)
        if not found:
            return None
        canonical = orjson.dumps(found, option=orjson.OPT_SORT_KEYS)
        # Long ones would fill manifests, and tell nobody what has changed.
        short = len(canonical) <= _LONGEST_TOLD
        return canonical.decode() if short else f"sha256 {hashlib.sha256(canonical).hexdigest()}"

    return text
