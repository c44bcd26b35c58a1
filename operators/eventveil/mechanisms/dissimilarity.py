"""The test that Budget Distribution and Budget Absorption share: have the counts moved away from the release?

**Guarantee.** One test is (test units / N) epsilon-differentially private for one timestamp, given all
earlier outputs; neighbours and assumptions as in ``eventveil.mechanisms.w_event``.

**Proof** (mechanism M_i,1 of Kellaris et al., PVLDB 2014, Figure 2 and Theorem 4). For the last release o,
which is public, S = sum_j |o_j - c_j| is an integer, and changes by at most the sensitivity k when the counts
change by k in L1. It is released with discrete Laplace noise of scale k N / (units epsilon), and the decision
is a function of that noisy value, of public constants and of earlier outputs alone.

*Groups* (options ``groups`` and ``regroup``; Section 4.5, "Column partitioning"). Each group g of columns has
a sum S_g of its own, with noise of its own, and is published or repeated by itself; those that are published
together share one offer of u units. The paper runs an independent mechanism on every group. That is not
private: a user who moves between groups meets the publications of all of them, each paid from a budget that
knows nothing of the others. Here there is one ledger, and a timestamp is charged its t test units and its u
publication units *once*. Let one user change the counts of group g by k_g in L1, sum_g k_g <= k. The noise
has the full scale k N / (units epsilon) in every group, so the tests together lose at most
sum_g (k_g / k) (t / N) epsilon <= (t / N) epsilon, and the publications, given the tests' outcome, at most
sum_g (k_g / k) (u / N) epsilon <= (u / N) epsilon, however the k contributions spread over groups. Which
column belongs to which group is a function of earlier releases (``eventveil.mechanisms.groups``).

*Shift* (option ``shift``; Section 4.5, "Shifting budget"). A test spends the smaller of N / (2 window) and
N / d units, d being the columns of the smallest group; publications get the rest of N in any window. The
paper prints N / d without the first bound: with d < 2 window the tests would then cost more than before, and
with d < window more than epsilon.

Changed from the paper: the dissimilarity is the sum instead of the mean over columns (the same test on an
exact grid, both sides multiplied by the number d of columns); an offer below ``LEAST_OFFER`` units counts as
none; and the error of a publication is multiplied by the public constant ``factor`` before it is compared.
With ``factor`` 2 fewer publications happen: S already contains the noise of the last release, which alone is
about as large as the error of a new one.
Noise beyond +-2^62 arrives as +-2^62. Thresholds are kept below 2^61 by raising the least offer, and
S <= 2^61, so every decision is the one that unlimited noise would have led to.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from math import ceil, floor
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.base import Counts, Options
from eventveil.mechanisms.groups import GROUP_LIMIT, PERIOD_LIMIT, Groups
from eventveil.mechanisms.movement import Movement
from eventveil.mechanisms.publishing import SHARE, read_only, state_numbers, whole_option
from eventveil.mechanisms.w_event import WEventMechanism
from eventveil.model.errors import UnfitSetting
from eventveil.model.topology import MechanismSettings, Option
from eventveil.privacy.ledger import Ledger, Spend

LEAST_OFFER = 64
_LARGEST_THRESHOLD = 2**61


class DissimilarityMechanism(WEventMechanism):
    """Publishes the groups whose release is noisily further from the counts than a new one would be.

    A kind says in ``_offer`` how many units a publication may spend now, and in ``_largest_offer`` how many
    that can be at most.
    """

    options: ClassVar[frozenset[str]] = frozenset({"factor", "shift", "groups", "regroup"})

    def _configure(self, options: Mapping[str, Option]) -> None:
        self._options = dict(options)
        self._factor = Fraction(options.get("factor", 1))
        if self._factor <= 0:
            raise ValueError(f"factor should be above 0, not {self._factor}")
        self._groups = self._new_groups()
        self._movement = Movement(self._columns, apart=self._groups.count > 1)
        self._moved = np.ones(self._groups.count, np.bool_)
        self._test_units = units_of_test(self.units, self._columns, options)
        largest = int(self._groups.sizes.max())
        self._least_offer = max(LEAST_OFFER, ceil(self._threshold(1, largest) / _LARGEST_THRESHOLD))
        if self._least_offer > self._largest_offer():
            raise ValueError(f"epsilon {self._epsilon} is too small: this mechanism would never publish")

    @classmethod
    def numbers(cls, settings: MechanismSettings, columns: int) -> tuple[int, int]:
        """See ``Mechanism.numbers``: also group and movement of each column, 24 digits together."""
        apart = settings.options.get("groups", 1) != 1
        own = state_numbers(Movement.bytes_of(columns, apart=apart))
        return own + (columns if apart else 0), 0

    @property
    def notes(self) -> tuple[str, ...]:
        """See ``Mechanism.notes``."""
        notes = []
        if self._options.get("shift") == "true":
            tests = Fraction(self._window * self._test_units, self.units)
            notes.append(f"Shifted budget: tests take {float(tests):.3g} of epsilon, publications the rest.")
        if self._groups.count > 1:
            notes.append(
                f"{self._groups.count} groups of columns are published apart and formed anew every"
                f" {self._groups.period} timestamps; a release is fresh if any group is."
            )
        return tuple(notes)

    @property
    def _publication_units(self) -> int:
        """What the tests leave for the publications of a window."""
        return self.units - self._window * self._test_units

    @classmethod
    def can_spend(cls, spend: Spend, window: int, units: int, columns: int, options: Options) -> bool:
        """See ``Mechanism.can_spend``: nothing, or a test with or without a publication."""
        published = spend.publish == 0 or spend.publish >= LEAST_OFFER
        tested = spend.test == units_of_test(units, columns, options)
        return spend == Spend(0, 0) or (tested and published)

    @abstractmethod
    def _offer(self) -> int | None:
        """Units that a publication may spend now; None where none can happen, so that no test is needed.

        A function of earlier outputs alone.
        """

    @abstractmethod
    def _largest_offer(self) -> int:
        """The most that ``_offer`` returns."""

    def _allot(self, counts: Counts) -> int:
        self._groups.form(self._timestamp)
        offer = self._payable_offer()
        if offer is None:
            return 0
        self._moved = self._moved_away(counts, offer)
        return offer if self._moved.any() else 0

    def _payable_offer(self) -> int | None:
        """``_offer``, unless a bridge stands against it: only that can leave less than a kind counts on."""
        offer = self._offer()
        allowed = offer is not None and self._ledger.bridges_allow(self._test_units + offer)
        return offer if allowed else None

    def _moved_away(self, counts: Counts, offer: int) -> NDArray[np.bool_]:
        """For each group, whether its noisy dissimilarity exceeds its error if published with the offer."""
        self._ledger.charge_test(self._test_units)
        sums = self._groups.sums(np.abs(self._last - counts))
        noise = self._draw(self._test_units, self._groups.count)
        if offer < self._least_offer:
            return np.zeros(self._groups.count, np.bool_)
        limits = {size: floor(self._threshold(offer, size)) for size in set(self._groups.sizes.tolist())}
        moved = sums + noise > np.array([limits[size] for size in self._groups.sizes.tolist()])
        self._bound_unpublished(moved, offer)
        return moved

    def _bound_unpublished(self, moved: NDArray[np.bool_], offer: int) -> None:
        """A group that was never published, and has not moved, is as far from 0 as a publication errs."""
        unpublished = self._movement.unpublished & ~self._groups.columns_of(moved)
        if self._groups.count > 1 and unpublished.any():
            self._movement.bound(float(self._factor) * self._variance(offer), unpublished)

    def _threshold(self, offer: int, columns: int) -> Fraction:
        """Expected error of a publication, summed over ``columns``, times ``factor``."""
        return self._factor * columns * self._scale(offer)

    def _publish(self, counts: Counts, units: int) -> None:
        self._spend(units)
        chosen = self._groups.columns_of(self._moved)
        released = self._last.copy()
        released[chosen] = self._noisy(counts[chosen], units)
        self._learn_error(released, units, None if chosen.all() else chosen)
        self._groups.observe(self._last, released)
        self._last = read_only(released)

    def _spend(self, units: int) -> None:
        """Charge an offer."""
        self._ledger.charge_publish(units)

    def _new_groups(self) -> Groups:
        count = whole_option(self._options, "groups", 1, 1, GROUP_LIMIT)
        if count > self._columns:
            what = f"{count} groups are more than the {self._columns} columns"
            raise UnfitSetting("groups", f"{what}, expected at most one for each column")
        if count == 1 and "regroup" in self._options:
            raise UnfitSetting("regroup", "has no effect on a single group; add groups, or remove it")
        period = whole_option(self._options, "regroup", min(self._window, PERIOD_LIMIT), 1, PERIOD_LIMIT)
        return Groups(self._columns, count, period)

    def _identity(self) -> dict[str, Any]:
        given = {name: value for name, value in sorted(self._options.items()) if name != "factor"}
        return {**super()._identity(), "factor": str(self._factor), **given}

    def _extra_state(self) -> dict[str, Any]:
        return {"groups": self._groups.snapshot()} if self._groups.count > 1 else {}

    def _restore_extra(self, values: Mapping[str, Any], timestamp: int, ledger: Ledger) -> None:
        if self._groups.count > 1:
            groups = self._new_groups()
            groups.restore(values["groups"])
            self._groups = groups


def units_of_test(units: int, columns: int, options: Options) -> int:
    """What one test spends of ``units``. Raises ValueError for options that no mechanism can have."""
    if options.get("shift") != "true":
        return SHARE
    groups = whole_option(options, "groups", 1, 1, columns)
    return min(SHARE, units // (columns // groups))
