"""Boundaries: what is late, and too far ahead, in a source whose records carry no append time of the broker.

The boundary of a timestamp in a partition is the end offset that the partition had when the timestamp became
due, asked for once. An event of the timestamp is on time if its offset is below the boundary, so whether it
counts depends on when it was appended, as told by the public clock, and on nothing that others sent.

A record was appended after the last boundary at or below its offset had been captured. So an event that is
ahead of the deadline of the *next* timestamp by more than ``max_ahead`` is too far ahead. While no worker
runs no boundary is captured: ``max_ahead`` is also the longest outage that loses no event to this rule.

``clock_skew``, which may change at any restart, must not decide it. An event that was too far ahead and is
not any more would count only if it is read again, which depends on events of others.

Boundaries are kept as long as an event between them could belong to a timestamp that is not closed. So it is
known from which offset on records have to be judged again where a rule has changed (``begin``).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eventveil.model import timeline
from eventveil.model.durable import Natural
from eventveil.model.topology import Timeline


class Boundary(NamedTuple):
    """``offset`` is the boundary of every timestamp up to ``last`` that no earlier one covers."""

    last: Natural
    offset: Natural


@dataclass(frozen=True)
class Boundaries:
    """The boundaries of one stream in one partition, ascending; timestamps before ``first`` have none.

    An event below all of them was appended before timestamp ``known`` was due, or nothing is known of it if
    that is far ahead. None stands for ``first``: a worker has every boundary from there on, a replay may not.
    """

    rules: Timeline
    first: int
    captured: tuple[Boundary, ...] = ()
    known: int | None = None

    @property
    def last(self) -> int:
        """The last timestamp that has a boundary."""
        return self.captured[-1].last if self.captured else self.first - 1

    @property
    def end(self) -> int:
        """The last boundary, 0 if there is none: where the log ended when it was captured."""
        return self.captured[-1].offset if self.captured else 0

    def wanted(self, now: int) -> bool:
        """Whether a timestamp is due at the wall clock time ``now`` and has no boundary yet."""
        return timeline.last_due(self.rules, now) > self.last

    def capture(self, now: int, end: int) -> Boundaries:
        """With ``end``, asked for at or after ``now``, as the boundary of every due timestamp without one.

        Raises ValueError if the log has become shorter.
        """
        if not self.wanted(now):
            return self
        if self.captured and end < self.captured[-1].offset:
            raise ValueError(f"the log ends at {end}, below the boundary {self.captured[-1].offset}")
        boundary = Boundary(timeline.last_due(self.rules, now), end)
        return replace(self, captured=(*self.captured, boundary))

    def of(self, timestamp: int) -> int | None:
        """The boundary of a timestamp, None if it has none yet."""
        found = bisect_left(self.captured, timestamp, key=lambda one: one.last)
        return self.captured[found].offset if found < len(self.captured) else None

    def reached(self, offset: int) -> int:
        """The last timestamp whose boundary is not above ``offset``: all its events lie below."""
        found = bisect_right(self.captured, offset, key=lambda one: one.offset)
        return self.captured[found - 1].last if found else self.first - 1

    def latest_time(self, offset: int) -> int:
        """The latest time that an event at ``offset`` may have: later ones are too far ahead."""
        below_all = not self.captured or offset < self.captured[0].offset
        return self._latest(self._before if below_all else self.reached(offset))

    @property
    def _before(self) -> int:
        """The last timestamp that need not be due yet where an event below all boundaries was appended."""
        return (self.first if self.known is None else self.known) - 1

    def _latest(self, reached: timeline.Numbers) -> timeline.Numbers:
        step = timeline.step_of(self.rules)
        following = (reached // step + 1) * step
        return timeline.deadline_of(self.rules, following) + self.rules.max_ahead

    def latest_times(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """The same of many."""
        lasts, ends = self.columns
        return self._latest(lasts[np.searchsorted(ends[:-1], offsets, side="right")])

    def ends_of(self, timestamps: NDArray[np.int64]) -> NDArray[np.int64]:
        """The boundaries of timestamps, one that nothing reaches where there is none yet."""
        lasts, ends = self.columns
        found: NDArray[np.int64] = ends[np.searchsorted(lasts[1:], timestamps)]
        return found

    def admit(
        self, offsets: NDArray[np.int64], times: NDArray[np.int64], timestamps: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Which events are not too far ahead and below the boundary of their timestamp, if it has one."""
        own: NDArray[np.bool_] = offsets < self.ends_of(timestamps)
        return own & (times <= self.latest_times(offsets))

    @cached_property
    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The last timestamps, after that which has none; the offsets, before that which nothing reaches."""
        lasts = [self._before, *(one.last for one in self.captured)]
        ends = [*(one.offset for one in self.captured), np.iinfo(np.int64).max]
        return np.array(lasts, np.int64), np.array(ends, np.int64)

    def begin(self, next_timestamp: int, genesis: int) -> int | None:
        """The first offset at which an event of ``next_timestamp``, or of a later one, is not too far ahead.

        ``genesis`` is the offset that the stream began to read at. None if no boundary shows it: one from
        before that offset is missing.
        """
        if timeline.start_of(self.rules, next_timestamp) <= self._latest(self._before):
            return genesis
        found = self._admits(next_timestamp)
        return self.captured[min(found, len(self.captured) - 1)].offset if found else None

    def _admits(self, timestamp: int) -> int:
        """The index of the first boundary behind which an event of a timestamp is not too far ahead."""
        start = timeline.start_of(self.rules, timestamp)
        return bisect_left(self.captured, start, key=lambda one: self.latest_time(one.offset))

    def needed(self, next_timestamp: int, resume: int) -> Boundaries:
        """Those that a successor needs which closes ``next_timestamp`` next.

        It reads from ``resume`` on, or from ``begin``. The boundary before that is kept as well: it shows
        that no earlier one is needed.
        """
        read = bisect_right(self.captured, resume, key=lambda one: one.offset)
        start = min(read, self._admits(next_timestamp)) - 1
        kept: list[Boundary] = []
        step = timeline.step_of(self.rules)
        for index, one in enumerate(self.captured):
            same_reference = kept and kept[-1].last // step == one.last // step
            newest = one is self.captured[-1]
            if newest or one.last >= next_timestamp or (index >= start and not same_reference):
                kept.append(one)
        return replace(self, captured=tuple(kept))
