"""From the bytes of a raw record to an event, or to the reason why it is none.

Every verdict is a function of the record and the public topology alone (I5, docs/invariants.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from eventveil.model.timeline import parse_rfc3339
from eventveil.model.topology import Counts, ReadingStream, Source
from eventveil.values.grid import is_number, on_grid

_LONGEST_DETAIL = 200
#: Times in epoch milliseconds are smaller than this, and greater than its negative.
TIME_LIMIT = 2**53


class Reason(StrEnum):
    """Why a record does not count. The values stand in the header ``eventveil.reason`` of dead letters."""

    TOMBSTONE = "tombstone"
    TOO_LARGE = "too-large"
    NO_APPEND_TIME = "no-append-time"
    NOT_JSON = "not-json"
    MISSING_FIELD = "missing-field"
    WRONG_TYPE = "wrong-type"
    EMPTY_USER = "empty-user"
    WRONG_PARTITION = "wrong-partition"
    UNKNOWN_COLUMN = "unknown-column"
    TIME_UNREADABLE = "time-unreadable"
    BEFORE_ORIGIN = "before-origin"
    BEFORE_START = "before-start"
    TOO_FAR_AHEAD = "too-far-ahead"
    LATE = "late"
    AFTER_CLOSE = "after-close"


class Rejection(NamedTuple):
    """A verdict against a record: the reason and a detail for the owner of the producer."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Event:
    """Who, where and when: ``user`` in canonical bytes, ``column`` an index, ``time`` in epoch ms.

    ``column`` None: not a public column, and the topology says to ignore such events.
    """

    user: bytes
    column: int | None
    time: int


def parse(value: bytes | None, max_bytes: int) -> Any | Rejection:
    """The JSON document in ``value``, or a rejection. Numbers beyond 64 bits become floats."""
    if value is None:
        return Rejection(Reason.TOMBSTONE, "the record has no value")
    if len(value) > max_bytes:
        return Rejection(Reason.TOO_LARGE, f"{len(value)} bytes are more than {max_bytes}")
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        return Rejection(Reason.NOT_JSON, why_no_json(error))


def why_no_json(error: orjson.JSONDecodeError) -> str:
    """The detail of what cannot be parsed."""
    detail: str = error.args[0]
    return detail[:_LONGEST_DETAIL]


def compile_pointer(pointer: str) -> Callable[[Any], Any]:
    """A function that finds what a JSON pointer (RFC 6901) names; it raises LookupError or TypeError."""
    tokens = pointer_tokens(pointer)

    def find(document: Any) -> Any:
        for token in tokens:
            document = _step(document, token)
        return document

    return find


def pointer_tokens(pointer: str) -> list[str]:
    """The reference tokens of a JSON pointer, unescaped."""
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _step(document: Any, token: str) -> Any:
    if isinstance(document, dict):
        return document[token]
    if isinstance(document, list) and token.isascii() and token.isdigit() and str(int(token)) == token:
        return document[int(token)]
    raise KeyError(token)


class UserFinder:
    """Finds the user in documents that ``parse`` returned."""

    def __init__(self, source: Source) -> None:
        self._pointer, self._type = source.user, source.user_type
        self._find = compile_pointer(source.user)

    def __call__(self, document: Any) -> bytes | Rejection:
        """The canonical bytes of the user field: UTF-8 of a string, decimal digits of an integer."""
        try:
            user = self._find(document)
        except (LookupError, TypeError):
            return _missing("user", self._pointer)
        if self._type == "integer":
            if type(user) is not int:
                return _wrong_type("user", self._pointer, "an integer", user)
            return b"%d" % user
        if type(user) is not str:
            return _wrong_type("user", self._pointer, "a string", user)
        if not user:
            return Rejection(Reason.EMPTY_USER, f"the user at {self._pointer} is empty")
        return user.encode()


class ValueDecoder:
    """Finds the value of an event on the grid of a value stream."""

    def __init__(self, stream: ReadingStream) -> None:
        self._source, self._step, self._maximum = stream.source, stream.step, stream.maximum
        self._find = compile_pointer(stream.source.value)

    def decode(self, record: bytes | None) -> tuple[int, Reason | None]:
        """The value in steps of the grid; 0 with the reason if it cannot be read, for its place stays."""
        document = parse(record, self._source.max_bytes)
        if isinstance(document, Rejection):
            return 0, document.reason
        try:
            value = self._find(document)
        except (LookupError, TypeError):
            return 0, Reason.MISSING_FIELD
        if not is_number(value):
            return 0, Reason.WRONG_TYPE
        return on_grid(value, self._step, self._maximum), None


class Decoder:
    """Finds user, column and time of the events of one stream in documents that ``parse`` returned."""

    def __init__(self, source: Source, counts: Counts) -> None:
        self._source = source
        self.user = UserFinder(source)
        self._find_column = compile_pointer(source.column)
        self._find_time = compile_pointer(source.time)
        self._index = {label: position for position, label in enumerate(counts.labels)}
        self._counts = counts
        #: Whether columns are written as integers.
        self.integers = counts.column_type == "integer"

    def decode(self, document: Any) -> Event | Rejection:
        """The event in a document, or the first thing that is wrong with it: user, then column, then time."""
        user = self.user(document)
        if isinstance(user, Rejection):
            return user
        column = self._column(document)
        if isinstance(column, Rejection):
            return column
        time = self._time(document)
        if isinstance(time, Rejection):
            return time
        return Event(user, column, time)

    def _column(self, document: Any) -> int | Rejection | None:
        pointer = self._source.column
        try:
            value = self._find_column(document)
        except (LookupError, TypeError):
            return _missing("column", pointer)
        if self.integers:
            if type(value) is not int:
                return _wrong_type("column", pointer, "an integer", value)
        elif type(value) is not str:
            return _wrong_type("column", pointer, "a string", value)
        label = str(value)
        if not self.knows(label):
            return Rejection(Reason.UNKNOWN_COLUMN, unknown_column(label))
        return self._index.get(label, self._counts.unknown_column)

    def knows(self, label: str) -> bool:
        """Whether the events with a label count somewhere, or are to be ignored."""
        return label in self._index or self._counts.unknown != "dead-letter"

    def _time(self, document: Any) -> int | Rejection:
        pointer = self._source.time
        try:
            value = self._find_time(document)
        except (LookupError, TypeError):
            return _missing("time", pointer)
        return self.timed(value)

    def timed(self, value: Any) -> int | Rejection:
        """The time that a value of its field says, in epoch milliseconds."""
        pointer = self._source.time
        if type(value) is int:
            if abs(value) >= TIME_LIMIT:
                return Rejection(Reason.TIME_UNREADABLE, f"{value} is no time in epoch milliseconds")
            return value
        if type(value) is not str:
            return _wrong_type("time", pointer, "epoch milliseconds or an RFC 3339 string", value)
        try:
            return parse_rfc3339(value)
        except ValueError as error:
            return Rejection(Reason.TIME_UNREADABLE, f"{value[:_LONGEST_DETAIL]!r}: {error}")


def unknown_column(label: str) -> str:
    """The detail of an event whose column is none of the public ones."""
    return f"{label[:_LONGEST_DETAIL]!r} is not a public column"


def _missing(field: str, pointer: str) -> Rejection:
    return Rejection(Reason.MISSING_FIELD, f"no {field} at {pointer}")


def _wrong_type(field: str, pointer: str, expected: str, found: Any) -> Rejection:
    return Rejection(
        Reason.WRONG_TYPE, f"the {field} at {pointer} should be {expected}, not {type(found).__name__}"
    )
