"""What a record holds at a field (``eventveil.model.fields``): finding it, filters on it, times in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from eventveil.model import fields
from eventveil.model.records import NO_APPEND_TIME, NO_OWN_TIME, Headers
from eventveil.model.timeline import parse_rfc3339
from eventveil.model.topology import Condition, Source


class Envelope(NamedTuple):
    """What is around the value of a record; ``append_time`` in epoch ms, or NO_APPEND_TIME.

    ``own_time`` is the timestamp that it carries, or NO_OWN_TIME (``Chunk.own_times``).
    """

    key: bytes | None = None
    headers: Headers = ()
    append_time: int = NO_APPEND_TIME
    own_time: int = NO_OWN_TIME


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
    # Through objects alone, which is most often and faster; of anything else a name is a TypeError.
    if not any(token.isdigit() for token in tokens):
        if len(tokens) == 1:
            return itemgetter(tokens[0])
        if len(tokens) == 2:
            outer, inner = tokens
            return lambda document: document[outer][inner]

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
        return lambda _, envelope: as_text(envelope.key)
    if field == fields.TIME:
        return lambda _, envelope: _time(envelope.append_time)
    if field.startswith(fields.HEADERS):
        name = field.removeprefix(fields.HEADERS)
        return lambda _, envelope: as_text(last_of(envelope.headers, name))
    find_in = compile_pointer(field)

    def find(document: Any, _: Envelope) -> Any:
        try:
            return find_in(document)
        except (LookupError, TypeError):
            return MISSING

    return find


def compile_time(field: str, source: Source) -> Find:
    """What is at a field of the time; ``$time`` is an Instant where it is the own time of records."""
    if field == fields.TIME and source.own_time:
        return lambda _, envelope: _own_time(envelope.own_time)
    return compile_field(field)


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


def last_of(headers: Headers, name: str) -> bytes | None:
    """The value of the last header with this name, as Kafka's clients have it; None without one."""
    return next((value for one, value in reversed(headers) if one == name), None)


def _time(append_time: int) -> Any:
    return MISSING if append_time == NO_APPEND_TIME else append_time


def _own_time(own_time: int) -> Any:
    return MISSING if own_time == NO_OWN_TIME else Instant(own_time)


def as_text(value: bytes | None) -> Any:
    """What a text around a value is: MISSING without one, and the bytes as they are if they are no UTF-8."""
    if value is None:
        return MISSING
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


#: Whether a record passes, by its document and what is around it.
Passes = Callable[[Any, Envelope], bool]


class Filter:
    """The conditions of a stream, all of which must hold.

    Those on the record around the value are asked first, before the value is parsed: a topic may hold values
    in several formats, told apart by a header.
    """

    def __init__(self, conditions: Iterable[Condition]) -> None:
        conditions = [*conditions]
        around = [one for one in conditions if fields.in_envelope(one.field)]
        self._around = [*map(_compile, around)]
        self._inside = [_compile(one) for one in conditions if not fields.in_envelope(one.field)]

    def passes_around(self, envelope: Envelope) -> bool:
        """Whether the conditions hold that need no value."""
        return all(passes(None, envelope) for passes in self._around)

    def passes_inside(self, document: Any, envelope: Envelope) -> bool:
        """Whether the others hold."""
        return all(passes(document, envelope) for passes in self._inside)


def _compile(condition: Condition) -> Passes:
    find = compile_field(condition.field)
    if condition.test in ("present", "absent"):
        wanted = condition.test == "present"
        return lambda document, envelope: is_there(find(document, envelope)) == wanted
    among = frozenset((type(one), one) for one in condition.values)
    wanted = condition.test == "in"

    def passes(document: Any, envelope: Envelope) -> bool:
        found = find(document, envelope)
        # By type too: true is no 1, and 7 is no "7". Floats, lists and objects equal nothing.
        known = type(found) in (str, int, bool) and (type(found), found) in among
        return known == wanted

    return passes


#: Times in epoch milliseconds are smaller than this, and greater than its negative.
TIME_LIMIT = 2**53
_LONGEST_DETAIL = 200
#: Of each unit how many are in a second, and in a millisecond where that is a whole number.
TIME_UNITS = {"s": (1, 0), "ms": (1_000, 1), "us": (1_000_000, 1_000), "ns": (1_000_000_000, 1_000_000)}
_WORDS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_LOCAL = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?", re.ASCII)
_DIGITS = re.compile(r"-?\d{1,19}", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Instant(int):
    """A moment in epoch milliseconds, by its schema, whatever the unit of a source's numbers."""


class WrongKind(TypeError):
    """What was found can be no time by its type."""


class TimeReader:
    """Reads times by the rules of a source, each by its own text or number alone."""

    def __init__(self, source: Source) -> None:
        self._unit = source.time_unit
        self._zone = None if source.time_zone is None else _zone(source.time_zone)
        #: What a time should be, in words.
        self.expected = f"epoch {_WORDS[self._unit]} or an RFC 3339 string"

    def __call__(self, found: Any, *, as_text: bool = False) -> int:
        """Epoch milliseconds. ``as_text``: the field can only hold text, so that digits are a number.

        Raises ValueError with what is wrong, WrongKind where the type is.
        """
        if type(found) is str:
            if as_text and _DIGITS.fullmatch(found):
                return self._of_number(int(found))
            return self._of_text(found)
        if type(found) is Instant:
            if abs(found) >= TIME_LIMIT:
                raise ValueError(f"{found} is not a time in epoch milliseconds")
            return int(found)
        if type(found) is int or (type(found) is float and self._unit == "s"):
            return self._of_number(found)
        raise WrongKind

    def _of_number(self, number: float) -> int:
        if self._unit == "s":
            # To the nearest millisecond, as a float has it. Beyond the limit nothing is rounded.
            time = round(number * 1000) if abs(number) < TIME_LIMIT else TIME_LIMIT
        else:
            time = int(number) // TIME_UNITS[self._unit][1]
        if abs(time) >= TIME_LIMIT:
            raise ValueError(f"{number} is not a time in epoch {_WORDS[self._unit]}")
        return time

    def _of_text(self, text: str) -> int:
        try:
            if self._zone is not None and _LOCAL.fullmatch(text):
                return _local(text, self._zone)
            return parse_rfc3339(text)
        except ValueError as error:
            raise ValueError(f"{text[:_LONGEST_DETAIL]!r}: {error}") from None


def _local(text: str, zone: ZoneInfo) -> int:
    """Of two moments with this local time the earlier one; one that was left out raises ValueError."""
    # As if it were UTC, with the rules that times have everywhere, and then with the offset of the zone.
    claimed = parse_rfc3339(f"{text}Z")
    minutes, rest = divmod(claimed, 60_000)
    return _shift(minutes, zone) + rest


@lru_cache(100_000)
def _shift(minutes: int, zone: ZoneInfo) -> int:
    """The moment, in epoch ms, at which clocks of a zone show a whole minute, counted as if it were UTC."""
    try:
        shown = (_EPOCH + timedelta(minutes=minutes)).replace(tzinfo=zone, fold=0)
        moment = shown.astimezone(UTC)
        if moment.astimezone(zone).replace(tzinfo=None) != shown.replace(tzinfo=None):
            raise ValueError(f"clocks in {zone.key} were put forward past it")
    except OverflowError:
        raise ValueError("it is out of range") from None
    return (moment - _EPOCH) // timedelta(milliseconds=1)


@lru_cache(1000)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
