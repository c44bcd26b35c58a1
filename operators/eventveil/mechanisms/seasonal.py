"""Seasonal: one schedule for all columns, set by a forecast that knows levels, a shared profile and seasons.

**Guarantee.** w-event epsilon-differential privacy; neighbours and assumptions as in
``eventveil.mechanisms.w_event``.

**Proof.** The only thing that is drawn from true counts is c + Z, all columns at once, Z discrete Laplace of
scale k N / (u epsilon) for u of N units, which the ledger is asked for first
(``eventveil.mechanisms.publishing``): a window spends N at most, because the ledger allows no more. When to
publish and with how many units are functions of earlier noisy counts, of the ledger and of public constants:
the length of the window and of the declared periods, which are settings and never looked for in the data.
What is released, and the state that it comes from, is a function of noisy counts: free post-processing.
There is no test, so nothing is spent on one. One that inherits from another of its kind may continue with the
other's state, which is such a function too.

**Source.** Our own, after ``eventveil.mechanisms.paced``, FAST (Fan and Xiong, CIKM 2012) and Sample
(Kellaris et al., PVLDB 2014). Changed from Paced: counts may have seasons, of their own and
shared, as harmonics with a prior; models are mixed by their likelihood, with forgetting, instead of choosing
one; scatter is learned for every column; a column is judged empty against noise alone; publications fall on
all phases of a period.

**Algorithm.** ``eventveil.mechanisms.forecasting`` has the models, one idea a module. At a publication the
release is the forecast's estimate of the counts, at the timestamps that follow what it expects of each, so
that a season continues: never negative, 0 for columns that do not rise above the noise, or what they have in
common (``hidden``), and rounded such that sums stay right (``rounding``).

*Pace.* ``eventveil.mechanisms.forecasting.pace`` has the intervals, and the expected error by which one is
chosen, every ``HOLD`` publications, if it promises a gain. A publication spends N over the number of those
that fit in a window, rounded down to whole units, or what the window has left if that is at least
``LEAST`` of it. The first one has a twelfth
of it, or more where noise is large. If it shows something, the next one comes at the interval that the
forecast wants; if not, another phase of the first period is tried, with all that is left; in a long window
one more before that, with a twelfth. It does not wait for longer: nothing is known, and what is left buys
more now than later.

*Gaussian noise.* A window's budget buys as much in many publications as in one, for mu squared adds up as
precisions do. So every timestamp is published, with the same part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np
import orjson

from eventveil.mechanisms import gaussian
from eventveil.mechanisms.arithmetic import Floats
from eventveil.mechanisms.base import RELEASE_LIMIT, Chosen, Counts
from eventveil.mechanisms.forecasting import pace
from eventveil.mechanisms.forecasting.calibration import Calibration
from eventveil.mechanisms.forecasting.forecast import Forecast
from eventveil.mechanisms.forecasting.harmonics import periods_of
from eventveil.mechanisms.forecasting.rounding import Rounding
from eventveil.mechanisms.publishing import TIMESTAMP_LIMIT, integer_between, read_only, state_numbers
from eventveil.mechanisms.w_event import WEventMechanism
from eventveil.model.topology import MechanismSettings, Option
from eventveil.privacy.ledger import Ledger, Spend

LEAST = Fraction(3, 5)
"""The least part of its share that a publication is worth."""
HOLD, SETTLED = 6, 8
"""Publications between two choices of the interval, once there were ``SETTLED``."""
GAIN = 0.97
OTHER_PHASE = 0.4
"""Part of the first period after which another phase is tried if nothing was shown so far."""
LONG = 5
"""A window of more than this many first periods has a second small look before all that is left is spent, if
a period has many phases: an hour may lie in the night, a day of the week is like another."""
_LEAST_NOISE = 1e-9
_CALIBRATION_BYTES = 80
_ALIKE = ("kind", "columns", "periods")
"""Where these are equal, what one has learned fits another."""


class _Learned(NamedTuple):
    """What does not depend on the budget; ``since``: see ``Seasonal._since``."""

    forecast: Forecast
    calibration: Calibration
    owed: float
    since: int


class Seasonal(WEventMechanism):
    """Publishes as often as counts move or seasons need it, and releases what it expects in between."""

    kind: ClassVar[str] = "seasonal"
    summary: ClassVar[str] = "forecasts levels and seasons from what it publishes, as often as is worthwhile"
    options: ClassVar[frozenset[str]] = frozenset({"periods"}) | gaussian.OPTIONS
    predicts: ClassVar[bool] = True
    repeats: ClassVar[bool] = False
    grows: ClassVar[bool] = True
    columns_apart: ClassVar[bool] = True
    added: ClassVar[frozenset[str]] = WEventMechanism.added | {"calibration"}

    def _configure(self, options: Mapping[str, Option]) -> None:
        self._periods = periods_of(options)
        normal = self._gaussian is not None
        self._forecast = Forecast(self._columns, self._window, self._periods, normal=normal)
        self._parts = _parts(self._window, self._periods, normal)
        self._interval = pace.first(self._parts, self._window, float(self._scale(self.units)))
        small = self._parts[self._interval] >= pace.FIRST_PARTS
        first = self._periods[0] if self._periods else 0
        self._looks = 2 if small and pace.PHASES <= first < self._window / LONG else 1
        self._rounding = Rounding()
        self._calibration = Calibration(self._columns)
        self._since = 0  # timestamps before the first, of those whose forecast it continues
        self._due = 0  # timestamp of the next publication
        self._decided = 0  # publications when the interval was chosen

    @classmethod
    def can_spend(
        cls, spend: Spend, window: int, units: int, columns: int, options: Mapping[str, object]
    ) -> bool:
        """See ``Mechanism.can_spend``: a part of the budget that some interval allows, or nothing."""
        parts = _parts(window, periods_of(options), options.get("noise") == "gaussian").values()
        some = any(_enough(spend.publish, units // part) for part in parts)
        return spend.test == 0 and (some or spend.publish == 0)

    @property
    def notes(self) -> tuple[str, ...]:
        """See ``Mechanism.notes``."""
        periods = " and ".join(map(str, self._periods))
        seasons = f"Seasons of {periods} timestamps are expected" if periods else "No season is expected"
        often = "" if self._gaussian else ", and for most timestamps a prediction"
        return (
            f"{seasons} (option periods); a release is an estimate{often}, so its"
            " error is not the noise of one count.",
        )

    @property
    def _now(self) -> int:
        """The open timestamp, as the forecast counts them."""
        return self._since + self._timestamp

    def recall(self, predecessor: bytes) -> None:
        """See ``Mechanism.recall``: the forecast of one of this kind, with the same columns and periods."""
        state = orjson.loads(predecessor)
        own, other = self._identity(), state.get("settings")
        if not isinstance(other, dict) or any(other.get(name) != own[name] for name in _ALIKE):
            return
        try:
            timestamp = integer_between(state["timestamp"], 0, TIMESTAMP_LIMIT, "timestamp")
            self._take_over(self._learned(state, timestamp))
        except KeyError as error:
            raise ValueError(f"what was learned cannot be read: {error!r}") from None
        self._since += timestamp
        self._pace()

    def _allot(self, counts: Counts) -> int:
        if self._timestamp < self._due:
            return 0
        part = self.units // self._parts[self._interval]
        units = min(part, self.units - self._ledger.window_spent)
        return units if _enough(units, part) and self._ledger.bridges_allow(units) else 0

    def _publish(self, counts: Counts, units: int) -> None:
        self._ledger.charge_publish(units)
        interval, noisy = self._interval, self._noisy(counts, units)
        self._forecast = self._forecast.anew(self._window, self._variance(units))
        first, before = not self._forecast.begun, self._forecast.above
        estimate = self._forecast.learn(noisy.astype(np.float64), self._variance(units), self._now)
        if not first:
            self._calibrate(noisy, before, self._variance(units))
        self._last = self._whole(estimate)
        self._pace()
        self._due = self._timestamp + self._wait(interval)

    def _calibrate(self, noisy: Counts, above: Chosen, noise: float) -> None:
        """Learn how far predictions err from the columns that were ``above`` the noise, or the only one.

        The others are nearly empty, often thousands: predictions that are right of them say nothing of these.
        """
        shown, said = self._forecast.foreseen
        if self._columns == 1:
            self._calibration.learn(noisy - shown, said, noise)
        elif above.any():
            self._calibration.learn((noisy - shown)[above], said[above], noise)

    def grow(self, levels: Sequence[float], variance: float) -> None:
        """See ``Mechanism.grow``: they continue as if they had been at these levels so far."""
        super().grow(levels, variance)
        self._forecast = self._forecast.grown(np.array(levels, np.float64), variance, self._window)
        self._calibration = Calibration.restored(self._calibration.snapshot(), self._columns)

    def shrink(self, kept: Chosen) -> None:
        """See ``Mechanism.shrink``."""
        super().shrink(kept)
        self._forecast = self._forecast.kept(kept, self._window)
        self._calibration = Calibration.restored(self._calibration.snapshot(), self._columns)
        self._rounding.owed = min(max(self._rounding.owed, -float(self._columns)), float(self._columns))

    def _whole(self, mean: Floats) -> Counts:
        return read_only(
            self._rounding.whole(mean, np.maximum(self._forecast.scatter.phi, 1.0))
            .clip(0, RELEASE_LIMIT)
            .astype(np.int64)
        )

    def _wait(self, before: int) -> int:
        """How long until the next publication; ``before``: the interval before this one."""
        if self._forecast.published > self._looks or self._gaussian is not None:
            return self._interval
        if self._forecast.above.any():
            return min(before, self._interval)
        if not self._periods:
            return before
        return max(1, min(int(OTHER_PHASE * self._periods[0]), self._window // 2))

    def _pace(self) -> None:
        """Choose the interval, if it is time to."""
        forecast, some = self._forecast, self._forecast.above
        if not some.any():
            if forecast.published >= self._looks:
                self._interval = max(self._parts)
            return
        if forecast.published > SETTLED and forecast.published - self._decided < HOLD:
            return
        levels = np.maximum(forecast.level, 0.5)
        drift, seasons = forecast.movement(some, levels)
        memory = min(self._now + self._window, forecast.memory)
        outlook = pace.PaceOutlook(drift, (forecast.scatter.phi * levels)[some], seasons, memory)
        errors = {
            interval: pace.expected_error(interval, self._variance(self.units // parts), outlook)
            for interval, parts in self._parts.items()
        }
        best = min(errors, key=lambda interval: errors[interval])
        if forecast.published < SETTLED or errors[best] < GAIN * errors[self._interval]:
            self._interval = best
        self._decided = forecast.published

    def _release(self, *, fresh: bool) -> Any:
        if fresh:
            mean, variance = self._forecast.expected(self._now)
            off = self._last - mean
            self._drawn(np.maximum(variance + off * off, self._forecast.doubt(0)))
        elif self._forecast.published:
            shown, said = self._forecast.shown(self._now)
            self._last = self._whole(shown)
            off = self._last - shown
            self._drawn(self._factor() * said + off * off)
        return super()._release(fresh=fresh)

    def _drawn(self, variance: Floats) -> None:
        """Take note of what the release errs by: of columns that are shown as 0, what others say of them."""
        unseen = self._forecast.unseen(self._now)
        self._movement.drawn(np.where(unseen > 0, unseen, variance), self._timestamp)

    def _factor(self) -> float:
        """Of the variance of a prediction, as learned; doubt (``forecasting.doubt``) is not taken back."""
        factor = self._calibration.factor
        return max(factor, 1.0) if self._forecast.doubt(0).any() else factor

    def _variance(self, units: int) -> float:
        return max(super()._variance(units), _LEAST_NOISE)

    def _scales(self) -> tuple[Fraction, Fraction]:
        shares = [self.units // parts for parts in self._parts.values()]
        return self._scale(max(shares)), self._scale(min(map(_least, shares)))

    @classmethod
    def numbers(cls, settings: MechanismSettings, columns: int) -> tuple[int, int]:
        """See ``Mechanism.numbers``: also what the forecast takes."""
        forecast = state_numbers(
            Forecast.bytes_of(columns, periods_of(settings.options)) + _CALIBRATION_BYTES
        )
        return forecast + super().numbers(settings, columns)[0], 0

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "periods": list(self._periods)}

    def _extra_state(self) -> dict[str, Any]:
        since = [self._since] if self._since else []
        return {
            "forecast": self._forecast.snapshot(),
            "published": [self._forecast.published, self._forecast.last, *since],
            "interval": self._interval,
            "due": self._due,
            "decided": self._decided,
            "owed": self._rounding.owed,
            "calibration": self._calibration.snapshot(),
        }

    def _restore_extra(self, values: Mapping[str, Any], timestamp: int, ledger: Ledger) -> None:
        learned = self._learned(values, timestamp)
        interval = integer_between(values["interval"], 1, TIMESTAMP_LIMIT, "interval")
        due = integer_between(values["due"], 0, TIMESTAMP_LIMIT, "due")
        decided = integer_between(values["decided"], 0, learned.forecast.published, "decided")
        if interval not in self._parts:
            raise ValueError(f"interval should be a possible one, not {interval}")
        self._take_over(learned)
        self._interval, self._due, self._decided = interval, due, decided

    def _learned(self, values: Mapping[str, Any], timestamp: int) -> _Learned:
        """What a state holds, at its own ``timestamp``, that does not depend on the budget."""
        told = values["published"]
        if not isinstance(told, list) or len(told) not in (2, 3):
            raise ValueError("published should be how many publications, and the timestamp of the last")
        since = integer_between(told[2], 1, TIMESTAMP_LIMIT, "since") if len(told) == 3 else 0
        published, last = (integer_between(one, 0, since + timestamp, "published") for one in told[:2])
        if published > last:
            raise ValueError(f"published should be possible, not {published} by timestamp {last}")
        owed = values["owed"]
        if type(owed) is not float or not abs(owed) <= self._columns:
            raise ValueError(f"owed should be a number within the {self._columns} columns, not {owed!r}")
        known = "calibration" in values  # not in states that are older than released errors
        columns = self._columns
        calibration = Calibration.restored(values["calibration"], columns) if known else Calibration(columns)
        forecast = self._forecast.restored(values["forecast"], self._window)
        forecast.published, forecast.last = published, last
        return _Learned(forecast, calibration, owed, since)

    def _take_over(self, learned: _Learned) -> None:
        self._forecast, self._calibration, self._rounding.owed, self._since = learned


def _parts(window: int, periods: tuple[int, ...], normal: bool) -> Mapping[int, int]:
    """By interval, how many publications a window can hold; with Gaussian noise, one at every timestamp.

    Then n publications tell as much as one with the budget of all n, and none is foregone.
    """
    return {1: window} if normal else pace.intervals(window, periods)


def _enough(units: int, part: int) -> bool:
    return _least(part) <= units <= part


def _least(part: int) -> int:
    """The least that a publication spends whose share is ``part``: never nothing."""
    return max(1, -(-part * LEAST.numerator // LEAST.denominator))
