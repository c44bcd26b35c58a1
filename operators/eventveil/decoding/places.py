"""Finding what a record holds at a field (``eventveil.model.fields``), in its document or around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from eventveil.model import fields
from eventveil.model.records import NO_APPEND_TIME, Headers


class Envelope(NamedTuple):
    """What is around the value of a record; ``append_time`` in epoch ms, or NO_APPEND_TIME."""

    key: bytes | None = None
    headers: Headers = ()
    append_time: int = NO_APPEND_TIME


#: Of a record that nobody looks at but for its value.
NO_ENVELOPE = Envelope()


class Missing:
    """What is found at a field that is not there."""


MISSING: Final = Missing()
#: What is at a field of a record: a JSON value, bytes that are no text, or MISSING.
Find = Callable[[Any, Envelope], Any]


def compile_pointer(pointer: str) -> Callable[[Any], Any]:
    """A function that finds what a JSON pointer (RFC 6901) names; it raises LookupError or TypeError."""
    tokens = pointer_tokens(pointer)

    def find(document: Any) -> Any:
        for token in tokens:
            document = _step(document, token)
        return document

    return find


def pointer_tokens(pointer: str) -> list[str]:
    """The reference tokens of a JSON pointer, unescaped; none of ``$value``."""
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _step(document: Any, token: str) -> Any:
    if isinstance(document, dict):
        return document[token]
    if isinstance(document, list) and token.isascii() and token.isdigit() and str(int(token)) == token:
        return document[int(token)]
    raise KeyError(token)


def compile_field(field: str) -> Find:
    """What is at one field; MISSING if it is not there. It raises nothing."""
    if field == fields.KEY:
        return lambda _, envelope: _as_text(envelope.key)
    if field == fields.TIME:
        return lambda _, envelope: _time(envelope.append_time)
    if field.startswith(fields.HEADERS):
        name = field.removeprefix(fields.HEADERS)
        return lambda _, envelope: _header(envelope.headers, name)
    find_in = compile_pointer(field)

    def find(document: Any, _: Envelope) -> Any:
        try:
            return find_in(document)
        except (LookupError, TypeError):
            return MISSING

    return find


def compile_first(several: Sequence[str]) -> Find:
    """What is at the first of several fields that is there, and neither null nor empty text; else MISSING.

    A single field is taken as it is.
    """
    finds = [compile_field(field) for field in several]
    if len(finds) == 1:
        return finds[0]

    def find(document: Any, envelope: Envelope) -> Any:
        found = (find_one(document, envelope) for find_one in finds)
        return next((one for one in found if is_there(one) and one != ""), MISSING)

    return find


def is_there(found: Any) -> bool:
    """Whether something was found, and is not null."""
    return found is not MISSING and found is not None


def _header(headers: Headers, name: str) -> Any:
    # Of several with one name the last counts, as Kafka's clients have it.
    return next((_as_text(value) for one, value in reversed(headers) if one == name), MISSING)


def _time(append_time: int) -> Any:
    return MISSING if append_time == NO_APPEND_TIME else append_time


def _as_text(value: bytes | None) -> Any:
    if value is None:
        return MISSING
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
