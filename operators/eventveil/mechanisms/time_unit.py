"""Time-unit Baseline: every timestamp is sanitized with the whole budget, windows are sums of timestamps.

**Guarantee.** Event-level epsilon-differential privacy; neighbours and assumptions as in
``eventveil.mechanisms.event_level``.

**Proof.** Chen et al. (CIKM 2015), Section 4.2, Baseline: a timestamp's counts are used once, with N of N
units, discrete Laplace noise of scale sensitivity / epsilon; sums of released values are post-processing. The
noise of a window of n timestamps has n times the variance of one. Changed: the noise is discrete, the
sensitivity may exceed 1.
"""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

import numpy as np

from eventveil.mechanisms import gaussian
from eventveil.mechanisms.arithmetic import Floats
from eventveil.mechanisms.base import RELEASE_LIMIT, Counts, Options
from eventveil.mechanisms.event_level import GRID, EventLevelMechanism
from eventveil.mechanisms.rolled import RolledUp
from eventveil.privacy.ledger import Spend


class TimeUnit(RolledUp, EventLevelMechanism):
    """Sanitizes c + DLap(k / epsilon) at every timestamp."""

    kind: ClassVar[str] = "time-unit"
    options: ClassVar[frozenset[str]] = EventLevelMechanism.options | gaussian.OPTIONS | {"rollups"}
    summary: ClassVar[str] = "window sums of timestamps that are each published with the whole budget"
    columns_apart: ClassVar[bool] = True

    def _allot(self, counts: Counts) -> int:
        return self.units

    def _sanitize(self, counts: Counts, units: int) -> Counts:
        noisy = counts + self._draw(units, self._columns)
        self._exact = self._scale(units) if not self._units or self._span == 1 else None
        clamped: Counts = np.clip(noisy, -RELEASE_LIMIT, RELEASE_LIMIT)
        return clamped * GRID

    def _variance_now(self) -> Floats:
        """Every timestamp of the sum has noise of its own."""
        return np.array([len(self._units) * self._variance(self.units)])

    @classmethod
    def can_spend(cls, spend: Spend, window: int, units: int, columns: int, options: Options) -> bool:
        """See ``Mechanism.can_spend``: nothing else than all of it."""
        return spend == Spend(0, units)

    def _scales(self) -> tuple[Fraction, Fraction]:
        scale = self._scale(self.units)
        return scale, scale
