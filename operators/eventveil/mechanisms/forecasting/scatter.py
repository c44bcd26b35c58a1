"""How counts scatter around what is expected: a multiple of the level, learned for every column.

A column's scatter is ``phi`` times its level, 1 for Poisson numbers. It is estimated from the errors of
predictions beyond what noise and uncertainty explain, and shrunk to the one that all columns share.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.arithmetic import Floats, total

MEMORY = 0.98
SHRINK = 8.0
"""How many observations of its own a column needs to count as much as all columns together."""
LEAST, MOST = 0.5, 1e5
CLIP = 25.0
"""Squared errors beyond this many times their variance are cut off."""


class Scatter:
    """State: ``excess`` over ``level`` is the raw estimate, ``weight`` how much one observation weighs."""

    def __init__(self, columns: int) -> None:
        self.excess, self.level, self.weight = (np.zeros(columns) for _ in range(3))
        self.phi = self._estimate()

    def learn(self, squares: Floats, known: Floats, levels: Floats, above: NDArray[np.bool_]) -> None:
        """Take in the squared errors of the columns above the cut, whose ``known`` part is explained."""
        expected = known + self.phi * levels + 1
        weight = np.where(above, 1 / (expected * expected), 0.0)
        beyond = np.minimum(squares, CLIP * expected) - known
        weighted = weight * levels
        self.excess = MEMORY * self.excess + weighted * beyond
        weighted *= levels
        self.level = MEMORY * self.level + weighted
        self.weight = MEMORY * self.weight + (1 - MEMORY) * weighted
        self.phi = self._estimate()

    def _estimate(self) -> Floats:
        """Shrunk to the pooled one, which is 1 before anything is known."""
        excess, level, weight = (float(total(one)) for one in (self.excess, self.level, self.weight))
        if not level:
            return np.ones(len(self.level))
        pooled = min(max((excess + 2 * weight) / (level + 2 * weight), LEAST), MOST)
        own = (self.excess + SHRINK * pooled * self.weight) / np.maximum(
            self.level + SHRINK * self.weight, 1e-300
        )
        phi: Floats = np.where(self.level > 0, own.clip(LEAST, MOST), pooled)
        return phi

    @property
    def state(self) -> Floats:
        """Shape (3, columns)."""
        return np.array([self.excess, self.level, self.weight])

    def restore(self, state: Floats) -> None:
        """Continue from ``state``; ValueError if it cannot be one."""
        if np.any(state[1:] < 0):
            raise ValueError("what scatter was learned from should not be negative")
        self.excess, self.level, self.weight = state.copy()
        self.phi = self._estimate()
