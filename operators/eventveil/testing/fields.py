"""Shapes that a test file has and a topology has not: lists, tables by time, values of any kind.

As in ``eventveil.topology.fields``, each reads a node and gives the JSON Schema of what it takes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from eventveil.testing.model import Amount, At
from eventveil.topology.document import Broken, Items, Node, Scalar, Table
from eventveil.topology.fields import INVALID, Invalid, One, ReadingPass, Shape, describe, refused
from eventveil.topology.scalars import Kind, Schema, UnfitError, exact_number

_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")


@dataclass(frozen=True)
class WrittenValue(One):
    """A single value, written out: nothing in a test file comes from ``${...}``."""

    def schema(self) -> Schema:
        """The kind's schema."""
        return self.kind.strict_schema()


@dataclass(frozen=True)
class ListOf(Shape):
    """A list; ``what`` are its items, in words. A single item may stand for a list of one if ``alone``."""

    item: Shape
    what: str
    alone: bool = False

    def read(self, node: Node, name: str, reading: ReadingPass) -> list[At[Any]] | Invalid:
        """The items that could be read, each with its place."""
        if self.alone and not isinstance(node, Items):
            node = Items(node.position, [node])
        if not isinstance(node, Items):
            return refused(node, name, f"a list of {self.what}", reading)
        read = [(one, self.item.read(one, f"{name}[{at}]", reading)) for at, one in enumerate(node.items, 1)]
        return [At(one.position, value) for one, value in read if value is not INVALID]

    def schema(self) -> Schema:
        """An array, or one item."""
        array = {"type": "array", "items": self.item.schema()}
        return {"anyOf": [array, self.item.schema()]} if self.alone else array


@dataclass(frozen=True)
class TableOf(Shape):
    """A mapping whose keys are values of a kind; ``what`` is in it, in words."""

    key: Kind[Any]
    value: Shape
    what: str
    names: Schema = field(default_factory=dict)

    def read(self, node: Node, name: str, reading: ReadingPass) -> dict[Any, At[Any]] | Invalid:
        """What could be read, by key; each stands where its key does."""
        if not isinstance(node, Table):
            return refused(node, name, f"a mapping of {self.what}", reading)
        found: dict[Any, At[Any]] = {}
        for text, below in node.entries.items():
            position = node.keys[text]
            key = One(self.key).read(Scalar(position, text, expanded=True), name, reading)
            value = self.value.read(below, f"{name}.{text}", reading)
            if key in found:
                reading.problems.add(
                    position, f"{name}: {text} is there already, written otherwise; keep one"
                )
            elif key is not INVALID and value is not INVALID:
                found[key] = At(position, value, text)
        return found

    def schema(self) -> Schema:
        """An object with a rule for its keys."""
        return {
            "type": "object",
            "propertyNames": self.names or self.key.strict_schema(),
            "additionalProperties": self.value.schema(),
        }


@dataclass(frozen=True)
class AnyJson(Shape):
    """Any JSON value, written in YAML; numbers keep their digits."""

    def read(self, node: Node, name: str, reading: ReadingPass) -> str | Invalid:
        """The value as JSON text."""
        before = reading.problems.count
        text = _json(node, name, reading)
        return text if reading.problems.count == before else INVALID

    def schema(self) -> Schema:
        """Anything."""
        return {}


def _json(node: Node, name: str, reading: ReadingPass) -> str:
    if isinstance(node, Table):
        members = (f"{json.dumps(key)}: {_json(one, name, reading)}" for key, one in node.entries.items())
        return "{" + ", ".join(members) + "}"
    if isinstance(node, Items):
        return "[" + ", ".join(_json(one, name, reading) for one in node.items) + "]"
    if isinstance(node, Broken):
        return "null"
    if node.type == "text":
        return json.dumps(node.text, ensure_ascii=False)
    if node.type == "nothing":
        return "null"
    if node.type == "boolean":
        return node.text.lower()
    if not _JSON_NUMBER.fullmatch(node.text):
        reading.problems.add(
            node.position,
            f"{name}: {node.text} is not a JSON number; write it in decimals without leading zeros, or in "
            "quotes if it is text",
        )
    return node.text


@dataclass(frozen=True)
class RawText(Shape):
    """The bytes of a record as text, or null for a record without a value."""

    def read(self, node: Node, name: str, reading: ReadingPass) -> At[str | None] | Invalid:
        """The text, or None."""
        if isinstance(node, Scalar):
            nothing = node.type == "nothing"
            return At(node.position, None if nothing else node.text)
        return reading.invalid(
            node.position,
            f"{name}: found {describe(node)}, expected text, or null for a record without a value",
        )

    def schema(self) -> Schema:
        """Text, null, or what YAML takes for a number or boolean."""
        return {"type": ["string", "null", "number", "boolean"]}


@dataclass(frozen=True)
class EpsilonPart(Kind[Amount]):
    """A part of epsilon, 0 included."""

    def parse(self, scalar: Scalar) -> Amount:
        """The amount, with its text."""
        value = exact_number(scalar.text)
        if value is None:
            raise UnfitError("an exact number such as 0, 0.25 or 1/24")
        return Amount(scalar.text, Fraction(value))

    def strict_schema(self) -> Schema:
        """A number, or a number or fraction as text."""
        fraction = {"type": "string", "pattern": r"^[0-9.]+(e-?[0-9]+)?(/[0-9]+)?$"}
        return {"anyOf": [{"type": "number", "minimum": 0}, fraction]}


@dataclass(frozen=True)
class MaybeWhole(Kind["int | None"]):
    """A whole number, or null."""

    def parse(self, scalar: Scalar) -> int | None:
        """The number, or None."""
        if scalar.type == "nothing":
            return None
        if scalar.type != "integer" or len(scalar.text) > 18:
            raise UnfitError("a whole number, or null")
        return int(scalar.text)

    def strict_schema(self) -> Schema:
        """An integer or null."""
        return {"type": ["integer", "null"]}
