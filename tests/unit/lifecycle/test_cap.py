"""What generations that have ended released counts against the budget of the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import orjson
import pytest

from eventveil.audit.history import History
from eventveil.describe.sums import timestamps_met
from eventveil.formats.change import Terms
from eventveil.lifecycle.apply import count_pending
from eventveil.lifecycle.cap import _cost, check_cap
from eventveil.model.errors import StateRefused
from eventveil.model.timeline import start_of
from eventveil.model.topology import Budget, Stream
from eventveil.privacy import gaussian
from tests.unit.lifecycle.test_migration import ONE, TWO, terms
from tests.unit.migrating import Lifetime
from tests.unit.support import stream, topology

DELTA = Fraction(1, 10**6)
GAUSSIAN = {"options": {"noise": "gaussian", "delta": DELTA}}
#: Milliseconds. They meet at most three timestamps of 10: one window of 3.
SPAN = 20


def check(
    budget: Budget,
    life: Lifetime,
    *,
    since: int = 0,
    again: str | None = "visits",
    more: Stream | None = None,
) -> None:
    """Hold a stream that has lived, and one ``more`` with the same ledger, against a budget."""
    streams = [life.stream] if more is None else [life.stream, more]
    histories: Mapping[str, History] = {one.name: life.history for one in streams}
    check_cap(replace(topology(*streams), budget=budget), histories, since, again)


def test_another_generation_is_charged_to_the_cap() -> None:
    life = Lifetime(**terms("uniform", ONE, 3))
    life.release(3)
    check(Budget(TWO, SPAN), life)
    with pytest.raises(
        StateRefused,
        match=r"visits, generation 1\) cost epsilon 1, with all streams .* 2, above the cap of 1\.9",
    ):
        check(Budget(Fraction(19, 10), SPAN), life)


def test_another_generation_is_charged_to_the_cap_on_delta() -> None:
    life = Lifetime(**terms("uniform", ONE, 3), **GAUSSIAN)
    life.release(3)
    check(Budget(Fraction(9), SPAN, delta=2 * DELTA), life)
    with pytest.raises(
        StateRefused, match=r"have delta 1e-06, with all streams .* 2e-06, above the cap of 1e-06"
    ):
        check(Budget(Fraction(9), SPAN, delta=DELTA), life)


def test_generations_of_other_streams_over_the_same_people_count_too() -> None:
    """Two streams begin again, one after the other: four generations."""
    life = Lifetime(**terms("uniform", ONE, 3))
    life.release(3)
    other = stream("second", **terms("uniform", ONE, 3))
    check(Budget(Fraction(3), SPAN), life, more=other)
    life.reset()
    life.release(3)
    check(Budget(Fraction(5), SPAN), life, again="second", more=other)
    with pytest.raises(
        StateRefused, match=r"visits, generation 1, second, generation 1, second, generation 2"
    ):
        check(Budget(Fraction(4), SPAN), life, again="second", more=other)


def test_larger_terms_are_held_against_the_cap_beside_earlier_generations() -> None:
    life = Lifetime(**terms("uniform", ONE, 3))
    life.release(3)
    life.reset()
    life.release(3)
    check(Budget(TWO, SPAN), life, again=None)
    life.settings |= terms("uniform", TWO, 3)
    with pytest.raises(
        StateRefused, match=r"the streams over users: .* now 3, above the cap of 2\. .* nothing"
    ):
        check(Budget(TWO, SPAN), life, again=None)


def test_a_generation_counts_with_the_dearest_terms_that_it_had() -> None:
    life = Lifetime(**terms("uniform", TWO, 3))
    life.release(3)
    life.change(**terms("uniform", ONE, 3))
    life.release(3)
    with pytest.raises(StateRefused, match=r"cost epsilon 2, with all streams .* 3, above"):
        check(Budget(Fraction(29, 10), SPAN), life)
    check(Budget(Fraction(3), SPAN), life)


def test_a_generation_that_no_span_meets_together_with_what_begins_costs_nothing_more() -> None:
    life = Lifetime(**terms("uniform", ONE, 3))
    life.release(3)
    end = start_of(life.stream.timeline, life.history.next)
    life.reset()
    life.release(3)
    (ended,) = life.history.ended
    assert start_of(life.stream.timeline, ended) == end
    check(Budget(ONE, SPAN), life, since=end + SPAN, again=None)
    with pytest.raises(StateRefused, match="above the cap"):
        check(Budget(ONE, SPAN), life, since=end + SPAN - 1, again=None)


def test_mu_squared_of_generations_with_gaussian_noise_adds_up_and_not_epsilon() -> None:
    """Where epsilon is as small as delta, four times mu squared is more than four times epsilon."""
    small = Fraction(1, 10_000)
    life = Lifetime(**terms("uniform", small, 1), options={"noise": "gaussian", "delta": small})
    life.release(3)
    both = gaussian.epsilon(6 * gaussian.mu_squared(small, small), 2 * small)
    check(Budget(both, SPAN), life)
    with pytest.raises(StateRefused, match="above the cap"):
        check(Budget(both * Fraction(999, 1000), SPAN), life)


def test_a_generation_whose_noise_is_correlated_is_charged_for_what_a_user_costs_who_stays() -> None:
    options = {"blocks": "2,4", "noise": "gaussian", "delta": DELTA}
    life = Lifetime(**terms("totals", ONE, 1), options=options)
    life.release(3)
    # Three timestamps, nine times mu squared: more than three epsilons.
    assert gaussian.epsilon(9 * gaussian.mu_squared(ONE, DELTA), DELTA) > 3
    both = gaussian.epsilon(18 * gaussian.mu_squared(ONE, DELTA), 2 * DELTA)
    check(Budget(both, SPAN), life)
    with pytest.raises(StateRefused, match="above the cap"):
        check(Budget(both - Fraction(1, 100), SPAN), life)


def test_the_dearest_level_is_assumed_of_a_plug_in_that_is_not_in_use_any_more() -> None:
    hour = 3_600_000
    one = stream(interval=hour)
    spans = [_cost(one, Terms(kind, ONE, 24, 1), 24 * hour).epsilon for kind in ("uniform", "gone:Class")]
    assert spans == [2, 25]


def test_while_a_span_meets_laplace_noise_the_savings_of_a_delta_do_not_count() -> None:
    """Over 3 windows of a timestamp each: 3 epsilon, of which the last two could be mu squared."""
    life = Lifetime(**terms("uniform", ONE, 1))
    life.release(3)
    life.change(**terms("uniform", TWO, 1), **GAUSSIAN)
    life.release(1)
    end = start_of(life.stream.timeline, life.history.changes[0].start)
    gaussian_alone = gaussian.epsilon(3 * gaussian.mu_squared(TWO, DELTA), DELTA)
    assert gaussian_alone < 4
    check(Budget(Fraction(4), SPAN), life, since=end + SPAN, again=None)
    check(Budget(Fraction(6), SPAN), life, since=end, again=None)
    with pytest.raises(
        StateRefused,
        match=r"any 20 milliseconds may still include former terms, and then cost epsilon 6, above",
    ):
        check(Budget(Fraction(59, 10), SPAN), life, since=end + SPAN - 1, again=None)


def test_a_change_to_gaussian_noise_is_held_against_the_cap_before_it_is_made() -> None:
    life = Lifetime(**terms("uniform", ONE, 1))
    life.release(3)
    life.settings |= {**terms("uniform", TWO, 1), **GAUSSIAN}
    now = start_of(life.stream.timeline, life.history.next)
    check(Budget(Fraction(6), SPAN), life, since=now, again=None)
    with pytest.raises(StateRefused, match="may still include former terms"):
        check(Budget(Fraction(4), SPAN), life, since=now, again=None)


def test_a_generation_that_changed_its_noise_counts_with_both_parts() -> None:
    life = Lifetime(**terms("uniform", ONE, 3))
    life.release(3)
    life.change(**terms("uniform", ONE, 3), **GAUSSIAN)
    life.release(3)
    life.reset()
    life.release(1)
    since = start_of(life.stream.timeline, life.history.first)
    both = ONE + gaussian.epsilon(2 * gaussian.mu_squared(ONE, DELTA), 2 * DELTA)
    check(Budget(both, SPAN), life, since=since, again=None)
    with pytest.raises(StateRefused, match="earlier generations"):
        check(Budget(both - Fraction(1, 100), SPAN), life, since=since, again=None)


def test_terms_that_nothing_was_released_under_cost_nothing_and_hide_no_delta() -> None:
    """A change before the first release says nothing of the noise; the first release does."""
    life = Lifetime(**terms("uniform", ONE, 3), **GAUSSIAN)
    life.change(**terms("uniform", ONE, 4))
    check(Budget(Fraction(9), SPAN, delta=DELTA), life, again=None)
    life.release(3)
    assert life.history.lives == [[life.checkpoint.terms]]
    check(Budget(Fraction(9), SPAN, delta=2 * DELTA), life)
    with pytest.raises(StateRefused, match="have delta 1e-06"):
        check(Budget(Fraction(9), SPAN, delta=DELTA), life)
    check(Budget(gaussian.epsilon(gaussian.mu_squared(ONE, DELTA), DELTA), SPAN), life, again=None)
    life.reset()
    life.reset()
    assert life.history.lives[1:] == [[], []]


def test_where_epsilon_is_as_small_as_delta_laplace_and_gaussian_noise_are_added() -> None:
    """There n times mu squared have more than n times the epsilon."""
    small = Fraction(1, 10_000)
    life = Lifetime(**terms("uniform", small, 1))
    life.release(3)
    life.change(options={"noise": "gaussian", "delta": small})
    life.release(1)
    now = start_of(life.stream.timeline, life.history.next)
    both = 3 * small + gaussian.epsilon(3 * gaussian.mu_squared(small, small), small)
    check(Budget(both, SPAN), life, since=now, again=None)
    with pytest.raises(StateRefused, match="may still include former terms"):
        check(Budget(both * Fraction(999, 1000), SPAN), life, since=now, again=None)


def test_terms_that_were_lowered_count_while_a_span_meets_them() -> None:
    """Another stream that begins then may not take what was given up just now."""
    life = Lifetime(**terms("uniform", Fraction(4), 1))
    life.release(3)
    life.change(**terms("uniform", ONE, 1))
    life.release(1)
    end = start_of(life.stream.timeline, life.history.changes[0].start)
    other = stream("second", **terms("uniform", Fraction(9), 3))
    histories = {"visits": life.history}

    def hold(cap: int, since: int) -> None:
        both = replace(topology(life.stream, other), budget=Budget(Fraction(cap), SPAN))
        check_cap(both, histories, since)

    hold(12, end + SPAN)
    hold(21, end)
    with pytest.raises(
        StateRefused, match=r"may still include former terms, and then cost epsilon 21, above"
    ):
        hold(20, end + SPAN - 1)


def test_a_span_across_a_change_may_cost_more_than_under_any_of_the_terms() -> None:
    """Three for three timestamps, then two for two: 3 + 2 + 2 in six, which cost 6 under either."""
    life = Lifetime(**terms("sample", Fraction(3), 3))
    life.release(1)
    life.settings |= terms("sample", TWO, 2)
    six = timestamps_met(50, life.stream.timeline.interval)
    assert six == 6
    begins = start_of(life.stream.timeline, life.history.next)
    one = replace(topology(life.stream), budget=Budget(Fraction(6), 50))
    with pytest.raises(StateRefused, match="may still include former terms, and then cost epsilon 9"):
        check_cap(one, {"visits": life.history}, begins)
    life.change(**terms("sample", TWO, 2))
    life.release(5)
    spent = [
        Fraction(entry["epsilon"]) * entry["spent"]["publish"] / entry["units"]
        for entry in map(orjson.loads, life.ledger)
        if "spent" in entry
    ]
    assert len(spent) == six
    assert sum(spent) == 7


def test_what_is_decided_and_not_published_counts() -> None:
    """A worker that stopped between its two transactions: what they charge will be in the ledger."""
    life = Lifetime(**terms("uniform", Fraction(4), 1))
    life.release(3, publish=False)
    life.settings |= terms("uniform", ONE, 1)
    begins = start_of(life.stream.timeline, life.checkpoint.state.next)
    one = replace(topology(life.stream), budget=Budget(Fraction(11), SPAN))
    history = life.history
    count_pending(history, "visits", life.checkpoint.pending_entries)
    with pytest.raises(StateRefused, match="may still include former terms, and then cost epsilon 12"):
        check_cap(one, {"visits": history}, begins)
    # A worker that runs has published some of it before the ledger was read.
    due = history.next
    count_pending(history, "visits", life.checkpoint.pending_entries)
    assert history.next == due


def test_deltas_and_epsilons_that_were_lowered_count_together() -> None:
    life = Lifetime(**terms("uniform", TWO, 1), **GAUSSIAN)
    life.release(3)
    life.change(**terms("uniform", ONE, 1), options={"noise": "gaussian", "delta": Fraction(1, 10**9)})
    life.release(1)
    now = start_of(life.stream.timeline, life.history.next)
    former = gaussian.epsilon(3 * gaussian.mu_squared(TWO, DELTA), DELTA)
    check(Budget(former, SPAN), life, since=now, again=None)
    with pytest.raises(StateRefused, match="may still include former terms"):
        check(Budget(former * Fraction(99, 100), SPAN), life, since=now, again=None)
