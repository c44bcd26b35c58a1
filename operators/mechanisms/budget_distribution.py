"""Budget Distribution (BD): each publication spends half of what the window has left.

**Guarantee.** w-event epsilon-differential privacy; neighbours and assumptions as in
``operators.mechanisms.w_event``.

**Proof.** Kellaris et al. (PVLDB 2014), Figure 2 and Theorem 4. Every timestamp spends N / (2 window) of N
units on the test (``operators.mechanisms.dissimilarity``), which is N / 2 in any window. A publication spends
at most half of N / 2 - P, P being the publications of the last window - 1 timestamps. By induction the
publications of any window stay below N / 2: those before the open timestamp sum to P <= N / 2 as a part of
the window before, and P + (N / 2 - P) / 2 <= N / 2. Changed: halves round down to whole units, and an offer
below ``LEAST_OFFER`` units counts as none; both only lower a spend. The test runs and is charged even then,
as in the paper, so that its cost is the same at every timestamp.
"""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

from operators.mechanisms.dissimilarity import DissimilarityMechanism
from operators.privacy.ledger import Spend


class BudgetDistribution(DissimilarityMechanism):
    """Offers half of the publication budget that the window has left."""

    kind: ClassVar[str] = "budget-distribution"
    summary: ClassVar[str] = "publishes when counts have changed, with half of what the window has left"

    @classmethod
    def can_spend(cls, spend: Spend, window: int, units: int) -> bool:
        """See ``Mechanism.can_spend``: at most half of the publication budget."""
        return super().can_spend(spend, window, units) and spend.publish <= units // 4

    def _offer(self) -> int:
        return (self.units // 2 - self._ledger.window_published) // 2

    def _largest_offer(self) -> int:
        return self.units // 4

    def _scales(self) -> tuple[Fraction, Fraction]:
        return self._scale(self._largest_offer()), self._scale(self._least_offer)
