"""Budget Distribution (BD): each publication spends half of what the window has left.

**Guarantee.** w-event epsilon-differential privacy; neighbours and assumptions as in
``eventveil.mechanisms.w_event``.

**Proof.** Kellaris et al. (PVLDB 2014), Figure 2 and Theorem 4. Every timestamp spends t of N units on the
test (``eventveil.mechanisms.dissimilarity``; t = N / (2 window) unless budget is shifted), which leaves B = N
- window t for the publications of any window. A publication spends at most half of B - P, P being the
publications of the last window - 1 timestamps. By induction the publications of any window stay below B:
those before the open timestamp sum to P <= B as a part of the window before, and P + (B - P) / 2 <= B. With
column groups all of this holds of the one ledger; the groups that publish at a timestamp share its offer.
Changed: halves round down to whole units, and an offer below ``LEAST_OFFER`` units counts as none; both only
lower a spend. The test runs and is charged even then, as in the paper, so that its cost is the same at every
timestamp.
"""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

from eventveil.mechanisms.base import Options
from eventveil.mechanisms.dissimilarity import DissimilarityMechanism, units_of_test
from eventveil.privacy.ledger import Spend


class BudgetDistribution(DissimilarityMechanism):
    """Offers half of the publication budget that the window has left."""

    kind: ClassVar[str] = "budget-distribution"
    summary: ClassVar[str] = "publishes when counts have changed, with half of what the window has left"

    @classmethod
    def can_spend(cls, spend: Spend, window: int, units: int, columns: int, options: Options) -> bool:
        """See ``Mechanism.can_spend``: at most half of the publication budget."""
        publications = units - window * units_of_test(units, columns, options)
        half = spend.publish <= publications // 2
        return super().can_spend(spend, window, units, columns, options) and half

    def _offer(self) -> int:
        return (self._publication_units - self._ledger.window_published) // 2

    def _largest_offer(self) -> int:
        return self._publication_units // 2

    def _scales(self) -> tuple[Fraction, Fraction]:
        return self._scale(self._largest_offer()), self._scale(self._least_offer)
