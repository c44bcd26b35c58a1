"""Retroactive Grouping (RG): counts that have not moved are held back and published later, many at once.

**Guarantee.** Event-level epsilon-differential privacy; neighbours and assumptions as in
``eventveil.mechanisms.event_level``.

**Algorithm** (R. Chen, Y. Shen, H. Jin, CIKM 2015, Algorithms 1 and 2), for each column on its own. A monitor
spends e1 on a noisy estimate of the timestamp's count. If its squared distance to the sanitized count of the
timestamp before reaches ``factor`` times 2 (k / e2)^2, the variance of a publication, the count is
*published* with e2 and the group is emptied. Else it *joins the group*; when the group has m members the
noisy sum of all of them, divided by m, is published with e2 and the group is emptied; until then the last
sanitized count is repeated. m = 2 / (s e2 / k) for noise of scale s in the last publication: 2 after a single
count, 2 m after a group of m.

**Proof.** The estimate of a timestamp is (e1 N / epsilon of N units) private,
``eventveil.mechanisms.sampling``. Whether a count is published or joins, and when a group is full, are
functions of estimates and earlier outputs. A timestamp's counts are in at most one publication: alone, or as
one member of one group, or of none if the group is emptied first. A user moves the counts of one timestamp by
k in L1, so the sums that the publications are drawn from by k in L1 altogether, whichever columns and
timestamps they appear in; discrete Laplace noise of scale k / e2 on each makes them e2-private (Theorem 8
there). e1 and e2 compose. Every timestamp is charged both when its counts arrive, so before anything is drawn
from them, however late that happens.

Changed: the estimate is sound at every sampling rate; the best rate then is 1 (``sampling``), so nothing
chooses one. Groups have at most GRID members, so that their means lie on the grid.

**State.** The sums of unfinished groups are raw: part ``sums`` of a snapshot is as private as the events.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Mapping
from fractions import Fraction
from math import ceil, isqrt
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms import sampling
from eventveil.mechanisms.arithmetic import Floats
from eventveil.mechanisms.base import RELEASE_LIMIT, Chosen, Counts, Options
from eventveil.mechanisms.event_level import GRID, EventLevelMechanism
from eventveil.mechanisms.movement import ROUNDING, Movement
from eventveil.mechanisms.packing import data_of
from eventveil.mechanisms.publishing import integers, state_numbers
from eventveil.mechanisms.sampling import Thinner
from eventveil.model.errors import UnfitSetting
from eventveil.model.topology import MechanismSettings, Option
from eventveil.privacy.ledger import Ledger, Spend

_LEAST_TEST = 64
_LARGEST_ESTIMATE = 2**44
"""Estimates are clamped here, far above every count; thresholds stay below."""


class RetroactiveGrouping(EventLevelMechanism):
    """Publishes columns that moved, groups those that did not."""

    kind: ClassVar[str] = "retroactive-grouping"
    summary: ClassVar[str] = "window sums; counts that have not changed are grouped over time for less noise"
    options: ClassVar[frozenset[str]] = frozenset({"span", "share", "sampling", "factor"})
    raw: ClassVar[frozenset[str]] = frozenset({"sums"})
    added: ClassVar[frozenset[str]] = frozenset({"groups", "error"})

    def _configure(self, options: Mapping[str, Option]) -> None:
        super()._configure(options)
        self._share = Fraction(options.get("share", Fraction(1, 10)))
        self._factor = Fraction(options.get("factor", 1))
        self._test = int(self._share * self.units)
        if not _LEAST_TEST <= self._test <= self.units - _LEAST_TEST:
            raise UnfitSetting("share", f"found {self._share}, expected a part of epsilon between 0 and 1")
        rate = options.get("sampling", "best")
        self._rate = Fraction(1 if rate == "best" else rate)
        self._sampling = "best" if rate == "best" else str(self._rate)
        if not 0 < self._rate <= 1 or 100 % self._rate.denominator:
            raise UnfitSetting("sampling", f"found {rate}, expected best, or whole percents such as 0.25")
        # The least distance d, in multiples of 1 / GRID, with d^2 >= factor * 2 scale^2.
        square = self._factor * 2 * self._scale(self.units - self._test) ** 2 * GRID**2
        self._threshold = isqrt(ceil(square) - 1) + 1
        if self._threshold >= _LARGEST_ESTIMATE * GRID // 2:
            raise ValueError(
                f"epsilon {self._epsilon} is too small: this mechanism would never notice a change"
            )
        self._sums = np.zeros(self._columns, np.int64)
        self._sizes = np.zeros(self._columns, np.int64)
        self._wanted = np.full(self._columns, 2)
        self._moved = np.ones(self._columns, np.bool_)
        self._movement = Movement(self._columns, apart=True)
        # Of each timestamp of the sum, the size of the group that was published last; below 0 if earlier.
        self._groups: deque[NDArray[np.int16]] = deque(maxlen=self._span)

    def _allot(self, counts: Counts) -> int:
        if self._timestamp == 1:
            self._moved = np.ones(self._columns, np.bool_)  # there is nothing to compare with
        else:
            self._ledger.charge_test(self._test)
            self._moved = np.abs(self._estimate(counts) - self._previous) >= self._threshold
        return self.units - self._test

    def _sanitize(self, counts: Counts, units: int) -> Counts:
        self._sums += counts
        self._sizes += 1
        self._sums[self._moved] = counts[self._moved]
        self._sizes[self._moved] = 1
        published = self._moved | (self._sizes >= self._wanted)
        newest = self._previous.copy()
        last = self._groups[-1] if self._groups else np.zeros(self._columns, np.int16)
        drawn = np.where(published, self._sizes, -np.abs(last)).astype(np.int16)
        if published.any():
            sizes = self._sizes[published]
            noisy = self._sums[published] + self._draw(units, len(sizes))
            clamped = np.clip(noisy, -RELEASE_LIMIT * sizes, RELEASE_LIMIT * sizes)
            newest[published] = clamped * (GRID // sizes)
            self._learn_group(newest / GRID, units, drawn, published)
            self._wanted[published] = np.minimum(2 * sizes, GRID)
            self._sums[published] = self._sizes[published] = 0
        self._groups.append(drawn)
        return newest

    def _learn_group(self, newest: Floats, units: int, sizes: NDArray[np.int16], published: Chosen) -> None:
        """Take note of how far published means are from those before them."""
        noise = self._variance(units) / np.where(published, sizes.astype(np.float64), 1.0) ** 2
        self._movement.learn(newest, self._previous / GRID, noise, self._timestamp, published)
        self._movement.drawn(noise, self._timestamp, published)

    def _variance_now(self) -> Floats | None:
        """Noise that repeated counts share, and movement of those that were not published as they came."""
        if len(self._groups) < len(self._units) or not all(one.all() for one in self._groups):
            return None
        noise, run, moving = np.zeros((3, self._columns))
        for group in self._groups:
            run = np.where(group > 0, 1.0, run + 1)
            noise += (2 * run - 1) / group.astype(np.float64) ** 2
            moving += group != 1
        return noise * self._variance(self.units - self._test) + moving * self._movement.usual + ROUNDING

    def _estimate(self, counts: Counts) -> Counts:
        """The counts in multiples of 1 / GRID, noisily, for a test that has been charged."""
        if self._rate == 1:
            return _clamped(counts + self._draw(self._test, self._columns)) * GRID
        part, whole = self._rate.as_integer_ratio()
        return _clamped(self._sampled(counts, self._rate)) * (GRID * whole) // part

    def _sampled(self, counts: Counts, rate: Fraction) -> Counts:
        """The number of events that are kept at this rate, noisily."""
        kept = cast(Thinner, self._noise).binomial(counts, rate)
        epsilon = self._epsilon * self._test / (self.units * self._sensitivity)
        return kept + self._noise.discrete_laplace(sampling.scale_at(rate, epsilon), len(kept))

    def _scales(self) -> tuple[Fraction, Fraction]:
        scale = self._scale(self.units - self._test)
        return scale / GRID, scale

    @classmethod
    def can_spend(cls, spend: Spend, window: int, units: int, columns: int, options: Options) -> bool:
        """See ``Mechanism.can_spend``: the whole budget; the first timestamp has no test."""
        return spend.publish > 0 and (sum(spend) == units or (not spend.test and spend.publish < units))

    def _identity(self) -> dict[str, Any]:
        own = {"share": str(self._share), "factor": str(self._factor), "sampling": self._sampling}
        return {**super()._identity(), **own}

    def _extra_state(self) -> dict[str, Any]:
        drawn = b"".join(one.astype("<i2").tobytes() for one in self._groups)
        own: dict[str, Any] = {"sums": self._sums, "sizes": self._sizes, "wanted": self._wanted}
        own |= {"groups": base64.b64encode(drawn).decode(), "error": self._movement.snapshot()}
        return {**super()._extra_state(), **own}

    def _restore_extra(self, values: Mapping[str, Any], timestamp: int, ledger: Ledger) -> None:
        sums = integers(values["sums"], self._columns, RELEASE_LIMIT * GRID, "sums")
        sizes = integers(values["sizes"], self._columns, GRID, "sizes")
        wanted = integers(values["wanted"], self._columns, GRID, "wanted")
        if np.any(sizes < 0) or np.any(sizes >= wanted) or np.any(wanted & (wanted - 1)):
            raise ValueError("groups should be smaller than wanted, and that be a power of two")
        if np.any(sums < 0) or np.any(sums > sizes * RELEASE_LIMIT):
            raise ValueError("the sum of a group should be one of as many counts as the group has")
        groups = self._restored_groups(values.get("groups", ""), min(timestamp, self._span))
        super()._restore_extra(values, timestamp, ledger)
        self._groups = groups
        self._sums, self._sizes, self._wanted = sums, sizes, wanted

    def _restored_groups(self, text: object, length: int) -> deque[NDArray[np.int16]]:
        """The groups of a state; none in an older state, which does not have them."""
        data, size = data_of(text, "groups"), 2 * self._columns
        if len(data) % size or len(data) > length * size:
            raise ValueError(f"groups should be those of at most {length} timestamps")
        rows = np.frombuffer(data, "<i2").astype(np.int16).reshape(-1, self._columns)
        if rows.size and int(np.abs(rows.astype(np.int64)).max()) > GRID:
            raise ValueError(f"groups should have at most {GRID} members")
        return deque(rows, maxlen=self._span)

    @classmethod
    def numbers(cls, settings: MechanismSettings, columns: int) -> tuple[int, int]:
        """See ``Mechanism.numbers``: also sum, size and wanted size of each column's group."""
        state, release = super().numbers(settings, columns)
        span = int(settings.options.get("span", 1))
        error = Movement.bytes_of(columns, apart=True) + 4 * -(-2 * span * columns // 3) + 64
        return state + 3 * columns + state_numbers(error), release


def _clamped(noisy: Counts) -> Counts:
    clamped: Counts = np.clip(noisy, -_LARGEST_ESTIMATE, _LARGEST_ESTIMATE)
    return clamped
