"""Mechanisms that break the contract, each in one way; named after what is wrong with them.

**Guarantee.** None, on purpose; *assumptions*: that ``test_suite`` finds each of them out. **Source.** The
mistakes of 2013 and later. **Proof.** There cannot be one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from eventveil.mechanisms.base import RELEASE_LIMIT, Counts, Guarantee, Release
from eventveil.mechanisms.budget_absorption import BudgetAbsorption
from eventveil.mechanisms.publishing import SHARE
from eventveil.mechanisms.shp_point import ShpPoint
from eventveil.mechanisms.time_unit import TimeUnit
from eventveil.mechanisms.uniform import Uniform
from eventveil.model.errors import BudgetExceeded
from eventveil.privacy.ledger import Bridge, BudgetLedger, HorizonLedger, Ledger, Spend

_OWN = np.random.default_rng(1)


class HalfNoise(Uniform):
    """Asks for half the scale."""

    kind: ClassVar[str] = "half-noise"

    def _scale(self, units: int) -> Fraction:
        return super()._scale(units) / 2


class HalvesNoise(Uniform):
    """Asks for the right scale, and halves what it gets."""

    kind: ClassVar[str] = "halves-noise"

    def _noisy(self, counts: Counts, units: int) -> Counts:
        return counts + self._draw(units, len(counts)) // 2


class SharesNoise(Uniform):
    """One draw for all columns: their difference is exact."""

    kind: ClassVar[str] = "shares-noise"

    def _noisy(self, counts: Counts, units: int) -> Counts:
        return counts + np.broadcast_to(self._draw(units, 1), len(counts))


class SpendsWithoutAsking(Uniform):
    """Publishes at every timestamp, and charges only the first of two."""

    kind: ClassVar[str] = "spends-without-asking"

    def _publish(self, counts: Counts, units: int) -> None:
        if self._timestamp % 2:
            self._ledger.charge_publish(units)
        self._last = self._noisy(counts, units)
        self._last.setflags(write=False)


class TellsLess(Uniform):
    """Charges what it spends, and tells half of it."""

    kind: ClassVar[str] = "tells-less"

    def _release(self, *, fresh: bool) -> Release:
        release = super()._release(fresh=fresh)
        return replace(release, publish=release.publish // 2)


class _Permissive(BudgetLedger):
    def _ask(self, units: int) -> None:
        """Everything is granted."""


class _PermissiveHorizon(HorizonLedger):
    def _ask(self, units: int) -> None:
        """Everything is granted."""


class OverspendsWindows(BudgetAbsorption):
    """Nullifies no timestamp after a publication, under a ledger that grants everything."""

    kind: ClassVar[str] = "overspends-windows"

    def _offer(self) -> int:
        return min(self._timestamp - self._published, self._window) * SHARE

    def _new_ledger(self) -> Ledger:
        return _Permissive(self._window, self.units)


class OverspendsHorizon(ShpPoint):
    """Goes on after its horizon."""

    kind: ClassVar[str] = "overspends-horizon"

    def _allot(self, counts: Counts) -> int:
        return self.units // self._window

    def _new_ledger(self) -> Ledger:
        return _PermissiveHorizon(self._window, self.units, renews=False)


class OwnRandomness(Uniform):
    """Draws from numpy's global generator, so that the source that it is given says nothing."""

    kind: ClassVar[str] = "own-randomness"

    def _draw(self, units: int, size: int) -> Counts:
        return np.rint(np.random.laplace(0, float(self._scale(units)), size)).astype(np.int64)


class OwnGenerator(TimeUnit):
    """Draws from a generator of its own that everybody can seed the same."""

    kind: ClassVar[str] = "own-generator"

    def _draw(self, units: int, size: int) -> Counts:
        return _OWN.integers(-3, 4, size)


class ForgetsState(BudgetAbsorption):
    """The timestamps it has nullified are not in its snapshot."""

    kind: ClassVar[str] = "forgets-state"

    def _extra_state(self) -> dict[str, Any]:
        return {}

    def _restore_extra(self, values: Mapping[str, Any], timestamp: int, ledger: Ledger) -> None:
        """There is nothing to restore."""


class DecidesOnCounts(Uniform):
    """Publishes when the true counts have changed: the printed idea, without the test's noise."""

    kind: ClassVar[str] = "decides-on-counts"

    def _allot(self, counts: Counts) -> int:
        return super()._allot(counts) if counts.sum() != self._last.sum() else 0


class RemembersCounts(Uniform):
    """Keeps the true counts in its snapshot and does not say so."""

    kind: ClassVar[str] = "remembers-counts"
    _seen: tuple[int, ...] = ()

    def _allot(self, counts: Counts) -> int:
        self._seen = tuple(counts.tolist())
        return super()._allot(counts)

    def _extra_state(self) -> dict[str, Any]:
        return {"seen": self._seen}

    def _restore_extra(self, values: Mapping[str, Any], timestamp: int, ledger: Ledger) -> None:
        self._seen = tuple(map(int, values["seen"] or ()))


class Unbounded(Uniform):
    """Releases what noise and counts add up to."""

    kind: ClassVar[str] = "unbounded"

    def _noisy(self, counts: Counts, units: int) -> Counts:
        return counts + self._draw(units, len(counts))


class TakesAnything(Uniform):
    """Looks at no counts before it takes them."""

    kind: ClassVar[str] = "takes-anything"

    def _check_counts(self, counts: Counts) -> None:
        """Whatever it is, it will do."""


class RestoresAnything(Uniform):
    """Goes on from the state of a mechanism with another epsilon."""

    kind: ClassVar[str] = "restores-anything"

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "epsilon": "1"}


class Grows(Uniform):
    """Its state grows forever."""

    kind: ClassVar[str] = "grows"
    _past: tuple[int, ...] = ()

    def _publish(self, counts: Counts, units: int) -> None:
        super()._publish(counts, units)
        self._past = (*self._past, *self._last.tolist())

    def _extra_state(self) -> dict[str, Any]:
        return {"past": self._past}

    def _restore_extra(self, values: Mapping[str, Any], timestamp: int, ledger: Ledger) -> None:
        self._past = tuple(map(int, values["past"] or ()))


class DrawsFirst(Uniform):
    """Draws, and asks afterwards."""

    kind: ClassVar[str] = "draws-first"

    def _publish(self, counts: Counts, units: int) -> None:
        noisy = self._noisy(counts, units)
        self._ledger.charge_publish(units)
        self._last = noisy
        self._last.setflags(write=False)


class ShrugsOff(Uniform):
    """Publishes what was refused all the same."""

    kind: ClassVar[str] = "shrugs-off"

    def _publish(self, counts: Counts, units: int) -> None:
        try:
            super()._publish(counts, units)
        except BudgetExceeded:
            self._last = self._noisy(counts, units)
            self._last.setflags(write=False)


class IgnoresBridges(Uniform):
    """Begins anew after a change of terms."""

    kind: ClassVar[str] = "ignores-bridges"

    def inherit(self, predecessor: bytes, bridges: Iterable[Bridge]) -> None:
        super().inherit(predecessor, [])


class PromisesMore(Uniform):
    """Its guarantee says half the epsilon that it spends."""

    kind: ClassVar[str] = "promises-more"

    def _promise(self) -> Guarantee:
        return replace(super()._promise(), epsilon=self._epsilon / 2)


class DeniesItsCharge(Uniform):
    """Its audit knows nothing of what it spends."""

    kind: ClassVar[str] = "denies-its-charge"

    @classmethod
    def can_spend(
        cls, spend: Spend, window: int, units: int, columns: int, options: Mapping[str, object]
    ) -> bool:
        return spend == Spend(0, RELEASE_LIMIT)


#: What each is found out by, at least.
FOUND_BY: dict[type[Uniform] | type[BudgetAbsorption] | type[ShpPoint] | type[TimeUnit], str] = {
    HalfNoise: "noise loss",
    HalvesNoise: "distinguishing",
    SharesNoise: "distinguishing",
    SpendsWithoutAsking: "noise release",
    TellsLess: "charges",
    OverspendsWindows: "budget budget-long loss",
    OverspendsHorizon: "budget budget-long loss",
    OwnRandomness: "determinism resume noise",
    OwnGenerator: "noise hidden",
    ForgetsState: "resume",
    DecidesOnCounts: "hidden distinguishing",
    RemembersCounts: "hidden loss",
    Unbounded: "release",
    TakesAnything: "inputs",
    RestoresAnything: "states",
    Grows: "state-size",
    DrawsFirst: "noise refusal",
    ShrugsOff: "refusal",
    IgnoresBridges: "heir",
    PromisesMore: "guarantee",
    DeniesItsCharge: "charges",
}
