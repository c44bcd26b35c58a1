"""A release as an Avro record (schemas/release-1.avsc), and back. Needs the extra ``registry``.

The bytes are a function of the release alone, and stay the same from version to version: what was decided is
published as it was decided, whatever happened in between. A field that the schema does not have is refused.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from functools import cache
from typing import Any

import fastavro
import orjson

from eventveil.decoding.avro import AvroSchema
from eventveil.model.timeline import format_rfc3339, parse_rfc3339

#: Fields of a release that are instants.
_INSTANTS = ("start", "end")


@cache
def _writer(text: str) -> tuple[Any, frozenset[str]]:
    schema: Any = fastavro.parse_schema(orjson.loads(text))
    return schema, frozenset(field["name"] for field in schema["fields"])


@cache
def _reader(text: str) -> AvroSchema:
    return AvroSchema(text)


def encoded(record: bytes, schema: str) -> bytes:
    """The Avro bytes of a release given as JSON, by the text of a schema. Raises ValueError.

    Counts become rows, each with its own error.
    """
    parsed, known = _writer(schema)
    fields = orjson.loads(record)
    if strange := fields.keys() - known - {"error"}:
        raise ValueError(f"its schema has no field {sorted(strange)[0]}")
    fields["counts"] = _rows(fields["counts"], fields.pop("error", None))
    for name in _INSTANTS:
        fields[name] = parse_rfc3339(fields[name])
    file = io.BytesIO()
    fastavro.schemaless_writer(file, parsed, fields, strict_allow_default=True)
    return file.getvalue()


def _rows(counts: Any, error: Any) -> list[dict[str, Any]]:
    if not isinstance(counts, dict):
        raise ValueError("its counts have no names, and rows have")
    errors = error if isinstance(error, dict) else dict.fromkeys(counts, error)
    return [{"column": name, "count": count, "error": errors[name]} for name, count in counts.items()]


def decoded(body: bytes, schema: str) -> bytes:
    """The release as JSON, given its bytes and the text of their schema. Raises ValueError."""
    return as_json(_reader(schema).read(body))


def as_json(found: Any) -> bytes:
    """The release as JSON, given its record as a schema of a registry reads it. Raises ValueError."""
    try:
        return orjson.dumps(_fields(found))
    except (KeyError, TypeError, AttributeError, orjson.JSONEncodeError) as error:
        raise ValueError(f"it is not a release ({type(error).__name__}: {error})") from None


def _fields(found: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in found.items():
        if name == "counts":
            fields["counts"] = {row["column"]: row["count"] for row in value}
            errors = {row["column"]: row["error"] for row in value if row["error"] is not None}
            if errors:
                fields["error"] = errors
        elif name in _INSTANTS:
            fields[name] = format_rfc3339(int(value))
        elif name == "fresh" or not _is_absent(value):
            fields[name] = value
    return fields


def _is_absent(value: Any) -> bool:
    """Whether a release does not have a field with this value in Avro; 0 it has."""
    return value is None or value is False or value == []
