"""ToPL, the side of the worker: from local reports to a threshold, then to sums.

**Guarantee.** None of its own, post-processing: every report is epsilon-locally private before it arrives
(``eventveil.local.reports``), so each timestamp is charged in full, whatever it releases. *Neighbours*: one
report made of any other value, which is what "local" means. *Assumptions*: producers made their reports with
``eventveil.local`` or by the same rules. That a report was sent, by whom and when, is not protected, and
a user who sends k reports, in whichever phase, is protected by k epsilon.

**Source.** T. Wang et al. (CCS 2021), Section 4; the estimates are those of
``eventveil.mechanisms.local_estimator``.

**Proof.** A function of what is epsilon-private is so too (post-processing). Sums are unbiased: each report's
estimate has the clipped value as its mean (``Hybrid.estimate``).

**Changed.** The threshold is one of few public ones (``eventveil.local.control.thresholds``), so that
every possible report is a public column and is counted like any event: late, malformed and repeated reports
never depend on the state. Square Wave reports are added up over timestamps until there are ``estimate_after``
of them; the threshold is estimated once, in floating point, and then part of the state: what is durable
decides, not what another machine would compute. Reports that do not fit the phase are ``unused``.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np
import orjson
from numpy.typing import NDArray

from eventveil.local import control
from eventveil.mechanisms import local_estimator
from eventveil.mechanisms.base import RELEASE_LIMIT, Counts, Guarantee, Mechanism, Options, Release
from eventveil.mechanisms.movement import ROUNDING
from eventveil.mechanisms.publishing import integer_between, integers, read_only, units_of, whole_option
from eventveil.model.topology import Level, MechanismSettings
from eventveil.privacy.ledger import Bridge, Spend
from eventveil.privacy.noise import NoiseSource

_TOTAL = 2**60


@lru_cache(maxsize=16)
def _worst_variance(epsilon: Fraction, threshold: int) -> float:
    """Of the estimate that one report gives, for the value at which it is largest."""
    return control.hybrid(epsilon, threshold).worst_variance()


class Topl(Mechanism):
    """Counts of every possible report in, ``control.COLUMNS`` out. It draws nothing."""

    kind: ClassVar[str] = "topl"
    summary: ClassVar[str] = (
        "sums values that their producers have made private, cut at an estimated threshold"
    )
    options: ClassVar[frozenset[str]] = frozenset({"maximum", "estimate_after", "range"})
    level: ClassVar[Level] = "local"
    units = units_of(1)

    def __init__(
        self, settings: MechanismSettings, columns: int, sensitivity: int, noise: NoiseSource
    ) -> None:
        """``settings.options``: the largest value, after how many reports to estimate, and the longest range.

        Raises ValueError, UnfitSetting where an option is to blame.
        """
        self._epsilon, given = settings.epsilon, settings.options
        self._maximum = whole_option(given, "maximum", 0, 1, control.LARGEST)
        self._after = whole_option(given, "estimate_after", 0, 1, control.LONGEST)
        self._range = whole_option(given, "range", 0, 1, control.LONGEST)
        self._square_wave = control.square_wave(self._epsilon, self._maximum)
        self._columns = columns
        self._thresholds = control.thresholds(self._maximum)
        self._outputs = control.hybrid(self._epsilon, self._maximum).reports
        waves = self._square_wave.wave.outputs
        if columns != waves + len(self._thresholds) * self._outputs:
            raise ValueError(f"the columns should be those of eventveil.local.control, not {columns}")
        self._timestamp = self._threshold = 0
        self._wave = np.zeros(waves, np.int64)
        self.guarantee = Guarantee(
            self.level, self._epsilon, 1, sensitivity, best_scale=Fraction(0), worst_scale=Fraction(0)
        )

    @classmethod
    def can_spend(cls, spend: Spend, window: int, units: int, columns: int, options: Options) -> bool:
        """See ``Mechanism.can_spend``: always all of it, because that is what the reports have cost."""
        return spend == Spend(0, units)

    @property
    def window_spent(self) -> int:
        """See ``Mechanism.window_spent``."""
        return self.units if self._timestamp else 0

    @property
    def threshold(self) -> int | None:
        """See ``Mechanism.threshold``."""
        return self._threshold or None

    def step(self, counts: Counts) -> Release:
        """See ``Mechanism.step``: adds to the distribution, or sums; the threshold is estimated once."""
        if counts.dtype != np.int64 or counts.shape != (self._columns,):
            raise ValueError(f"counts should be int64 of shape ({self._columns},)")
        if counts.min() < 0 or counts.max() > RELEASE_LIMIT:
            raise ValueError(f"counts should lie in 0..{RELEASE_LIMIT}")
        phase: control.Phase = "sums" if self._threshold else "distribution"
        used, total = self._sum(counts) if self._threshold else (self._estimate(counts), 0)
        self._timestamp += 1
        shown = np.array([total, used, int(counts.sum()) - used], np.int64)
        return Release(
            read_only(shown.clip(-RELEASE_LIMIT, RELEASE_LIMIT)),
            fresh=True,
            test=0,
            publish=self.units,
            window_spent=self.units,
            phase=phase,
            threshold=self.threshold,
            error=self._error(used) if phase == "sums" else None,
        )

    def _error(self, used: int) -> NDArray[np.float64]:
        """Of the sum, at worst over the values behind the reports; how many there were is known."""
        return np.array(
            [np.sqrt(used * _worst_variance(self._epsilon, self._threshold) + ROUNDING), 0.0, 0.0]
        )

    def _estimate(self, counts: Counts) -> int:
        """Add to the distribution, choose the threshold if it is time; how many reports were of use."""
        seen = counts[: len(self._wave)]
        wave = self._wave + seen
        if wave.sum() >= self._after:
            shares = local_estimator.pruned(local_estimator.distribution(self._square_wave, wave))
            self._threshold = local_estimator.threshold(
                shares, self._maximum, self._epsilon, self._range, self._thresholds
            )
            wave = np.zeros_like(wave)
        self._wave = wave
        return int(seen.sum())

    def _sum(self, counts: Counts) -> tuple[int, int]:
        """How many reports were made for the threshold, and the sum behind them, to the nearest integer."""
        hybrid = control.hybrid(self._epsilon, self._threshold)
        first = len(self._wave) + self._thresholds.index(self._threshold) * self._outputs
        own = counts[first : first + self._outputs]
        total = sum(
            (int(own[report]) * hybrid.estimate(report) for report in np.flatnonzero(own).tolist()),
            Fraction(0),
        )
        return int(own.sum()), max(-RELEASE_LIMIT, min(RELEASE_LIMIT, round(total)))

    def snapshot(self) -> bytes:
        """See ``Mechanism.snapshot``."""
        wave = [] if self._threshold else self._wave.tolist()
        return orjson.dumps(
            {
                "settings": self._identity(),
                "timestamp": self._timestamp,
                "threshold": self._threshold,
                "distribution": wave,
            }
        )

    def restore(self, state: bytes) -> None:
        """See ``Mechanism.restore``; a refused state changes nothing."""
        values = orjson.loads(state)
        expected = {"settings", "timestamp", "threshold", "distribution"}
        if not isinstance(values, dict) or set(values) != expected:
            raise ValueError(f"the state should be an object with {', '.join(sorted(expected))}")
        if values["settings"] != self._identity():
            raise ValueError(f"the state belongs to {values['settings']!r}, not to {self._identity()!r}")
        timestamp = integer_between(values["timestamp"], 0, 2**62, "timestamp")
        threshold = values["threshold"]
        if type(threshold) is not int or threshold not in (0, *self._thresholds):
            raise ValueError(f"the threshold should be a public one, or 0, not {threshold!r}")
        size = 0 if threshold else len(self._wave)
        wave = integers(values["distribution"], size, _TOTAL, "the distribution")
        if size and (wave.min() < 0 or int(wave.sum()) >= self._after):
            raise ValueError(f"the distribution should have less than {self._after} reports, none negative")
        self._timestamp, self._threshold = timestamp, threshold
        self._wave = wave if size else np.zeros_like(self._wave)

    def inherit(self, predecessor: bytes, bridges: Iterable[Bridge]) -> None:
        """See ``Mechanism.inherit``: refused."""
        raise ValueError(f"{self.kind} cannot begin where another mechanism stopped")

    def _identity(self) -> dict[str, object]:
        return {
            "kind": self.kind,
            "epsilon": str(self._epsilon),
            "maximum": self._maximum,
            "estimate_after": self._after,
            "range": self._range,
            "columns": self._columns,
        }
