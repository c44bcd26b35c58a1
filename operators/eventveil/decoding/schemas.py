"""Values behind the prefix of a schema registry: which schema each names, and what can be wrong with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from eventveil.model.records import Schemas
from eventveil.model.topology import Format

#: A zero and the id of the schema in four bytes.
MAGIC, PREFIX = 0, 5
#: Registries count schemas from 1, in 32 bits with a sign. No other id can become known.
_IDS = range(1, 2**31)
_LONGEST_DETAIL = 200
#: These say nothing of the bytes that were read: elsewhere, with more memory or fewer callers, they may be
#: read. So they are no verdict, which would then depend on other events.
UNDECIDED = (MemoryError, RecursionError)


class UnknownSchema(ValueError):
    """The registry does not know the schema that a value names."""


class Unfit(ValueError):
    """A value cannot be read by the schema that it names; the text says why."""


class Unusable:
    """A schema that no value can be read by, for a reason that lies in the schema itself."""

    def __init__(self, why: str, form: str | None = None) -> None:
        self._why, self.form = why, form

    def read(self, body: bytes) -> Any:
        """Raises Unfit, always."""
        raise Unfit(self._why)


def is_framed(value: bytes) -> bool:
    """Whether a value begins with the prefix of a schema registry."""
    return len(value) >= PREFIX and value[0] == MAGIC


def schema_id(value: bytes) -> int | None:
    """The id of the schema that a value names; None if it begins otherwise."""
    return int.from_bytes(value[1:PREFIX], "big") if is_framed(value) else None


def zigzag(value: bytes, at: int) -> tuple[int, int] | None:
    """A zigzag-coded number of at most ten bytes, and the place behind it; None if none is there."""
    number = 0
    for place, byte in enumerate(value[at : at + 10]):
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at + place + 1
    return None


def ids_in(values: Iterable[bytes | None]) -> set[int]:
    """The ids that values name, of those that a schema can have."""
    found = {schema_id(value) for value in values if value is not None}
    return {one for one in found if one is not None and one in _IDS}


def unframed(form: Format) -> str:
    """The detail of a value that names no schema."""
    return f"it does not begin with a zero byte and the four bytes of a schema id, as format: {form} has it"


def read(value: bytes, form: Format, schemas: Schemas) -> Any:
    """The record in a value. Raises UnknownSchema or Unfit, and what is UNDECIDED.

    ``schemas`` must have the schema that it names: a KeyError is a mistake of who made them.
    """
    number = schema_id(value)
    if number is None:
        raise Unfit(unframed(form))
    if number not in _IDS:
        raise Unfit(f"{number} is not the id of a schema, which is from {_IDS[0]} to {_IDS[-1]}")
    schema = schemas[number]
    if schema is None:
        raise UnknownSchema(f"the registry knows no schema with id {number}")
    if schema.form not in (form, None):
        raise Unfit(f"schema {number} is of {schema.form}, and the source has format: {form}")
    try:
        return schema.read(value[PREFIX:])
    except UNDECIDED:
        raise
    except Exception as error:
        # Whatever a library raises of bytes that somebody made up, it is of these bytes alone.
        raise Unfit(f"schema {number}: {why(error)}"[:_LONGEST_DETAIL]) from None


def why(error: Exception) -> str:
    """What an error says, in one line; that of an Unfit as it is."""
    text = " ".join(str(error).split())
    return text if isinstance(error, Unfit) else f"{type(error).__name__}{f': {text}' if text else ''}"
