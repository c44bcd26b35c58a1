"""A mechanism that draws until its noise is not 0."""

from __future__ import annotations

from typing import ClassVar

from eventveil.mechanisms.base import Counts, Release
from eventveil.mechanisms.uniform import Uniform


class Needy(Uniform):
    """Uniform, except for noise that is 0."""

    kind: ClassVar[str] = "needy"

    def step(self, counts: Counts) -> Release:
        """Wait, then step."""
        while not self._noise.discrete_laplace(self.guarantee.best_scale, 1).any():
            pass
        return super().step(counts)
