"""Avro records as JSON would have them: what fastavro reads by the writer's schema, made fit for pointers.

Records and maps are objects, arrays are arrays, symbols of enums are texts, and of a union there is the value
itself. Logical types: a timestamp is an ``Instant``, a local one text without a zone, a date text such as
2026-11-23, a decimal a ``Decimal``, which no field of an event takes; any other is what it is written as. A
field is found under its name and under the aliases that its schema gives it.

A schema comes from a registry, and bytes from anybody. So what could make a few bytes large or deep is ruled
out beforehand: arrays of values that take no bytes, and types that can hold themselves, with which fastavro
would overflow the stack of C. In Python, how deep it reads depends on the stack of its caller, so that other
events of a chunk could decide whether one is read. Here such a type is copied for each of ``DEEPEST`` depths.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from typing import Any, NoReturn

import fastavro
from fastavro.read import LOGICAL_READERS
from fastavro.schema import parse_schema

from eventveil.decoding.places import Instant
from eventveil.decoding.schemas import UNDECIDED, Unfit

_PRIMITIVE = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = ("record", "error", "enum", "fixed")
_DAY = date(1970, 1, 1)
_LOCAL = datetime(1970, 1, 1)
#: Logical types by the type that they are of. Under names of our own, which fastavro asks us for.
_OWN = "eventveil-"
#: How deep records, arrays and maps may lie in one another, where a type can hold itself.
DEEPEST = 64
_TOO_DEEP = "eventveil.TooDeep"
#: Of a schema: brackets in one another, types in one another, and values in one that is no bytes.
_DEEPEST_TEXT, _LONGEST_CHAIN, _MOST_OF_NOTHING = 150, 500, 1_000


def _local(units: int) -> Callable[[int, Any, Any], str]:
    def text(number: int, *_: Any) -> str:
        return (_LOCAL + timedelta(microseconds=number * 1_000_000 // units)).isoformat()

    return text


_LONGEST_DECIMAL = 64  # bytes, 154 digits


def _decimal(number: bytes, writer: Mapping[str, Any], *_: Any) -> Decimal:
    # Converting takes the square of the length, 87 s for 1 MB, in which no other thread runs.
    if len(number) > _LONGEST_DECIMAL:
        return Decimal("NaN")
    return Decimal(int.from_bytes(number, "big", signed=True)).scaleb(-int(writer.get("scale", 0)))


def _too_deep(*_: Any) -> NoReturn:
    raise Unfit(f"it is nested more than {DEEPEST} deep")


_LOGICAL: dict[str, Callable[..., Any]] = {
    "long-timestamp-millis": lambda number, *_: Instant(number),
    "long-timestamp-micros": lambda number, *_: Instant(number // 1_000),
    "long-timestamp-nanos": lambda number, *_: Instant(number // 1_000_000),
    "long-local-timestamp-millis": _local(1_000),
    "long-local-timestamp-micros": _local(1_000_000),
    "long-local-timestamp-nanos": _local(1_000_000_000),
    "int-date": lambda number, *_: (_DAY + timedelta(days=number)).isoformat(),
    "bytes-decimal": _decimal,
    "fixed-decimal": _decimal,
    "fixed-too-deep": _too_deep,
}
for _name, _read in _LOGICAL.items():
    _type, _logical = _name.split("-", 1)
    LOGICAL_READERS[f"{_type}-{_OWN}{_logical}"] = _read


class AvroSchema:
    """A writer's schema; ``references`` are the texts of those that it names, each before who needs it.

    Raises Unfit for one that is not a schema, or that values could not be safely read by.
    """

    form: str | None = "avro"

    def __init__(self, text: str, references: Sequence[str] = ()) -> None:
        named: dict[str, Any] = {}
        try:
            for one in references:
                parse_schema(_loaded(one), named_schemas=named)
            whole = parse_schema(_loaded(text), named_schemas=named)
            plain = _PlainSchema(named)
            self._schema = plain.parsed(whole)
        except (Unfit, *UNDECIDED):
            raise
        except Exception as error:
            raise Unfit(f"it is not an Avro schema ({type(error).__name__}: {error})") from None
        self._aliased = plain.aliased
        # Of a type that can hold itself there are many copies.
        self._named = plain.done if plain.aliased else {}

    def read(self, body: bytes) -> Any:
        """See ``Schema.read``."""
        file = io.BytesIO(body)
        # The record around the value takes no bytes.
        whole: Any = fastavro.schemaless_reader(file, self._schema, None)
        value = whole["value"]
        if file.tell() != len(body):
            raise Unfit(f"{len(body) - file.tell()} bytes are left over")
        if self._aliased:
            self._add_aliases(value)
        return value

    def _add_aliases(self, record: Any) -> None:
        """Let every field be found under its aliases too."""
        waiting = [(record, self._schema["fields"][0]["type"])]
        while waiting:
            value, schema = waiting.pop()
            if isinstance(schema, list):
                branches = [self._whole(branch) for branch in schema]
                fitting = [branch for branch in branches if _may_be(value, branch)]
                # An object is of a record that has just these fields, where there is one, and else a map.
                waiting += [(value, one) for one in sorted(fitting, key=lambda one: one["type"] == "map")[:1]]
                continue
            schema = self._whole(schema)
            kind = schema["type"] if isinstance(schema, dict) else schema
            if kind in ("record", "error") and isinstance(value, dict):
                waiting += [(value[field["name"]], field["type"]) for field in schema["fields"]]
                for field in schema["fields"]:
                    for alias in field.get("aliases", ()):
                        value.setdefault(alias, value[field["name"]])
            elif kind == "map" and isinstance(value, dict):
                waiting += [(one, schema["values"]) for one in value.values()]
            elif kind == "array" and isinstance(value, list):
                waiting += [(one, schema["items"]) for one in value]

    def _whole(self, schema: Any) -> Any:
        return self._named.get(schema, schema) if isinstance(schema, str) else schema


def _may_be(value: Any, schema: Any) -> bool:
    """Whether a value of a union, as it was read, is of one of its branches."""
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind in ("record", "error"):
        return isinstance(value, dict) and value.keys() == {field["name"] for field in schema["fields"]}
    return (kind == "map" and isinstance(value, dict)) or (kind == "array" and isinstance(value, list))


class _PlainSchema:
    """Copies a parsed schema whole: each named type once, under a name of our own, where it is first met.

    A type that can hold itself, or holds one that can, is copied for each depth at which it may be.
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._known, (self._others, self._deep) = named, _in_order(named)
        #: Types of which a value is no bytes, each with how many values that takes.
        self._of_nothing: dict[str, int] = {}
        self._names: dict[tuple[str, int], str] = {}
        #: The copies by their names.
        self.done: dict[str, Any] = {}
        self.aliased = False

    def parsed(self, schema: Any) -> Any:
        """The copy, as the one field of a record, for fastavro. Raises Unfit or KeyError."""
        named: dict[str, Any] = {}
        # What a copy refers to has to be known before it.
        for name in self._others:
            copy = self._type_with_name(name, 0)
            parse_schema(copy, named_schemas=named)
            if values := self._values_of_nothing(copy):
                self._of_nothing[copy["name"]] = values
        if self._deep:
            end = {"type": "fixed", "name": _TOO_DEEP, "size": 0, "logicalType": f"{_OWN}too-deep"}
            self.done[_TOO_DEEP] = parse_schema(end, named_schemas=named)
        for depth in range(DEEPEST, 0, -1):
            for name in sorted(self._deep):
                parse_schema(self._type_with_name(name, depth), named_schemas=named)
        field = {"name": "value", "type": self._of(schema, 0)}
        whole = {"type": "record", "name": "eventveil.Whole", "fields": [field]}
        return parse_schema(whole, named_schemas=named)

    def _of(self, schema: Any, depth: int) -> Any:
        if isinstance(schema, list):
            return [self._of(branch, depth) for branch in schema]
        if isinstance(schema, str):
            return schema if schema in _PRIMITIVE else self._type_with_name(schema, depth)
        kind = schema["type"]
        if kind in _NAMED:
            return self._type_with_name(schema["name"], depth)
        copy = {"type": kind, **self._logical(schema)}
        if kind == "array":
            copy["items"] = self._of(schema["items"], depth + 1)
            if self._values_of_nothing(copy["items"]):
                raise Unfit("it has an array of values that take no bytes, which could be endless")
        elif kind == "map":
            copy["values"] = self._of(schema["values"], depth + 1)
        elif kind not in _PRIMITIVE:
            return self._of(kind, depth)
        return copy

    def _type_with_name(self, name: str, depth: int) -> Any:
        deep = name in self._deep
        if deep and depth > DEEPEST:
            return _TOO_DEEP
        key = name, depth if deep else 0
        if key in self._names:
            return self._names[key]
        own = self._names[key] = f"eventveil.Type{len(self._names)}"
        schema = self._known[name]
        copy: dict[str, Any] = {"type": schema["type"], "name": own, **self._logical(schema)}
        copy.update({key: schema[key] for key in ("symbols", "size") if key in schema})
        self.done[own] = copy
        if "fields" in schema:
            copy["fields"] = [self._field(field, depth + deep) for field in schema["fields"]]
        return copy

    def _field(self, field: Mapping[str, Any], depth: int) -> dict[str, Any]:
        copy: dict[str, Any] = {"name": field["name"], "type": self._of(field["type"], depth)}
        if field.get("aliases"):
            copy["aliases"], self.aliased = list(field["aliases"]), True
        return copy

    def _logical(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        logical = schema.get("logicalType")
        if not isinstance(logical, str) or f"{schema['type']}-{logical}" not in _LOGICAL:
            return {}
        kept = {"scale": schema["scale"]} if type(schema.get("scale")) is int else {}
        return {"logicalType": _OWN + logical, **kept}

    def _values_of_nothing(self, schema: Any) -> int:
        """How many values there are in one that is no bytes, itself included; 0 if it takes some.

        Raises Unfit above _MOST_OF_NOTHING: a few bytes could take minutes.
        """
        if isinstance(schema, list):
            return 0
        if isinstance(schema, str):
            return 1 if schema == "null" else self._of_nothing.get(schema, 0)
        kind = schema["type"]
        if kind == "null" or (kind == "fixed" and schema["size"] == 0):
            return 1
        if kind not in ("record", "error"):
            return 0
        values = [self._values_of_nothing(field["type"]) for field in schema["fields"]]
        if not all(values):
            return 0
        if sum(values) > _MOST_OF_NOTHING:
            raise Unfit(f"it has a record of more than {_MOST_OF_NOTHING} values that take no bytes")
        return 1 + sum(values)


def _loaded(text: str) -> Any:
    """What a schema's text holds. Raises Unfit if it is nested so deeply that Python may not get through."""
    depth = deepest = 0
    for one in re.findall(r"[\[\]{}]", re.sub(r'"(?:[^"\\]|\\.)*"', "", text)):
        depth += 1 if one in "[{" else -1
        deepest = max(deepest, depth)
    if deepest > _DEEPEST_TEXT:
        raise Unfit(f"its text is nested more than {_DEEPEST_TEXT} deep")
    return json.loads(text)


def _in_order(named: Mapping[str, Any]) -> tuple[list[str], frozenset[str]]:
    """The types, each behind those that it uses; and those that can hold themselves, or hold one of these.

    Raises Unfit for a longer chain of types than C may get through.
    """
    uses = {
        name: {*_names_in([field["type"] for field in one.get("fields", ())])} for name, one in named.items()
    }
    sorter = TopologicalSorter(uses)
    with suppress(CycleError):
        sorter.prepare()
    heights: dict[str, int] = {}
    # Those that a circle blocks never become ready.
    while ready := sorter.get_ready():
        for name in ready:
            heights[name] = 1 + max((heights[one] for one in uses[name]), default=0)
        sorter.done(*ready)
    if max(heights.values(), default=0) > _LONGEST_CHAIN:
        raise Unfit(f"it has more than {_LONGEST_CHAIN} types in one another")
    return [*heights], frozenset(uses.keys() - heights.keys())


def _names_in(schema: Any) -> Iterator[str]:
    """The named types in a parsed schema, without those in them."""
    if isinstance(schema, list):
        for branch in schema:
            yield from _names_in(branch)
    elif isinstance(schema, str):
        if schema not in _PRIMITIVE:
            yield schema
    elif schema["type"] in _NAMED:
        yield schema["name"]
    elif schema["type"] not in _PRIMITIVE:
        yield from _names_in(
            [schema[part] for part in ("items", "values") if part in schema] or schema["type"]
        )
