"""Budget Absorption (BA): a publication absorbs the shares of skipped timestamps and nullifies as many.

**Guarantee.** w-event epsilon-differential privacy; neighbours and assumptions as in
``eventveil.mechanisms.w_event``.

**Proof.** Kellaris et al. (PVLDB 2014), Figure 4 and Theorem 5. Tests
(``eventveil.mechanisms.dissimilarity``) spend at most t of N units per timestamp (t = N / (2 window) unless
budget is shifted), which leaves B = N - window t in any window, and B / window is a timestamp's share. A
publication at i with u shares owns, besides i, the u - 1 timestamps before it that it absorbed and the u - 1
after it that it nullifies; no other publication owns any of these, and u <= window. A window of ``window``
timestamps that holds i holds at least u - 1 of the 2 (u - 1), so the u shares are spread over u timestamps of
that window which belong to i alone: the publications of a window spend at most its ``window`` shares, B. With
column groups a publication is that of any group: there is one ledger, and one count of what was absorbed and
is nullified. Changed: a nullified timestamp runs no test, since nothing depends on it. Timestamp 0 counts as
a publication of the public zero vector with one share, so that timestamp 1 is offered one share, as in Figure
5.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar

from eventveil.mechanisms.base import Options
from eventveil.mechanisms.dissimilarity import DissimilarityMechanism, units_of_test
from eventveil.mechanisms.publishing import integer_between
from eventveil.privacy.ledger import Ledger, Spend


class BudgetAbsorption(DissimilarityMechanism):
    """Offers the shares of the timestamps since the last publication that it has not nullified."""

    kind: ClassVar[str] = "budget-absorption"
    summary: ClassVar[str] = "publishes when counts have changed, with the budget of skipped timestamps"

    _published = 0  # timestamp of the last publication
    _shares = 1  # what it spent, in shares

    @property
    def _share(self) -> int:
        """Units that each timestamp adds to what a publication may spend."""
        return self._part_of(self._publication_units // self._window, self._options)

    @classmethod
    def _part_of(cls, share: int, options: Options) -> int:
        """What of a share may be offered."""
        return share

    @classmethod
    def can_spend(cls, spend: Spend, window: int, units: int, columns: int, options: Options) -> bool:
        """See ``Mechanism.can_spend``: whole shares, at most those of a window."""
        share = cls._part_of(units // window - units_of_test(units, columns, options), options)
        whole = share > 0 and spend.publish % share == 0 and spend.publish <= window * share
        return super().can_spend(spend, window, units, columns, options) and whole

    def _offer(self) -> int | None:
        nullified_until = self._published + self._shares - 1
        if self._timestamp <= nullified_until:
            return None
        return min(self._timestamp - nullified_until, self._window) * self._share

    def _spend(self, units: int) -> None:
        super()._spend(units)
        self._published, self._shares = self._timestamp, units // self._share

    def _largest_offer(self) -> int:
        return self._window * self._share

    def _scales(self) -> tuple[Fraction, Fraction]:
        return self._scale(self._largest_offer()), self._scale(max(self._share, self._least_offer))

    def _extra_state(self) -> dict[str, Any]:
        return {**super()._extra_state(), "published": self._published, "shares": self._shares}

    def _restore_extra(self, values: Mapping[str, Any], timestamp: int, ledger: Ledger) -> None:
        published = integer_between(values["published"], 0, timestamp, "published")
        shares = integer_between(values["shares"], 1, min(self._window, max(published, 1)), "shares")
        if published == timestamp and ledger.current.publish != (shares * self._share if published else 0):
            raise ValueError("the last publication and the ledger disagree")
        super()._restore_extra(values, timestamp, ledger)
        self._published, self._shares = published, shares
