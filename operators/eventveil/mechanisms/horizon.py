"""What the mechanisms with a user-level guarantee share: a horizon of timestamps, then the budget is gone.

**Guarantee.** User-level epsilon-differential privacy for a horizon of T timestamps, the topology's
``horizon``. *Neighbours*: two streams that differ in one user's events at any of the T timestamps; at each of
these, all of the user's events are present in one stream and none in the other. *Assumptions*: those of
``eventveil.mechanisms.publishing``; one column.

**Proof.** Sequential composition (Theorem 3 of Kellaris et al., PVLDB 2014, with all T timestamps as the one
window): it suffices that all spends of the horizon sum to epsilon, which the ledger enforces. After the
horizon nothing is drawn, and nothing more is learned (``on_horizon: repeat``); or a new horizon with a budget
of its own begins, which sees no count of the old one (``renew``): a user who is present in both then pays
both.

**Source.** X. Zhang, X. Meng, "Streaming Histogram Publication Method with Differential Privacy" (SHP), Ruan
Jian Xue Bao 27(2), 2016. At each timestamp the released counts of the last ``span`` timestamps are the
window's histogram; it is also offered in at most ``parts`` groups (``eventveil.mechanisms.segmentation``),
from released counts alone. Changed: discrete noise, sensitivity k instead of 1, and what the kinds' modules
say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any, ClassVar, cast

from eventveil.mechanisms.base import RELEASE_LIMIT, Guarantee, Options, Release
from eventveil.mechanisms.event_level import SPAN_LIMIT
from eventveil.mechanisms.publishing import PublishingMechanism, integers, whole_option
from eventveil.mechanisms.segmentation import Groups, partition
from eventveil.model.errors import UnfitSetting
from eventveil.model.topology import Level, MechanismSettings, Option
from eventveil.privacy.ledger import HorizonLedger, Ledger, Spend


class HorizonMechanism(PublishingMechanism):
    """A mechanism for one column and a horizon; releases the histogram of the last ``span`` timestamps.

    A kind says in ``_open`` what to do at a timestamp of a horizon.
    """

    options: ClassVar[frozenset[str]] = frozenset({"span", "on_horizon", "parts", "delta"})
    level: ClassVar[Level] = "user"

    def _configure(self, options: Mapping[str, Option]) -> None:
        if self._columns != 1:
            raise UnfitSetting("columns", f"{self.kind} takes one column, not {self._columns}")
        self._span = whole_option(options, "span", 1, 1, min(SPAN_LIMIT, self._window))
        self._parts = whole_option(options, "parts", max(1, self._span // 10), 1, self._span)
        self._delta = Fraction(options.get("delta", Fraction(1, 2 * self._parts)))
        self._on_horizon = options.get("on_horizon", "repeat")
        if self._on_horizon not in ("repeat", "renew"):
            raise UnfitSetting("on_horizon", f"found {self._on_horizon}, expected repeat or renew")
        self._history: list[int] = []
        self._groups: Groups = ()

    def _new_ledger(self) -> Ledger:
        return HorizonLedger(self._window, self.units, renews=self._on_horizon == "renew")

    @property
    def _horizon(self) -> HorizonLedger:
        return cast(HorizonLedger, self._ledger)

    def _promise(self) -> Guarantee:
        return replace(super()._promise(), renews=self._on_horizon == "renew")

    def _release(self, *, fresh: bool) -> Release:
        if not self._horizon.exhausted:
            self._remember(int(self._last[0]))
            self._regroup()
        history = tuple(self._history) if self._span > 1 else ()
        release, exhausted = super()._release(fresh=fresh), self._horizon.exhausted
        return replace(release, exhausted=exhausted, history=history, groups=self._groups)

    def _remember(self, count: int) -> None:
        """Make the newest released count part of the window."""
        self._history = [*self._history, count][-self._span :]

    def _regroup(self) -> None:
        if self._span > 1 and self._history:
            fixed = max(1, ceil(2 * self._scales()[0] ** 2))
            self._groups = partition(self._history, self._parts, self._delta, fixed)

    @classmethod
    def can_spend(cls, spend: Spend, window: int, units: int, columns: int, options: Options) -> bool:
        """See ``Mechanism.can_spend``: a whole fraction of the budget, or nothing."""
        if not spend.publish:
            return spend == Spend(0, 0)
        fraction = units // spend.publish if spend.publish <= units else 0
        return not spend.test and 0 < fraction <= window and units // fraction == spend.publish

    def _identity(self) -> dict[str, Any]:
        own = {"span": self._span, "parts": self._parts, "delta": str(self._delta)}
        return {**super()._identity(), **own, "on_horizon": self._on_horizon}

    def _extra_state(self) -> dict[str, Any]:
        return {"history": self._history}

    def _restore_extra(self, values: Mapping[str, Any], timestamp: int, ledger: Ledger) -> None:
        size = len(values["history"]) if isinstance(values["history"], list) else -1
        history = integers(values["history"], min(size, self._span), RELEASE_LIMIT, "history").tolist()
        if size > timestamp or (history and history[-1:] != values["last"]):
            raise ValueError("the history should end with the last release")
        self._history, self._groups = history, ()
        self._regroup()

    @classmethod
    def numbers(cls, settings: MechanismSettings, columns: int) -> tuple[int, int]:
        """See ``Mechanism.numbers``: also the history, and with it up to as many groups in a release."""
        span = int(settings.options.get("span", 1))
        return span + super().numbers(settings, columns)[0], 3 * span if span > 1 else 0
