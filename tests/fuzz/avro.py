"""Events as Avro records, by schemas that take what JSON has, and by one that says what a moment is."""

from __future__ import annotations

import io
import json
from collections import defaultdict
from random import Random
from typing import Any

import fastavro

from eventveil.decoding.avro import AvroSchema
from eventveil.model.records import Schemas

_ANY = ["null", "string", "long", "boolean"]
_MOMENT = {"type": "long", "logicalType": "timestamp-millis"}


def _schema(time: Any) -> dict[str, Any]:
    page = {"type": "record", "name": "Page", "fields": [{"name": "section", "type": _ANY}]}
    names = ("user", "column", "type", "member", "id")
    fields: list[dict[str, Any]] = [{"name": name, "type": _ANY, "default": None} for name in names]
    fields += [{"name": "page", "type": page}, {"name": "time", "type": time}]
    return {"type": "record", "name": "Event", "fields": fields}


_SCHEMAS = {1: _schema("long"), 2: _schema(_MOMENT), 3: _schema(["string", "long"])}
_PARSED = {number: fastavro.parse_schema(schema) for number, schema in _SCHEMAS.items()}
#: What a registry knows: no others.
KNOWN: Schemas = defaultdict(
    lambda: None, {number: AvroSchema(json.dumps(one)) for number, one in _SCHEMAS.items()}
)


def written(chance: Random, event: dict[str, Any]) -> bytes:
    """The event by one of the schemas, as it is or damaged; its time is a whole number."""
    number, file = chance.choice((1, 1, 2, 3)), io.BytesIO()
    fastavro.schemaless_writer(file, _PARSED[number], event)
    value = bytearray(number.to_bytes(5, "big") + file.getvalue())
    if chance.random() < 0.1:
        value[chance.randrange(5, len(value))] = chance.randrange(256)
    if chance.random() < 0.05:
        value[4] = 4
    return bytes(value)
