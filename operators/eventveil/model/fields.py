"""Where an event holds something: a place in the value of its record, or a part of the record around it.

A place in the value is a JSON pointer (RFC 6901), such as ``/user/id``. What begins with ``$`` is of the
record: ``$key``, ``$headers/NAME``, ``$time`` (its time) and ``$value`` (the whole value).
Several fields are one text too, a JSON array of them, which no single field can be: so that a setting is a
text in manifests whether it has one field or more.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import orjson

KEY, TIME, VALUE = "$key", "$time", "$value"
HEADERS = "$headers/"
#: What stands between the fields of a column: part of no name in a combination.
BETWEEN = "|"


def is_pointer(field: str) -> bool:
    """Whether a field is in the value of a record, ``$value`` included; False for several."""
    return field == VALUE or not field.startswith(("$", "["))


def is_text(field: str) -> bool:
    """Whether a field can only hold text: bytes around the value that are read as UTF-8."""
    return field == KEY or field.startswith(HEADERS)


def in_envelope(field: str) -> bool:
    """Whether a field is of the record and not of its value."""
    return not is_pointer(field)


def joined(fields: Sequence[str]) -> str:
    """Fields as one text, a single one as it is."""
    return fields[0] if len(fields) == 1 else orjson.dumps(list(fields)).decode()


@functools.cache
def listed(fields: str) -> tuple[str, ...]:
    """The fields that ``joined`` made a text of."""
    return tuple(orjson.loads(fields)) if fields.startswith("[") else (fields,)


def in_words(fields: str, between: str) -> str:
    """Fields for people to read."""
    return f" {between} ".join(listed(fields))
