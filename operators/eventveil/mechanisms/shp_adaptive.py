"""SHP3, adaptive sampling: few timestamps are published with more budget each, the others are predicted.

**Guarantee.** User-level epsilon-differential privacy; neighbours and assumptions as in
``eventveil.mechanisms.horizon``.

**Proof.** At most n timestamps of a horizon are sampled: each spends N / n of N units, discrete Laplace noise
of scale k n / epsilon, together at most N. Everything else is computed from sampled noisy counts and public
settings: predictions, weights, and when to sample next. So it is post-processing. Which interval is taken
changes when samples are taken, not how many.

**Algorithm.** A prediction is the weighted linear regression of the last sampled noisy counts against time;
the weight of the r-th newest is 1 / r, divided by its distance from what had been predicted for it (plus the
noise scale). A sampled count within the standard deviation of the noise from its prediction doubles the
interval to the next sample, another one halves it, from 1 to less than twice the average that is left to the
remaining samples. Once there are none, predictions follow the same line to the end of the horizon. With the
option ``periods``, the lengths of a day and a week, the next sample is later, by half the interval or so,
where the interval would not fall on all of their phases: what is always sampled at noon looks calm, and the
line through it has no night. It is not where the horizon would end first.

Changed: discrete noise, sensitivity k instead of 1, and what decides. As printed by Zhang and Meng (2016,
Algorithm 3, Formulas 11 and 14) it is not private: there the true count is compared with the prediction at
every timestamp and decides which of the two is released; weights and the ratio R, which sets the sampling
rate, hold true counts; and nothing bounds the number of samples.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from typing import Any, ClassVar

import numpy as np

from eventveil.mechanisms.arithmetic import Floats
from eventveil.mechanisms.base import RELEASE_LIMIT, Counts
from eventveil.mechanisms.forecasting import pace
from eventveil.mechanisms.forecasting.harmonics import periods_of
from eventveil.mechanisms.horizon import HorizonMechanism
from eventveil.mechanisms.publishing import integer_between, integers
from eventveil.model.errors import UnfitSetting
from eventveil.model.topology import MechanismSettings, Option
from eventveil.privacy.ledger import HorizonLedger, Ledger

POINTS = 8
"""How many sampled counts take part in a prediction."""


@dataclass(frozen=True, slots=True)
class Point:
    """A sampled timestamp: its noisy count, and how far that was from the prediction."""

    timestamp: int
    count: int
    surprise: int


class ShpAdaptive(HorizonMechanism):
    """Publishes c + DLap(k n / epsilon) at no more than n timestamps of a horizon, predicts the others."""

    kind: ClassVar[str] = "shp-adaptive"
    summary: ClassVar[str] = "publishes some timestamps of a horizon, more often when counts surprise"
    options: ClassVar[frozenset[str]] = HorizonMechanism.options | {"samples", "periods"}
    unremembered: ClassVar[frozenset[str]] = frozenset({"periods"})
    predicts: ClassVar[bool] = True

    def _configure(self, options: Mapping[str, Option]) -> None:
        super()._configure(options)
        share = Fraction(options.get("samples", Fraction(2, 5)))
        if not 0 < share <= 1:
            raise UnfitSetting("samples", f"found {share}, expected a part of the horizon, such as 0.4")
        self._samples = max(1, floor(share * self._window))
        self._periods = periods_of(options)
        self._points: list[Point] = []
        self._left, self._interval, self._next = 0, 1, 1

    def _allot(self, counts: Counts) -> int:
        if self._horizon.exhausted:
            return 0
        if self._horizon.place == 1:
            self._left, self._interval = self._samples, -(-self._window // self._samples)
            self._next = self._timestamp
        self._prediction = self._predict()
        if self._left and self._timestamp >= self._next:
            return self.units // self._samples
        self._last = np.array([self._prediction])
        self._last.setflags(write=False)
        return 0

    def _publish(self, counts: Counts, units: int) -> None:
        self._predicted()
        self._last = np.array([self._prediction])
        super()._publish(counts, units)
        self._left -= 1
        self._schedule(int(self._last[0]))

    def _variance_now(self) -> Floats | None:
        if self._exact is not None:
            return np.array([self._variance(self.units // self._samples)])
        self._predicted()
        return super()._variance_now()

    def _predicted(self) -> None:
        """Take note of what the noise of the samples adds to a prediction; it errs by movement too."""
        if self._points:
            shares = shares_of(self._timestamp, [point.timestamp for point in self._points], self._weights())
            part = float(sum(share * share for share in shares))
            variance = part * self._variance(self.units // self._samples)
            self._movement.drawn(variance, self._points[-1].timestamp)

    def _schedule(self, noisy: int) -> None:
        """Learn from a sampled count when to sample next."""
        surprise = 0
        if self._points:
            surprise = abs(noisy - self._prediction)
            expected = surprise**2 <= 2 * self._scales()[0] ** 2
            self._interval = 2 * self._interval if expected else self._interval // 2
        rest = self._window - self._horizon.place
        longest = 2 * rest // self._left - 1 if self._left else rest
        self._interval = max(1, min(self._interval, longest))
        later = pace.unaliased(self._interval, self._periods)
        self._next = self._timestamp + (later if later <= rest else self._interval)
        self._points = [*self._points, Point(self._timestamp, noisy, surprise)][-POINTS:]

    def _predict(self) -> int:
        """What the sampled counts let one expect at the open timestamp; 0 before the first one."""
        points = [(p.timestamp, p.count) for p in self._points]
        return regressed(self._timestamp, points, self._weights())

    def _weights(self) -> list[Fraction]:
        least = ceil(self._scales()[0])
        newest_first = reversed(self._points)
        return [Fraction(1, r * (p.surprise + least)) for r, p in enumerate(newest_first, 1)][::-1]

    def _scales(self) -> tuple[Fraction, Fraction]:
        scale = self._scale(self.units // self._samples)
        return scale, scale

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "samples": self._samples}

    def _extra_state(self) -> dict[str, Any]:
        points = [[p.timestamp, p.count, p.surprise] for p in self._points]
        own = {"points": points, "left": self._left, "interval": self._interval, "next": self._next}
        return {**super()._extra_state(), **own}

    def _restore_extra(self, values: Mapping[str, Any], timestamp: int, ledger: Ledger) -> None:
        assert isinstance(ledger, HorizonLedger)
        left = integer_between(values["left"], 0, self._samples, "left")
        interval = integer_between(values["interval"], 1, 2 * self._window, "interval")
        following = integer_between(values["next"], 1, timestamp + 1 + 2 * self._window, "next")
        if timestamp and (self._samples - left) * (self.units // self._samples) != ledger.window_spent:
            raise ValueError("the samples that are left and the ledger should agree")
        if not isinstance(values["points"], list) or len(values["points"]) > POINTS:
            raise ValueError(f"points should be an array of at most {POINTS}")
        points = [Point(*integers(one, 3, 2**62, "a point").tolist()) for one in values["points"]]
        times = [point.timestamp for point in points]
        if times != sorted(set(times)) or not all(1 <= time <= timestamp for time in times):
            raise ValueError("the timestamps of points should rise")
        if any(abs(p.count) > RELEASE_LIMIT or not 0 <= p.surprise <= 2 * RELEASE_LIMIT for p in points):
            raise ValueError("a point should be a released count and its surprise")
        super()._restore_extra(values, timestamp, ledger)
        self._points, self._left, self._interval, self._next = points, left, interval, following

    @classmethod
    def numbers(cls, settings: MechanismSettings, columns: int) -> tuple[int, int]:
        """See ``Mechanism.numbers``: also the sampled points."""
        state, release = super().numbers(settings, columns)
        return state + 3 * POINTS + 3, release


def shares_of(at: int, times: list[int], weights: list[Fraction]) -> list[Fraction]:
    """What each count adds to the weighted linear regression at time ``at``; exact, their sum is 1."""
    total = sum(weights, Fraction(0))
    mean = sum(w * (time - at) for w, time in zip(weights, times, strict=True)) / total
    spread = sum(w * (time - at - mean) ** 2 for w, time in zip(weights, times, strict=True))
    slope = mean / Fraction(spread) if spread else Fraction(0)
    return [w / total - slope * w * (time - at - mean) for w, time in zip(weights, times, strict=True)]


def regressed(at: int, points: list[tuple[int, int]], weights: list[Fraction]) -> int:
    """The weighted linear regression of (time, count) points at time ``at``, rounded, within the limit.

    The count of a single point, 0 without points. Exact.
    """
    if not points:
        return 0
    shares = shares_of(at, [time for time, _ in points], weights)
    predicted = sum(share * count for share, (_, count) in zip(shares, points, strict=True))
    return max(-RELEASE_LIMIT, min(RELEASE_LIMIT, round(predicted)))
