"""How many partitions a source has had, by timestamp: a user's events are in one of them at each timestamp.

A source that gets more partitions moves users. So each growth is declared for a timestamp: the events of
earlier ones count in the partition that their users had before, the others in the new one. Nobody counts
twice at a timestamp, and what is in the other partition is a dead letter.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from eventveil.model.durable import Positive


class Growth(NamedTuple):
    """Timestamps before ``since`` are counted in ``partitions`` partitions, unless an earlier growth says."""

    since: Positive
    partitions: Positive


class PartitionCounts:
    """The number of partitions of a source by timestamp: ``partitions`` now, and before each growth."""

    def __init__(self, partitions: int, grown: Iterable[Growth] = ()) -> None:
        self._partitions, self._grown = partitions, tuple(grown)

    @property
    def since(self) -> int:
        """The first timestamp from which on it is what it is now; 0 if it never was another."""
        return self._grown[-1].since if self._grown else 0

    def at(self, timestamp: int) -> int:
        """How many partitions the events of a timestamp are divided into."""
        return next((one.partitions for one in self._grown if timestamp < one.since), self._partitions)


def are_ordered(grown: Iterable[Growth]) -> bool:
    """Whether growths follow each other, each to more partitions than the one before."""
    return all(
        one.since <= other.since and one.partitions < other.partitions for one, other in pairwise(grown)
    )
