"""What all mechanisms share: a timestamp publishes counts with fresh noise or repeats; the ledger, the state.

Which timestamps epsilon covers together is what a level says: ``w_event``, ``event_level``, ``horizon``.

**Guarantee.** A publication that is charged u of the N units of epsilon is (u epsilon / N)-differentially
private for its timestamp, given all earlier outputs; a repetition reveals nothing. *Neighbours*: two streams
that differ in one user's events; at each timestamp where they do, all of the user's events are present in one
stream and none in the other. *Assumptions*: one user changes the counts of a timestamp by at most
``sensitivity`` in L1; columns, timestamps and settings are public; the noise is discrete Laplace, independent
of everything else, and nobody else knows it.

**Proof.** Let k be the sensitivity and b = k N / (u epsilon) the scale of a spend of u units.

* *Publication* of c + Z, Z_j discrete Laplace of scale b: a shift of Z_j by s changes its probability by at
  most e^(|s|/b), and the shifts of all columns sum to k, so the ratio is at most e^(k/b) = e^(u epsilon/N).
  A user may be in another column at each timestamp, so every publication is charged in full, for every
  column together.
* *Repetition* reveals nothing beyond the decision that led to it; whatever that drew from the counts was
  charged as a test, and its privacy is for the kind to show.

* With ``noise: gaussian``, which few kinds take, ``eventveil.mechanisms.gaussian`` says what holds instead.

Releases are clamped to +-RELEASE_LIMIT, which is post-processing. Noise beyond +-2^62 arrives as +-2^62: with
counts of at most 2^40 the clamped release is the same.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import orjson

from eventveil.mechanisms.arithmetic import Floats
from eventveil.mechanisms.base import (
    COLUMN_LIMIT,
    RELEASE_LIMIT,
    Chosen,
    Counts,
    Guarantee,
    Mechanism,
    Options,
    Release,
)
from eventveil.mechanisms.gaussian import gaussian_of
from eventveil.mechanisms.movement import Movement, noise_variance
from eventveil.model.errors import UnfitSetting
from eventveil.model.records import NUMBER_BYTES
from eventveil.model.topology import MechanismSettings, Option
from eventveil.privacy.ledger import Bridge, BudgetLedger, Ledger
from eventveil.privacy.noise import SATURATION, NoiseSource

SHARE = 2**20
"""Units of one timestamp's share of half the budget: epsilon is 2 * window * SHARE units."""

WINDOW_LIMIT = 2**32
TIMESTAMP_LIMIT = 2**62
"""Keep every number of a snapshot within the integers of JSON parsers, 2**63."""


class PublishingMechanism(Mechanism):
    """A mechanism that at each timestamp publishes counts with fresh noise, or repeats its last release.

    A kind says in ``_allot`` how many units a publication may spend now, and in ``_scales`` what noise that
    means at best and at worst. ``repeats`` is false where next to every timestamp is published.
    """

    repeats: ClassVar[bool] = True
    added: ClassVar[frozenset[str]] = frozenset({"error"})

    def __init__(
        self, settings: MechanismSettings, columns: int, sensitivity: int, noise: NoiseSource
    ) -> None:
        _check_settings(settings, columns, sensitivity, self.options)
        self._epsilon, self._window = settings.epsilon, settings.window
        self._columns, self._sensitivity, self._noise = columns, sensitivity, noise
        self.units = units_of(settings.window)
        # None: noise is discrete Laplace. Other kinds may have a `delta` of their own.
        is_gaussian = "noise" in self.options and _is_gaussian(settings.options)
        self._gaussian = gaussian_of(settings, sensitivity) if is_gaussian else None
        self._timestamp = 0
        self._last = read_only(np.zeros(columns, np.int64))
        self._usable = True
        self._movement = Movement(columns, moves=self.repeats, predicts=self.predicts)
        self._exact: Fraction | None = None  # the scale of all that was added to the counts of this timestamp
        self._configure(settings.options)
        self._ledger = self._new_ledger()
        self.guarantee = self._promise()

    def step(self, counts: Counts) -> Release:
        """See ``Mechanism.step``."""
        self._check_counts(counts)
        if not self._usable:
            raise RuntimeError("an earlier step failed: restore the mechanism from a snapshot first")
        self._usable = False
        self._exact = None
        self._ledger.open_timestamp()
        self._timestamp += 1
        units = self._allot(counts)
        if units:
            self._publish(counts, units)
        release = self._release(fresh=units > 0)
        self._usable = True
        return release

    @property
    def window_spent(self) -> int:
        """See ``Mechanism.window_spent``."""
        return self._ledger.window_spent

    def snapshot(self) -> bytes:
        """See ``Mechanism.snapshot``."""
        if not self._usable:
            raise RuntimeError("an earlier step failed: there is no state to keep")
        state = {
            "settings": self._identity(),
            "timestamp": self._timestamp,
            "last": self._last,
            "ledger": self._ledger.snapshot(),
            **self._error_state(),
            **self._extra_state(),
        }
        return orjson.dumps(state, option=orjson.OPT_SERIALIZE_NUMPY)

    def restore(self, state: bytes) -> None:
        """See ``Mechanism.restore``; a refused state changes nothing."""
        values = orjson.loads(state)
        expected = self._names
        if not isinstance(values, dict) or not expected - self.added <= set(values) <= expected:
            raise ValueError(f"the state should be an object with {', '.join(sorted(expected))}")
        if values["settings"] != self._identity():
            raise ValueError(f"the state belongs to {values['settings']!r}, not to {self._identity()!r}")
        timestamp = integer_between(values["timestamp"], 0, TIMESTAMP_LIMIT, "timestamp")
        last = self._restored_release(values["last"])
        ledger = self._new_ledger()
        ledger.restore(values["ledger"])
        if not ledger.fits(timestamp):
            raise ValueError(f"the ledger does not belong to timestamp {timestamp}")
        movement = self._restored_error(values)
        self._restore_extra(values, timestamp, ledger)
        self._movement = movement
        self._timestamp, self._last, self._ledger, self._usable = timestamp, last, ledger, True

    @cached_property
    def _names(self) -> frozenset[str]:
        """What a state has; the same at every timestamp."""
        own = {*self._error_state(), *self._extra_state()}
        return frozenset({"settings", "timestamp", "last", "ledger", *own})

    def inherit(self, predecessor: bytes, bridges: Iterable[Bridge]) -> None:
        """See ``Mechanism.inherit``: refused, unless a level knows how."""
        raise ValueError(f"{self.kind} cannot begin where another mechanism stopped")

    def grow(self, levels: Sequence[float], variance: float) -> None:
        """See ``Mechanism.grow``: the last release shows them as they are expected."""
        if not self.grows:
            super().grow(levels, variance)
        if not self._usable:
            raise RuntimeError("an earlier step failed: restore the mechanism from a snapshot first")
        more = integer_between(len(levels), 1, COLUMN_LIMIT - self._columns, "further columns")
        shown = np.rint(np.minimum(np.array(levels, np.float64), RELEASE_LIMIT)).astype(np.int64)
        self._columns += more
        self._last = read_only(np.concatenate([self._last, shown]))
        self._movement = self._movement.grown(self._columns, variance)

    def shrink(self, kept: Chosen) -> None:
        """See ``Mechanism.shrink``."""
        if not self.grows:
            super().shrink(kept)
        if not self._usable:
            raise RuntimeError("an earlier step failed: restore the mechanism from a snapshot first")
        if kept.dtype != np.bool_ or kept.shape != (self._columns,) or not kept[0]:
            raise ValueError(f"kept should say of {self._columns} columns which stay, the first of them")
        self._columns = int(kept.sum())
        self._last = read_only(self._last[kept])
        self._movement = self._movement.kept(kept)

    @abstractmethod
    def _allot(self, counts: Counts) -> int:
        """Units to publish this timestamp with; 0 repeats the last release.

        Whatever this draws from the true counts has been charged as a test.
        """

    @abstractmethod
    def _scales(self) -> tuple[Fraction, Fraction]:
        """Noise scale of the most and of the least accurate publication."""

    def _configure(self, options: Mapping[str, Option]) -> None:
        """Take over the options of a kind that has some."""

    def _new_ledger(self) -> Ledger:
        return BudgetLedger(self._window, self.units)

    def _promise(self) -> Guarantee:
        best, worst = self._scales()
        delta = self._gaussian.delta if self._gaussian else None
        return Guarantee(self.level, self._epsilon, self._window, self._sensitivity, best, worst, delta=delta)

    def _release(self, *, fresh: bool) -> Release:
        """What the open timestamp releases, once everything is drawn."""
        spend = self._ledger.current
        return Release(
            self._last,
            fresh,
            spend.test,
            spend.publish,
            self._ledger.window_spent,
            error=self._error(),
            noise_scale=None if self._gaussian else self._exact,
        )

    def _error(self) -> Floats | None:
        """See ``Release.error``."""
        variance = self._variance_now()
        return None if variance is None else np.sqrt(variance)

    def _variance_now(self) -> Floats | None:
        """Of the release of the open timestamp, around the counts; of shape (1,) or (columns,)."""
        return self._movement.variance(self._timestamp, self._last)

    def _error_state(self) -> dict[str, Any]:
        """What the error of a release is computed from."""
        return {"error": self._movement.snapshot()}

    def _restored_error(self, values: Mapping[str, Any]) -> Movement:
        """The error as a state has it; without one, the error before the first publication."""
        known = "error" in values
        return self._movement.restored(values["error"]) if known else self._movement.empty()

    def _identity(self) -> dict[str, Any]:
        """Everything a state depends on: only a mechanism with the same may continue it."""
        return {
            "kind": self.kind,
            "epsilon": str(self._epsilon),
            "window": self._window,
            "columns": self._columns,
            "sensitivity": self._sensitivity,
            **self._gaussian_identity(),
        }

    def _gaussian_identity(self) -> dict[str, Any]:
        if self._gaussian is None:
            return {}
        return {
            "noise": "gaussian",
            "delta": str(self._gaussian.delta),
            "squared_sensitivity": self._gaussian.squared_sensitivity,
        }

    def _extra_state(self) -> dict[str, Any]:
        """State of a kind beyond the common one."""
        return {}

    def _restore_extra(self, values: Mapping[str, Any], timestamp: int, ledger: Ledger) -> None:
        """Check and take over what ``_extra_state`` wrote; ValueError before anything has changed."""

    def _scale(self, units: int) -> Fraction:
        """Noise scale of a spend; the standard deviation of Gaussian noise."""
        if self._gaussian is not None:
            return self._gaussian.sigma(Fraction(units, self.units))
        whole, part = self._epsilon.as_integer_ratio()
        return Fraction(self._sensitivity * self.units * part, units * whole)

    def _draw(self, units: int, size: int) -> Counts:
        """Noise for a spend that was charged already."""
        return self._noise_of(self._scale(units), size)

    def _noise_of(self, scale: Fraction, size: int) -> Counts:
        if self._gaussian is not None:
            noise = self._gaussian.draw(self._noise, scale, size)
        else:
            noise = self._noise.discrete_laplace(scale, size)
        if noise.dtype != np.int64 or noise.shape != (size,) or np.any(np.abs(noise) > SATURATION):
            raise ValueError(f"a noise source should give {size} int64 within +-2**62")
        return noise

    def _publish(self, counts: Counts, units: int) -> None:
        self._ledger.charge_publish(units)
        noisy = self._noisy(counts, units)
        self._learn_error(noisy, units)
        self._last = read_only(noisy)

    def _learn_error(self, noisy: Counts, units: int, chosen: Chosen | None = None) -> None:
        """Take note of a publication that is the next release, of all columns or of those chosen."""
        variance = self._variance(units)
        self._movement.learn(noisy, self._last, variance, self._timestamp, chosen)
        self._movement.drawn(variance, self._timestamp, chosen)
        self._exact = self._scale(units) if chosen is None else None

    def _variance(self, units: int) -> float:
        """Of the noise of a publication."""
        if self._gaussian is not None:
            return self._gaussian.variance(self._scale(units))
        return noise_variance(float(self._scale(units)))

    def _noisy(self, counts: Counts, units: int) -> Counts:
        """Counts, of some or all columns, with the noise of a spend that was charged already."""
        noisy: Counts = counts + self._draw(units, len(counts))
        return noisy.clip(-RELEASE_LIMIT, RELEASE_LIMIT)

    @classmethod
    def numbers(cls, settings: MechanismSettings, columns: int) -> tuple[int, int]:
        """See ``Mechanism.numbers``: what the error is computed from."""
        return state_numbers(Movement.bytes_of(columns, moves=cls.repeats)), 0

    def _check_counts(self, counts: Counts) -> None:
        self._check_shape(counts)
        if counts.min() < 0 or counts.max() > RELEASE_LIMIT:
            raise ValueError(f"counts should lie in 0..{RELEASE_LIMIT}")

    def _check_shape(self, counts: Counts) -> None:
        if type(counts) is not np.ndarray or counts.dtype != np.int64:
            raise ValueError(f"counts should be a numpy array of int64, not {type(counts).__name__}")
        if counts.shape != (self._columns,):
            raise ValueError(f"counts should have shape ({self._columns},), not {counts.shape}")

    def _restored_release(self, values: object) -> Counts:
        return read_only(integers(values, self._columns, RELEASE_LIMIT, "the last release"))


def units_of(window: int) -> int:
    """How many ledger units make up epsilon."""
    return 2 * window * SHARE


def state_numbers(size: int) -> int:
    """How many numbers of a state take this many bytes."""
    return -(-size // NUMBER_BYTES)


def _check_settings(
    settings: MechanismSettings, columns: int, sensitivity: int, options: frozenset[str]
) -> None:
    integer_between(columns, 1, COLUMN_LIMIT, "columns")
    integer_between(settings.window, 1, WINDOW_LIMIT, "window")
    integer_between(sensitivity, 1, RELEASE_LIMIT, "sensitivity")
    if not isinstance(settings.epsilon, Fraction) or settings.epsilon <= 0:
        raise ValueError(f"epsilon should be a Fraction above 0, not {settings.epsilon!r}")
    unknown = set(settings.options) - options
    if unknown:
        raise ValueError(f"{settings.kind} has no option {', '.join(sorted(unknown))}")


def _is_gaussian(options: Mapping[str, Option]) -> bool:
    noise = options.get("noise", "laplace")
    if noise not in ("laplace", "gaussian"):
        raise UnfitSetting("noise", f"found {noise}, expected laplace or gaussian")
    if noise == "laplace" and "delta" in options:
        raise UnfitSetting("delta", "is for noise: gaussian")
    return noise == "gaussian"


def read_only(counts: Counts) -> Counts:
    """The same array, for which every change is an error from now on."""
    counts.setflags(write=False)
    return counts


def whole_option(options: Options, name: str, default: int, low: int, high: int) -> int:
    """An option that is a whole number in low..high, or such a number as text; UnfitSetting otherwise."""
    value = options.get(name, default)
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if type(value) is not int or not low <= value <= high:
        expected = str(low) if low == high else f"a whole number from {low} to {high}"
        raise UnfitSetting(name, f"found {value}, expected {expected}")
    return value


def integers(values: object, size: int, limit: int, name: str) -> Counts:
    """An array of ``size`` integers within +-limit, out of a state; ValueError otherwise."""
    if not isinstance(values, list) or len(values) != size or set(map(type, values)) - {int}:
        raise ValueError(f"{name} should be an array of {size} integers")
    if values and max(map(abs, values)) > limit:
        raise ValueError(f"{name} should lie within +-{limit}")
    return np.array(values, np.int64)


def integer_between(value: object, low: int, high: int, name: str) -> int:
    """``value`` if it is an integer in low..high; ValueError otherwise."""
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} should be an integer in {low}..{high}, not {value!r}")
    return value
