"""Broken variants of what protects windows of timestamps."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.base import Counts
from eventveil.mechanisms.budget_absorption import BudgetAbsorption
from eventveil.mechanisms.budget_distribution import BudgetDistribution
from eventveil.mechanisms.fast import Fast
from eventveil.mechanisms.publishing import SHARE, read_only
from eventveil.mechanisms.seasonal import Seasonal
from eventveil.mechanisms.uniform import Uniform
from eventveil.model.topology import Option
from eventveil.privacy.ledger import BudgetLedger
from eventveil.privacy.noise import SeededNoise


class Impatient(BudgetAbsorption):
    """A defect: a publication does not nullify the timestamps whose budget it absorbed."""

    def _offer(self) -> int:
        return min(self._timestamp - self._published, self._window) * SHARE


class Greedy(BudgetDistribution):
    """A defect: half of what the whole budget has left, tests forgotten."""

    def _offer(self) -> int:
        return (self.units - self._ledger.window_published) // 2


class IndependentGroups(BudgetAbsorption):
    """As printed: every group absorbs and nullifies by itself, whatever the others spend."""

    def _configure(self, options: Mapping[str, Option]) -> None:
        super()._configure(options)
        self._last_of = [[0, 1] for _ in range(self._groups.count)]  # when each published, with what shares

    def _allot(self, counts: Counts) -> int:
        self._ledger.charge_test(self._test_units)
        sums = self._groups.sums(np.abs(self._last - counts))
        sums += self._draw(self._test_units, self._groups.count)
        ends = [published + shares - 1 for published, shares in self._last_of]
        self._offers = [max(0, min(self._timestamp - end, self._window)) * self._share for end in ends]
        sizes = self._groups.sizes.tolist()
        limits = [
            self._threshold(offer, size) if offer else 2**62
            for offer, size in zip(self._offers, sizes, strict=True)
        ]
        self._moved = np.array([total > limit for total, limit in zip(sums.tolist(), limits, strict=True)])
        return max(
            offer for offer, moved in zip([*self._offers, 0], [*self._moved, True], strict=True) if moved
        )

    def _publish(self, counts: Counts, units: int) -> None:
        self._ledger.charge_publish(units)
        released, published = self._last.copy(), self._moved
        for group in np.flatnonzero(published).tolist():
            self._moved = np.arange(self._groups.count) == group
            chosen = self._groups.columns_of(self._moved)
            released[chosen] = self._noisy(counts[chosen], self._offers[group])
            self._last_of[group] = [self._timestamp, self._offers[group] // self._share]
        self._moved = published
        self._last = read_only(released)

    def _extra_state(self) -> dict[str, Any]:
        return {**super()._extra_state(), "last_of": self._last_of}

    def _restore_extra(self, values: Mapping[str, Any], timestamp: int, ledger: BudgetLedger) -> None:
        super()._restore_extra(values, timestamp, ledger)
        self._last_of = [list(one) for one in values["last_of"]]


class ScheduleForEachColumn(Fast):
    """As printed: FAST runs for each column by itself, here column j from timestamp 1 + j on."""

    def _allot(self, counts: Counts) -> int:
        first = np.arange(self._columns) % self._window + 1
        self._sampling = (self._timestamp - first) % self._window == 0
        return self._sample_units if self._sampling.any() else 0

    def _publish(self, counts: Counts, units: int) -> None:
        self._ledger.charge_publish(units)
        released = self._last.copy()
        released[self._sampling] = self._noisy(counts, units)[self._sampling]
        self._last = read_only(released)


class BlocksTooShort(Fast):
    """Samples are counted anew two timestamps before the block ends: a window can meet three blocks."""

    def _allot(self, counts: Counts) -> int:
        if (self._timestamp - 1) % (self._window - 2) == 0:
            self._taken = 0
        return super()._allot(counts)


class LearnsTrueCounts(Seasonal):
    """A defect: the forecast is corrected by the counts themselves, and only the release carries noise."""

    def _noisy(self, counts: Counts, units: int) -> Counts:
        self._last = super()._noisy(counts, units)
        return counts

    def _publish(self, counts: Counts, units: int) -> None:
        super()._publish(counts, units)
        self._last = read_only(self._last)


class WaitsByTrueCounts(Seasonal):
    """A defect: how many users there are says when it looks again."""

    def _publish(self, counts: Counts, units: int) -> None:
        super()._publish(counts, units)
        self._due += int(counts.sum()) % 2


class SpendsWhatItLikes(Seasonal):
    """A defect: a publication at every timestamp, each with the part that a longer interval would have."""

    def _allot(self, counts: Counts) -> int:
        return self.units // min(self._parts.values())


class GroupsPaidInHalves(BudgetDistribution):
    """Groups share the sensitivity as if every user contributed to all of them alike."""

    def _scale(self, units: int) -> Fraction:
        return super()._scale(units) / self._groups.count


class UnboundedShift(BudgetDistribution):
    """As printed: epsilon / d for the test, also where that is more than half of the budget."""

    def _configure(self, options: Mapping[str, Option]) -> None:
        super()._configure(options)
        if options.get("shift") == "true":
            self._test_units = self.units // int(self._groups.sizes.min())


class HalfNoise(Uniform):
    """Half the scale that was paid for."""

    def _draw(self, units: int, size: int) -> Counts:
        return self._noise.discrete_laplace(self._scale(units) / 2, size)


class SeededTwice(Uniform):
    """The same seed at every timestamp: two releases differ by exactly what the counts differ by."""

    def _draw(self, units: int, size: int) -> Counts:
        return SeededNoise(1).discrete_laplace(self._scale(units), size)


class FirstWithTwoUnits(BudgetAbsorption):
    """As if the public zero vector had been published a timestamp earlier, with nothing."""

    _shares = 0


class PermissiveLedger(BudgetLedger):
    """A defect: records every spend, refuses none."""

    def _ask(self, units: int) -> None:
        pass

    def restore(self, state: Any) -> None:
        units, self.units = self.units, 2**62
        super().restore({**state, "units": self.units})
        self.units = units


class ForgetfulLedger(BudgetLedger):
    """Off by one: a spend comes back a timestamp too early."""

    def __init__(self, window: int, units: int) -> None:
        super().__init__(max(1, window - 1), units)


class FloatNoise:
    """Rounded floating-point Laplace noise in place of the exact discrete distribution."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        return np.rint(self._generator.laplace(scale=float(scale), size=size)).astype(np.int64)
