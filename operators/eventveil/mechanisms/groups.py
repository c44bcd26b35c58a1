"""Columns in groups that are published apart from each other, formed from what was released and nothing else.

Groups are as equal in size as the columns allow, so that their number and sizes are public constants. Every
``period`` timestamps the columns are ranked by how much their released counts have moved since the last time,
and cut in that order: those that move most come into group 0. Ties keep their former order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.base import RELEASE_LIMIT, Counts
from eventveil.mechanisms.publishing import integers

GROUP_LIMIT = 1000
PERIOD_LIMIT = 2**20
"""So that ``PERIOD_LIMIT`` changes of 2 * RELEASE_LIMIT each stay within int64."""


class Groups:
    """``count`` groups of ``columns`` columns, formed anew every ``period`` timestamps."""

    def __init__(self, columns: int, count: int, period: int) -> None:
        """``count`` in 1..GROUP_LIMIT, ``period`` in 1..PERIOD_LIMIT.

        Raises ValueError if a group would be empty.
        """
        if count > columns:
            raise ValueError(f"{count} groups are more than the {columns} columns")
        self.count, self.period = count, period
        self.sizes = np.full(count, columns // count)
        self.sizes[: columns % count] += 1
        self._group = np.repeat(np.arange(count), self.sizes)
        self._moved = np.zeros(columns, np.int64)

    def sums(self, values: Counts) -> Counts:
        """The sum of each group; ``values`` holds one integer for each column."""
        sums: Counts = np.zeros(self.count, np.int64)
        np.add.at(sums, self._group, values)
        return sums

    def columns_of(self, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which columns belong to the chosen groups."""
        return chosen[self._group]

    def observe(self, before: Counts, after: Counts) -> None:
        """Take note of two releases that follow on each other."""
        if self.count > 1:
            self._moved += np.abs(after - before)

    def form(self, timestamp: int) -> None:
        """Form the groups anew if it is time before ``timestamp``, which counts from 1."""
        if timestamp == 1 or (timestamp - 1) % self.period:
            return
        ranked = np.lexsort((self._group, -self._moved))
        self._group[ranked] = np.repeat(np.arange(self.count), self.sizes)
        self._moved[:] = 0

    def snapshot(self) -> dict[str, Any]:
        """The whole state, for JSON."""
        return {"group": self._group, "moved": self._moved}

    def restore(self, state: object) -> None:
        """Continue from ``snapshot()``. Raises ValueError if this is not the state of such groups."""
        if not isinstance(state, dict) or set(state) != {"group", "moved"}:
            raise ValueError("the state of groups should be an object with group and moved")
        group = integers(state["group"], len(self._group), self.count - 1, "group")
        moved = integers(state["moved"], len(self._group), 2 * RELEASE_LIMIT * PERIOD_LIMIT, "moved")
        if group.min() < 0 or moved.min() < 0:
            raise ValueError("group and moved should not be negative")
        if np.bincount(group, minlength=self.count).tolist() != self.sizes.tolist():
            raise ValueError(f"the groups should have {self.sizes.tolist()} columns")
        self._group, self._moved = group, moved
