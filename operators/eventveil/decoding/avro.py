"""Avro records as JSON would have them: what fastavro reads by the writer's schema, made fit for pointers.

Records and maps are objects, arrays are arrays, symbols of enums are texts, and of a union there is the value
itself. Logical types: a timestamp is an ``Instant``, a local one text without a zone, a date text such as
2026-11-23, a decimal a ``Decimal``, which no field of an event takes; any other is what it is written as. A
field is found under its name and under the aliases that its schema gives it.

A schema comes from a registry, and bytes from anybody. So what could make a few bytes large or deep is ruled
out beforehand: arrays of values that take no bytes, and recursion in C, whose stack fastavro would overflow.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import fastavro
import fastavro._read_py
from fastavro.read import LOGICAL_READERS
from fastavro.schema import parse_schema

from eventveil.decoding.places import Instant
from eventveil.decoding.schemas import Unfit

_PRIMITIVE = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_DAY = date(1970, 1, 1)
_LOCAL = datetime(1970, 1, 1)
#: Logical types by the type that they are of. Under names of our own, which fastavro asks us for.
_OWN = "eventveil-"


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
                parse_schema(json.loads(one), named_schemas=named)
            whole = parse_schema(json.loads(text), named_schemas=named)
            plain = _PlainSchema(named)
            self._schema = parse_schema(plain.of(whole))
            plain.check()
        except (Unfit, MemoryError):
            raise
        except Exception as error:
            raise Unfit(f"it is not an Avro schema ({type(error).__name__}: {error})") from None
        self._named = plain.done
        self._aliased = plain.aliased
        # In Python, an endless descent is an error like any other.
        self._read = fastavro._read_py.schemaless_reader if plain.recursive else fastavro.schemaless_reader

    def read(self, body: bytes) -> Any:
        """See ``Schema.read``."""
        file = io.BytesIO(body)
        record = self._read(file, self._schema, None)
        if file.tell() != len(body):
            raise Unfit(f"{len(body) - file.tell()} bytes are left over")
        if self._aliased:
            self._add_aliases(record, self._schema)
        return record

    def _add_aliases(self, value: Any, schema: Any) -> None:
        """Let every field be found under its aliases too."""
        if isinstance(schema, list):
            branches = [self._whole(branch) for branch in schema]
            fitting = [branch for branch in branches if _may_be(value, branch)]
            # An object is of a record that has just these fields, where there is one, and else a map.
            for branch in sorted(fitting, key=lambda one: one["type"] == "map")[:1]:
                self._add_aliases(value, branch)
            return
        schema = self._whole(schema)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in ("record", "error") and isinstance(value, dict):
            for field in schema["fields"]:
                self._add_aliases(value[field["name"]], field["type"])
            for field in schema["fields"]:
                for alias in field.get("aliases", ()):
                    value.setdefault(alias, value[field["name"]])
        elif kind == "map" and isinstance(value, dict):
            for one in value.values():
                self._add_aliases(one, schema["values"])
        elif kind == "array" and isinstance(value, list):
            for one in value:
                self._add_aliases(one, schema["items"])

    def _whole(self, schema: Any) -> Any:
        return self._named.get(schema, schema) if isinstance(schema, str) else schema


def _may_be(value: Any, schema: Any) -> bool:
    """Whether a value of a union, as it was read, is of one of its branches."""
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind in ("record", "error"):
        return isinstance(value, dict) and value.keys() == {field["name"] for field in schema["fields"]}
    return (kind == "map" and isinstance(value, dict)) or (kind == "array" and isinstance(value, list))


class _PlainSchema:
    """Copies a parsed schema whole, each named type where it is first met, with logical types of our own."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._known = named
        self._inside: set[str] = set()
        self._items: list[Any] = []
        #: The named types that were copied.
        self.done: dict[str, Any] = {}
        self.recursive = self.aliased = False

    def of(self, schema: Any) -> Any:
        """The copy. Raises Unfit or KeyError."""
        if isinstance(schema, list):
            return [self.of(branch) for branch in schema]
        if isinstance(schema, str):
            if schema in _PRIMITIVE:
                return schema
            self.recursive |= schema in self._inside
            return schema if schema in self.done else self.of(self._known[schema])
        kind = schema["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self._type_with_name(schema)
        copy = {"type": kind, **self._logical(schema)}
        if kind == "array":
            copy["items"] = self.of(schema["items"])
            self._items.append(copy["items"])
        elif kind == "map":
            copy["values"] = self.of(schema["values"])
        elif kind not in _PRIMITIVE:
            return self.of(kind)
        return copy

    def check(self) -> None:
        """Raise Unfit if an array of what was copied could be endless."""
        if any(map(self._takes_nothing, self._items)):
            raise Unfit("it has an array of values that take no bytes, which could be endless")

    def _type_with_name(self, schema: Mapping[str, Any]) -> Any:
        name = schema["name"]
        if name in self.done:
            self.recursive |= name in self._inside
            return name
        copy: dict[str, Any] = {"type": schema["type"], "name": name, **self._logical(schema)}
        copy.update({key: schema[key] for key in ("symbols", "size") if key in schema})
        self.done[name] = copy
        if "fields" in schema:
            self._inside.add(name)
            copy["fields"] = [self._field(field) for field in schema["fields"]]
            self._inside.discard(name)
        return copy

    def _field(self, field: Mapping[str, Any]) -> dict[str, Any]:
        copy: dict[str, Any] = {"name": field["name"], "type": self.of(field["type"])}
        if field.get("aliases"):
            copy["aliases"], self.aliased = list(field["aliases"]), True
        return copy

    def _logical(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        logical = schema.get("logicalType")
        if not isinstance(logical, str) or f"{schema['type']}-{logical}" not in _LOGICAL:
            return {}
        kept = {"scale": schema["scale"]} if type(schema.get("scale")) is int else {}
        return {"logicalType": _OWN + logical, **kept}

    def _takes_nothing(self, schema: Any, within: frozenset[str] = frozenset()) -> bool:
        """Whether a value may be no bytes at all."""
        if isinstance(schema, str) and schema in _PRIMITIVE:
            return schema == "null"
        if isinstance(schema, list):
            return False
        found = self.done[schema] if isinstance(schema, str) else schema
        if found["type"] == "fixed":
            return bool(found["size"] == 0)
        if found["type"] not in ("record", "error"):
            return bool(found["type"] == "null")
        name = found["name"]
        return name in within or all(
            self._takes_nothing(field["type"], within | {name}) for field in found["fields"]
        )
