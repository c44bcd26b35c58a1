"""Looking for columns that nobody listed, among the merged counts of a stream.

Pure. Of each timestamp it says how often the columns that are found were counted; what others were counted
adds up over a block of timestamps, at whose end they are tested (``eventveil.privacy.discovery``). The sums
are raw data, and in memory alone: after a restart they are made again from the partial counts of the block.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from eventveil.decoding.rules import LARGEST_COUNT
from eventveil.mechanisms.sizes import Room
from eventveil.model.topology import Stream
from eventveil.privacy.discovery import Found, test_of
from eventveil.privacy.noise import NoiseSource


class Search:
    """The sums of the open block of one stream, which has found the columns after its first label."""

    def __init__(self, stream: Stream, noise: NoiseSource) -> None:
        how = stream.counts.discover
        if how is None:
            raise ValueError(f"stream {stream.name} lists its columns")
        self.window, self._room, self._noise = stream.mechanism.window, Room(stream), noise
        #: Whether no more columns can be found.
        self.over = self._room.full
        self._test = test_of(how.epsilon, how.delta, stream.sensitivity, self.window)
        self._places = {label: at for at, label in enumerate(stream.counts.labels)}
        self._sums: dict[str, int] = {}
        #: How many timestamps were taken of the open block, and of the last one that has ended. A stream
        #: may begin within a block.
        self._taken, self._ended = 0, self.window
        #: An offset below which no partial count of the open block was read, None before its first timestamp.
        self.since: int | None = None

    def first_of_block(self, timestamp: int) -> int:
        """The first timestamp of the block that a timestamp is in."""
        return (timestamp - 1) // self.window * self.window + 1

    def take(self, named: Mapping[str, int], offset: int | None) -> NDArray[np.int64]:
        """The counts of a timestamp, int64 of shape (columns,), the first of all columns that are not found.

        ``offset``: below it no partial count of this timestamp, or of a later one, was read.
        """
        if self.since is None and not self.over:
            self.since = offset
        self._taken += 1
        counts, others = np.zeros(len(self._places), np.int64), 0
        for name, count in named.items():
            at = self._places.get(name)
            if at is not None:
                counts[at] += min(count, LARGEST_COUNT)
                continue
            others += count
            if not self.over:
                self._sums[name] = self._sums.get(name, 0) + count
        counts[0] += min(others, LARGEST_COUNT)
        return np.minimum(counts, LARGEST_COUNT)

    def end(self, timestamp: int) -> list[Found]:
        """What is found if the timestamp, whose counts were taken, is the last one of its block."""
        if timestamp % self.window:
            return []
        sums, self._sums, self.since = self._sums, {}, None
        self._ended, self._taken = self._taken, 0
        passed = [] if self.over else self._test(sums, self._noise)
        found = passed[: len(self._room.take([one.column for one in passed]))]
        for one in found:
            self._places[one.column] = len(self._places)
        self.over = self._room.full
        return found

    def level(self, found: Found) -> float:
        """What a column is expected to count at a timestamp, by its noisy sum over the block that ended."""
        return max(0.0, found.noisy / self._ended)

    @property
    def variance(self) -> float:
        """That of the noise in ``level``."""
        return 2 * float(self._test.scale / self._ended) ** 2


def split(named: Mapping[str, int], stream: Stream) -> NDArray[np.int64]:
    """Counts by name as counts by column, the first of all that are not found."""
    places, counts = {label: at for at, label in enumerate(stream.counts.labels)}, [0] * len(stream.columns)
    for name, count in named.items():
        counts[places.get(name, 0)] += count
    return np.array(counts, np.int64)
