"""Spans of time that timestamps are summed up over: hours, days and weeks, in UTC or in a time zone.

Spans shorter than a day are counted from midnight, so that the last one of a day may be shorter; days that
daylight saving time begins or ends have 23 or 25 hours. Spans of several days are counted from Monday, the
5th of January 1970, so that weeks begin on Monday.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from eventveil.read.problems import ReadingError
from eventveil.topology.periods import DAY
from eventveil.topology.scalars import duration_text

ALL = "all"
_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_MONDAY = date(1970, 1, 5)
_LENGTH = re.compile(r"0*([1-9][0-9]{0,8})(ms|s|m|h|d|w)")


class Spans(NamedTuple):
    """Spans in order, each with some timestamp in it: ``starts`` and ``ends`` in epoch milliseconds, and
    ``of``, the number of the span of each timestamp."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    of: NDArray[np.int64]


def spans(times: NDArray[np.int64], interval: int, every: str | None, zone: str | None) -> Spans:
    """The spans of timestamps that begin at ``times`` (epoch milliseconds, ascending) and last ``interval``.

    Raises ReadingError if ``every`` or ``zone`` is none, or if a timestamp lies in two spans.
    """
    if every is None:
        return Spans(times, times + interval, np.arange(len(times)))
    if every == ALL:
        return Spans(times[:1], times[-1:] + interval, np.zeros(len(times), np.int64))
    length = _length(every)
    bounds = np.array([*_bounds(int(times[0]), int(times[-1]), length, _zone(zone))], np.int64)
    at = np.searchsorted(bounds, times, side="right") - 1
    straddling = times + interval > bounds[at + 1]
    if straddling.any():
        start = np.datetime64(int(times[np.argmax(straddling)]), "ms")
        raise ReadingError(
            f"every {every}",
            f"the timestamp of {duration_text(interval)} that starts at {start}Z does not lie in one span",
            "Take longer spans, or a time zone in which they begin where timestamps begin",
        )
    used, of = np.unique(at, return_inverse=True)
    return Spans(bounds[used], bounds[used + 1], of)


def _length(every: str) -> int:
    match = _LENGTH.fullmatch(every)
    if match is None:
        raise ReadingError("every", f"{every!r} is not a length of time", f"Say 1h, 6h, 1d, 1w, or {ALL}")
    length = int(match[1]) * _MILLISECONDS[match[2]]
    if length > DAY and length % DAY:
        raise ReadingError("every", f"{every} is longer than a day, but not whole days", "Say 1d, 2d, 1w")
    return length


def _zone(name: str | None) -> tzinfo:
    try:
        return UTC if name is None else ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ReadingError(
            "zone",
            f"{name!r} is not a time zone that this machine has",
            "Write Europe/Berlin, or UTC; package tzdata has all of them",
        ) from None


def _bounds(first: int, last: int, length: int, zone: tzinfo) -> Iterator[int]:
    """Where spans begin, from the one that ``first`` lies in to the end of that of ``last``."""
    day = datetime.fromtimestamp(first / 1000, zone).date()
    days = max(1, length // DAY)
    day -= timedelta((day - _MONDAY).days % days)
    end = _midnight(day, zone)
    while end <= last:
        start, day = end, day + timedelta(days)
        end = _midnight(day, zone)
        yield from range(start, end, length) if length < DAY else (start,)
    yield end


def _midnight(day: date, zone: tzinfo) -> int:
    """The first millisecond of a day; where midnight does not exist, the moment that the clock jumps to."""
    moment = datetime(day.year, day.month, day.day, tzinfo=zone)
    return round(moment.timestamp()) * 1000
