"""Counts of events for any interval and contribution bound, the events being ordered once an interval."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from eventveil.advise.generating import Events
from eventveil.counting.bounding_by_column import occurrences

Counts = NDArray[np.int64]
#: Bounds are tried up to the first that leaves out less than this part of the events.
ALL_BUT = 0.001
_MOST_BOUND = 1_024


class Tally:
    """Events over whole units of time from ``origin`` on, in ``columns`` columns.

    All times are in milliseconds. Intervals divide ``unit``, the time over which somebody wants totals.
    """

    def __init__(self, events: Events, columns: int, origin: int, unit: int) -> None:
        self._events, self.columns, self.origin, self.unit = events, columns, origin, unit
        last = int(events.times.max(initial=origin))
        self.units = (last - origin) // unit + 1
        #: From the first event to the last, in ms.
        self.span = last - int(events.times.min(initial=last))

    @property
    def events(self) -> int:
        """How many there are."""
        return len(self._events.times)

    def timestamps(self, interval: int) -> int:
        """The number of timestamps of that length."""
        return self.units * self.unit // interval

    @lru_cache(maxsize=8)  # noqa: B019, a tally lives as long as its program
    def _placed(self, interval: int) -> tuple[Counts, Counts]:
        """Of each event the cell, and how many its user had in the same timestamp before it."""
        timestamps, visits = self._visits(interval)
        return timestamps * self.columns + self._events.columns, occurrences(visits)

    def _visits(self, interval: int) -> tuple[Counts, Counts]:
        """Of each event the timestamp, and a number of its user and the timestamp together."""
        timestamps = (self._events.times - self.origin) // interval
        return timestamps, self._events.users * self.timestamps(interval) + timestamps

    @lru_cache(maxsize=4)  # noqa: B019
    def counts(self, interval: int, bound: int | None) -> Counts:
        """Shape (timestamps, columns): each user's first ``bound`` events of a timestamp; None: all.

        Shared with other callers: not to be changed.
        """
        cells, before = self._placed(interval)
        counted = cells if bound is None else cells[before < bound]
        shape = self.timestamps(interval), self.columns
        return np.bincount(counted, minlength=shape[0] * shape[1]).reshape(shape)

    @lru_cache(maxsize=4)  # noqa: B019
    def counts_by_column(self, interval: int, bound: int, limit: int, kept: tuple[int, ...] | None) -> Counts:
        """The same with at most ``limit`` of a user's events in one column (``counts.per_column``).

        With ``kept`` all other columns are one, the last.
        """
        columns = self._events.columns
        number = self.columns
        if kept is not None:
            number = len(kept) + 1
            names = np.full(self.columns, len(kept))
            names[list(kept)] = np.arange(len(kept))
            columns = names[columns]
        timestamps, visits = self._visits(interval)
        left = np.flatnonzero(occurrences(columns, visits) < limit)
        counted = left[occurrences(visits[left]) < bound]
        shape = self.timestamps(interval), number
        cells = timestamps[counted] * number + columns[counted]
        return np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)

    def left_out(self, interval: int, bound: int) -> float:
        """The part of all events that a bound leaves out."""
        _, before = self._placed(interval)
        return float((before >= bound).mean()) if len(before) else 0.0

    def bounds(self, interval: int) -> tuple[int, ...]:
        """Powers of two from 1 up to the first that leaves out hardly anything."""
        tried = [1]
        while self.left_out(interval, tried[-1]) > ALL_BUT and tried[-1] < _MOST_BOUND:
            tried.append(2 * tried[-1])
        return tuple(tried)

    def totals(self) -> Counts:
        """Shape (units, columns): all events, bounded or not."""
        return self.counts(self.unit, None)


def per_unit(counts: NDArray[np.int64], units: int) -> Counts:
    """Sums over equal spans of timestamps: shape (timestamps, columns) becomes (units, columns)."""
    sums: Counts = counts.reshape(units, -1, counts.shape[1]).sum(axis=1)
    return sums


def rolled_up(counts: Counts, kept: NDArray[np.int64]) -> Counts:
    """Only some columns, and a last one with the sum of all others. ``kept`` are indices."""
    others = counts.sum(axis=1) - counts[:, kept].sum(axis=1)
    return np.column_stack([counts[:, kept], others])
