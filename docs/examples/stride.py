"""Stride: every n-th timestamp is published, the others repeat it.

**Guarantee.** w-event epsilon-differential privacy. *Neighbours*: two streams that differ in one user's
events within any ``window`` consecutive timestamps; at each of these, all of the user's events are present in
one stream and none in the other. *Assumptions*: one user changes the counts of a timestamp by at most
``sensitivity`` k in L1; columns, timestamps and settings are public; nobody else knows the noise.

**Source.** Between Uniform (n = 1) and Sample (n = window), the benchmarks of G. Kellaris, S. Papadopoulos,
X. Xiao and D. Papadias, "Differentially Private Event Sequences over Infinite Streams" (PVLDB 2014),
Section 3.

**Proof.** Timestamps 1, n + 1, 2 n + 1 and so on publish, and no others: a public rule. Any ``window``
consecutive timestamps hold at most p = ceil(window / n) of them. Each is charged u = floor(N / p) of N units.
It adds discrete Laplace noise of scale k N / (u epsilon) to each count, and a user changes the counts by at
most k in L1, so it is (u / N) epsilon-private. Repetitions reveal nothing. So the spends of any window sum to
at most epsilon, which suffices by Theorem 3 of the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar

from eventveil import Counts, Option, Spend, UnfitSetting, WEventMechanism


class Stride(WEventMechanism):
    """Publishes c + DLap(k N / (units epsilon)) at every n-th timestamp; n is the option ``stride``."""

    kind: ClassVar[str] = "stride"
    summary: ClassVar[str] = "publishes every n-th timestamp with its part of the budget"
    options: ClassVar[frozenset[str]] = frozenset({"stride"})

    def _configure(self, options: Mapping[str, Option]) -> None:
        stride = options.get("stride", 2)
        if not isinstance(stride, int) or stride < 1:
            raise UnfitSetting("stride", f"found {stride}, expected a whole number from 1 on")
        self._stride = stride
        self._share = share_of(self.units, self._window, stride)

    def _allot(self, counts: Counts) -> int:
        due = (self._timestamp - 1) % self._stride == 0
        return self._share if due and self._ledger.bridges_allow(self._share) else 0

    def _scales(self) -> tuple[Fraction, Fraction]:
        scale = self._scale(self._share)
        return scale, scale

    @classmethod
    def can_spend(
        cls, spend: Spend, window: int, units: int, columns: int, options: Mapping[str, object]
    ) -> bool:
        """See ``Mechanism.can_spend``: its part, or nothing."""
        share = share_of(units, window, int(str(options.get("stride", 2))))
        return spend in (Spend(0, share), Spend(0, 0))

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "stride": self._stride}


def share_of(units: int, window: int, stride: int) -> int:
    """What a publication spends if every ``stride``-th timestamp publishes."""
    return units // -(-window // stride)
