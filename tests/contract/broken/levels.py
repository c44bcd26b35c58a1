"""Broken variants at event level and at user level."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import cast

import numpy as np

from eventveil.mechanisms import sampling
from eventveil.mechanisms.base import Counts
from eventveil.mechanisms.horizon import HorizonMechanism
from eventveil.mechanisms.retroactive_grouping import RetroactiveGrouping
from eventveil.mechanisms.sampling import Thinner
from eventveil.mechanisms.segmentation import partition
from eventveil.mechanisms.shp_adaptive import ShpAdaptive
from eventveil.mechanisms.shp_window import ShpWindow
from eventveil.mechanisms.totals import Totals
from eventveil.mechanisms.uniform import Uniform
from eventveil.model.topology import Option


class KeepsGroup(RetroactiveGrouping):
    """A defect: a publication does not empty the group, so its timestamp is published twice."""

    def _sanitize(self, counts: Counts, units: int) -> Counts:
        sums, sizes = self._sums + counts, self._sizes + 1
        moved = self._moved.copy()
        newest = super()._sanitize(counts, units)
        self._sums[moved], self._sizes[moved] = sums[moved], np.minimum(sizes, self._wanted - 1)[moved]
        return newest


class MonitorsForFree(RetroactiveGrouping):
    """A defect: the monitor has the whole budget's noise, beside that of publications."""

    def _estimate(self, counts: Counts) -> Counts:
        return (counts + self._draw(self.units, self._columns)) * 2**10


class UnscaledSample(RetroactiveGrouping):
    """As printed: the noise, fit for the kept events, is added to their number divided by the rate."""

    def _sampled(self, counts: Counts, rate: Fraction) -> Counts:
        kept = cast(Thinner, self._noise).binomial(counts, rate)
        epsilon = self._epsilon * self._test / (self.units * self._sensitivity)
        return kept + self._noise.discrete_laplace(sampling.scale_at(rate, epsilon) * rate, len(kept))


class RemembersWindow(ShpWindow):
    """A defect: a window reaches back into a horizon whose budget is spent."""

    def _allot(self, counts: Counts) -> int:
        kept = self._counts
        units = super()._allot(counts)
        if self._horizon.place == 1:
            self._counts = [*kept, *self._counts][-self._span :]
            units = self._share if len(self._counts) == self._span else 0
        return units


class ComparesTrueCounts(ShpAdaptive):
    """The printed algorithm: the true count decides when to sample next."""

    def _publish(self, counts: Counts, units: int) -> None:
        self._true = int(counts[0])
        super()._publish(counts, units)

    def _schedule(self, noisy: int) -> None:
        super()._schedule(self._true)


class AcceptsTrueCounts(ShpAdaptive):
    """The printed algorithm: the true count decides whether the prediction is good enough."""

    def _allot(self, counts: Counts) -> int:
        units = super()._allot(counts)
        return 0 if self._points and abs(int(counts[0]) - self._prediction) <= 1 else units


class PartitionsTrueCounts(HorizonMechanism):
    """The printed algorithm, line 1: the groups come from true counts."""

    kind = "shp-point"

    def _allot(self, counts: Counts) -> int:
        self._true = [*getattr(self, "_true", []), int(counts[0])][-self._span :]
        return 0 if self._horizon.exhausted else self.units // self._window

    def _scales(self) -> tuple[Fraction, Fraction]:
        return Fraction(1, 100), Fraction(1, 100)

    def _regroup(self) -> None:
        if len(getattr(self, "_true", [])) == self._span:
            lengths = [length for length, _ in partition(self._true, self._parts, self._delta, 1)]
            self._groups = tuple((length, 0) for length in lengths)


class NeverStops(ShpAdaptive):
    """The printed algorithm: nothing bounds the number of samples."""

    def _schedule(self, noisy: int) -> None:
        self._left += 1
        super()._schedule(noisy)


class BlocksOfTheSameNoise(Totals):
    """A highest block takes the draw of the one before."""

    def _drawn(self, size: int) -> Counts:
        first = size == self._columns and self._timestamp > 1
        return self._of_first if first else self._kept(super()._drawn(size))

    def _kept(self, draws: Counts) -> Counts:
        if len(draws) == self._columns:
            self._of_first = draws
        return draws


class DrawsTwice(Totals):
    """The draws of the timestamps of a block are drawn again at each of them."""

    def _publish(self, counts: Counts, units: int) -> None:
        if self._timestamp > 1:
            rest, waiting = self._nested._open[0]
            again = self._drawn(waiting.size).reshape(waiting.shape)
            self._nested._open[0] = rest + waiting.sum(axis=0) - again.sum(axis=0), again
        super()._publish(counts, units)


class OneLevelTooFew(Totals):
    """Epsilon is divided among the blocks, and timestamps are forgotten."""

    def _configure(self, options: Mapping[str, Option]) -> None:
        super()._configure(options)
        self._node_scale = (len(self._lengths) - 1) * self._scale(self.units)


class ForgetsTheHighest(Totals):
    """Highest blocks have no draw: everything adds up to the truth."""

    def _drawn(self, size: int) -> Counts:
        draws = super()._drawn(size)
        return draws * 0 if size == self._columns else draws


class RollsUpForFree(Uniform):
    """Blocks of columns have draws beside those of the columns, and epsilon is not divided among them."""

    def _scale(self, units: int) -> Fraction:
        return super()._scale(units) / len(self._rolled)

    def _deviation(self, units: int, times: int) -> Fraction:
        return super()._deviation(units, times) / len(self._rolled)
