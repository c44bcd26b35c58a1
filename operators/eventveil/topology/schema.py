"""The JSON Schema of topology files, from the same table that validates them."""

from __future__ import annotations

import json

from eventveil.topology.scalars import Schema
from eventveil.topology.spec import layout


def json_schema() -> Schema:
    """JSON Schema (draft 2020-12) for editors; ``eventveil check`` finds more than a schema can."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Eventveil topology, version 1",
        **layout().schema(),
    }


def json_schema_text() -> str:
    """The schema as it is kept in ``schemas/topology.schema.json``."""
    return json.dumps(json_schema(), indent=2) + "\n"
