"""The JSON Schema of topology files, from the same table that validates them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from eventveil.topology.scalars import NAME_OF, Schema
from eventveil.topology.spec import layout

_LINE = 110
#: What has no name of its own is written out, if it is no longer than this.
_SHORT = 100
_SINGLE = frozenset({"if", "then", "else", "items", "additionalProperties", "propertyNames"})
_MAPPINGS = frozenset({"properties", "patternProperties"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf"})


def json_schema() -> Schema:
    """JSON Schema (draft 2020-12) for editors; ``eventveil check`` finds more than a schema can."""
    return document("Eventveil topology, version 1", layout().schema())


def json_schema_text() -> str:
    """The schema as it is kept in ``schemas/topology.schema.json``."""
    return as_text(json_schema())


def as_text(schema: Schema) -> str:
    """A schema as it is printed and kept: what fits into a line is in one."""
    return _printed(schema, "") + "\n"


def document(title: str, schema: Schema) -> Schema:
    """A whole schema: its sections, and what occurs more than once, are written once, under ``$defs``."""
    definitions = _Definitions(schema)
    body = definitions.inside(schema, "")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **body,
        "$defs": dict(sorted(definitions.named.items())),
    }


class _Definitions:
    """The sections of a schema, and what it has more than once, by name.

    A description is no part of it: it says what a setting is for, so it stays beside the reference, where
    editors look for it.
    """

    def __init__(self, schema: Schema) -> None:
        self.named: dict[str, Schema] = {}
        self._names: dict[str, str] = {}
        self._uses: Counter[str] = Counter()
        self._count(schema, "")

    def _count(self, schema: Any, key: str) -> Any:
        """Count the places that need each subschema; what is inside a repeated one is needed once."""
        if isinstance(schema, dict):
            text = _text(schema)
            self._uses[text] += 1
            if self._uses[text] == 1:
                _each(schema, key, self._count)
        return schema

    def inside(self, schema: Schema, key: str) -> Schema:
        """A schema with references for the repeated ones in it."""
        written = _each(schema, key, self._refer)
        return {one: value for one, value in written.items() if one != NAME_OF}

    def _refer(self, schema: Any, key: str) -> Any:
        if not isinstance(schema, dict):
            return schema
        text = _text(schema)
        name = self._names.get(text) or self._unused(schema.get(NAME_OF, key))
        shared = self._uses[text] > 1 and (NAME_OF in schema or len(text) > _SHORT)
        if not shared and "additionalProperties" not in schema:
            return self.inside(schema, key)
        if text not in self._names:
            self._names[text] = name
            self.named[name] = {}  # taken, before what is inside gets its names
            self.named[name] = self.inside(_without_description(schema), key)
        description = {one: schema[one] for one in schema if one == "description"}
        return {**description, "$ref": f"#/$defs/{name}"}

    def _unused(self, name: str) -> str:
        names = (name, *(f"{name}-{number}" for number in range(2, len(self.named) + 3)))
        return next(one for one in names if one not in self.named)


def _each(schema: Schema, key: str, change: Callable[[Any, str], Any]) -> Schema:
    """A schema in which each direct subschema is changed; ``key`` is the setting that it is for."""

    def changed(keyword: str, value: Any) -> Any:
        if keyword in _SINGLE:
            return change(value, key)
        if keyword in _MAPPINGS:
            return {
                name: change(one, name if keyword == "properties" else key) for name, one in value.items()
            }
        return [change(one, key) for one in value] if keyword in _LISTS else value

    return {keyword: changed(keyword, value) for keyword, value in schema.items()}


def _without_description(schema: Schema) -> Schema:
    return {keyword: value for keyword, value in schema.items() if keyword != "description"}


def _text(schema: Schema) -> str:
    """Equal for two schemas that accept the same in the same way."""
    plain = {keyword: value for keyword, value in _without_description(schema).items() if keyword != NAME_OF}
    return json.dumps(plain, sort_keys=True)


def _printed(value: Any, indent: str) -> str:
    line = json.dumps(value)
    if len(indent) + len(line) <= _LINE or not isinstance(value, dict | list):
        return line
    inner = indent + "  "
    if isinstance(value, list):
        items = [f"{inner}{_printed(one, inner)}" for one in value]
    else:
        items = [f"{inner}{json.dumps(key)}: {_printed(one, inner)}" for key, one in value.items()]
    first, last = ("[", "]") if isinstance(value, list) else ("{", "}")
    return "\n".join((first, ",\n".join(items), indent + last))
