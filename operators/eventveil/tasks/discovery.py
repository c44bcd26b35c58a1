"""Looking for columns that nobody listed, among the merged counts of a stream.

Pure. Of each timestamp it says how often the columns that are found were counted; what others were counted
adds up over a block of timestamps, at whose end they are tested (``eventveil.privacy.discovery``). The sums
are raw data, and in memory alone: after a restart they are made again from the partial counts of the block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from eventveil.decoding.rules import LARGEST_COUNT
from eventveil.mechanisms.base import Release
from eventveil.mechanisms.sizes import Room
from eventveil.model.topology import Stream
from eventveil.privacy.discovery import FoundColumn, test_of
from eventveil.privacy.noise import NoiseSource

#: A sum of the released counts of a column less their errors over the open block, in sixteenths, and how many
#: blocks in a row were quiet before.
Fading = tuple[int, int]
_PARTS, _CERTAIN = 16, 2**60


class Fade:
    """Which columns are forgotten, by what is released of them (``eventveil.privacy.discovery``).

    ``after`` that many quiet blocks in a row: in each released counts add up to less than their errors.
    ``before``: as ``state`` was, of each column but the first; empty: nothing is remembered.
    """

    def __init__(self, columns: int, after: int, before: Sequence[Fading] = ()) -> None:
        self._after = after
        self._above, self._quiet = np.zeros((2, columns), np.int64)
        if before:
            self._above[1:], self._quiet[1:] = np.array(before, np.int64).T

    def take(self, counts: NDArray[np.int64], errors: NDArray[np.float64] | None) -> None:
        """Take note of a release: counts of shape (columns,), and their errors, of that shape or (1,).

        What has no error that is known may be anything, and is not quiet.
        """
        if errors is None:
            self._above[:] = _CERTAIN
            return
        known = np.broadcast_to(np.isfinite(errors), counts.shape)
        above = _PARTS * np.where(known, counts - np.minimum(errors, 2.0**50), 0.0)
        further = np.minimum(self._above + np.rint(above).astype(np.int64), _CERTAIN)
        self._above = np.where(known, np.maximum(further, -_CERTAIN), _CERTAIN)

    def end(self) -> NDArray[np.bool_]:
        """The columns that stay after the block, shape (columns,), the first always; the next one begins."""
        self._quiet = np.where(self._above < 0, self._quiet + 1, 0)
        stay = self._quiet < self._after
        stay[0] = True
        self._above, self._quiet = np.zeros(int(stay.sum()), np.int64), self._quiet[stay]
        return stay

    def grow(self, columns: int) -> None:
        """Continue with further columns, of which nothing was released."""
        self._above, self._quiet = (np.pad(one, (0, columns)) for one in (self._above, self._quiet))

    @property
    def state(self) -> tuple[Fading, ...]:
        """What a restart has to know: of each column but the first."""
        return tuple(zip(self._above[1:].tolist(), self._quiet[1:].tolist(), strict=True))


class Search:
    """The sums of the open block of one stream, which has found the columns after its first label.

    ``fading``: what was remembered of these for forgetting them.
    """

    def __init__(self, stream: Stream, noise: NoiseSource, fading: Sequence[Fading] = ()) -> None:
        how = stream.counts.discover
        if how is None:
            raise ValueError(f"stream {stream.name} lists its columns")
        self.window, self._stream, self._noise = stream.mechanism.window, stream, noise
        self._room = Room(stream)
        self._fade = Fade(len(stream.columns), how.forget, fading) if how.forget else None
        #: Whether no more columns can be found.
        self.over = self._room.full
        self._test = test_of(how.epsilon, how.delta, stream.sensitivity, self.window)
        self._places = {label: at for at, label in enumerate(stream.counts.labels)}
        self._sums: dict[str, int] = {}
        #: How many timestamps were taken of the open block, and of the last one that has ended. A stream
        #: may begin within a block.
        self._taken, self._ended = 0, self.window
        #: The most that an ended block counted of a column that it did not find: raw data.
        self.largest_missed = 0
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

    def end(self, timestamp: int) -> list[FoundColumn]:
        """What is found if the timestamp, whose counts were taken, is the last one of its block."""
        if timestamp % self.window:
            return []
        sums, self._sums, self.since = self._sums, {}, None
        self._ended, self._taken = self._taken, 0
        passed = [] if self.over else self._test(sums, self._noise)
        found = passed[: len(self._room.take([one.column for one in passed]))]
        for one in found:
            self._places[one.column] = len(self._places)
        missed = max((count for name, count in sums.items() if name not in self._places), default=0)
        self.largest_missed = max(self.largest_missed, missed)
        if self._fade is not None:
            self._fade.grow(len(found))
        self.over = self._room.full
        return found

    def forget(self, timestamp: int, release: Release) -> NDArray[np.bool_] | None:
        """The columns that stay, of shape (columns,), the first always; None: all of them.

        To be called before ``end``, with the public release of the timestamp.
        """
        if self._fade is None:
            return None
        self._fade.take(release.counts, release.error)
        if timestamp % self.window:
            return None
        stay = self._fade.end()
        if stay.all():
            return None
        left = [name for name, at in self._places.items() if stay[at]]
        self._places = {name: at for at, name in enumerate(left)}
        self._room = Room(self._stream.having(left[1:]))
        return stay

    @property
    def found(self) -> tuple[str, ...]:
        """The columns that are known, in order."""
        return tuple(self._places)[1:]

    @property
    def fading(self) -> tuple[Fading, ...]:
        """What is remembered of these for forgetting them; nothing where they stay."""
        return self._fade.state if self._fade is not None else ()

    def level(self, found: FoundColumn) -> float:
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
