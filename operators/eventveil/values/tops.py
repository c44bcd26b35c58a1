"""ToPS: a threshold by noisy maximum, a consistent hierarchy without its lowest levels, a smoother.

**Guarantee.** Event-level epsilon-differential privacy, pure; neighbours and assumptions as in
``eventveil.values.stream``.

**Source.** T. Wang et al., "Continuous Release of Data Streams under both Centralized and Local Differential
Privacy" (CCS 2021), Section 3 and Algorithm 1.

**Proof.** ``eventveil.values.threshold`` for the values held back, ``eventveil.values.tree`` for the chunks,
parallel composition in ``eventveil.values.stream``.

**Changed.** The three corrections named there: the direction of the count, exactly h - s levels share
epsilon, and the correction at the end of a node. Everything is in integers on a public grid.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from eventveil.privacy.noise import NoiseSource
from eventveil.values.smoothers import SmootherKind
from eventveil.values.stream import PublicSettings, ValueGuarantee, ValueStream
from eventveil.values.threshold import (
    CANDIDATE_LIMIT,
    NoisyMaximum,
    candidates,
    noisy_maximum,
    penalty,
    scores,
)
from eventveil.values.tree import height, smoothed_levels


@dataclass(frozen=True, slots=True)
class TopsSettings:
    """Public settings; see ``PublicSettings`` for those of that name.

    ``excess`` is the paper's c, 60: by how much values above the threshold typically exceed it, in steps of
    the grid. ``thresholds`` are the candidates, ascending; by default every step of the grid. ``smoothed``
    None takes Equation 7.
    """

    epsilon: Fraction
    maximum: int
    held: int = 2**12
    chunk: int = 2**20
    fanout: int = 16
    smoother: SmootherKind = "recent"
    length: int = 8
    alpha: Fraction = Fraction(1, 2)
    maximum_by: NoisyMaximum = "laplace"
    excess: Fraction = Fraction(60)
    thresholds: Sequence[int] | None = None
    smoothed: int | None = None
    consistent: bool = True
    drift: Fraction | None = None


class Tops(ValueStream):
    """Holds back, picks a threshold, then releases every value."""

    kind: ClassVar[str] = "tops"
    summary: ClassVar[str] = "releases each value through a threshold and a consistent hierarchy"

    def __init__(self, settings: TopsSettings, noise: NoiseSource) -> None:
        smoothed = settings.smoothed
        if smoothed is None:
            smoothed = smoothed_levels(settings.epsilon, settings.fanout, settings.chunk)
        shape = PublicSettings(
            settings.epsilon, settings.maximum, settings.held, settings.chunk, settings.fanout, smoothed,
            settings.consistent, settings.smoother, settings.length, settings.alpha, settings.drift,
        )  # fmt: skip
        super().__init__(shape, noise)
        self._thresholds = list(settings.thresholds or candidates(settings.maximum))
        self._digest = hashlib.sha256(repr(self._thresholds).encode()).hexdigest()
        self._maximum_by, self._excess = settings.maximum_by, settings.excess
        if self._excess <= 0:
            raise ValueError(f"excess should be above 0, not {self._excess}")
        if not _ascending(self._thresholds, settings.maximum) or len(self._thresholds) > CANDIDATE_LIMIT:
            raise ValueError(
                f"thresholds should be at most 2**16 ascending integers in 1..{settings.maximum}"
            )
        self.guarantee = ValueGuarantee("event", settings.epsilon, Fraction(0))

    def _estimate(self, held: NDArray[np.int64]) -> int:
        shape = self.shape
        levels = height(shape.fanout, shape.chunk)
        cost = penalty(shape.epsilon, shape.held, shape.chunk, shape.fanout, levels, self._excess)
        queries = scores(held, self._thresholds, cost)
        return self._thresholds[noisy_maximum(queries, shape.epsilon, self._maximum_by, self._noise)]

    def settings(self) -> dict[str, Any]:
        """See ``ValueStream``."""
        own = {"maximum_by": self._maximum_by, "excess": str(self._excess), "thresholds": self._digest}
        return {**super().settings(), **own}


def _ascending(thresholds: Sequence[int], maximum: int) -> bool:
    return thresholds[0] >= 1 and thresholds[-1] <= maximum and all(a < b for a, b in pairwise(thresholds))
