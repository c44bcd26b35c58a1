"""Noise sources that tests look into."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from eventveil.privacy.noise import SeededNoise


class Recording:
    """Seeded noise that writes down what it was asked for and what it answered."""

    def __init__(self, seed: int) -> None:
        self._noise = SeededNoise(seed)
        self.calls: list[tuple[Fraction, NDArray[np.int64]]] = []

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        self.calls.append((scale, self._noise.discrete_laplace(scale, size)))
        return self.calls[-1][1].copy()


class Playback:
    """Answers each call with the array that was written down for it."""

    def __init__(self, answers: list[NDArray[np.int64]]) -> None:
        self._answers = list(answers)

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        answer = self._answers.pop(0)
        assert len(answer) == size
        return answer


class Constant:
    """Always the same number, and the last scale it was asked for."""

    def __init__(self, value: int = 0) -> None:
        self._value = value
        self.scale: Fraction | None = None

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        self.scale = scale
        return np.full(size, self._value, np.int64)
