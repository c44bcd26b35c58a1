"""SHP2, time-point noise: every timestamp of the horizon is published with an equal part of the budget.

**Guarantee.** User-level epsilon-differential privacy; neighbours and assumptions as in
``eventveil.mechanisms.horizon``.

**Proof.** Zhang and Meng (2016), Section 3.3.2, time-point mechanism: each of the T timestamps spends N / T
of N units, discrete Laplace noise of scale k T / epsilon, which is N together; windows and groups are made of
released counts. Changed: the noise is discrete, the sensitivity may exceed 1.
"""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

from eventveil.mechanisms.base import Counts, Options
from eventveil.mechanisms.horizon import HorizonMechanism
from eventveil.privacy.ledger import Spend


class ShpPoint(HorizonMechanism):
    """Publishes c + DLap(k T / epsilon) at each of T timestamps."""

    kind: ClassVar[str] = "shp-point"
    summary: ClassVar[str] = "publishes every timestamp of a horizon with an equal part of the budget"

    def _allot(self, counts: Counts) -> int:
        return 0 if self._horizon.exhausted else self.units // self._window

    @classmethod
    def can_spend(cls, spend: Spend, window: int, units: int, columns: int, options: Options) -> bool:
        """See ``Mechanism.can_spend``: its part, or nothing once the horizon has passed."""
        return spend in (Spend(0, units // window), Spend(0, 0))

    def _scales(self) -> tuple[Fraction, Fraction]:
        scale = self._scale(self.units // self._window)
        return scale, scale
