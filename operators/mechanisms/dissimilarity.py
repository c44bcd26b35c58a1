"""The test that Budget Distribution and Budget Absorption share: have the counts moved away from the release?

**Guarantee.** One test is (test units / N) epsilon-differentially private for one timestamp, given all
earlier outputs; neighbours and assumptions as in ``operators.mechanisms.w_event``.

**Proof** (mechanism M_i,1 of Kellaris et al., PVLDB 2014, Figure 2 and Theorem 4). For the last release o,
which is public, S = sum_j |o_j - c_j| is an integer, and changes by at most the sensitivity k when the counts
change by k in L1. It is released with discrete Laplace noise of scale k N / (units epsilon), and the decision
is a function of that noisy value, of public constants and of earlier outputs alone. A test always spends
N / (2 window) units, so that tests take half of epsilon in any window.

Changed from the paper: the dissimilarity is the sum instead of the mean over columns (the same test on an
exact grid, both sides multiplied by the number d of columns); an offer below ``LEAST_OFFER`` units counts as
none; and the error of a publication is multiplied by the public constant ``factor`` before it is compared.
With ``factor`` 2 fewer publications happen: S already contains the noise of the last release, which alone is
about as large as the error of a new one.
Noise beyond +-2^62 arrives as +-2^62. Thresholds are kept below 2^61 by raising the least offer, and
S <= 2^61, so every decision is the one that unlimited noise would have led to.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Any, ClassVar

import numpy as np

from operators.mechanisms.base import Counts
from operators.mechanisms.w_event import SHARE, WEventMechanism
from operators.privacy.ledger import Spend
from operators.topology.model import Option

LEAST_OFFER = 64
_LARGEST_THRESHOLD = 2**61


class DissimilarityMechanism(WEventMechanism):
    """Publishes when the release is noisily further from the counts than a publication would be.

    A kind says in ``_offer`` how many units a publication may spend now, and in ``_largest_offer`` how many
    that can be at most.
    """

    options: ClassVar[frozenset[str]] = frozenset({"factor"})

    def _configure(self, options: Mapping[str, Option]) -> None:
        self._factor = Fraction(options.get("factor", 1))
        if self._factor <= 0:
            raise ValueError(f"factor should be above 0, not {self._factor}")
        self._least_offer = max(LEAST_OFFER, ceil(self._threshold(1) / _LARGEST_THRESHOLD))
        if self._least_offer > self._largest_offer():
            raise ValueError(f"epsilon {self._epsilon} is too small: this mechanism would never publish")

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "factor": str(self._factor)}

    @classmethod
    def can_spend(cls, spend: Spend, window: int, units: int) -> bool:
        """See ``Mechanism.can_spend``: nothing, or a test with or without a publication."""
        tested = spend.test == SHARE and (not spend.publish or spend.publish >= LEAST_OFFER)
        return tested or spend == Spend(0, 0)

    @abstractmethod
    def _offer(self) -> int | None:
        """Units that a publication may spend now; None where none can happen, so that no test is needed.

        A function of earlier outputs alone.
        """

    @abstractmethod
    def _largest_offer(self) -> int:
        """The most that ``_offer`` returns."""

    def _allot(self, counts: Counts) -> int:
        offer = self._offer()
        # The kinds stay within the budget by themselves; only bridges can leave less than they count on.
        if offer is None or not self._ledger.bridges_allow(SHARE + offer):
            return 0
        return offer if self._moved_away(counts, offer) else 0

    def _moved_away(self, counts: Counts, offer: int) -> bool:
        """Whether the noisy dissimilarity exceeds the error of a publication with ``offer`` units."""
        self._ledger.charge_test(SHARE)
        dissimilarity = int(np.abs(self._last - counts).sum()) + int(self._draw(SHARE, 1)[0])
        return offer >= self._least_offer and dissimilarity > self._threshold(offer)

    def _threshold(self, offer: int) -> Fraction:
        """Expected error of a publication, summed over the columns, times ``factor``."""
        return self._factor * self._columns * self._scale(offer)
