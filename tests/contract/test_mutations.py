"""Broken variants, each with the test that finds it: a test that no defect can fail proves nothing.

Several are printed in papers. None is anywhere but here. A variant takes the place of the mechanism, the
ledger or the noise that the named test looks up, and the test must fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from operators.errors import BudgetExceeded
from operators.mechanisms import KINDS
from operators.mechanisms.base import Counts, Mechanism
from operators.mechanisms.budget_absorption import BudgetAbsorption
from operators.mechanisms.budget_distribution import BudgetDistribution
from operators.mechanisms.fast import Fast
from operators.mechanisms.pan_private import (
    PAN_PRIVATE,
    Accumulators,
    PanPrivate,
    PanPrivateAbsorption,
    PanPrivateDistribution,
)
from operators.mechanisms.publishing import read_only
from operators.mechanisms.uniform import Uniform
from operators.privacy.ledger import BudgetLedger
from operators.privacy.noise import SeededNoise
from operators.topology.model import Option
from tests.contract import test_budget, test_likelihood, test_mechanisms, test_pan_private
from tests.contract.test_budget import PermissiveLedger
from tests.unit.mechanisms import test_budget_absorption
from tests.unit.privacy import test_noise


class IndependentGroups(BudgetAbsorption):
    """As printed: every group absorbs and nullifies by itself, whatever the others spend."""

    def _configure(self, options: Mapping[str, Option]) -> None:
        super()._configure(options)
        self._last_of = [[0, 1] for _ in range(self._groups.count)]  # when each published, with what shares

    def _allot(self, counts: Counts) -> int:
        self._ledger.charge_test(self._test_units)
        sums = self._groups.sums(np.abs(self._last - counts))
        sums += self._draw(self._test_units, self._groups.count)
        ends = [published + shares - 1 for published, shares in self._last_of]
        self._offers = [max(0, min(self._timestamp - end, self._window)) * self._share for end in ends]
        sizes = self._groups.sizes.tolist()
        limits = [
            self._threshold(offer, size) if offer else 2**62
            for offer, size in zip(self._offers, sizes, strict=True)
        ]
        self._moved = np.array([total > limit for total, limit in zip(sums.tolist(), limits, strict=True)])
        return max(
            offer for offer, moved in zip([*self._offers, 0], [*self._moved, True], strict=True) if moved
        )

    def _publish(self, counts: Counts, units: int) -> None:
        self._ledger.charge_publish(units)
        released, published = self._last.copy(), self._moved
        for group in np.flatnonzero(published).tolist():
            self._moved = np.arange(self._groups.count) == group
            chosen = self._groups.columns_of(self._moved)
            released[chosen] = self._noisy(counts[chosen], self._offers[group])
            self._last_of[group] = [self._timestamp, self._offers[group] // self._share]
        self._moved = published
        self._last = read_only(released)

    def _extra_state(self) -> dict[str, Any]:
        return {**super()._extra_state(), "last_of": self._last_of}

    def _restore_extra(self, values: Mapping[str, Any], timestamp: int, ledger: BudgetLedger) -> None:
        super()._restore_extra(values, timestamp, ledger)
        self._last_of = [list(one) for one in values["last_of"]]


class ScheduleForEachColumn(Fast):
    """As printed: FAST runs for each column by itself, here column j from timestamp 1 + j on."""

    def _allot(self, counts: Counts) -> int:
        first = np.arange(self._columns) % self._window + 1
        self._sampling = (self._timestamp - first) % self._window == 0
        return self._sample_units if self._sampling.any() else 0

    def _publish(self, counts: Counts, units: int) -> None:
        self._ledger.charge_publish(units)
        released = self._last.copy()
        released[self._sampling] = self._noisy(counts, units)[self._sampling]
        self._last = read_only(released)


class BlocksTooShort(Fast):
    """Samples are counted anew two timestamps before the block ends: a window can meet three blocks."""

    def _allot(self, counts: Counts) -> int:
        if (self._timestamp - 1) % (self._window - 2) == 0:
            self._taken = 0
        return super()._allot(counts)


class PrintedThird(PanPrivateDistribution):
    """As printed: a third of what is left, and no cap on what publications come to."""

    def _offer(self) -> int | None:
        offer = (self._publication_units - self._ledger.window_published) // 3
        return offer if offer >= self._least_offer else None


class WholeShare(PanPrivateAbsorption):
    """An offer that is seen and not charged has no room in the budget."""

    @property
    def _share(self) -> int:
        return self._publication_units // self._window


class ReusedNoise(PanPrivateDistribution):
    """As printed: the noise that the counters started with is all that the release has."""

    def _noisy(self, counts: Counts, units: int) -> Counts:
        return counts


class NeverReseeded(Accumulators):
    """Two intrusions into one timestamp see the same noise."""

    def reseed(self) -> None:
        pass


class GroupsPaidInHalves(BudgetDistribution):
    """Groups share the sensitivity as if every user contributed to all of them alike."""

    def _scale(self, units: int) -> Fraction:
        return super()._scale(units) / self._groups.count


class UnboundedShift(BudgetDistribution):
    """As printed: epsilon / d for the test, also where that is more than half of the budget."""

    def _configure(self, options: Mapping[str, Option]) -> None:
        super()._configure(options)
        if options.get("shift") == "true":
            self._test_units = self.units // int(self._groups.sizes.min())


class HalfNoise(Uniform):
    """Half the scale that was paid for."""

    def _draw(self, units: int, size: int) -> Counts:
        return self._noise.discrete_laplace(self._scale(units) / 2, size)


class SeededTwice(Uniform):
    """The same seed at every timestamp: two releases differ by exactly what the counts differ by."""

    def _draw(self, units: int, size: int) -> Counts:
        return SeededNoise(1).discrete_laplace(self._scale(units), size)


class FirstWithTwoUnits(BudgetAbsorption):
    """As if the public zero vector had been published a timestamp earlier, with nothing."""

    _shares = 0


class ForgetfulLedger(BudgetLedger):
    """Off by one: a spend comes back a timestamp too early."""

    def __init__(self, window: int, units: int) -> None:
        super().__init__(max(1, window - 1), units)


class FloatNoise:
    """Rounded floating-point Laplace noise in place of the exact discrete distribution."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        return np.rint(self._generator.laplace(scale=float(scale), size=size)).astype(np.int64)


@dataclass(frozen=True)
class Mutation:
    """``places`` names what the variant replaces, so that ``test`` (with ``arguments``) meets it."""

    test: Callable[..., None]
    arguments: dict[str, Any]
    kind: type[Mechanism] | None = None
    places: dict[str, Any] = field(default_factory=dict)
    expected: type[Exception] = AssertionError


LEDGER = "operators.mechanisms.publishing.BudgetLedger"
MOVING = test_likelihood.test_a_transcript_tells_a_moving_user_s_presence_as_much_as_was_charged_and_no_more
LONG_RUN = test_budget.test_no_window_of_a_long_random_run_spends_more_than_epsilon
SEEN = test_pan_private.test_publications_and_one_offer_that_was_seen_stay_within_epsilon
EVERY_DRAW = test_mechanisms.test_every_draw_was_charged_before_and_has_the_scale_of_its_charge

MUTATIONS = {
    "independent group budgets, told by a user who moves": Mutation(
        MOVING, {"case": "budget-absorption groups"}, IndependentGroups, {LEDGER: PermissiveLedger}
    ),
    "independent group budgets, refused by the ledger": Mutation(
        MOVING, {"case": "budget-absorption groups"}, IndependentGroups, expected=BudgetExceeded
    ),
    "a FAST schedule for each column, told by a user who moves": Mutation(
        test_likelihood.test_fast_protects_a_user_who_is_in_another_column_at_each_timestamp,
        {},
        ScheduleForEachColumn,
        {LEDGER: PermissiveLedger},
    ),
    "a FAST schedule for each column, refused by the ledger": Mutation(
        test_budget.test_many_columns_are_sampled_together,
        {"window": 40},
        ScheduleForEachColumn,
        expected=BudgetExceeded,
    ),
    "blocks of FAST too short": Mutation(
        test_budget.test_no_schedule_of_samples_spends_more_than_epsilon_in_a_window,
        {"window": 4, "samples": 1},
        BlocksTooShort,
        expected=BudgetExceeded,
    ),
    "the printed pan-private rule, a third of the remainder": Mutation(
        SEEN, {"kind": "budget-distribution", "window": 7}, PrintedThird
    ),
    "a pan-private share that is not halved": Mutation(
        SEEN, {"kind": "budget-absorption", "window": 7}, WholeShare
    ),
    "reused noise inside a timestamp": Mutation(
        test_pan_private.test_a_release_has_noise_that_no_counter_had,
        {"kind": "budget-distribution"},
        ReusedNoise,
    ),
    "reused noise inside a timestamp, told by the likelihood": Mutation(
        test_pan_private.test_counters_and_releases_together_tell_no_more_than_epsilon,
        {"kind": "budget-distribution", "seen": 0, "first": ((0, 0), (1, 0)), "second": ((1, 0), (0, 0))},
        ReusedNoise,
    ),
    "counters never seeded anew": Mutation(
        test_pan_private.test_what_was_seen_before_a_reseed_does_not_tell_what_arrived_after_it,
        {},
        places={"tests.contract.test_pan_private.Accumulators": NeverReseeded},
    ),
    "noise divided among groups": Mutation(
        MOVING, {"case": "budget-distribution groups"}, GroupsPaidInHalves
    ),
    "shift without bound": Mutation(
        LONG_RUN,
        {"kind": "budget-distribution groups anew each time, shift", "window": 7, "share": 0.5},
        UnboundedShift,
        expected=BudgetExceeded,
    ),
    "half noise, told by the scale": Mutation(EVERY_DRAW, {"case": "uniform"}, HalfNoise),
    "half noise, told by a user who moves": Mutation(MOVING, {"case": "uniform"}, HalfNoise),
    "float Laplace": Mutation(
        test_noise.test_draws_have_the_exact_distribution,
        {"scale": Fraction(1)},
        places={"tests.unit.privacy.test_noise.SeededNoise": FloatNoise},
    ),
    "noise seeded twice": Mutation(
        test_mechanisms.test_no_two_publications_carry_the_same_noise, {"case": "uniform"}, SeededTwice
    ),
    "first timestamp with two units": Mutation(
        test_budget_absorption.test_the_first_timestamp_is_offered_one_share_and_the_second_two,
        {},
        FirstWithTwoUnits,
    ),
    "off-by-one window": Mutation(
        LONG_RUN, {"kind": "budget-distribution", "window": 7, "share": 0.5}, places={LEDGER: ForgetfulLedger}
    ),
}


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
def test_a_broken_variant_fails_the_named_test_which_passes_without_it(
    mutation: Mutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation.test(**mutation.arguments)
    if mutation.kind is not None:
        kinds: Any = PAN_PRIVATE if issubclass(mutation.kind, PanPrivate) else KINDS
        monkeypatch.setitem(kinds, mutation.kind.kind, mutation.kind)
    for place, broken in mutation.places.items():
        monkeypatch.setattr(place, broken)
    with pytest.raises(mutation.expected):
        mutation.test(**mutation.arguments)
