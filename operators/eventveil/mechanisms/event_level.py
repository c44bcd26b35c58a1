"""What the mechanisms with an event-level guarantee share: sums over a sliding window at each timestamp.

**Guarantee.** Event-level epsilon-differential privacy (C. Dwork, M. Naor, T. Pitassi, G. N. Rothblum,
"Differential Privacy under Continual Observation", STOC 2010). *Neighbours*: two streams that differ in one
user's events at one timestamp, where all of the user's events are present in one stream and none in the
other. *Assumptions*: those of ``eventveil.mechanisms.publishing``. A user who is present at n timestamps is
protected by n epsilon at most: this level hides a visit, not a visitor.

**Proof.** It is w-event privacy with a window of one timestamp, so the ledger and Theorem 3 of Kellaris et
al. (PVLDB 2014) carry over: it suffices that what is drawn from the counts of one timestamp, whenever it is
drawn, costs epsilon together. A timestamp is charged when its counts enter the mechanism, with everything
that will ever be drawn from them. The histogram of a window is the sum of the sanitized counts of its
timestamps: free post-processing. Changed from R. Chen, Y. Shen, H. Jin, "Private Analysis of Infinite Data
Streams via Retroactive Grouping" (CIKM 2015): discrete noise, sensitivity k instead of 1, and sanitized
counts of a timestamp lie on a grid of 1 / GRID, so that window sums are exact; released sums are rounded to
integers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from eventveil.mechanisms.base import RELEASE_LIMIT, Counts
from eventveil.mechanisms.publishing import PublishingMechanism, integers, whole_option
from eventveil.model.errors import UnfitSetting
from eventveil.model.topology import Level, MechanismSettings, Option
from eventveil.privacy.ledger import Ledger

GRID = 2**10
"""Sanitized counts of a timestamp are multiples of 1 / GRID, within +-RELEASE_LIMIT."""

SPAN_LIMIT = 2**12
"""So that a window's sum, in multiples of 1 / GRID, stays within 2**62."""


class EventLevelMechanism(PublishingMechanism):
    """A mechanism that sanitizes every timestamp on its own and releases sums over the last ``span`` of them.

    A kind says in ``_sanitize`` how, for units that ``_allot`` has named.
    """

    options: ClassVar[frozenset[str]] = frozenset({"span"})
    level: ClassVar[Level] = "event"
    added: ClassVar[frozenset[str]] = frozenset()

    def _configure(self, options: Mapping[str, Option]) -> None:
        if self._window != 1:
            raise UnfitSetting("window", "epsilon covers one timestamp at event level")
        self._span = whole_option(options, "span", 1, 1, SPAN_LIMIT)
        self._units: deque[Counts] = deque()
        self._sum = np.zeros(self._columns, np.int64)

    @abstractmethod
    def _sanitize(self, counts: Counts, units: int) -> Counts:
        """The sanitized counts of the open timestamp in multiples of 1 / GRID, drawn for charged units."""

    @property
    def _previous(self) -> Counts:
        """The sanitized counts of the timestamp before, in multiples of 1 / GRID; zeros before the first."""
        return self._units[-1] if self._units else np.zeros(self._columns, np.int64)

    def _publish(self, counts: Counts, units: int) -> None:
        self._ledger.charge_publish(units)
        newest = self._sanitize(counts, units)
        self._sum += newest
        if len(self._units) == self._span:
            self._sum -= self._units.popleft()
        self._units.append(newest)
        self._last = _rounded(self._sum)

    def _error_state(self) -> dict[str, Any]:
        """None: the error of a sum follows from its parts."""
        return {}

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "span": self._span}

    def _extra_state(self) -> dict[str, Any]:
        return {"released": list(self._units)}

    def _restore_extra(self, values: Mapping[str, Any], timestamp: int, ledger: Ledger) -> None:
        released = values["released"]
        if not isinstance(released, list) or len(released) != min(timestamp, self._span):
            raise ValueError(f"the state should hold the last {self._span} timestamps")
        units = [integers(one, self._columns, RELEASE_LIMIT * GRID, "released") for one in released]
        total = sum(units, np.zeros(self._columns, np.int64))
        if _rounded(total).tolist() != values["last"]:
            raise ValueError("the last release should be the sum of its timestamps")
        self._units, self._sum = deque(units), total

    @classmethod
    def numbers(cls, settings: MechanismSettings, columns: int) -> tuple[int, int]:
        """See ``Mechanism.numbers``: the sanitized counts of ``span`` timestamps."""
        return int(settings.options.get("span", 1)) * columns, 0


def _rounded(total: Counts) -> Counts:
    """To whole counts, halves up."""
    counts: Counts = np.clip((total + GRID // 2) // GRID, -RELEASE_LIMIT, RELEASE_LIMIT)
    counts.setflags(write=False)
    return counts
