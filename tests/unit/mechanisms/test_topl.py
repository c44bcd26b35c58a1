"""The side of the worker: reports are added up until there are enough, then one threshold, then sums."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest

from eventveil.local.control import hybrid, purpose, square_wave, thresholds
from eventveil.mechanisms.base import RELEASE_LIMIT, Mechanism, Release
from eventveil.mechanisms.local_estimator import distribution, pruned, threshold
from eventveil.mechanisms.registry import KINDS, LOCAL_KINDS, build, find, known
from eventveil.model.errors import UnfitSetting
from eventveil.privacy.ledger import Spend
from eventveil.privacy.noise import SystemNoise
from tests.unit.local.streams import AFTER, EPSILON, LABELS, MAXIMUM, counts_of, local_stream, send


def made(**options: Any) -> Mechanism:
    settings = local_stream().mechanism
    settings = replace(settings, options={**settings.options, **options})
    return build(settings, len(LABELS), 1, SystemNoise())


def shown(release: Release) -> list[int]:
    """Sum, reports, unused."""
    return list(release.counts.tolist())


FIRST, SECOND = ([value % 9 for value in range(count)] for count in (AFTER - 1, 50))


def test_square_wave_reports_are_added_up_until_there_are_enough() -> None:
    mechanism = made()
    for first, second in ((FIRST[:200], 200), (FIRST[200:], AFTER - 201)):
        release = mechanism.step(counts_of(send(first)))
        assert shown(release) == [0, second, 0]
        assert (release.phase, release.threshold, mechanism.threshold) == ("distribution", None, None)
    release = mechanism.step(counts_of(send(SECOND)))
    assert (release.phase, release.threshold) == ("distribution", mechanism.threshold)
    assert release.threshold in thresholds(MAXIMUM)
    release = mechanism.step(counts_of([]))
    assert (release.phase, release.threshold) == ("sums", mechanism.threshold)


def test_the_threshold_is_the_best_public_one_of_all_reports_so_far() -> None:
    mechanism = made()
    sent = [send(FIRST), send(SECOND, seed=2)]
    for one in sent:
        release = mechanism.step(counts_of(one))
    wave = square_wave(EPSILON, MAXIMUM)
    counts = counts_of(sent[0] + sent[1])[: wave.wave.outputs]
    shares = pruned(distribution(wave, counts))
    assert release.threshold == threshold(shares, MAXIMUM, EPSILON, 1000, thresholds(MAXIMUM))
    # Values are 0..8, so the half of the range that nobody uses is not paid for.
    assert 5 <= (release.threshold or 0) <= 20


def at_sums() -> Mechanism:
    mechanism = made()
    mechanism.step(counts_of(send([*FIRST, *SECOND])))
    assert mechanism.threshold is not None
    return mechanism


def test_sums_are_those_of_the_reports_to_the_nearest_integer() -> None:
    mechanism = at_sums()
    theta = mechanism.threshold or 0
    for seed, count in ((1, 1), (2, 7), (3, 500)):
        sent = send([value % 30 for value in range(count)], theta, seed)
        exact = sum(hybrid(EPSILON, theta).estimate(int(one.rpartition("/")[2])) for one in sent)
        assert shown(mechanism.step(counts_of(sent))) == [round(exact), count, 0]
    assert shown(mechanism.step(counts_of([]))) == [0, 0, 0]


def test_a_sum_beyond_what_a_release_can_show_is_cut() -> None:
    mechanism = at_sums()
    counts = np.zeros(len(LABELS), np.int64)
    counts[LABELS.index(f"{purpose(EPSILON, MAXIMUM, mechanism.threshold)}/1")] = RELEASE_LIMIT
    assert shown(mechanism.step(counts)) == [RELEASE_LIMIT, RELEASE_LIMIT, 0]


def test_what_does_not_fit_the_phase_is_shown_and_never_summed() -> None:
    mechanism = made()
    stray = send([3, 4, 5], 12)
    assert shown(mechanism.step(counts_of([*send([1, 2]), *stray]))) == [0, 2, 3]
    mechanism = at_sums()
    others = [one for one in thresholds(MAXIMUM) if one != mechanism.threshold]
    stray = [*send([1, 2]), *(report for other in others for report in send([5], other))]
    assert shown(mechanism.step(counts_of(stray))) == [0, 0, 2 + len(others)]


def test_every_timestamp_is_charged_what_a_report_has_cost() -> None:
    mechanism = made()
    assert mechanism.window_spent == 0
    for _ in range(3):
        release = mechanism.step(counts_of([]))
        assert (release.fresh, release.test, release.publish) == (True, 0, mechanism.units)
        assert release.window_spent == mechanism.window_spent == mechanism.units
    kind = find("topl")
    assert kind.can_spend(Spend(0, 10), 1, 10, 1, {})
    for spend in (Spend(0, 0), Spend(0, 9), Spend(1, 9), Spend(10, 0)):
        assert not kind.can_spend(spend, 1, 10, 1, {})


@pytest.mark.parametrize("restored", range(5))
def test_a_mechanism_that_is_restored_goes_on_as_if_nothing_had_been(restored: int) -> None:
    mechanism, twin = made(), made()
    for step in range(5):
        if step == restored:
            twin = made()
            twin.restore(mechanism.snapshot())
            assert twin.snapshot() == mechanism.snapshot()
            assert twin.threshold == mechanism.threshold
        sent = send([value % 9 for value in range(120)], mechanism.threshold, seed=step)
        one, other = mechanism.step(counts_of(sent)), twin.step(counts_of(sent))
        assert shown(one) == shown(other)
        assert (one.phase, one.threshold) == (other.phase, other.threshold)
    assert mechanism.threshold is not None


def test_a_threshold_that_is_durable_is_not_estimated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine may compute another one: what is in the state counts."""
    state = orjson.loads(at_sums().snapshot())
    other = next(one for one in thresholds(MAXIMUM) if one != state["threshold"])
    monkeypatch.setattr("eventveil.mechanisms.topl.local_estimator", None)
    mechanism = made()
    mechanism.restore(orjson.dumps({**state, "threshold": other}))
    sent = [*send([5] * 4, other), *send([5], state["threshold"]), *send([5] * AFTER)]
    release = mechanism.step(counts_of(sent))
    assert shown(release)[1:] == [4, 1 + AFTER]
    assert release.threshold == mechanism.threshold == other


def states(**changes: Any) -> bytes:
    mechanism = made()
    mechanism.step(counts_of(send([1, 2])))
    return orjson.dumps({**orjson.loads(mechanism.snapshot()), **changes})


@pytest.mark.parametrize(
    "state",
    [
        *(b"{oops", b"[]", b"{}"),
        states(more=1),
        states(settings={}),
        *(states(timestamp=value) for value in (-1, 2**63, "1", True)),
        *(states(threshold=value) for value in (-1, 17, MAXIMUM + 1, "1", True, None)),
        *(states(distribution=value) for value in ([], [1], "x", [-1] * 10, [0.5])),
        states(distribution=[AFTER] + [0] * (square_wave(EPSILON, MAXIMUM).wave.outputs - 1)),
        states(distribution=[-1] + [0] * (square_wave(EPSILON, MAXIMUM).wave.outputs - 1)),
        states(threshold=MAXIMUM),
    ],
)
def test_a_state_that_cannot_be_is_refused_and_changes_nothing(state: bytes) -> None:
    mechanism = made()
    before = mechanism.snapshot()
    with pytest.raises(ValueError, match=r"."):
        mechanism.restore(state)
    assert mechanism.snapshot() == before


@pytest.mark.parametrize("options", [{"estimate_after": 299}, {"range": 999}])
def test_a_state_of_other_settings_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="the state belongs to"):
        made(**options).restore(made().snapshot())


@pytest.mark.parametrize(
    "counts",
    [np.zeros(3, np.int64), np.zeros(len(LABELS)), np.full(len(LABELS), -1), np.full(len(LABELS), 2**41)],
)
def test_counts_that_cannot_be_change_nothing(counts: Any) -> None:
    mechanism = made()
    before = mechanism.snapshot()
    with pytest.raises(ValueError, match="counts should"):
        mechanism.step(counts)
    assert mechanism.snapshot() == before


@pytest.mark.parametrize("option", ["maximum", "estimate_after", "range"])
def test_settings_that_cannot_be_are_refused(option: str) -> None:
    with pytest.raises(UnfitSetting, match="expected a whole number"):
        made(**{option: 0})
    with pytest.raises(ValueError, match="columns should be those"):
        build(local_stream().mechanism, len(LABELS) - 1, 1, SystemNoise())


def test_it_takes_over_from_no_other_mechanism_and_is_no_kind_for_counts() -> None:
    with pytest.raises(ValueError, match="cannot begin where another"):
        made().inherit(b"{}", ())
    assert "topl" not in KINDS
    assert find("topl") is known("topl") is LOCAL_KINDS["topl"]


def test_sums_of_many_reports_come_close_to_those_of_cut_values() -> None:
    mechanism = at_sums()
    theta = mechanism.threshold or 0
    values = [value % 9 for value in range(4000)]
    release = mechanism.step(counts_of(send(values, theta, seed=9)))
    deviation = float(Fraction(theta)) * len(values) ** 0.5
    assert abs(shown(release)[0] - sum(min(value, theta) for value in values)) < 2 * deviation
