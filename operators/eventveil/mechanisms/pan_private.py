"""Budget Distribution and Budget Absorption whose state may be seen: counters start with noise.

**Guarantee.** Two, both of epsilon for any ``window`` timestamps.

* *Releases* alone: as for every w-event mechanism (``eventveil.mechanisms.w_event``).
* *Releases together with what an intruder finds* in the live counters (``Counters``), in the state of the
  mechanism and in the changelog and ledger, aborted records included: ``single``, one look that nobody
  notices; ``announced``, one look in each of any number of timestamps, announced before it, acknowledged,
  and over before the timestamp closes. *Neighbours*: two streams with the same records at the same offsets
  and times, in which the events of one user count in other columns (``adjacency: substitute``). That an event
  exists, when, and whether it is valid, is not protected from the intruder: offsets tell it anyway.

Assumptions, beyond those of the others: the producer guarantees the contribution bound (``trusted``), for the
set of users seen so far, which bounding needs, is raw data; and neither failures nor announcements depend on
the columns of events. Not protected are the raw topic, the dead letters, the records that are being read, and
memory outside the live counters: freed, swapped out or dumped, or of a process that was stopped.

**Proof.** Kellaris et al. (PVLDB 2014), Section 4.5, "Pan-Privacy", corrected. Before timestamp i the
mechanism knows its offer u_i, a function of earlier outputs. The counters start with noise of u_i / 2 units.
A publication adds fresh noise of u_i / 2 units to them and is charged u_i. A test costs t units.

*Within a timestamp.* Let the user contribute j <= k before the look and at most k - j after it. What is seen
has the seeds' noise: a loss of at most (j / k) (u_i / 2). Given that, the noisy test and the release depend
on the user through the later contributions alone and have noise of their own: at most ((k - j) / k) (t + u_i
/ 2). Given the seeds and without a look: t + u_i / 2. So a timestamp loses at most t + u_i if it is
published, and t + u_i / 2 if it is not, though only t is charged then.

*Single, Distribution.* Let B be what tests leave in a window. Publications are capped at 2 B / 3 (epsilon /
3) in any window, and half of what is left under the cap is offered, so that an offer is at most B / 3: with
the one offer that is seen and not charged, a window loses at most B. The paper offers a third of what is left
of B; its publications alone then tend to B, and the seen offer comes on top.
*Single, Absorption.* A share is B / (2 window), as in the paper: publications take at most B / 2 of a window
and the largest offer is B / 2.
*Announced.* An announced look forces the publication, without a test, so what is seen is charged. Budgets
stay as they are.
A timestamp that cannot publish (nullified, or an offer too small to count) discards its events, and has no
counters to be seen.

*Failures* (``eventveil.tasks.pan_private``). A timestamp whose owner failed before anything was drawn for its
release, and in which no look was announced, is counted again, with fresh seeds. One look sees one of the two
counters, u_i / 2, and given the seeds of the other the test and the release lose t + u_i / 2: the sums above.
In every other case it is given up (``forfeit``): what an aborted transaction may have shown (t + u_i / 2) and
a look before it (u_i / 2) come to t + u_i, which is charged though nothing is published.

Changed: a second noise for the release; with one, as printed, the release minus what the intruder saw is
exactly what arrived in between. One look in a timestamp: two would differ by exactly what arrived between
them. The dissimilarity cannot be kept without raw counts: it is taken from the noisy counters, less the
expected magnitude of their noise, and gets the test's noise like any other. Counters are in one place, not in
every partition of the source: partial counts would stay in a topic, for every timestamp of a window.
Seed noise beyond +-2^62 arrives as +-2^62 and is then no noise; offers are kept so large that its scale is at
most 2^40, and this has a probability below e^-4,000,000 per counter.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import ceil, comb
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.base import RELEASE_LIMIT, Chosen, Counts, Options, Release
from eventveil.mechanisms.budget_absorption import BudgetAbsorption
from eventveil.mechanisms.budget_distribution import BudgetDistribution
from eventveil.mechanisms.dissimilarity import DissimilarityMechanism, units_of_test
from eventveil.mechanisms.movement import noise_variance
from eventveil.model.topology import Option
from eventveil.privacy.ledger import Ledger, Spend
from eventveil.privacy.noise import NoiseSource

_LARGEST_SEED_SCALE = 2**40
_COUNTER_LIMIT = 2**60
_GRID = 2**20
KINDS_OF_LOOK = ("single", "announced")


def _mean_magnitude(draws: int) -> Fraction:
    """The mean of |X|, X the sum of n Laplace variables of scale 1: 2 n C(2n, n) / 4^n, rounded up."""
    return Fraction(-(-2 * draws * comb(2 * draws, draws) * _GRID // 4**draws), _GRID)


#: The mean magnitude of the seeds' noise, and of that of a publication, by the scale of either half.
_FLOOR, _ERROR = _mean_magnitude(1), _mean_magnitude(2)


class Counters:
    """The counters of one timestamp. They never hold a count without noise."""

    def __init__(self, columns: int, scale: Fraction, noise: NoiseSource) -> None:
        """``scale``: what ``PanPrivate.opening`` says for this timestamp."""
        #: Counts and noise, int64 of shape (columns,): what is there to be seen.
        self.cells = noise.discrete_laplace(scale, columns)

    def add(self, columns: NDArray[np.int64]) -> None:
        """Count events, given by their columns."""
        np.add.at(self.cells, columns, 1)

    def wipe(self) -> None:
        """Leave nothing to be seen."""
        self.cells.fill(0)


class PanPrivate(DissimilarityMechanism):
    """Steps on ``Counters`` in place of true counts."""

    options: ClassVar[frozenset[str]] = DissimilarityMechanism.options | {"pan_private"}

    _intruded = False

    @classmethod
    def can_spend(cls, spend: Spend, window: int, units: int, columns: int, options: Options) -> bool:
        """See ``Mechanism.can_spend``: an announced look forces a publication without a test."""
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

    @classmethod
    def most_published(cls, window: int, units: int, columns: int, options: Options) -> int:
        """See ``Mechanism.most_published``: what a look that nobody notices may cost is left over."""
        return cls._most(units - window * units_of_test(units, columns, options), options)

    @classmethod
    @abstractmethod
    def _most(cls, publications: int, options: Options) -> int:
        """What of the units that tests leave in a window publications may spend."""

    def open(self) -> Counters | None:
        """The counters of the next timestamp, with their noise; None: discard its events."""
        scale = self.opening()
        return None if scale is None else Counters(self._columns, scale, self._noise)

    @property
    def on_truth(self) -> Callable[[Counts], Release]:
        """See ``Mechanism.on_truth``: as it would be if these counts had gone through counters."""
        return self._through_counters

    def _through_counters(self, counts: Counts) -> Release:
        counters = self.open()
        return self.step(np.zeros_like(counts) if counters is None else counters.cells + counts)

    def announce(self) -> None:
        """Somebody will look at the counters that are open: they will be published, come what may.

        Raises ValueError unless the mechanism is for announced looks.
        """
        if self._kind_of_look != "announced":
            raise ValueError("this mechanism is for one look that nobody notices, not for announced ones")
        self._intruded = True

    def step(self, counts: Counts) -> Release:
        """See ``Mechanism.step``; ``counts`` are the counters, zeros if events were discarded."""
        release = super().step(counts)
        self._intruded = False
        return release

    def forfeit(self) -> Release:
        """Give the next timestamp up: the last release is repeated, and charged like a new one.

        Nothing is drawn. Without an offer there were no counters, and nothing is charged.
        """
        if not self._usable:
            raise RuntimeError("an earlier step failed: restore the mechanism from a snapshot first")
        self._ledger.open_timestamp()
        self._timestamp += 1
        self._groups.form(self._timestamp)
        offer = self._payable_offer()
        if offer is not None:
            self._ledger.charge_test(self._test_units)
            self._spend(offer)
        self._intruded = False
        return self._release(fresh=False)

    @property
    def notes(self) -> tuple[str, ...]:
        """See ``Mechanism.notes``."""
        looks = {
            "single": "one look that nobody notices",
            "announced": "one look in each timestamp for which `eventveil announce` was acknowledged",
        }
        return (
            *super().notes,
            f"Pan-private ({self._kind_of_look}): the epsilon also covers what can be seen in the worker's"
            f" counters, its changelog and the ledger, in {looks[self._kind_of_look]}; there it protects the"
            " columns in which a user's events count, not that they happened, nor when.",
            "A fresh count has twice the variance of the noise named above. Events are read one timestamp at"
            " a time, and some of them are discarded.",
            "Not protected: the raw topic, dead letters, records that are being read, memory that was freed."
            " The producer has to guarantee one event per user and timestamp: nothing else does.",
        )

    def _configure(self, options: Mapping[str, Option]) -> None:
        self._kind_of_look = str(options.get("pan_private"))
        if self._kind_of_look not in KINDS_OF_LOOK:
            raise ValueError(f"pan_private should be single or announced, not {self._kind_of_look}")
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
        return (self._factor * _ERROR + _FLOOR) * columns * self._half_scale(offer)

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

    def _learn_error(self, noisy: Counts, units: int, chosen: Chosen | None = None) -> None:
        super()._learn_error(noisy, units, chosen)
        self._exact = None  # two noises, not one of some scale

    def _variance(self, units: int) -> float:
        return 2 * noise_variance(float(self._half_scale(units)))

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


class PanPrivateDistribution(PanPrivate, BudgetDistribution):
    """Budget Distribution; for a single intrusion with publications capped at two thirds of their budget."""

    def _offer(self) -> int | None:  # type: ignore[override]  # None: too little to count, so nothing is kept
        offer = (self._cap - self._ledger.window_published) // 2
        return offer if offer >= self._least_offer else None

    def _largest_offer(self) -> int:
        return self._cap // 2

    @classmethod
    def can_spend(cls, spend: Spend, window: int, units: int, columns: int, options: Options) -> bool:
        """See ``Mechanism.can_spend``: at most half of the cap."""
        half = spend.publish <= cls.most_published(window, units, columns, options) // 2
        return super().can_spend(spend, window, units, columns, options) and half

    @property
    def _cap(self) -> int:
        return self._most(self._publication_units, self._options)

    @classmethod
    def _most(cls, publications: int, options: Options) -> int:
        return 2 * publications // 3 if options.get("pan_private") == "single" else publications


class PanPrivateAbsorption(PanPrivate, BudgetAbsorption):
    """Budget Absorption; for a single intrusion with half of the share."""

    def _offer(self) -> int | None:
        offer = super()._offer()
        return offer if offer is not None and offer >= self._least_offer else None

    @classmethod
    def _most(cls, publications: int, options: Options) -> int:
        return cls._part_of(publications, options)

    @classmethod
    def _part_of(cls, share: int, options: Options) -> int:
        return share // 2 if options.get("pan_private") == "single" else share


PAN_PRIVATE: dict[str, type[PanPrivate]] = {
    mechanism.kind: mechanism for mechanism in (PanPrivateDistribution, PanPrivateAbsorption)
}
