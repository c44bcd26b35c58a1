"""Sample: one timestamp per window is published with the whole budget, the others repeat it.

**Guarantee.** w-event epsilon-differential privacy; neighbours and assumptions as in
``eventveil.mechanisms.w_event``.

**Proof.** Kellaris et al. (PVLDB 2014), Section 3, benchmark Sample: timestamps 1, window + 1, 2 window + 1
and so on spend N of N units, discrete Laplace noise of scale sensitivity / epsilon, the others nothing; any
window of ``window`` timestamps holds exactly one of the former. Changed: the noise is discrete, the
sensitivity may exceed 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar

from eventveil.mechanisms.base import Counts
from eventveil.mechanisms.w_event import WEventMechanism
from eventveil.privacy.ledger import Spend


class Sample(WEventMechanism):
    """Publishes c + DLap(k / epsilon) when (i - 1) mod w = 0, else repeats.

    Those are the timestamps at which the whole budget is there. After a change of terms it can come later.
    """

    kind: ClassVar[str] = "sample"
    summary: ClassVar[str] = "publishes the first timestamp of every window with the whole budget"
    options: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def can_spend(
        cls, spend: Spend, window: int, units: int, columns: int, options: Mapping[str, object]
    ) -> bool:
        """See ``Mechanism.can_spend``: all or nothing."""
        return spend in (Spend(0, units), Spend(0, 0))

    def _allot(self, counts: Counts) -> int:
        due = self._ledger.window_spent == 0 and self._ledger.bridges_allow(self.units)
        return self.units if due else 0

    def _scales(self) -> tuple[Fraction, Fraction]:
        scale = self._scale(self.units)
        return scale, scale
