"""From the bytes of a raw record to an event, or to the reason why it is none.

Every verdict is a function of the record and the public topology alone (I5, docs/invariants.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from eventveil.decoding import schemas as by_schema
from eventveil.decoding.places import (
    MISSING,
    NO_ENVELOPE,
    Envelope,
    Filter,
    TimeReader,
    WrongKind,
    compile_field,
    compile_first,
    compile_time,
    is_there,
)
from eventveil.model import fields
from eventveil.model.records import NO_SCHEMAS, Schemas
from eventveil.model.topology import BY_SCHEMA, UNBOUNDED, Counts, Format, NameMap, ReadingStream, Source
from eventveil.values.grid import is_number, on_grid

#: Characters of a text that a detail shows, and what follows those of a column that is not listed.
LONGEST_DETAIL = 200
NOT_PUBLIC = " is not a public column"
#: Where a parser gives up depends on the parser, so it is not said.
NO_JSON = "the value is not a JSON document"
#: Of an engine: sums of as many as there can be columns are exact.
LARGEST_COUNT = UNBOUNDED


class Reason(StrEnum):
    """Why a record does not count. The values stand in the header ``eventveil.reason`` of dead letters."""

    TOMBSTONE = "tombstone"
    TOO_LARGE = "too-large"
    NO_APPEND_TIME = "no-append-time"
    NOT_JSON = "not-json"
    UNKNOWN_SCHEMA = "unknown-schema"
    NOT_OF_SCHEMA = "not-of-schema"
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
    MISALIGNED = "misaligned"
    BAD_COUNT = "bad-count"


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


def parse(
    value: bytes | None, max_bytes: int, form: Format = "json", schemas: Schemas = NO_SCHEMAS
) -> Any | Rejection:
    """The document in ``value``, or a rejection. Numbers of JSON beyond 64 bits become floats.

    ``schemas`` has what a value in Avro or Protobuf names, as those of a chunk do.
    """
    refused = weigh(value, max_bytes)
    if refused is not None or value is None:
        return refused
    if form in BY_SCHEMA:
        return _by_schema(value, form, schemas)
    if form == "json-schema":
        if not by_schema.is_framed(value):
            return Rejection(Reason.NOT_JSON, by_schema.unframed(form))
        value = value[by_schema.PREFIX :]
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        check_memory(error)
        return Rejection(Reason.NOT_JSON, NO_JSON)


def check_memory(error: orjson.JSONDecodeError) -> None:
    """Raise MemoryError if that is what orjson means: it says nothing of the value."""
    if error.msg.startswith("Not enough memory"):
        raise MemoryError(error.msg) from error


def _by_schema(value: bytes, form: Format, schemas: Schemas) -> Any | Rejection:
    try:
        return by_schema.read(value, form, schemas)
    except by_schema.UnknownSchema as error:
        return Rejection(Reason.UNKNOWN_SCHEMA, str(error))
    except by_schema.Unfit as error:
        return Rejection(Reason.NOT_OF_SCHEMA, str(error))


def weigh(value: bytes | None, max_bytes: int) -> Rejection | None:
    """What is wrong with a value that nobody looks into."""
    if value is None:
        return Rejection(Reason.TOMBSTONE, "the record has no value")
    if len(value) > max_bytes:
        return Rejection(Reason.TOO_LARGE, f"{len(value)} bytes are more than {max_bytes}")
    return None


class UserFinder:
    """Finds the user in records whose documents ``parse`` returned."""

    def __init__(self, source: Source) -> None:
        listed, self._source = fields.listed(source.user), source
        self._place, self._type = fields.in_words(source.user, "or"), source.user_type
        self._find = compile_first(listed)
        self._what = source.keyed_by
        #: Whether the value of a record has to be parsed.
        self.reads_value = any(map(fields.is_pointer, listed))

    def __call__(self, document: Any, envelope: Envelope = NO_ENVELOPE) -> bytes | Rejection:
        """The canonical bytes of the user: UTF-8 of a string, decimal digits of an integer.

        So 7 and "7" are one user where both may come, and "07" is another.
        """
        user = self._find(document, envelope)
        if user is MISSING:
            return _missing(self._what, self._place)
        if type(user) is int and self._type != "string":
            return b"%d" % user
        if type(user) is not str or self._type == "integer":
            return _wrong_type(self._what, self._place, _USERS[self._type], user)
        if not user:
            if self._what == "column":
                return Rejection(Reason.UNKNOWN_COLUMN, "'' is not a public column")
            return Rejection(Reason.EMPTY_USER, f"the user at {self._place} is empty")
        return user.encode()

    def read(
        self, value: bytes | None, around: Envelope, schemas: Schemas = NO_SCHEMAS, most: int | None = None
    ) -> bytes | None:
        """The user in a value and what is around it, in canonical bytes; None if there is none to be read.

        ``most``: the size in bytes from which on a value is too large, that of the source by default.
        """
        most = self._source.max_bytes if most is None else most
        form = self._source.format
        document = parse(value, most, form, schemas) if self.reads_value else weigh(value, most)
        user = document if isinstance(document, Rejection) else self(document, around)
        return None if isinstance(user, Rejection) else user


_NO_OWN_TIME = ": the record carries none, or was re-keyed before a stream asked for it"
_USERS = {"string": "a string", "integer": "an integer", "either": "a string or an integer"}


class ValueDecoder:
    """Finds the value of an event on the grid of a value stream."""

    def __init__(self, stream: ReadingStream) -> None:
        self._source, self._step, self._maximum = stream.source, stream.step, stream.maximum
        self._find = compile_field(stream.source.value)

    def decode(self, record: bytes | None, schemas: Schemas = NO_SCHEMAS) -> tuple[int, Reason | None]:
        """The value in steps of the grid; 0 with the reason if it cannot be read, because its place stays."""
        document = parse(record, self._source.max_bytes, self._source.format, schemas)
        if isinstance(document, Rejection):
            return 0, document.reason
        value = self._find(document, NO_ENVELOPE)
        if value is MISSING:
            return 0, Reason.MISSING_FIELD
        if not is_number(value):
            return 0, Reason.WRONG_TYPE
        return on_grid(value, self._step, self._maximum), None


class CountFinder:
    """Finds the number in records that are counts."""

    def __init__(self, field: str) -> None:
        self._place, self._find = field, compile_field(field)

    def __call__(self, document: Any, envelope: Envelope = NO_ENVELOPE) -> int | Rejection:
        """A whole number from 0 to LARGEST_COUNT, written as a JSON integer."""
        found = self._find(document, envelope)
        if found is MISSING:
            return _missing("count", self._place)
        if type(found) is not int:
            return _wrong_type("count", self._place, "an integer", found)
        if not 0 <= found <= LARGEST_COUNT:
            return Rejection(Reason.BAD_COUNT, f"the count at {self._place} is below 0 or above 2^40")
        return found


class Unnamed:
    """Why there is no name: the field at fault, and what it holds (MISSING if it is not there)."""

    __slots__ = ("field", "found")

    def __init__(self, field: str, found: Any) -> None:
        self.field, self.found = field, found


class Namer:
    """Names the combinations of a stream's column, as tuples with a part for each field."""

    def __init__(self, source: Source, *, integers: bool) -> None:
        """``integers``: a column of one field without a map is an integer, and else a text."""
        listed = fields.listed(source.column)
        maps = {one.field: Renamer(one) for one in source.maps}
        alone = len(listed) == 1
        self._parts = [
            (field, compile_field(field), maps.get(field), _types(alone and field not in maps, integers))
            for field in listed
        ]

    def __call__(self, document: Any, envelope: Envelope) -> tuple[str, ...] | Unnamed:
        """The parts of the name, or what is wrong with the first field that has none."""
        parts: list[str] = []
        for field, find, rename, types in self._parts:
            found = find(document, envelope)
            if type(found) not in types:
                return Unnamed(field, found)
            parts.append(str(found) if rename is None else rename(str(found)))
        return tuple(parts)

    def expected(self, field: str) -> str:
        """What a field should hold, in words."""
        types = next(types for one, _, _, types in self._parts if one == field)
        return " or ".join(_WORDS[one] for one in types)


_WORDS = {str: "a string", int: "an integer"}


def _types(strict: bool, integers: bool) -> tuple[type, ...]:
    """In a combination, and where a map gives the names, 7 is the same as "7"."""
    if strict:
        return (int,) if integers else (str,)
    return (str, int)


#: What no column that is found may have, for good: controls, what turns the direction of text, line and
#: paragraph separators, what is invisible (soft hyphen, joiners, marks, fillers, tags), what is no character,
#: and halves of characters, which no UTF-8 has.
_REFUSED = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ud800-\udfff\ufdd0-\ufdef\ufeff\uffa0\ufff9-\ufffb\ufffe\uffff\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


#: What the detail begins with of a text that no column can have that is found.
NO_COLUMN = "no column can be called "


class Names:
    """Numbers for the texts of columns that are found in the data, anew for each chunk.

    A text is no column, and has the number None, if it is empty, longer than ``longest`` characters, or has a
    character that is refused: a rule that no version of Unicode changes.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._numbers: dict[str, int] = {}

    def clear(self) -> None:
        """Forget all: another chunk comes."""
        self._numbers = {}

    def number(self, text: str) -> int | None:
        """The number of a text, the next one if it is new."""
        if not 0 < len(text) <= self._longest or _REFUSED.search(text):
            return None
        return self._numbers.setdefault(text, len(self._numbers))

    def why_none(self, text: str) -> str:
        """Why a text that has no number is no column."""
        if not text:
            return "it is empty"
        if len(text) > self._longest:
            return f"it has {len(text)} characters, longest is {self._longest}"
        refused = _REFUSED.search(text)
        assert refused is not None
        return f"it has U+{ord(refused[0]):04X}, which is invisible, turns text or ends a line"

    @property
    def texts(self) -> list[str]:
        """Those of the numbers, in order."""
        return [*self._numbers]


class Renamer:
    """A map of a topology: whole texts, then prefixes, the longest first."""

    def __init__(self, table: NameMap) -> None:
        self._values = dict(table.values)
        self._prefixes = dict(table.prefixes)
        self._lengths = sorted({len(prefix) for prefix in self._prefixes}, reverse=True)
        self._otherwise = table.otherwise

    def __call__(self, text: str) -> str:
        """The name of a text."""
        name = self._values.get(text)
        if name is not None:
            return name
        for length in self._lengths:
            name = self._prefixes.get(text[:length])
            if name is not None:
                return name
        return text if self._otherwise is None else self._otherwise


def index_of(labels: Iterable[str], parts: int) -> dict[tuple[str, ...], int]:
    """The place of each column by the parts of its name; one that has another number of parts has none.

    No part holds what stands between them, so that no two combinations have one name.
    """
    split = ((label,) if parts == 1 else tuple(label.split(fields.BETWEEN)) for label in labels)
    return {name: place for place, name in enumerate(split) if len(name) == parts}


class Decoder:
    """Finds user, column and time of the events of one stream in documents that ``parse`` returned."""

    def __init__(self, source: Source, counts: Counts) -> None:
        self.user = UserFinder(source)
        self.filter = Filter(source.filter)
        self._name = Namer(source, integers=counts.column_type == "integer")
        #: What a column of one field is called that holds a text.
        self.rename = next((Renamer(one) for one in source.maps if one.field == source.column), str)
        parts = len(fields.listed(source.column))
        self._index = index_of(counts.labels, parts)
        #: Of columns that are found in the data; ``Event.column`` is then a number of these.
        self.names = None if counts.discover is None else Names(counts.discover.longest)
        #: Whether the detail of an unknown column shows the text of its field, and no more.
        self.shows_columns = self.names is None and self.rename is str
        self._counts = counts
        self._time_place = fields.in_words(source.time, "or")
        self._times = [(field, compile_time(field, source)) for field in fields.listed(source.time)]
        #: Only what the broker wrote needs no look: anybody may have written an own time.
        self._is_brokers = not source.own_time
        self._clock = TimeReader(source)
        looked_at = source.looked_at
        #: Whether the value of a record has to be parsed, and whether what is around it has to be known.
        self.reads_value = any(map(fields.is_pointer, looked_at))
        self.reads_envelope = any(map(fields.in_envelope, looked_at))

    def decode(self, document: Any, envelope: Envelope = NO_ENVELOPE) -> Event | Rejection | None:
        """The event in a record, or the first thing that is wrong with it: user, then column, then time.

        None if it does not pass the filter, which comes before all of these.
        """
        if not self.filter.passes_inside(document, envelope):
            return None
        user = self.user(document, envelope)
        if isinstance(user, Rejection):
            return user
        column = self._column(document, envelope)
        if isinstance(column, Rejection):
            return column
        time = self.time(document, envelope)
        if isinstance(time, Rejection):
            return time
        return Event(user, column, time)

    def _column(self, document: Any, envelope: Envelope) -> int | Rejection | None:
        name = self._name(document, envelope)
        if isinstance(name, Unnamed):
            if name.found is MISSING:
                return _missing("column", name.field)
            return _wrong_type("column", name.field, self._name.expected(name.field), name.found)
        place = self._index.get(name) if self.names is None else self.names.number(name[0])
        if place is None and self._counts.unknown == "dead-letter":
            return Rejection(Reason.UNKNOWN_COLUMN, self.unknown_column(fields.BETWEEN.join(name)))
        return self._counts.unknown_column if place is None else place

    def unknown_column(self, label: str) -> str:
        """The detail of an event whose column is none of the public ones, or cannot be found."""
        told = repr(label[:LONGEST_DETAIL])
        if self.names is None:
            return told + NOT_PUBLIC
        return f"{NO_COLUMN}{told}, for {self.names.why_none(label)}"

    def time(self, document: Any, envelope: Envelope = NO_ENVELOPE) -> int | Rejection:
        """The time of an event in epoch milliseconds: of several fields the first that is there."""
        for field, find in self._times:
            found = find(document, envelope)
            if len(self._times) > 1 and (not is_there(found) or found == ""):
                continue
            if found is not MISSING:
                # Times of records are in milliseconds whatever the unit of events.
                if field == fields.TIME and self._is_brokers:
                    return int(found)
                return self.timed(found, as_text=fields.is_text(field))
        missing = _missing("time", self._time_place)
        return missing if self._is_brokers else missing._replace(detail=missing.detail + _NO_OWN_TIME)

    def timed(self, value: Any, *, as_text: bool = False) -> int | Rejection:
        """The time that a value of its field says; ``as_text``: of one that can only hold text."""
        try:
            return self._clock(value, as_text=as_text)
        except WrongKind:
            return _wrong_type("time", self._time_place, self._clock.expected, value)
        except ValueError as error:
            return Rejection(Reason.TIME_UNREADABLE, str(error))


def _missing(field: str, pointer: str) -> Rejection:
    return Rejection(Reason.MISSING_FIELD, f"no {field} at {pointer}")


def _wrong_type(field: str, pointer: str, expected: str, found: Any) -> Rejection:
    return Rejection(
        Reason.WRONG_TYPE, f"the {field} at {pointer} should be {expected}, not {type(found).__name__}"
    )
