"""Broken variants of the pan-private mechanisms."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from eventveil.mechanisms.base import RELEASE_LIMIT, Counts, Release
from eventveil.mechanisms.pan_private import PanPrivateAbsorption, PanPrivateDistribution
from eventveil.model.timeline import deadline_of
from eventveil.tasks.pan_private import PanPrivateStream, SingleAggregator, SingleCounter


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


class FreeForfeit(PanPrivateAbsorption):
    """What is given up is charged to the ledger, but its shares are offered again."""

    def forfeit(self) -> Release:
        published, shares = self._published, self._shares
        release = super().forfeit()
        self._published, self._shares = published, shares
        return release


class CountedAgain(PanPrivateStream):
    """Somebody may have seen counters, or what was drawn from them: nobody remembers that after a failure."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._forfeited = False


class SeenTwice(PanPrivateStream):
    """Two looks into one timestamp see the same noise."""

    def may_be_announced(self, now: int) -> bool:
        return now < deadline_of(self.stream.timeline, self.timestamp)


class ReadAhead(SingleCounter):
    """Events of later timestamps are counted at once, into counters whose noise has another scale."""

    @property
    def begin(self) -> int | None:
        return None


class KeepsClock(SingleAggregator):
    """After going back, what was read before still says how much time has passed."""

    def go_back(self) -> None:
        clock, latest = self._append_clock, self._latest
        super().go_back()
        self._append_clock, self._latest = clock, latest


class AsPrinted(PrintedThird):
    """As printed: also, what is released has the noise that the counters started with, and no other."""

    def _half_scale(self, units: int) -> Fraction:
        return self._scale(units)

    def _noisy(self, counts: Counts, units: int) -> Counts:
        return counts.clip(-RELEASE_LIMIT, RELEASE_LIMIT)
