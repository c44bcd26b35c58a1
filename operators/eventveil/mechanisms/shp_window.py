"""SHP1, sliding-window noise: every full window of the horizon is published afresh as a whole.

**Guarantee.** User-level epsilon-differential privacy; neighbours and assumptions as in
``eventveil.mechanisms.horizon``.

**Proof.** Zhang and Meng (2016), Section 3.3.1, sliding-window mechanism. Of T timestamps, the last T - span
+ 1 end a full window. Each spends N / (T - span + 1) of N units on the ``span`` counts of its window, which a
user changes by span k in L1: discrete Laplace noise of scale span k (T - span + 1) / epsilon on each. The
spends sum to N. A timestamp that ends no full window publishes nothing. Changed: the noise is discrete, the
sensitivity may exceed 1; a new horizon begins with an empty window, since the counts of the old one have had
their budget. It is never better than SHP2 (``shp_point``) and there for comparison (Theorem 4 there).

**State.** The counts of the window are raw: part ``counts`` of a snapshot is as private as the events. Once
the horizon has passed for good, they are forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from eventveil.mechanisms.base import RELEASE_LIMIT, Counts
from eventveil.mechanisms.horizon import HorizonMechanism
from eventveil.mechanisms.publishing import integers
from eventveil.model.topology import MechanismSettings, Option
from eventveil.privacy.ledger import HorizonLedger, Ledger


class ShpWindow(HorizonMechanism):
    """Publishes every full window with DLap(span k (T - span + 1) / epsilon) on each count."""

    kind: ClassVar[str] = "shp-window"
    summary: ClassVar[str] = "publishes every window of a horizon afresh; for comparison with shp-point"
    raw: ClassVar[frozenset[str]] = frozenset({"counts"})

    def _configure(self, options: Mapping[str, Option]) -> None:
        super()._configure(options)
        self._counts: list[int] = []

    def _allot(self, counts: Counts) -> int:
        if self._horizon.place == 1 or self._horizon.exhausted:
            self._counts = []
        if self._horizon.exhausted:
            return 0
        self._counts = [*self._counts, int(counts[0])][-self._span :]
        return self._share if len(self._counts) == self._span else 0

    def _publish(self, counts: Counts, units: int) -> None:
        self._ledger.charge_publish(units)
        noisy = np.array(self._counts) + self._draw(units, self._span)
        released = np.clip(noisy, -RELEASE_LIMIT, RELEASE_LIMIT)
        self._history = released.tolist()
        self._learn_error(released[-1:], units)
        self._last = released[-1:]
        self._last.setflags(write=False)

    def _remember(self, count: int) -> None:
        """The whole window was drawn anew, or nothing was."""

    @property
    def _share(self) -> int:
        return self.units // (self._window - self._span + 1)

    def _scale(self, units: int) -> Fraction:
        return self._span * super()._scale(units)

    def _scales(self) -> tuple[Fraction, Fraction]:
        scale = self._scale(self._share)
        return scale, scale

    def _extra_state(self) -> dict[str, Any]:
        return {**super()._extra_state(), "counts": self._counts}

    def _restore_extra(self, values: Mapping[str, Any], timestamp: int, ledger: Ledger) -> None:
        assert isinstance(ledger, HorizonLedger)
        size = 0 if ledger.exhausted else min(ledger.place, self._span)
        counts = integers(values["counts"], size, RELEASE_LIMIT, "counts").tolist()
        if any(count < 0 for count in counts):
            raise ValueError("true counts should not be negative")
        super()._restore_extra(values, timestamp, ledger)
        self._counts = counts

    @classmethod
    def numbers(cls, settings: MechanismSettings, columns: int) -> tuple[int, int]:
        """See ``Mechanism.numbers``: also the true counts of a window."""
        state, release = super().numbers(settings, columns)
        return state + int(settings.options.get("span", 1)), release
