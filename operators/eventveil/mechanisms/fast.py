"""FAST_w: samples when a controller expects change, filters what it sampled, and repeats in between.

**Guarantee.** w-event epsilon-differential privacy; neighbours and assumptions as in
``eventveil.mechanisms.w_event``.

**Proof.** Time is cut into disjoint blocks of ``window`` timestamps. A block has at most M samples (option
``max_samples``), each publishing all columns with u = floor(N / 2 / M) of N units, so a block spends at most
N / 2. Any ``window`` consecutive timestamps overlap at most two blocks, hence spend at most N (Theorem 3 of
Kellaris et al., PVLDB 2014, which compares with this mechanism in Section 5 without a proof of it). When to
sample, and what the filter makes of a sample, are functions of public constants and of earlier noisy samples
alone: post-processing, also where it is computed in floating point.

Changed: the source, L. Fan and L. Xiong, "Real-time aggregate monitoring with differential privacy" (CIKM
2012), has one series. With several columns, each with a schedule of its own, a user who moves between columns
is in up to d M samples in a block and is not protected. Here one schedule serves all columns, and its
feedback error is the mean over columns. The filter's noise variance is that of the discrete Laplace noise;
relative errors are taken over at least the noise scale, not over counts that are far below it. With the
option ``periods``, the lengths of a day and a week, an interval is at least the M-th part of a block, and
longer, by half at most, where it would not fall on all of their phases. Otherwise a block of a day whose
counts move would use up its samples by night, day after day.

*Error of a release.* The noise in an estimate has a variance U that is known: (1 - g)^2 U + g^2 R after a
correction with gain g by a sample with noise of variance R. What counts are off beyond that, M, is learned
from samples y and the estimates x before them: (y - x)^2 - U - R is M, in the mean (``movement``). After a
correction (1 - g)^2 of M is left, and from the next timestamp on all of it. It must not be carried over into
U: where counts follow a season and the filter believes in small steps, it would be counted again and again,
until nothing seemed to be left to learn.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import exp, floor, fsum, isfinite
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.arithmetic import Floats
from eventveil.mechanisms.base import RELEASE_LIMIT, Counts, Options
from eventveil.mechanisms.forecasting import pace
from eventveil.mechanisms.forecasting.harmonics import periods_of
from eventveil.mechanisms.movement import ROUNDING, Movement
from eventveil.mechanisms.publishing import TIMESTAMP_LIMIT, integer_between, read_only, whole_option
from eventveil.mechanisms.w_event import WEventMechanism
from eventveil.model.errors import UnfitSetting
from eventveil.model.topology import MechanismSettings, Option
from eventveil.privacy.ledger import Ledger, Spend

PROPORTIONAL, INTEGRAL = 0.9, 0.1
MEMORY = 5
"""How many feedback errors the integral part averages."""

SET_POINT = 0.1
"""The mean relative error at which the interval stays as it is."""


class Fast(WEventMechanism):
    """Kalman filter over noisy samples of all columns, on one schedule from a feedback controller.

    A count is modelled as constant up to a random step of standard deviation ``drift`` per timestamp.
    """

    kind: ClassVar[str] = "fast"
    summary: ClassVar[str] = "samples more often while counts change, and filters the samples"
    options: ClassVar[frozenset[str]] = frozenset({"max_samples", "drift", "periods"})
    unremembered: ClassVar[frozenset[str]] = frozenset({"periods"})

    def _configure(self, options: Mapping[str, Option]) -> None:
        self._max_samples = samples_of(self._window, options)
        self._drift = Fraction(options.get("drift", 10))
        if self._drift <= 0:
            raise UnfitSetting("drift", f"found {self._drift}, expected a number above 0")
        self._periods = periods_of(options)
        self._movement = Movement(self._columns, predicts=True)
        self._corrected: Floats | None = None  # of a release that was corrected just now
        self._sample_units = self.units // 2 // self._max_samples
        self._noise_scale = float(self._scale(self._sample_units))
        self._estimate: NDArray[np.float64] = np.zeros(self._columns)
        self._uncertain = 0.0
        self._sampled = 0  # timestamp of the last sample
        self._taken = 0  # samples of this block
        self._interval = self._window / self._max_samples
        self._errors: list[float] = []

    @classmethod
    def can_spend(cls, spend: Spend, window: int, units: int, columns: int, options: Options) -> bool:
        """See ``Mechanism.can_spend``: a sample, or nothing."""
        return spend in (Spend(0, units // 2 // samples_of(window, options)), Spend(0, 0))

    @classmethod
    def numbers(cls, settings: MechanismSettings, columns: int) -> tuple[int, int]:
        """See ``Mechanism.numbers``: also the estimate of each column."""
        return columns + super().numbers(settings, columns)[0], 0

    @property
    def notes(self) -> tuple[str, ...]:
        """See ``Mechanism.notes``."""
        return (
            f"At most {self._max_samples} samples in each block of {self._window} timestamps; a release is"
            " what a filter makes of the samples, so its error is not the noise of one count.",
        )

    def _allot(self, counts: Counts) -> int:
        if (self._timestamp - 1) % self._window == 0:
            self._taken = 0
        due = self._due() and self._taken < self._max_samples
        return self._sample_units if due and self._ledger.bridges_allow(self._sample_units) else 0

    def _due(self) -> bool:
        """Whether the controller wants a sample now; a function of earlier samples alone."""
        interval = floor(self._interval)
        if self._periods:
            interval = pace.unaliased(max(interval, self._window // self._max_samples), self._periods)
        return self._sampled == 0 or self._timestamp >= self._sampled + interval

    def _publish(self, counts: Counts, units: int) -> None:
        self._ledger.charge_publish(units)
        self._taken += 1
        noisy, noise = self._noisy(counts, units), self._variance(units)
        self._movement.learn(noisy, self._last, noise, self._timestamp)
        gain = self._learn(noisy)
        before = self._movement.variance(self._sampled, self._last)  # of noise alone: no time has passed
        left = (1 - gain) ** 2 * (0.0 if before is None else float(before[0])) + gain**2 * noise + ROUNDING
        self._movement.drawn(left, self._timestamp)
        self._corrected = left + (1 - gain) ** 2 * self._movement.usual
        self._sampled = self._timestamp
        released = np.rint(self._estimate).clip(-RELEASE_LIMIT, RELEASE_LIMIT)
        self._last = read_only(released.astype(np.int64))

    def _variance_now(self) -> Floats | None:
        corrected, self._corrected = self._corrected, None
        return super()._variance_now() if corrected is None else corrected

    def _learn(self, sample: Counts) -> float:
        """Correct the estimate, and the interval by how far it had to be corrected; the gain, 0 to 1."""
        noise = 2 * self._noise_scale**2
        if self._sampled == 0:
            self._estimate, self._uncertain = sample.astype(np.float64), noise
            return 1.0
        predicted = self._uncertain + float(self._drift) ** 2 * (self._timestamp - self._sampled)
        gain = predicted / (predicted + noise)
        correction = gain * (sample - self._estimate)
        self._estimate = self._estimate + correction
        self._uncertain = (1 - gain) * predicted
        size = np.maximum(np.abs(self._estimate), max(1.0, self._noise_scale))
        # fsum rounds once, whatever the order of its terms: the same on every machine.
        self._control(fsum((np.abs(correction) / size).tolist()) / self._columns)
        return gain

    def _control(self, error: float) -> None:
        """Lengthen the interval while the error is below the set point, shorten it above."""
        self._errors = [*self._errors, error][-MEMORY:]
        control = PROPORTIONAL * error + INTEGRAL * fsum(self._errors) / len(self._errors)
        step = 1 - exp(min(control / SET_POINT - 1, 50.0))
        longest = float(2 * self._window)
        self._interval = min(max(self._interval + step * self._window / self._max_samples, 1.0), longest)

    def _scales(self) -> tuple[Fraction, Fraction]:
        scale = self._scale(self._sample_units)
        return scale, scale

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "max_samples": self._max_samples, "drift": str(self._drift)}

    def _extra_state(self) -> dict[str, Any]:
        return {
            "estimate": self._estimate,
            "variance": self._uncertain,
            "sampled": self._sampled,
            "taken": self._taken,
            "interval": self._interval,
            "errors": self._errors,
        }

    def _restore_extra(self, values: Mapping[str, Any], timestamp: int, ledger: Ledger) -> None:
        estimate = _numbers(values["estimate"], "estimate")
        errors = _numbers(values["errors"], "errors")
        variance, interval = _numbers([values["variance"], values["interval"]], "variance and interval")
        sampled = integer_between(values["sampled"], 0, min(timestamp, TIMESTAMP_LIMIT), "sampled")
        taken = integer_between(values["taken"], 0, self._max_samples, "taken")
        if len(estimate) != self._columns or max(map(abs, estimate)) > 2 * RELEASE_LIMIT:
            raise ValueError(f"estimate should hold {self._columns} numbers within +-{2 * RELEASE_LIMIT}")
        if len(errors) > MEMORY or min([*errors, variance]) < 0 or not 1 <= interval <= 2 * self._window:
            raise ValueError("errors, variance and interval should be those of this controller")
        self._estimate, self._uncertain = np.array(estimate), variance
        self._sampled, self._taken, self._interval, self._errors = sampled, taken, interval, errors


def samples_of(window: int, options: Options) -> int:
    """The most samples in a block. Raises ValueError for options that no such mechanism can have."""
    return whole_option(options, "max_samples", max(1, window // 4), 1, window)


def _numbers(values: object, name: str) -> list[float]:
    """``values`` if it is a list of finite floating-point numbers; ValueError otherwise."""
    if not isinstance(values, list) or any(
        type(value) is not float or not isfinite(value) for value in values
    ):
        raise ValueError(f"{name} should be finite floating-point numbers")
    return values
