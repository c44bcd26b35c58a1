"""What an event says of its time, in epoch milliseconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from eventveil.model.timeline import parse_rfc3339
from eventveil.model.topology import Source

#: Times in epoch milliseconds are smaller than this, and greater than its negative.
TIME_LIMIT = 2**53
_LONGEST_DETAIL = 200
#: Units in a second, and in a millisecond where that is a whole number.
_UNITS = {"s": (1, 0), "ms": (1_000, 1), "us": (1_000_000, 1_000), "ns": (1_000_000_000, 1_000_000)}
_WORDS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_LOCAL = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?", re.ASCII)
_DIGITS = re.compile(r"-?\d{1,19}", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Instant(int):
    """A moment in epoch milliseconds, by its schema, whatever the unit of a source's numbers."""


class WrongKind(TypeError):
    """What was found can be no time by its type."""


class Clock:
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
                raise ValueError(f"{found} is no time in epoch milliseconds")
            return int(found)
        if type(found) is int or (type(found) is float and self._unit == "s"):
            return self._of_number(found)
        raise WrongKind

    def _of_number(self, number: float) -> int:
        if self._unit == "s":
            # To the nearest millisecond, as a float has it. Beyond the limit nothing is rounded.
            time = round(number * 1000) if abs(number) < TIME_LIMIT else TIME_LIMIT
        else:
            time = int(number) // _UNITS[self._unit][1]
        if abs(time) >= TIME_LIMIT:
            raise ValueError(f"{number} is no time in epoch {_WORDS[self._unit]}")
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
