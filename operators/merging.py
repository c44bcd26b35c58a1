"""The per-timestamp table: partial counts of the source partitions, merged once all of them are there."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from operators.counting import Partial
from operators.errors import StateRefused


class Merger:
    """Collects the partials of one stream from ``partitions`` partitions, timestamp ``next`` onwards."""

    def __init__(
        self, stream: str, columns: int, partitions: int, instance: str, next_timestamp: int
    ) -> None:
        self._stream = stream
        self._columns = columns
        self._partitions = partitions
        self._instance = instance
        self._next = next_timestamp
        self._partials: dict[int, dict[int, bytes]] = {}
        self._offsets: dict[int, int] = {}

    def add(self, partial: Partial, value: bytes, offset: int) -> None:
        """Keep a partial (``value`` is its record, at ``offset`` of the partials topic).

        A timestamp that was released is passed over, and so is the same partial a second time. Raises
        StateRefused if the partial is foreign, malformed or contradicts one that was committed before.
        """
        place = (
            f"partials of stream {self._stream}, timestamp {partial.timestamp}, partition {partial.partition}"
        )
        self._check(partial, place)
        if partial.timestamp < self._next:
            return
        held = self._partials.setdefault(partial.timestamp, {})
        known = held.setdefault(partial.partition, value)
        if known != value:
            raise StateRefused(
                place,
                "two different partial counts were committed",
                "A second application with this name may be running; find it before you start again",
            )
        self._offsets.setdefault(partial.timestamp, offset)

    def _check(self, partial: Partial, place: str) -> None:
        remedy = "Restore the topology that the state was created with, or give the stream a new name"
        if partial.instance != self._instance:
            raise StateRefused(place, "it was counted for another instance of the stream", remedy)
        if not 0 <= partial.partition < self._partitions:
            raise StateRefused(place, f"the source is recorded with {self._partitions} partitions", remedy)
        columns, counts = partial.columns, partial.counts
        well_formed = (
            columns.ndim == 1
            and columns.shape == counts.shape
            and (counts > 0).all()
            and (np.diff(columns) > 0).all()
            and (columns.size == 0 or (columns[0] >= 0 and columns[-1] < self._columns))
        )
        if not well_formed:
            raise StateRefused(place, "its columns or counts are malformed", remedy)

    def complete(self) -> bool:
        """Whether every partition has reported on the next timestamp."""
        return len(self._partials.get(self._next, ())) == self._partitions

    def take(self) -> NDArray[np.int64]:
        """The merged counts of the next timestamp, int64 of shape (columns,); then the following is next."""
        counts = np.zeros(self._columns, dtype=np.int64)
        for value in self._partials.pop(self._next).values():
            partial = Partial.decode(value, self._stream)
            counts[partial.columns] += partial.counts
        del self._offsets[self._next]
        self._next += 1
        return counts

    @property
    def first_offset(self) -> int | None:
        """The lowest offset of the partials topic that is still needed, None if none is held."""
        return min(self._offsets.values(), default=None)
