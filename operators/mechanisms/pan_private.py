"""Budget Distribution and Budget Absorption whose state may be seen: counters start with noise.

No worker runs these yet. A topology with ``pan_private`` is refused; what follows is the mechanism and its
proof.

**Guarantee.** w-event epsilon-differential privacy of everything that is released *together with* what an
intruder finds in the counters (``Accumulators``) and in the state of the mechanism: ``single``, one intrusion
that nobody notices; ``announced``, any number, each made known before anything else happens. Neighbours and
assumptions as in ``operators.mechanisms.w_event``, and one more: the producer guarantees the contribution
bound (``trusted``), for the set of users seen so far, which bounding needs, is raw data. Not protected are
the raw topic, its copies on the brokers, and the event that is being counted at the moment of the intrusion.

**Proof.** Kellaris et al. (PVLDB 2014), Section 4.5, "Pan-Privacy", mended. Before timestamp i the mechanism
knows its offer u_i, a function of earlier outputs. Every partition starts its counters with noise of u_i / 2
units; a publication adds fresh noise of u_i / 2 units to their sum and is charged u_i.

*Within a timestamp.* Let the user contribute j <= k before the intrusion and at most k - j after it. What the
intruder sees has the seed's noise: a loss of at most (j / k) (u_i / 2). Given that, the noisy test and the
release depend on the user through the later contributions alone and have noise of their own: at most ((k - j)
/ k) (t + u_i / 2). Given the seed noise and without an intrusion: t + u_i / 2. So a timestamp loses at most t
+ u_i if it is published, and t + u_i / 2 if it is not, though only t is charged then. Several announced
intrusions in one timestamp split k further, for ``Accumulators.reseed`` adds fresh noise after each.

*Single, Distribution.* Let B be what tests leave in a window. Publications are capped at 2 B / 3 (epsilon /
3) in any window, and half of what is left under the cap is offered, so that an offer is at most B / 3: with
the one offer that is seen and not charged, a window loses at most B. The paper offers a third of what is left
of B; its publications alone then tend to B, and the seen offer comes on top.
*Single, Absorption.* A share is B / (2 window), as in the paper: publications take at most B / 2 of a window
and the largest offer is B / 2.
*Announced.* An intrusion forces the publication, so what is seen is charged. Budgets stay as they are.
A timestamp that cannot publish (nullified, or an offer too small to count) discards its events, and has no
counters to be seen.

Changed: a second noise for the release; with one, as printed, the release minus what the intruder saw is
exactly what arrived in between. The dissimilarity cannot be kept without raw counts: it is taken from the
noisy counters, less the expected magnitude of their noise, and gets the test's noise like any other.
Seed noise beyond +-2^62 arrives as +-2^62 and is then no noise; offers are kept so large that its scale is at
most 2^40, and this has a probability below e^-4,000,000 per counter.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from fractions import Fraction
from math import ceil, comb
from typing import Any, ClassVar, Literal

import numpy as np

from operators.mechanisms.base import RELEASE_LIMIT, Counts, Release
from operators.mechanisms.budget_absorption import BudgetAbsorption
from operators.mechanisms.budget_distribution import BudgetDistribution
from operators.mechanisms.dissimilarity import DissimilarityMechanism, units_of_test
from operators.mechanisms.reading import integer_between
from operators.privacy.ledger import Ledger, Spend
from operators.privacy.noise import NoiseSource
from operators.topology.model import MechanismSettings, Option

PARTITION_LIMIT = 10_000
_LARGEST_SEED_SCALE = 2**40
_COUNTER_LIMIT = 2**60
_GRID = 2**20

Contributions = int | Literal["trusted"]


class Accumulators:
    """The counters of one partition for one timestamp. They never hold a count without noise."""

    def __init__(self, columns: int, scale: Fraction, noise: NoiseSource) -> None:
        """``scale``: what ``PanPrivate.opening`` says for this timestamp."""
        self._scale, self._noise = scale, noise
        self._cells = noise.discrete_laplace(scale, columns)

    @property
    def cells(self) -> Counts:
        """Counts and noise, int64 of shape (columns,): what is there to be seen."""
        return self._cells.copy()

    def add(self, column: int) -> None:
        """Count one event."""
        self._cells[column] += 1

    def reseed(self) -> None:
        """After an announced intrusion, before the next event: what was seen must not tell later arrivals."""
        self._cells += self._noise.discrete_laplace(self._scale, len(self._cells))


class PanPrivate(DissimilarityMechanism):
    """Steps on the sum of all partitions' ``Accumulators`` in place of true counts."""

    options: ClassVar[frozenset[str]] = DissimilarityMechanism.options | {"pan_private"}

    def __init__(
        self,
        settings: MechanismSettings,
        columns: int,
        sensitivity: int,
        noise: NoiseSource,
        *,
        contributions: Contributions,
        partitions: int,
    ) -> None:
        """``partitions`` of the source each seed their counters. Raises ValueError as ``Mechanism`` does."""
        if contributions != "trusted":
            raise ValueError(
                "pan_private needs contributions: trusted; to bound contributions, the worker would have to"
                " keep the set of users that it has seen, which is raw data"
            )
        self._partitions = integer_between(partitions, 1, PARTITION_LIMIT, "partitions")
        self._intruded = False
        super().__init__(settings, columns, sensitivity, noise)

    @classmethod
    def can_spend(
        cls, spend: Spend, window: int, units: int, columns: int, options: Mapping[str, object]
    ) -> bool:
        """See ``Mechanism.can_spend``: an announced intrusion forces a publication without a test."""
        if options.get("pan_private") == "announced" and spend.test == 0 and spend.publish:
            spend = Spend(units_of_test(units, columns, options), spend.publish)
        return super().can_spend(spend, window, units, columns, options)

    def opening(self) -> Fraction | None:
        """Noise scale that the next timestamp's counters start with; None: discard its events."""
        ahead = copy.copy(self)
        ahead._ledger = copy.deepcopy(self._ledger)
        ahead._ledger.open_timestamp()
        ahead._timestamp += 1
        offer = ahead._payable_offer()
        return None if offer is None else self._half_scale(offer)

    def announce(self) -> None:
        """An intrusion into the timestamp whose counters are open: it will be published, come what may.

        Raises ValueError unless the mechanism is for announced intrusions.
        """
        if self._kind_of_intrusion != "announced":
            raise ValueError(
                "this mechanism is for one intrusion that nobody notices, not for announced ones"
            )
        self._intruded = True

    def step(self, counts: Counts) -> Release:
        """See ``Mechanism.step``; ``counts`` is the sum of the counters, zeros if events were discarded."""
        release = super().step(counts)
        self._intruded = False
        return release

    @property
    def notes(self) -> tuple[str, ...]:
        """See ``Mechanism.notes``."""
        return (
            *super().notes,
            f"Pan-private ({self._kind_of_intrusion}): each of {self._partitions} partitions seeds its own"
            f" noise; a fresh count has {self._partitions + 1} times the variance of the noise named above.",
            "It protects the worker's counters and its changelog, not the raw topic.",
        )

    def _configure(self, options: Mapping[str, Option]) -> None:
        self._kind_of_intrusion = options.get("pan_private")
        if self._kind_of_intrusion not in ("single", "announced"):
            raise ValueError(f"pan_private should be single or announced, not {self._kind_of_intrusion!r}")
        self._error = _mean_magnitude(self._partitions + 1)
        self._floor = _mean_magnitude(self._partitions)
        super()._configure(options)
        least = ceil(self._half_scale(1) / _LARGEST_SEED_SCALE)
        self._least_offer = max(self._least_offer, least)
        if self._least_offer > self._largest_offer():
            raise ValueError(f"epsilon {self._epsilon} is too small: this mechanism would never publish")

    def _half_scale(self, units: int) -> Fraction:
        """Noise scale of half of a spend."""
        return 2 * self._scale(units)

    def _threshold(self, offer: int, columns: int) -> Fraction:
        """Expected error of a publication times ``factor``, above the magnitude of the seeds' noise."""
        return (self._factor * self._error + self._floor) * columns * self._half_scale(offer)

    def _allot(self, counts: Counts) -> int:
        offer = self._payable_offer()
        if offer is None and counts.any():
            raise ValueError("this timestamp discards its events, so there should be no counts")
        if offer is not None and self._intruded:
            self._groups.form(self._timestamp)
            self._moved = np.ones(self._groups.count, np.bool_)
            return offer
        return super()._allot(counts.clip(-2 * RELEASE_LIMIT, 2 * RELEASE_LIMIT))

    def _noisy(self, counts: Counts, units: int) -> Counts:
        noisy: Counts = counts + self._noise_of(self._half_scale(units), len(counts))
        return noisy.clip(-RELEASE_LIMIT, RELEASE_LIMIT)

    def _check_counts(self, counts: Counts) -> None:
        self._check_shape(counts)
        if np.any(np.abs(counts) > _COUNTER_LIMIT):
            raise ValueError(f"counts should lie within +-{_COUNTER_LIMIT}")

    def _scales(self) -> tuple[Fraction, Fraction]:
        best, worst = super()._scales()  # type: ignore[safe-super]  # a kind's stands between the two
        return 2 * best, 2 * worst

    def _extra_state(self) -> dict[str, Any]:
        return {**super()._extra_state(), "intruded": self._intruded}

    def _restore_extra(self, values: Mapping[str, Any], timestamp: int, ledger: Ledger) -> None:
        if type(values["intruded"]) is not bool:
            raise ValueError("intruded should be true or false")
        super()._restore_extra(values, timestamp, ledger)
        self._intruded = values["intruded"]

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "partitions": self._partitions}


class PanPrivateDistribution(PanPrivate, BudgetDistribution):
    """Budget Distribution; for a single intrusion with publications capped at two thirds of their budget."""

    def _offer(self) -> int | None:  # type: ignore[override]  # None: too little to count, so nothing is kept
        offer = (self._cap - self._ledger.window_published) // 2
        return offer if offer >= self._least_offer else None

    def _largest_offer(self) -> int:
        return self._cap // 2

    @property
    def _cap(self) -> int:
        units = self._publication_units
        return 2 * units // 3 if self._kind_of_intrusion == "single" else units


class PanPrivateAbsorption(PanPrivate, BudgetAbsorption):
    """Budget Absorption; for a single intrusion with half of the share."""

    def _offer(self) -> int | None:
        offer = super()._offer()
        return offer if offer is not None and offer >= self._least_offer else None

    @classmethod
    def _part_of(cls, share: int, options: Mapping[str, object]) -> int:
        return share // 2 if options.get("pan_private") == "single" else share


PAN_PRIVATE: dict[str, type[PanPrivate]] = {
    mechanism.kind: mechanism for mechanism in (PanPrivateDistribution, PanPrivateAbsorption)
}


def _mean_magnitude(draws: int) -> Fraction:
    """The mean of |X|, X the sum of so many Laplace variables of scale 1: 2 n C(2n, n) / 4^n, rounded up."""
    return Fraction(-(-2 * draws * comb(2 * draws, draws) * _GRID // 4**draws), _GRID)
