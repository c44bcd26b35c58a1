"""The profile that all columns share: how high counts are at a timestamp, 1 being their level.

It is learned from one number a publication, the sum of noisy counts weighted by the levels of the columns
that are shown: small columns, whose own season drowns in noise, take part in what large ones have shown.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from eventveil.mechanisms.arithmetic import Floats, exp, log, total
from eventveil.mechanisms.forecasting.harmonics import Harmonics
from eventveil.mechanisms.forecasting.regression import Classes, Regression
from eventveil.mechanisms.packing import packed, unpacked

MEMORY = 0.97
CLIP = 5.0
LEAST = 0.02
_CLASS = Classes(np.ones(1))


class Profile:
    """A regression for one virtual column of level 1; nested models are mixed by how well they predict."""

    def __init__(self, harmonics: Harmonics, kept: float) -> None:
        self._harmonics, self._kept = harmonics, kept
        self._season = Regression(harmonics, 1, kept)
        self._score = np.zeros(len(harmonics.sizes))

    def at(self, terms: Floats) -> tuple[float, float]:
        """The profile and its variance; before anything was learned, that there is none.

        A variance would be taken for one of each column: those that the first noise made large would stay so.
        """
        if not self._season.begun:
            return 1.0, 0.0
        likelihood = exp(self._score - self._score.max())
        weights = likelihood / total(likelihood)
        means, variances = self._expected(terms)
        mean = float(total(weights * means))
        spread = variances + (means - mean) * (means - mean)
        return max(mean, LEAST), float(total(weights * spread))

    def learn(
        self, terms: Floats, noisy: Floats, levels: Floats, scatter: Floats, noise: float, gap: int
    ) -> None:
        """Take in noisy counts; ``levels`` are 0 where a column does not take part."""
        squares = levels * levels
        whole = float(total(squares))
        if whole <= 0:
            return
        value = float(total(levels * noisy)) / whole
        noise, around = noise / whole, float(total(squares * scatter)) / (whole * whole) + 1e-6
        means, variances = self._expected(terms)
        if not self._season.begun:
            means, variances = np.ones_like(means), np.ones_like(means)
        variances = variances + noise + around
        errors = value - means
        likelihood = -log(np.sqrt(variances) * (1 + errors * errors / (3 * variances)) ** 2)
        self._score = MEMORY * self._score + likelihood
        best = int(np.argmax(self._score))
        bound = CLIP * sqrt(float(variances[best]))
        value = float(means[best]) + min(max(float(errors[best]), -bound), bound)
        self._season.learn(terms, np.array([value]), noise, around, gap)

    def _expected(self, terms: Floats) -> tuple[Floats, Floats]:
        """What each nested model expects, and the variance of that."""
        means, variances = self._season.at(terms, _CLASS)
        return means[:, 0], variances[:, 0]

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON-able data."""
        return {"season": self._season.snapshot(), "score": packed(self._score)}

    def restored(self, state: object) -> Profile:
        """One like this that continues from ``snapshot()``; ValueError if it is no such state."""
        if not isinstance(state, dict) or set(state) != {"season", "score"}:
            raise ValueError("a profile should have season and score")
        other = Profile(self._harmonics, self._kept)
        other._season = self._season.restored(state["season"])
        other._score = unpacked(state["score"], self._score.shape, "score")
        return other
