"""Where a time falls: timestamps, their bounds and deadlines. Integers in epoch milliseconds throughout.

Timestamp 1 is [origin, origin + interval); timestamp t ends where t + 1 starts.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from eventveil.model.topology import Stream, Timeline

#: One number, or as many as are asked about at once.
Numbers = TypeVar("Numbers", int, NDArray[np.int64])

#: The reference of ``max_ahead`` moves in steps of a 64th of it, so that a state holds few boundaries.
_STEPS = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ]((?:[01]\d|2[0-3]):\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:[0-5]\d)", re.ASCII
)


def timestamp_of(timeline: Timeline, time: Numbers) -> Numbers:
    """The timestamp that a time belongs to; 0 or less before the origin."""
    return (time - timeline.origin) // timeline.interval + 1


def start_of(timeline: Timeline, timestamp: int) -> int:
    """The first millisecond of a timestamp."""
    return timeline.origin + (timestamp - 1) * timeline.interval


def deadline_of(timeline: Timeline, timestamp: Numbers) -> Numbers:
    """An event of ``timestamp`` that the broker appends at or after this time is late."""
    return timeline.origin + timestamp * timeline.interval + timeline.lateness


def due_of(timeline: Timeline, timestamp: Numbers) -> Numbers:
    """The wall clock time from which a worker may close ``timestamp``."""
    return deadline_of(timeline, timestamp) + timeline.clock_skew


def last_due(timeline: Timeline, now: int) -> int:
    """The last timestamp whose due time is not after ``now``; 0 or less if there is none."""
    return (now - timeline.clock_skew - timeline.lateness - timeline.origin) // timeline.interval


def last_overdue(timeline: Timeline, append_time: int) -> int:
    """The last timestamp whose deadline is not after ``append_time``; 0 or less if there is none."""
    return (append_time - timeline.lateness - timeline.origin) // timeline.interval


def latest_times(stream: Stream, first: int, appended: Numbers) -> Numbers:
    """The latest times that events appended at these times may have: later ones are too far ahead.

    Where no broker tells append times, re-keyed events bring along that of the last capture before them
    (``eventveil.tasks.repartition``), so the reference is the deadline of the timestamp that followed it.
    ``first`` is the first timestamp of the stream.
    """
    rules = stream.timeline
    if stream.source.append_time == "broker":
        return appended + rules.max_ahead
    reached: Numbers = np.maximum((appended - rules.lateness - rules.origin) // rules.interval, first - 1)
    return deadline_of(rules, reached + 1) + rules.max_ahead


def step_of(rules: Timeline) -> int:
    """The reference of ``max_ahead`` moves by this many timestamps at a time."""
    return max(1, rules.max_ahead // (_STEPS * rules.interval))


def first_whole_timestamp(timeline: Timeline, now: int) -> int:
    """The first timestamp that starts at or after ``timeline.start``, or at or after ``now`` without one."""
    start = now if timeline.start is None else timeline.start
    return max(1, -((timeline.origin - start) // timeline.interval) + 1)


def parse_rfc3339(text: str) -> int:
    """Milliseconds of an RFC 3339 time with zone, fractions of a millisecond cut off.

    Raises ValueError for anything else, leap seconds and instants outside year 1 to 9999 included.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("not an RFC 3339 time with a zone, such as 2013-01-01T00:00:00Z")
    date, clock, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(f"{date}T{clock}{'+00:00' if zone in 'Zz' else zone}")
        whole = (moment.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"not a time that exists: {error}") from None
    return whole + int((fraction or "0")[:3].ljust(3, "0"))


def format_rfc3339(time: int) -> str:
    """A time in UTC, with milliseconds only where they are not zero."""
    moment = _EPOCH + timedelta(milliseconds=time)
    precision = "milliseconds" if time % 1000 else "seconds"
    return moment.replace(tzinfo=None).isoformat(timespec=precision) + "Z"
