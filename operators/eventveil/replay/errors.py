"""How far the releases of a replay are off the truth, added up as they come: raw data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from eventveil.describe.guarantee import count
from eventveil.replay.releasing import Released

#: The largest columns, one in this many, have figures of their own.
TENTH = 10


class StreamErrors:
    """The errors of one stream's releases, in counts."""

    def __init__(self, columns: int) -> None:
        self.timestamps = 0
        #: Where the columns are, by name; those of the last release that had others, and their places.
        self._places: dict[str, int] = {}
        self._columns_now: tuple[tuple[str, ...], NDArray[np.int64]] = ((), np.zeros(0, np.int64))
        #: By column: the truth in the release's own terms, absolute errors, all events before bounding.
        self._truth = np.zeros(columns, np.int64)
        self._absolute = np.zeros(columns, np.int64)
        self._events = np.zeros(columns, np.int64)
        self._counted = np.zeros(columns, np.int64)
        self._bounded = True
        #: Of the sums over all columns.
        self._total_absolute = self._total = 0

    def add(self, released: Released) -> None:
        """One more timestamp."""
        at = self._at(released.stream.counts.labels)
        off = released.release.counts - released.truth
        self.timestamps += 1
        self._truth[at] += released.truth
        self._absolute[at] += np.abs(off)
        self._total += int(off.sum())
        self._total_absolute += abs(int(off.sum()))
        self._counted[at] += released.counts
        if released.events is None:
            self._bounded = False
        else:
            self._events[at] += released.events

    def _at(self, columns: tuple[str, ...]) -> NDArray[np.int64]:
        """Where columns are. They may have been found since: their errors before are the first column's."""
        if columns != self._columns_now[0]:
            found = [self._places.setdefault(one, len(self._places)) for one in columns]
            self._columns_now = columns, np.array(found)
            self._grow(len(self._places))
        return self._columns_now[1]

    def _grow(self, columns: int) -> None:
        if (more := columns - len(self._truth)) > 0:
            for name in ("_truth", "_absolute", "_events", "_counted"):
                setattr(self, name, np.append(getattr(self, name), np.zeros(more, np.int64)))

    def told(self) -> Iterator[str]:
        """Sentences for people; none before there is a timestamp."""
        if not self.timestamps:
            return
        every = np.arange(len(self._truth))
        yield f"over {count(len(every), 'column')} {self._columns(every)}"
        if len(every) > 1:
            largest = self._largest()
            yield f"over the largest tenth ({count(len(largest), 'column')}) {self._columns(largest)}"
        truth, number = int(self._truth.sum()), self.timestamps
        yield (
            f"the total of a timestamp is off by {self._total_absolute / number:.4g} on average"
            f"{_percent(self._total_absolute, truth)}; their sum by {self._total:+d}, its bias"
            f"{_percent(self._total, truth, signed=True)}"
        )
        if self._bounded and (events := int(self._events.sum())):
            left = events - int(self._counted.sum())
            yield (
                f"these errors are relative to bounded counts; bounding left out {left} of {events} events"
                f"{_percent(left, events)}, which are in no release"
            )

    def _largest(self) -> NDArray[np.int64]:
        number = -(-len(self._truth) // TENTH)
        return np.argsort(-self._truth, kind="stable")[:number]

    def _columns(self, chosen: NDArray[np.int64]) -> str:
        absolute, truth = int(self._absolute[chosen].sum()), int(self._truth[chosen].sum())
        cells = len(chosen) * self.timestamps
        return (
            f"and {count(self.timestamps, 'timestamp')}, a count is off by {absolute / cells:.4g}"
            f"{_percent(absolute, truth)} on average; the true mean is {truth / cells:.4g}"
        )


def _percent(part: int, whole: int, *, signed: bool = False) -> str:
    if not whole:
        return ""
    return f" ({100 * part / whole:{'+' if signed else ''}.3g} %)"
