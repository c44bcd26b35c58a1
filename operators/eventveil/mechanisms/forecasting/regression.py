"""Discounted ridge regression on harmonics, for many columns at once.

All columns share the moments A of the terms h, each has its own moments b with the noisy counts y:

    A <- lam A + h h' / V,   b <- lam b + h y / V,   V the variance of what is seen around the season,

and the coefficients are (A + P)^-1 b with a prior P = diag(1 / (variance * level^2)). The prior enters only
where coefficients are read, so that a column whose level turns out to be another one changes its prior at any
time. Levels count by class (``CLASSES``): one inverse serves all columns of a class. Models are nested: the
first has the first terms alone, for which A and b are those of the larger, cut off.

When the estimate of V moves, what was learned is weighted anew. Else observations from when it was still
underestimated would count a thousand times too much.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.arithmetic import Floats, inverses, log, power, total
from eventveil.mechanisms.forecasting.harmonics import Harmonics
from eventveil.mechanisms.packing import packed, unpacked

LOWEST, STEP, CLASSES = 0.25, 4.0, 12
_LOG_STEP = 1.3862943611198906
_LEAST_PRIOR = 2.0**-40
UNKNOWN = 1e12
"""The variance of a season before anything was learned."""
CONSTANT, AMPLITUDE = 9.0, 0.5
"""The prior variances of the constant term and of a harmonic with weight 1, for a level of 1."""


class Classes:
    """The class of each column's level: the nearest power of ``STEP`` times ``LOWEST``, the ends included.

    A column that is alone is a class of its own, of the level that it has: one inverse is enough for it, and
    half a step off the variance of its season would be four times too large, or too small.
    """

    def __init__(self, levels: Floats) -> None:
        alone = len(levels) == 1
        steps = np.rint(log(np.maximum(levels, LOWEST) / LOWEST) / _LOG_STEP) * (not alone)
        self.of: NDArray[np.int64] = steps.clip(0, CLASSES - 1).astype(np.int64)
        self.present: list[int] = np.flatnonzero(np.bincount(self.of)).tolist()
        self.levels = [LOWEST * power(STEP, one) for one in range(CLASSES)]
        if alone:
            self.levels[0] = max(float(levels[0]), LOWEST)

    def spread(self, table: Floats) -> Floats:
        """One value for each class along the last axis becomes one for each column."""
        return table[..., self.present[0], np.newaxis] if len(self.present) == 1 else table[..., self.of]


class Weighting:
    """What one observation counts, and how much of the earlier ones is kept: smoothed variances."""

    def __init__(self) -> None:
        self.noise, self.scatter = 0.0, 0.0

    def learn(self, noise: float, scatter: float, kept: float) -> tuple[float, float]:
        """What is left of what was learned, and the variance of the new observation."""
        if not self.noise:
            self.noise, self.scatter = noise, scatter
        self.noise = 0.95 * self.noise + 0.05 * noise
        before, self.scatter = self.scatter, max(0.9 * self.scatter + 0.1 * scatter, 1e-9)
        left = kept * (self.noise + before) / (self.noise + self.scatter)
        return left, noise + self.scatter

    def snapshot(self) -> list[float]:
        """Both numbers."""
        return [self.noise, self.scatter]


class Regression:
    """Seasons of ``columns`` columns. ``kept``: how much of the past a timestamp leaves."""

    def __init__(self, harmonics: Harmonics, columns: int, kept: float) -> None:
        self._harmonics, self._kept = harmonics, kept
        self._moments = np.zeros((harmonics.terms, harmonics.terms))
        self._own = np.zeros((harmonics.terms, columns))
        self._prior = np.array([CONSTANT, *(AMPLITUDE * weight for weight in harmonics.weights)])
        self._inverses: dict[tuple[float, ...], list[Floats]] = {}
        self.weighting = Weighting()

    @property
    def begun(self) -> bool:
        """Whether anything was learned."""
        return bool(self._moments[0, 0])

    def at(self, terms: Floats, classes: Classes) -> tuple[Floats, Floats]:
        """The season of every column at ``terms``, for each nested model, and how uncertain it is.

        The shape of both is (models, columns).
        """
        shape = len(self._harmonics.sizes), len(classes.of)
        if not self.begun:
            return np.zeros(shape), np.full(shape, UNKNOWN)
        means, variances = np.empty(shape), np.empty(shape)
        for model, coefficients in enumerate(self._coefficients(terms, classes)):
            size = len(coefficients)
            means[model] = total(self._own[:size] * classes.spread(coefficients))
            variances[model] = classes.spread(total(coefficients * terms[:size, np.newaxis]))
        return means, variances

    def learn(self, terms: Floats, values: Floats, noise: float, scatter: float, gap: int) -> None:
        """Take in one noisy value a column, ``gap`` timestamps after the last ones."""
        left, variance = self.weighting.learn(noise, scatter, power(self._kept, gap))
        weighted = terms / variance
        self._moments = left * self._moments + terms[:, np.newaxis] * weighted
        self._own *= left
        for own, term in zip(self._own, weighted.tolist(), strict=True):
            own += term * values
        self._inverses = {}

    def _coefficients(self, terms: Floats, classes: Classes) -> Iterator[Floats]:
        """(A + P)^-1 h of each nested model, by class; zeros for classes without columns."""
        levels = tuple(classes.levels[one] for one in classes.present)
        if levels not in self._inverses:
            self._inverses[levels] = self._inverted(levels)
        for found in self._inverses[levels]:
            coefficients = np.zeros((len(found), CLASSES))
            # An inverse is symmetric, so its rows may be added up.
            coefficients[:, classes.present] = total(found * terms[: len(found), np.newaxis, np.newaxis]).T
            yield coefficients

    def _inverted(self, levels: tuple[float, ...]) -> list[Floats]:
        """(A + P)^-1 of each nested model, with the rows first: shape (terms, levels, terms)."""
        squares = np.array([level * level for level in levels])
        # A level of which the square is beyond the digits of the moments would leave nothing to invert.
        priors = np.maximum(1 / (self._prior * squares[:, np.newaxis]), self._moments[0, 0] * _LEAST_PRIOR)
        whole = np.eye(len(self._prior)) * priors[:, np.newaxis] + self._moments
        found = inverses(whole, self._harmonics.sizes)
        return [np.ascontiguousarray(one.swapaxes(0, 1)) for one in found]

    def grown(self, levels: Floats) -> Regression:
        """One for further columns as well, whose values were these so far: the first term is constant."""
        return self._with(np.concatenate([self._own, self._moments[:, :1] * levels], axis=1))

    def kept(self, some: NDArray[np.bool_]) -> Regression:
        """One for some of the columns."""
        return self._with(self._own[:, some].copy())

    def _with(self, own: Floats) -> Regression:
        other = copy(self)
        other._own, other._inverses = own, {}
        return other

    @classmethod
    def numbers(cls, harmonics: Harmonics, columns: int) -> int:
        """How many numbers its state has."""
        return harmonics.terms * (harmonics.terms + columns) + 2

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON-able data."""
        weighting = packed(np.array(self.weighting.snapshot()))
        return {"moments": packed(self._moments), "own": packed(self._own), "weighting": weighting}

    def restored(self, state: object) -> Regression:
        """One of the same shape that continues from ``snapshot()``; ValueError if it is no such state."""
        if not isinstance(state, dict) or set(state) != {"moments", "own", "weighting"}:
            raise ValueError("a regression should have moments, own and weighting")
        other = Regression(self._harmonics, self._own.shape[1], self._kept)
        other._moments = unpacked(state["moments"], self._moments.shape, "moments")
        other._own = unpacked(state["own"], self._own.shape, "own")
        noise, scatter = unpacked(state["weighting"], (2,), "weighting").tolist()
        if min(noise, scatter, *np.diag(other._moments).tolist()) < 0:
            raise ValueError("variances and moments should not be negative")
        other.weighting.noise, other.weighting.scatter = noise, scatter
        return other
