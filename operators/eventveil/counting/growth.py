"""How many partitions a source has had, by timestamp: a user's events are in one of them at each timestamp.

A source that gets more partitions moves users. So each growth is declared for a timestamp: the events of
earlier ones count in the partition that their users had before, the others in the new one. Nobody counts
twice at a timestamp, and what is in the other partition is a dead letter.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple


class Growth(NamedTuple):
    """Timestamps before ``since`` are counted in ``partitions`` partitions, unless an earlier growth says."""

    since: int
    partitions: int


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


def read_growths(values: Any) -> tuple[Growth, ...]:
    """Growths as JSON has them, pairs of numbers. Raises ValueError or TypeError for anything else."""
    grown = tuple(Growth(*pair) for pair in values)
    if not all(type(number) is int and number >= 1 for one in grown for number in one):
        raise ValueError("a growth is no pair of numbers")
    if any(one.since > other.since or one.partitions >= other.partitions for one, other in pairwise(grown)):
        raise ValueError("growths contradict each other")
    return grown
