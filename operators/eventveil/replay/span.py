"""Which timestamps a replay covers. Times are epoch milliseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eventveil.model.timeline import format_rfc3339, start_of, timestamp_of
from eventveil.model.topology import Stream


@dataclass(frozen=True, slots=True)
class Span:
    """The first and the last timestamp of each stream, by name, both included.

    ``last`` None: each stream ends with the last timestamp for which it counted an event. A ``last`` below
    ``first`` means that no timestamp of the stream lies in the range.
    """

    first: Mapping[str, int]
    last: Mapping[str, int] | None


def plan_span(streams: Sequence[Stream], start: int | None, end: int | None) -> Span:
    """Every timestamp from ``start`` (None: the origin) that ends at or before ``end``.

    With ``end`` None the data decide. Raises ValueError if ``start`` is no timestamp's first instant in some
    stream, or if no timestamp of any stream lies in the range.
    """
    first = {stream.name: _first(stream, start) for stream in streams}
    if end is None:
        return Span(first, None)
    last = {stream.name: timestamp_of(stream.timeline, end) - 1 for stream in streams}
    if all(last[name] < first[name] for name in first):
        ends = [
            f"of {stream.name} ends at {format_rfc3339(start_of(stream.timeline, first[stream.name] + 1))}"
            for stream in streams
        ]
        raise ValueError(f"no timestamp ends by {format_rfc3339(end)}: the first one {', '.join(ends)}")
    return Span(first, last)


def _first(stream: Stream, start: int | None) -> int:
    if start is None:
        return 1
    rules = stream.timeline
    timestamp = timestamp_of(rules, start)
    before, after = start_of(rules, timestamp), start_of(rules, timestamp + 1)
    told = f"{format_rfc3339(start)} is not where a timestamp of stream {stream.name} begins"
    if timestamp < 1:
        raise ValueError(f"{told}: the first one begins at {format_rfc3339(rules.origin)}")
    if start != before:
        raise ValueError(f"{told}: the nearest are {format_rfc3339(before)} and {format_rfc3339(after)}")
    return timestamp
