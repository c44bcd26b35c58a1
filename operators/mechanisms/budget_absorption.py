"""Budget Absorption (BA): a publication absorbs the shares of skipped timestamps and nullifies as many.

**Guarantee.** w-event epsilon-differential privacy; neighbours and assumptions as in
``operators.mechanisms.w_event``.

**Proof.** Kellaris et al. (PVLDB 2014), Figure 4 and Theorem 5. A timestamp's share is N / (2 window) of N
units. Tests (``operators.mechanisms.dissimilarity``) spend at most a share per timestamp, N / 2 in any
window. A publication at i with u shares owns, besides i, the u - 1 timestamps before it that it absorbed and
the u - 1 after it that it nullifies; no other publication owns any of these, and u <= window. A window of
``window`` timestamps that holds i holds at least u - 1 of the 2 (u - 1), so the u shares are spread over u
timestamps of that window which belong to i alone: the publications of a window spend at most its ``window``
shares, N / 2. Changed: a nullified timestamp runs no test, since nothing depends on it. Timestamp 0 counts as
a publication of the public zero vector with one share, so that timestamp 1 is offered one share, as in
Figure 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar

from operators.mechanisms.base import Counts
from operators.mechanisms.dissimilarity import DissimilarityMechanism
from operators.mechanisms.w_event import SHARE, integer_between
from operators.privacy.ledger import Ledger, Spend


class BudgetAbsorption(DissimilarityMechanism):
    """Offers the shares of the timestamps since the last publication that it has not nullified."""

    kind: ClassVar[str] = "budget-absorption"
    summary: ClassVar[str] = "publishes when counts have changed, with the budget of skipped timestamps"

    _published = 0  # timestamp of the last publication
    _shares = 1  # what it spent, in shares

    @classmethod
    def can_spend(cls, spend: Spend, window: int, units: int) -> bool:
        """See ``Mechanism.can_spend``: whole shares, at most those of a window."""
        whole = spend.publish % SHARE == 0 and spend.publish <= window * SHARE
        return super().can_spend(spend, window, units) and whole

    def _offer(self) -> int | None:
        nullified_until = self._published + self._shares - 1
        if self._timestamp <= nullified_until:
            return None
        return min(self._timestamp - nullified_until, self._window) * SHARE

    def _publish(self, counts: Counts, units: int) -> None:
        super()._publish(counts, units)
        self._published, self._shares = self._timestamp, units // SHARE

    def _largest_offer(self) -> int:
        return self._window * SHARE

    def _scales(self) -> tuple[Fraction, Fraction]:
        return self._scale(self._largest_offer()), self._scale(max(SHARE, self._least_offer))

    def _extra_state(self) -> dict[str, Any]:
        return {"published": self._published, "shares": self._shares}

    def _restore_extra(self, values: Mapping[str, Any], timestamp: int, ledger: Ledger) -> None:
        published = integer_between(values["published"], 0, timestamp, "published")
        shares = integer_between(values["shares"], 1, min(self._window, max(published, 1)), "shares")
        if published == timestamp and ledger.current.publish != (shares * SHARE if published else 0):
            raise ValueError("the last publication and the ledger disagree")
        self._published, self._shares = published, shares
