"""Broken variants, each with the test that finds it: a test that no defect can fail proves nothing.

None of them is anywhere but here and in ``tests.contract.broken``. A variant takes the place of what the
named test looks up, and the test must fail, which passes without it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest

from eventveil.mechanisms.base import Mechanism
from eventveil.mechanisms.pan_private import PAN_PRIVATE, PanPrivate
from eventveil.mechanisms.registry import KINDS
from eventveil.model.errors import BudgetExceeded
from tests.contract import (
    test_budget,
    test_levels,
    test_likelihood,
    test_mechanisms,
    test_pan_private,
    test_rollups,
    test_totals,
)
from tests.contract.broken import counting, levels, pan_private, reports, values, windows
from tests.unit.counting import test_bounding, test_bounding_by_origin, test_users
from tests.unit.local import test_reports
from tests.unit.mechanisms import test_budget_absorption, test_event_level
from tests.unit.privacy import test_noise
from tests.unit.tasks import test_pan_private as test_pan_private_task
from tests.unit.values import checks, test_privacy


@dataclass(frozen=True)
class Mutation:
    """``kind``, ``places`` and ``patch`` say what the variant replaces, so that ``test`` meets it."""

    test: Callable[..., None]
    arguments: dict[str, Any] = field(default_factory=dict)
    kind: type[Mechanism] | None = None
    places: dict[str, Any] = field(default_factory=dict)
    patch: Callable[[pytest.MonkeyPatch], None] | None = None
    expected: type[Exception] | tuple[type[Exception], ...] = AssertionError


pytestmark = pytest.mark.slow

LEDGER = "eventveil.mechanisms.publishing.BudgetLedger"
PERMISSIVE = {LEDGER: windows.PermissiveLedger}
MOVING = test_likelihood.test_a_transcript_tells_a_moving_user_s_presence_as_much_as_was_charged_and_no_more
LONG_RUN = test_budget.test_no_window_of_a_long_random_run_spends_more_than_epsilon
WHATEVER_FAILS = (
    test_pan_private_task.test_whatever_fails_each_timestamp_is_released_once_with_the_truth_or_given_up
)
SEEN = test_pan_private.test_publications_and_one_offer_that_was_seen_stay_within_epsilon
EVERY_DRAW = test_mechanisms.test_every_draw_was_charged_before_and_has_the_scale_of_its_charge
VALUE = test_privacy.test_one_value_costs_exactly_epsilon
PLAIN, SMOOTHED = ({"make": checks.STREAMS[smoothed]} for smoothed in (0, 1))
REPORT = test_reports.test_a_report_costs_epsilon_and_not_more
UNLIKELY = (AssertionError, KeyError)  # a key: a probability outside of 0..1 was asked for
ONE_TIMESTAMP = test_levels.test_one_timestamp_of_a_user_costs_epsilon_and_no_more
FROM_NOISY = test_levels.test_what_is_decided_follows_from_noisy_counts_alone
SAMPLED = {"samples": Fraction(1), "horizon": 4}
IN_BLOCKS = test_totals.test_one_timestamp_of_a_user_costs_epsilon_and_no_more
MONITOR = test_event_level.test_a_sampled_monitor_costs_what_it_is_charged
GROUPS_ANEW = "budget-distribution groups anew each time, shift"


def on_reports(patch: Callable[[pytest.MonkeyPatch], None], wave: bool) -> Mutation:
    tables = test_reports.wave_masses if wave else test_reports.hybrid_masses
    arguments = {"tables": tables, "epsilon": Fraction(1)}
    return Mutation(REPORT, arguments, patch=patch, expected=UNLIKELY)


MUTATIONS = {
    "independent group budgets: told by a user who moves": Mutation(
        MOVING, {"case": "budget-absorption groups"}, windows.IndependentGroups, PERMISSIVE
    ),
    "independent group budgets: refused by the ledger": Mutation(
        MOVING, {"case": "budget-absorption groups"}, windows.IndependentGroups, expected=BudgetExceeded
    ),
    "independent group budgets: noise divided among groups": Mutation(
        MOVING, {"case": "budget-distribution groups"}, windows.GroupsPaidInHalves
    ),
    "per-column FAST schedules: told by a user who moves": Mutation(
        test_likelihood.test_fast_protects_a_user_who_is_in_another_column_at_each_timestamp,
        {"samples": 1},
        windows.ScheduleForEachColumn,
        PERMISSIVE,
    ),
    "per-column FAST schedules: refused by the ledger": Mutation(
        test_budget.test_many_columns_are_sampled_together,
        {"window": 40},
        windows.ScheduleForEachColumn,
        expected=BudgetExceeded,
    ),
    "a forecast of true counts: what it learns": Mutation(
        MOVING, {"case": "seasonal periods"}, windows.LearnsTrueCounts
    ),
    "a forecast of true counts: when it looks again": Mutation(
        MOVING, {"case": "seasonal"}, windows.WaitsByTrueCounts
    ),
    "a forecast that spends what a window does not have": Mutation(
        LONG_RUN,
        {"kind": "seasonal", "window": 7, "share": 0.5},
        windows.SpendsWhatItLikes,
        expected=BudgetExceeded,
    ),
    "eps_rm/3 pan-private rule": Mutation(
        SEEN, {"kind": "budget-distribution", "window": 7}, pan_private.PrintedThird
    ),
    "eps_rm/3 pan-private rule: a share that is not halved": Mutation(
        SEEN, {"kind": "budget-absorption", "window": 7}, pan_private.WholeShare
    ),
    "reused noise inside a timestamp": Mutation(
        test_pan_private.test_a_release_has_noise_that_no_counter_had,
        {"kind": "budget-distribution"},
        pan_private.ReusedNoise,
    ),
    "reused noise inside a timestamp: told by the likelihood": Mutation(
        test_pan_private.test_counters_and_releases_together_tell_no_more_than_epsilon,
        {"kind": "budget-distribution", "seen": 0, "first": ((0, 0), (1, 0)), "second": ((1, 0), (0, 0))},
        pan_private.ReusedNoise,
    ),
    "reused noise inside a timestamp: two looks": Mutation(
        test_pan_private_task.test_a_timestamp_is_looked_at_once_and_with_half_of_its_time_left,
        places={"tests.unit.tasks.test_pan_private.PanPrivateStream": pan_private.SeenTwice},
    ),
    "counters that were seen, counted again": Mutation(
        test_pan_private_task.test_whoever_fails_after_a_look_gives_the_timestamp_up,
        places={"tests.unit.tasks.test_pan_private.PanPrivateStream": pan_private.CountedAgain},
    ),
    "a timestamp given up whose budget is offered again": Mutation(
        test_pan_private.test_a_timestamp_that_is_given_up_costs_what_a_publication_costs,
        {"kind": "budget-absorption", "intrusion": "single"},
        pan_private.FreeForfeit,
        expected=BudgetExceeded,
    ),
    "counters of one timestamp: what was passed over is not read again": Mutation(
        WHATEVER_FAILS,
        {"seed": 3},
        places={"eventveil.tasks.pan_private.SingleCounter": pan_private.ReadAhead},
    ),
    "counters of one timestamp: closed before it is read again": Mutation(
        WHATEVER_FAILS,
        {"seed": 3},
        places={"eventveil.tasks.pan_private.SingleAggregator": pan_private.KeepsClock},
    ),
    "SHP3 with true counts: the next sample": Mutation(
        FROM_NOISY, {"kind": "shp-adaptive", "options": SAMPLED}, levels.ComparesTrueCounts
    ),
    "SHP3 with true counts: whether the prediction will do": Mutation(
        FROM_NOISY, {"kind": "shp-adaptive", "options": SAMPLED}, levels.AcceptsTrueCounts
    ),
    "SHP3 with true counts: the groups of a window": Mutation(
        FROM_NOISY,
        {"kind": "shp-point", "options": {"horizon": 4, "span": 4, "parts": 2}},
        levels.PartitionsTrueCounts,
    ),
    "SHP3 with as many samples as it likes": Mutation(
        test_levels.test_no_sequence_of_surprises_spends_more_than_epsilon_in_a_horizon,
        {},
        levels.NeverStops,
        expected=BudgetExceeded,
    ),
    "SHP1 with a window that reaches back into the last horizon": Mutation(
        test_levels.test_a_window_does_not_reach_back_into_the_last_horizon, {}, levels.RemembersWindow
    ),
    "RG with a publication that does not empty the group": Mutation(
        ONE_TIMESTAMP,
        {"kind": "retroactive-grouping", "options": test_levels.GROUPING, "at": 2},
        levels.KeepsGroup,
    ),
    "RG with a monitor for free": Mutation(
        ONE_TIMESTAMP,
        {"kind": "retroactive-grouping", "options": test_levels.GROUPING, "at": 1},
        levels.MonitorsForFree,
    ),
    "totals: two blocks with the same draw": Mutation(
        IN_BLOCKS, {"blocks": "2", "length": 4, "at": 1}, levels.BlocksOfTheSameNoise
    ),
    "totals: draws of a timestamp drawn twice": Mutation(
        IN_BLOCKS, {"blocks": "2", "length": 4, "at": 1}, levels.DrawsTwice
    ),
    "totals: one level too few in the scale": Mutation(
        IN_BLOCKS, {"blocks": "2", "length": 4, "at": 1}, levels.OneLevelTooFew
    ),
    "totals: one level too few in the scale: of the charge": Mutation(
        EVERY_DRAW, {"case": "totals"}, levels.OneLevelTooFew
    ),
    "roll-ups that are not paid for": Mutation(
        test_rollups.test_one_event_costs_its_timestamp_s_charge_and_no_more,
        {"kind": "uniform", "rollups": "2", "visit": (0, 1)},
        levels.RollsUpForFree,
    ),
    "totals: a level that is forgotten": Mutation(
        IN_BLOCKS, {"blocks": "2", "length": 4, "at": 1}, levels.ForgetsTheHighest
    ),
    "unscaled sampled counts": Mutation(MONITOR, {"rate": Fraction(1, 4)}, levels.UnscaledSample),
    "inverted threshold count": Mutation(
        test_privacy.test_the_threshold_cuts_off_few_values, patch=values.inverted_count
    ),
    "one level too few in the budget split": Mutation(VALUE, PLAIN, patch=values.one_level_too_few_paid),
    "one level too few in the budget split: smoothed": Mutation(
        VALUE, SMOOTHED, patch=values.one_level_too_few_paid
    ),
    "one level too few in the budget split: one more is drawn": Mutation(
        VALUE, PLAIN, patch=values.one_level_too_many_drawn
    ),
    "one level too many in the budget split": Mutation(VALUE, PLAIN, patch=values.one_level_too_many_paid),
    "one level too many in the budget split: smoothed": Mutation(
        VALUE, SMOOTHED, patch=values.one_level_too_many_paid
    ),
    "clip on one side only: above": Mutation(VALUE, PLAIN, patch=values.no_lower_clip),
    "clip on one side only: below": Mutation(VALUE, PLAIN, patch=values.no_upper_clip),
    "clip on one side only: Square Wave": on_reports(reports.clipped_on_one_side, wave=True),
    "clip on one side only: Hybrid": on_reports(reports.clipped_on_one_side, wave=False),
    "half noise: told by the scale": Mutation(EVERY_DRAW, {"case": "uniform"}, windows.HalfNoise),
    "half noise: told by a user who moves": Mutation(MOVING, {"case": "uniform"}, windows.HalfNoise),
    "half noise: ToPS": Mutation(VALUE, PLAIN, patch=values.half_noise),
    "half noise: threshold": Mutation(
        test_privacy.test_a_threshold_costs_at_most_epsilon,
        {"kind": "laplace"},
        patch=values.half_threshold_noise,
    ),
    "half noise: Square Wave": on_reports(reports.half_noise, wave=True),
    "half noise: Hybrid": on_reports(reports.half_noise, wave=False),
    "float Laplace": Mutation(
        test_noise.test_draws_have_the_exact_distribution,
        {"scale": Fraction(1)},
        places={"tests.unit.privacy.test_noise.SeededNoise": windows.FloatNoise},
    ),
    "float Laplace: ToPS": Mutation(
        test_privacy.test_nothing_is_random_but_the_noise_handed_in, patch=values.float_laplace
    ),
    "noise seeded twice": Mutation(
        test_mechanisms.test_no_two_publications_carry_the_same_noise,
        {"case": "uniform"},
        windows.SeededTwice,
    ),
    "noise seeded twice: ToPS": Mutation(
        test_privacy.test_every_chunk_has_noise_of_its_own, patch=values.noise_drawn_once
    ),
    "first timestamp with two units": Mutation(
        test_budget_absorption.test_the_first_timestamp_is_offered_one_share_and_the_second_two,
        {},
        windows.FirstWithTwoUnits,
    ),
    "shift without bound": Mutation(
        LONG_RUN,
        {"kind": GROUPS_ANEW, "window": 7, "share": 0.5},
        windows.UnboundedShift,
        expected=BudgetExceeded,
    ),
    "off-by-one window": Mutation(
        LONG_RUN,
        {"kind": "budget-distribution", "window": 7, "share": 0.5},
        places={LEDGER: windows.ForgetfulLedger},
    ),
    "off-by-one window: blocks of FAST": Mutation(
        test_budget.test_no_schedule_of_samples_spends_more_than_epsilon_in_a_window,
        {"window": 4, "samples": 1},
        windows.BlocksTooShort,
        expected=BudgetExceeded,
    ),
    "a user hash that decides": Mutation(
        test_users.test_users_are_told_apart_by_all_of_their_bytes,
        places={"tests.unit.counting.test_users.Users": counting.HashDecides},
    ),
    "a place in the table that decides": Mutation(
        test_bounding.test_many_users_are_told_apart_although_their_places_collide,
        places={"tests.unit.counting.test_bounding.Contributions": counting.PlaceDecides},
    ),
    "a user hash that decides: re-keyed events": Mutation(
        test_bounding_by_origin.test_the_earliest_events_of_every_user_count,
        places={
            "tests.unit.counting.test_bounding_by_origin.EarliestContributions": counting.EarliestHashDecides
        },
    ),
    "the order of reading decides": Mutation(
        test_bounding_by_origin.test_the_earliest_events_of_every_user_count,
        places={"tests.unit.counting.test_bounding_by_origin.EarliestContributions": counting.FirstReadCount},
    ),
    "predictions of sums": Mutation(
        test_privacy.test_predictions_are_of_values_and_not_of_sums, patch=values.undivided_guess
    ),
    "a power of e rounded up: Square Wave": on_reports(reports.ratio_rounded_up, wave=True),
    "a power of e rounded up: Hybrid": on_reports(reports.ratio_rounded_up, wave=False),
    "outputs that only some values can give: Square Wave": on_reports(reports.narrow_outputs, wave=True),
    "outputs that only some values can give: Hybrid": on_reports(reports.narrow_outputs, wave=False),
}


#: Mistakes that were printed or made before: none of them may drop out of the table.
NAMED = (
    "independent group budgets",
    "per-column FAST schedules",
    "eps_rm/3 pan-private rule",
    "reused noise inside a timestamp",
    "SHP3 with true counts",
    "unscaled sampled counts",
    "inverted threshold count",
    "one level too few in the budget split",
    "one level too many in the budget split",
    "clip on one side only",
    "half noise",
    "float Laplace",
    "noise seeded twice",
    "first timestamp with two units",
    "shift without bound",
    "off-by-one window",
    "a user hash that decides",
)


def test_no_known_mistake_is_missing() -> None:
    table = {name.split(": ")[0] for name in MUTATIONS}
    assert [name for name in NAMED if name not in table] == []


#: Tests, with their arguments, that passed without a variant.
PASSED: set[tuple[Callable[..., None], str]] = set()


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
def test_a_broken_variant_fails_the_named_test_which_passes_without_it(
    mutation: Mutation, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = dict(mutation.arguments)
    if "monkeypatch" in inspect.signature(mutation.test).parameters:
        arguments["monkeypatch"] = monkeypatch
    # Once is enough for variants that the same test finds.
    sound = mutation.test, repr(mutation.arguments)
    if sound not in PASSED:
        mutation.test(**arguments)
        PASSED.add(sound)
    if mutation.kind is not None:
        kinds: Any = PAN_PRIVATE if issubclass(mutation.kind, PanPrivate) else KINDS
        monkeypatch.setitem(kinds, mutation.kind.kind, mutation.kind)
    for place, broken in mutation.places.items():
        monkeypatch.setattr(place, broken)
    if mutation.patch is not None:
        mutation.patch(monkeypatch)
    with pytest.raises(mutation.expected):
        mutation.test(**arguments)
