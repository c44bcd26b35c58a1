"""Uniform: every timestamp is published, each with an equal part of the budget.

**Guarantee.** w-event epsilon-differential privacy; neighbours and assumptions as in
``eventveil.mechanisms.w_event``.

**Proof.** Kellaris et al. (PVLDB 2014), Section 3, benchmark Uniform: each timestamp spends N / window of N
units, discrete Laplace noise of scale sensitivity * window / epsilon, so any window of ``window`` timestamps
spends exactly N. Changed: the noise is discrete, the sensitivity may exceed 1.
"""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

from eventveil.mechanisms import gaussian
from eventveil.mechanisms.base import Counts, Options
from eventveil.mechanisms.rolled import RolledUp
from eventveil.mechanisms.w_event import WEventMechanism
from eventveil.privacy.ledger import Spend


class Uniform(RolledUp, WEventMechanism):
    """Publishes c + DLap(k w / epsilon) at every timestamp."""

    kind: ClassVar[str] = "uniform"
    summary: ClassVar[str] = "publishes every timestamp with an equal part of the budget"
    options: ClassVar[frozenset[str]] = gaussian.OPTIONS | {"rollups"}
    repeats: ClassVar[bool] = False
    grows: ClassVar[bool] = True
    columns_apart: ClassVar[bool] = True

    @classmethod
    def can_spend(cls, spend: Spend, window: int, units: int, columns: int, options: Options) -> bool:
        """See ``Mechanism.can_spend``: its part, or nothing after a change of terms."""
        return spend in (Spend(0, units // window), Spend(0, 0))

    def _allot(self, counts: Counts) -> int:
        share = self.units // self._window
        return share if self._ledger.bridges_allow(share) else 0

    def _scales(self) -> tuple[Fraction, Fraction]:
        scale = self._scale(self.units // self._window)
        return scale, scale
