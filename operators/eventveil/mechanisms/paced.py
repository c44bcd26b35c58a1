"""Paced: all columns are published on one schedule, which earlier releases set, and then filtered.

**Guarantee.** w-event epsilon-differential privacy; neighbours and assumptions as in
``eventveil.mechanisms.w_event``.

**Proof.** The only thing that is drawn from true counts is c + Z, Z discrete Laplace of scale k N / (u
epsilon) for u of N units, which the ledger is asked for first (``eventveil.mechanisms.publishing``): a window
spends N at most, because the ledger allows no more. When to publish and with how many units are functions of
earlier noisy counts, of the ledger and of public constants. What is released is a function of noisy counts:
free post-processing. There is no test, so nothing is spent on one.

**Source.** Our own, after FAST (Fan and Xiong, CIKM 2012; ``eventveil.mechanisms.fast``) and Sample
(Kellaris et al., PVLDB 2014). Changed from FAST: all of epsilon in a window instead of half in a block, no
public guess of the drift, an interval from an expected error instead of a controller, and zeros where a
column does not rise above the noise.

**Algorithm.** A column is modelled as a level that moves with variance ``drift`` times the level per
timestamp, around which counts scatter like Poisson numbers. A Kalman filter for each of four drifts follows
it; the one whose predictions have been likeliest, with the heavy tails of a Student distribution and older
ones discounted, is released. A noisy count further than ``JUMP`` standard deviations off starts the filter
anew. At a publication the release is the filter's estimate of the count, afterwards that of its median.

*Zeros.* Noise is as often negative as positive, so the columns far below zero tell how many are far above it
by chance: the cut is the least number t of standard deviations for which those below -t, and one more, are at
most a tenth of those above t. A column below the cut, or one for which zero would have been the better guess
so far, is released as 0.

*Pace.* For each interval on a grid, from every timestamp to once in a window, the model gives the mean error
between two publications, each with an equal part of epsilon; the least of them, over the columns above the
cut, is the next interval. With nothing above the cut it is the window: this is Sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import fsum
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.base import RELEASE_LIMIT, Counts, Options, Release
from eventveil.mechanisms.forecasting.evidence import above_chance
from eventveil.mechanisms.forecasting.harmonics import periods_of
from eventveil.mechanisms.forecasting.pace import latest, unaliased
from eventveil.mechanisms.movement import ROUNDING, Movement
from eventveil.mechanisms.publishing import integer_between, read_only
from eventveil.mechanisms.w_event import WEventMechanism
from eventveil.model.topology import MechanismSettings, Option
from eventveil.privacy.ledger import Ledger, Spend

Floats = NDArray[np.float64]

DRIFTS = np.array([[0.0], [0.01], [0.1], [1.0]])
MEMORY = 0.95
JUMP = 5.0
HIGHEST_CUT = 6.0
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 40, 60, 120)
"""Intervals between publications are the window over one of these, rounded down, and at least 1; longer by
half at most where that falls on the phases of a day and a week (option ``periods``)."""
FIRST_PARTS = 4
_UNKNOWN = 1e30  # the variance before the first publication


class Paced(WEventMechanism):
    """Publishes as often as counts have been seen to move, and filters what it published."""

    kind: ClassVar[str] = "paced"
    summary: ClassVar[str] = "publishes as often as counts move, zeros where there is only noise; filtered"
    options: ClassVar[frozenset[str]] = frozenset({"periods"})
    unremembered: ClassVar[frozenset[str]] = frozenset({"periods"})
    predicts: ClassVar[bool] = True

    def _configure(self, options: Mapping[str, Option]) -> None:
        shape = (len(DRIFTS), self._columns)
        self._parts = _parts(self._window, self.units, periods_of(options))
        self._level, self._score = np.zeros(shape), np.zeros(shape)
        self._variances = np.full(shape, _UNKNOWN)
        self._worth = np.full(self._columns, 1e-9)
        self._movement = Movement(self._columns, predicts=True, hides=True)
        self._uncertain = np.zeros(self._columns)
        self._until_next = self._last
        self._published = 0  # timestamp of the last publication
        self._interval = _nearest(self._parts, max(1, self._window // FIRST_PARTS))
        self._left = np.ones(self._columns)  # the part of the last surprise that was not followed

    @classmethod
    def can_spend(cls, spend: Spend, window: int, units: int, columns: int, options: Options) -> bool:
        """See ``Mechanism.can_spend``: one of the parts, or nothing."""
        parts = units // spend.publish if 0 < spend.publish <= units else 0
        whole = 0 < parts <= window and units // parts == spend.publish
        return spend == Spend(0, 0) or (not spend.test and whole)

    def _allot(self, counts: Counts) -> int:
        due = not self._published or self._timestamp >= self._published + self._interval
        units = self._parts[self._interval]
        fits = self._ledger.window_spent + units <= self.units and self._ledger.bridges_allow(units)
        return units if due and fits else 0

    def _publish(self, counts: Counts, units: int) -> None:
        self._ledger.charge_publish(units)
        scale = float(self._scale(units))
        noisy, noise = self._noisy(counts, units), self._variance(units)
        self._movement.learn(noisy, self._until_next, noise, self._timestamp)
        now, after = self._learn(noisy.astype(np.float64), 2 * scale**2)
        before = self._movement.variance(self._timestamp, self._until_next)
        left = self._left * self._left * (0.0 if before is None else before)
        self._drawn = left + (1 - self._left) ** 2 * noise + ROUNDING
        # What comes next is a prediction, as far off as the filter takes it to be, and as counts move.
        self._movement.drawn(self._uncertain, self._timestamp)
        self._published, self._last, self._until_next = self._timestamp, _whole(now), _whole(after)

    def _variance_now(self) -> Floats | None:
        if self._published and self._published == self._timestamp:
            return self._drawn
        return super()._variance_now()

    def _learn(self, noisy: Counts, noise: float) -> tuple[Floats, Floats]:
        """Estimates of the counts now and until the next publication; ``noise`` is a variance."""
        moved = DRIFTS * (self._timestamp - self._published) * np.maximum(self._level, 1.0)
        before = self._variances + moved
        scatter = np.maximum(self._level, 0.5)
        total = before + scatter + noise
        error = noisy - self._level
        likelihood = -np.log(total) / 2 - 2 * np.log1p(error**2 / (3 * total))
        self._score = MEMORY * self._score + likelihood
        best = np.argmax(self._score, axis=0), np.arange(self._columns)
        guess = _whole(self._level[best])
        self._worth = MEMORY * self._worth + (np.abs(noisy) - np.abs(noisy - guess))
        jumped = np.abs(error) > JUMP * np.sqrt(total)
        now = self._level + np.where(jumped, 1.0, (before + scatter) / total) * error
        self._level = self._level + np.where(jumped, 1.0, before / total) * error
        self._variances = np.where(jumped, 1.0, before / total) * (scatter + noise)
        level, variance = self._level[best], self._variances[best]
        above = above_chance(level / np.sqrt(variance), HIGHEST_CUT)
        drifts = (DRIFTS[best[0], 0] * np.maximum(level, 1.0))[above]
        if self._published:  # one publication says nothing about drifts
            self._interval = self._best_interval(drifts, np.maximum(level, 0.0)[above])
        shown = above & ((self._worth > 0) | jumped[best])
        followed = np.where(jumped, 1.0, (before + scatter) / total)[best]
        self._left = 1 - np.where(shown, followed, 0.0)
        self._uncertain = np.where(shown, variance, 0.0)
        return np.where(shown, now[best], 0.0), np.where(shown, level, 0.0)

    def _best_interval(self, drifts: Floats, scatter: Floats) -> int:
        """The one with the least expected error; the longest if no column is above the cut."""
        parts = self._parts
        return min(parts, key=lambda interval: self._expected(interval, parts[interval], drifts, scatter))

    def _expected(self, interval: int, units: int, drifts: Floats, scatter: Floats) -> float:
        """Root mean square errors, summed over the columns, mean over the timestamps between publications."""
        noise = 2 * float(self._scale(units)) ** 2
        moved, seen = drifts * interval, noise + scatter
        before = (moved + np.sqrt(moved**2 + 4 * moved * seen)) / 2  # the filter's steady state
        after = before * seen / (before + seen)
        first = np.sqrt((before + scatter) * noise / (before + scatter + noise))
        later = np.sqrt(after + drifts * (interval - 1) / 2 + scatter)
        # fsum rounds once, whatever the order of its terms.
        return fsum((first + (interval - 1) * later).tolist()) / interval

    def _release(self, *, fresh: bool) -> Release:
        if not fresh and self._published:
            self._last = self._until_next
        return super()._release(fresh=fresh)

    def _scales(self) -> tuple[Fraction, Fraction]:
        parts = self._parts.values()
        return self._scale(max(parts)), self._scale(min(parts))

    @classmethod
    def numbers(cls, settings: MechanismSettings, columns: int) -> tuple[int, int]:
        """See ``Mechanism.numbers``: three for each filter of a column, and two for a column."""
        return (3 * len(DRIFTS) + 2) * columns + super().numbers(settings, columns)[0], 0

    def _extra_state(self) -> dict[str, Any]:
        return {
            "level": self._level,
            "variance": self._variances,
            "score": self._score,
            "worth": self._worth,
            "until_next": self._until_next,
            "published": self._published,
            "interval": self._interval,
        }

    def _restore_extra(self, values: Mapping[str, Any], timestamp: int, ledger: Ledger) -> None:
        shape = (len(DRIFTS), self._columns)
        level, score = _floats(values["level"], shape), _floats(values["score"], shape)
        variance, worth = _floats(values["variance"], shape), _floats(values["worth"], (self._columns,))
        if np.any(np.abs(level) > 2 * RELEASE_LIMIT) or np.any(variance <= 0):
            raise ValueError("levels and variances should be those of this filter")
        published = integer_between(values["published"], 0, timestamp, "published")
        # Of other periods it may be another one, and up to half as long again as the window.
        interval = integer_between(values["interval"], 1, latest(self._window), "interval")
        self._until_next = self._restored_release(values["until_next"])
        self._level, self._variances, self._score, self._worth = level, variance, score, worth
        self._published, self._interval = published, _nearest(self._parts, interval)


def _parts(window: int, units: int, periods: tuple[int, ...]) -> dict[int, int]:
    """What a publication may spend by interval, the longest first: a window can pay for all of its own."""
    intervals = dict.fromkeys(unaliased(max(1, window // parts), periods) for parts in PARTS)
    return {interval: units // -(-window // interval) for interval in intervals}


def _nearest(intervals: Iterable[int], wanted: int) -> int:
    """The first of the intervals that are nearest to one that was wanted."""
    return min(intervals, key=lambda interval: abs(interval - wanted))


def _whole(level: Floats) -> Counts:
    """The median of Poisson numbers with this level, nearly; 0 below 0."""
    counts = np.floor(np.maximum(level, 0.0) + 1 / 3).astype(np.int64)
    return read_only(counts.clip(0, RELEASE_LIMIT))


def _floats(values: object, shape: tuple[int, ...]) -> Floats:
    """An array of finite numbers out of a state; ValueError otherwise."""
    try:
        array = np.array(values, np.float64)
    except (TypeError, ValueError):
        raise ValueError("the state of a filter should be numbers") from None
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"the state of a filter should be finite numbers of shape {shape}")
    return array
