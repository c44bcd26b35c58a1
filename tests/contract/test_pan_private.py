"""What an intruder sees, and what is released besides: together no more than epsilon."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from eventveil.mechanisms.base import Counts
from eventveil.mechanisms.pan_private import PAN_PRIVATE, Counters, PanPrivate
from eventveil.model.topology import MechanismSettings, Option
from eventveil.privacy.ledger import Spend
from eventveil.privacy.noise import NoiseSource, SeededNoise
from tests.contract.noises import COLUMNS, ForcedNoise, ProbingNoise, ZeroNoise, attach
from tests.contract.test_likelihood import EPSILON, FLOAT_ERROR, BlackBox, _log_mass

EVERY_KIND = pytest.mark.parametrize("kind", sorted(PAN_PRIVATE))
EVERY_INTRUSION = pytest.mark.parametrize("intrusion", ["single", "announced"])
NOTHING = np.zeros(COLUMNS, np.int64)


def make(
    kind: str,
    noise: NoiseSource,
    window: int = 3,
    intrusion: str = "single",
    columns: int = COLUMNS,
    epsilon: Fraction = Fraction(1),
    sensitivity: int = 1,
    **options: Option,
) -> PanPrivate:
    settings = MechanismSettings(
        kind, epsilon, str(epsilon), window, options={"pan_private": intrusion, **options}
    )
    mechanism = PAN_PRIVATE[kind](settings, columns, sensitivity, noise)
    attach(mechanism)
    return mechanism


def offered(mechanism: PanPrivate) -> int:
    """Units of the next timestamp's offer: twice those of the counters' noise; sensitivity and epsilon 1."""
    scale = mechanism.opening()
    return 0 if scale is None else int(2 * mechanism.units / scale)


@EVERY_KIND
def test_what_it_protects_and_what_that_costs_is_said(kind: str) -> None:
    said = " ".join(make(kind, ZeroNoise()).notes)
    assert "twice the variance" in said
    assert "Not protected: the raw topic" in said


# Budgets


@EVERY_KIND
@pytest.mark.parametrize("window", [1, 2, 3, 7])
def test_publications_and_one_offer_that_was_seen_stay_within_epsilon(kind: str, window: int) -> None:
    """Over every sequence of decisions, with the intrusion at the worst of the timestamps that repeat."""
    length, worst = min(window + 4, 9), 0
    for decisions in itertools.product((True, False), repeat=length):
        mechanism = make(kind, ForcedNoise(decisions), window)
        charged, seen = [], []
        for _ in range(length):
            offer = offered(mechanism)
            release = mechanism.step(NOTHING)
            spend = Spend(release.test, release.publish)
            assert mechanism.can_spend(spend, window, mechanism.units, COLUMNS, {"pan_private": "single"})
            charged.append(release.test + release.publish)
            seen.append(0 if release.fresh else offer)
        for start in range(length):
            window_of = slice(start, start + window)
            worst = max(worst, sum(charged[window_of]) + max(seen[window_of]))
    assert worst <= mechanism.units
    assert worst >= mechanism.units * 2 // 3


@EVERY_KIND
@EVERY_INTRUSION
def test_a_timestamp_that_is_given_up_costs_what_a_publication_costs(kind: str, intrusion: str) -> None:
    """Over every sequence of repetitions, publications and failures, seen at the worst repetition."""
    window, length, worst = 3, 6, 0
    for course in itertools.product(("repeat", "publish", "forfeit"), repeat=length):
        mechanism = make(
            kind, ForcedNoise([one == "publish" for one in course if one != "forfeit"]), window, intrusion
        )
        charged, seen = [], []
        for one in course:
            offer, before = offered(mechanism), mechanism.step
            release = mechanism.forfeit() if one == "forfeit" else before(NOTHING)
            spend = Spend(release.test, release.publish)
            assert mechanism.can_spend(spend, window, mechanism.units, COLUMNS, {"pan_private": intrusion})
            if one == "forfeit":
                assert (release.fresh, release.publish, bool(release.test)) == (False, offer, offer > 0)
            charged.append(release.test + release.publish)
            seen.append(0 if release.publish or intrusion == "announced" else offer)
        for start in range(length):
            window_of = slice(start, start + window)
            worst = max(worst, sum(charged[window_of]) + max(seen[window_of]))
    assert mechanism.units * 2 // 3 <= worst <= mechanism.units


@EVERY_KIND
def test_what_is_given_up_draws_nothing_and_repeats_the_last_release(kind: str) -> None:
    class NoMore(ZeroNoise):
        def discrete_laplace(self, scale: Fraction, size: int) -> Counts:
            raise AssertionError("nothing should be drawn")

    mechanism = make(kind, ZeroNoise(), 5)
    mechanism.step(np.array([2**30, 0]))
    state, last = mechanism.snapshot(), mechanism.step(NOTHING).counts
    again = make(kind, NoMore(), 5)
    again.restore(state)
    assert again.forfeit().counts.tolist() == [2**30, 0] != last.tolist()


@EVERY_KIND
def test_an_announced_intrusion_forces_the_publication_and_is_charged_like_any(kind: str) -> None:
    for decisions in itertools.product((True, False), repeat=6):
        forced = make(kind, ForcedNoise([]), 3, "announced")
        free = make(kind, ForcedNoise([True] * 6), 3, "announced")
        for intruded in decisions:
            if not intruded:
                continue
            forced.announce()
            expected, release = free.step(NOTHING), forced.step(NOTHING)
            assert (release.fresh, release.publish) == (expected.fresh, expected.publish)
            assert release.test == 0  # nothing was asked of the counts
            spend = Spend(release.test, release.publish)
            assert forced.can_spend(spend, 3, forced.units, COLUMNS, {"pan_private": "announced"})


@EVERY_KIND
@EVERY_INTRUSION
def test_the_counters_start_with_half_of_the_offer_that_is_charged(kind: str, intrusion: str) -> None:
    mechanism = make(kind, ForcedNoise([True] * 12), 4, intrusion)
    for _ in range(12):
        offer = offered(mechanism)
        before = mechanism.snapshot()
        assert offered(mechanism) == offer
        assert mechanism.snapshot() == before  # asking changes nothing
        assert mechanism.step(NOTHING).publish == offer


# Likelihood


def largest_loss(
    kind: str,
    arrivals: list[tuple[tuple[int, ...], tuple[int, ...]]],
    seen: int | None,
    counted_again: bool = False,
) -> float:
    """The largest |log ratio| with and without a user in a window of two; an intruder looks at ``seen``.

    ``arrivals``: per timestamp, what the user adds before and after the moment of the intrusion. Where nobody
    looks, the seed noise is given away, which can only make the loss larger. If it is ``counted_again``, the
    counters that were seen are lost, and others, with seeds that are given away, count everything.
    """
    noise = ProbingNoise()
    mechanism = make(kind, noise, 2, epsilon=EPSILON)
    box = BlackBox(mechanism, noise)
    largest = 0.0
    pending: list[tuple[int, bytes, float]] = [(0, mechanism.snapshot(), 0.0)]
    while pending:
        i, state, loss = pending.pop()
        if i == len(arrivals):
            continue
        mechanism.restore(state)
        scale = mechanism.opening()
        before, after = (np.array(part) for part in arrivals[i])
        for cells in [NOTHING] if scale is None else [np.array(v) for v in ((-2, 3), (3, -2), (3, 3))]:
            if scale is None:
                ours, theirs, told = NOTHING, NOTHING, 0.0
            elif i == seen:
                ours, theirs = cells, cells + after + before * counted_again
                told = _log_mass(cells, scale) - _log_mass(cells - before, scale)
            else:
                ours, theirs, told = cells, cells + before + after, 0.0
            pairs = zip(box.outcomes(state, ours), box.outcomes(state, theirs), strict=True)
            for one, other in pairs:
                assert one.state == other.state
                if one.state is None:
                    continue
                now = loss + told + one.likelihood - other.likelihood
                largest = max(largest, abs(now))
                pending.append((i + 1, one.state, now))
    return largest


HERE, THERE, NOWHERE = (1, 0), (0, 1), (0, 0)


@pytest.mark.slow
@EVERY_KIND
@pytest.mark.parametrize("seen", [None, 0, 1])
@pytest.mark.parametrize("first", [(HERE, NOWHERE), (NOWHERE, HERE)])
@pytest.mark.parametrize("second", [(HERE, NOWHERE), (NOWHERE, THERE)])
def test_counters_and_releases_together_tell_no_more_than_epsilon(
    kind: str, seen: int | None, first: Any, second: Any
) -> None:
    assert 0 < largest_loss(kind, [first, second], seen) <= EPSILON + FLOAT_ERROR
    assert 0 < largest_loss(kind, [first, second], seen, counted_again=True) <= EPSILON + FLOAT_ERROR


# Counters


def test_counters_hold_noise_before_they_hold_events() -> None:
    counters = Counters(1000, Fraction(50), SeededNoise(1))
    seeds = SeededNoise(1).discrete_laplace(Fraction(50), 1000)
    assert counters.cells.tolist() == seeds.tolist()
    counters.add(np.array([3, 5, 3]))
    assert (counters.cells - seeds).tolist() == [0, 0, 0, 2, 0, 1, *[0] * 994]
    counters.wipe()
    assert counters.cells.tolist() == [0] * 1000


@EVERY_KIND
def test_a_release_has_noise_that_no_counter_had(kind: str) -> None:
    """Otherwise the release minus what was seen is exactly what arrived in between."""
    columns = 1000
    mechanism = make(kind, SeededNoise(2), 3, "announced", columns)
    scale = mechanism.opening()
    assert scale is not None
    counters = Counters(columns, scale, SeededNoise(3))
    mechanism.announce()
    error = mechanism.step(counters.cells).counts - counters.cells
    assert 0.8 < np.abs(error).mean() / float(scale) < 1.2


# The test


@EVERY_KIND
def test_the_magnitude_of_the_seeds_noise_is_taken_off_the_dissimilarity(kind: str) -> None:
    """Empty streams: what seeds add up to is not taken for a change of the counts."""
    columns = 400
    mechanism = make(kind, SeededNoise(4), 5, columns=columns)
    nothing = np.zeros(columns, np.int64)
    assert sum(mechanism.on_truth(nothing).fresh for _ in range(30)) <= 2


# State and refusals


@EVERY_KIND
@EVERY_INTRUSION
@pytest.mark.parametrize("options", [{}, {"groups": 2, "regroup": 2}, {"shift": "true"}], ids=str)
def test_a_restored_mechanism_goes_on_as_if_nothing_had_happened(
    kind: str, intrusion: str, options: dict[str, Any]
) -> None:
    noise = SeededNoise(5)
    one = make(kind, SeededNoise(5), 3, intrusion, **options)
    other = make(kind, noise, 3, intrusion, **options)
    for i in range(25):
        cells = NOTHING if one.opening() is None else np.array([-(i % 7) * 90, 300 * (i // 5)])
        for mechanism in (one, other):
            if intrusion == "announced" and i % 4 == 0:
                mechanism.announce()
        state = other.snapshot()
        other = make(kind, noise, 3, intrusion, **options)
        other.restore(state)
        assert other.snapshot() == state
        assert one.step(cells).counts.tolist() == other.step(cells).counts.tolist()
    assert one.snapshot() == other.snapshot()


@EVERY_KIND
def test_settings_that_cannot_be_are_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="single or announced"):
        make(kind, ZeroNoise(), intrusion="twice")
    with pytest.raises(ValueError, match="too small"):
        make(kind, ZeroNoise(), epsilon=Fraction(1, 10**14))


@EVERY_KIND
def test_an_unannounced_intrusion_cannot_be_announced(kind: str) -> None:
    with pytest.raises(ValueError, match="nobody notices"):
        make(kind, ZeroNoise()).announce()


def test_counts_of_a_timestamp_that_discards_its_events_are_refused() -> None:
    mechanism = make("budget-absorption", ForcedNoise([False, True]), 3)
    mechanism.step(NOTHING)
    mechanism.step(NOTHING)  # two shares: the next timestamp is nullified
    assert mechanism.opening() is None
    with pytest.raises(ValueError, match="discards its events"):
        mechanism.step(np.array([0, 1]))


@EVERY_KIND
def test_counters_beyond_all_noise_are_refused(kind: str) -> None:
    far: Counts = np.array([0, 2**61])
    with pytest.raises(ValueError, match="counts should lie"):
        make(kind, ZeroNoise()).step(far)
