"""Which releases the log tells of: the first of a stream that was taken over, then the newest once an hour.

A line for each release would hide all others where timestamps are short, and without any nobody sees in a log
that releases go on. What was released is public, and when as well: every reader of the sink sees it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

AGAIN_SECONDS = 3600.0
#: Of more streams, a line names this many.
_LISTED = 20


class Progress:
    """What was last told of each stream; times are monotonic seconds."""

    def __init__(self) -> None:
        #: The timestamp that was released next when the stream was last told of, or first seen.
        self._known: dict[str, int] = {}
        self._told: set[str] = set()
        self._told_at = -inf

    def look(self, following: Mapping[str, int], now: float) -> dict[str, int]:
        """The streams to tell of, each with its last released timestamp.

        ``following``: the timestamp that is released next, by stream that is released here.
        """
        for stream in self._known.keys() - following.keys():
            del self._known[stream]
            self._told.discard(stream)
        again = now - self._told_at >= AGAIN_SECONDS
        found = {
            stream: timestamp - 1
            for stream, timestamp in following.items()
            if timestamp > self._known.setdefault(stream, timestamp) and (again or stream not in self._told)
        }
        if found and again:
            self._told_at = now
        self._known.update({stream: last + 1 for stream, last in found.items()})
        self._told.update(found)
        return found


def listed(streams: Sequence[str]) -> str:
    """What is said of streams in one line; of many of them, some."""
    more = [f"{len(streams) - _LISTED} streams more"] if len(streams) > _LISTED else []
    return "; ".join([*streams[:_LISTED], *more])
