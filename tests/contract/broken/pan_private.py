"""Broken variants of the pan-private mechanisms."""

from __future__ import annotations

from fractions import Fraction

from operators.mechanisms.base import RELEASE_LIMIT, Counts
from operators.mechanisms.pan_private import Accumulators, PanPrivateAbsorption, PanPrivateDistribution


class PrintedThird(PanPrivateDistribution):
    """As printed: a third of what is left, and no cap on what publications come to."""

    def _offer(self) -> int | None:
        offer = (self._publication_units - self._ledger.window_published) // 3
        return offer if offer >= self._least_offer else None


class WholeShare(PanPrivateAbsorption):
    """An offer that is seen and not charged has no room in the budget."""

    @property
    def _share(self) -> int:
        return self._publication_units // self._window


class ReusedNoise(PanPrivateDistribution):
    """As printed: the noise that the counters started with is all that the release has."""

    def _noisy(self, counts: Counts, units: int) -> Counts:
        return counts


class NeverReseeded(Accumulators):
    """Two intrusions into one timestamp see the same noise."""

    def reseed(self) -> None:
        pass


class AsPrinted(PrintedThird):
    """As printed: also, what is released has the noise that the counters started with, and no other."""

    def _half_scale(self, units: int) -> Fraction:
        return self._scale(units)

    def _noisy(self, counts: Counts, units: int) -> Counts:
        return counts.clip(-RELEASE_LIMIT, RELEASE_LIMIT)
