"""Seasonal: when it publishes, what it makes of what it published, and what state it takes back."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eventveil.mechanisms.base import Counts, Mechanism
from eventveil.mechanisms.forecasting.harmonics import periods_of
from eventveil.mechanisms.packing import packed
from eventveil.mechanisms.seasonal import Seasonal
from eventveil.model.errors import UnfitSetting
from eventveil.privacy.ledger import Spend
from eventveil.privacy.noise import SeededNoise
from tests.contract.noises import ZeroNoise, make

HOURS = {"periods": "24,168"}


def released(mechanism: Mechanism, streams: Counts) -> tuple[Counts, list[int]]:
    """What is released, and the timestamps that are published."""
    releases = [mechanism.step(counts) for counts in streams]
    published = [i for i, release in enumerate(releases, 1) if release.fresh]
    return np.array([release.counts for release in releases]), published


def seasonal(window: int, columns: int, epsilon: Fraction = Fraction(1), **options: str) -> Mechanism:
    return make("seasonal", SeededNoise(1), window, columns, epsilon=epsilon, **options)


def poisson(levels: Any, timestamps: int, columns: int = 30) -> Counts:
    return np.random.default_rng(5).poisson(levels, (timestamps, columns)).astype(np.int64)


def daily(level: float, timestamps: int, columns: int = 1) -> Counts:
    """Counts that are next to nothing at night."""
    hours = np.arange(timestamps)[:, np.newaxis] % 24
    return poisson(np.where((hours > 5) & (hours < 22), level, 0.2), timestamps, columns)


def test_a_day_and_a_night_are_told_apart_although_a_window_is_a_day() -> None:
    counts = daily(40, 24 * 60)
    found, published = released(seasonal(24, 1, **HOURS), counts)
    assert len({(timestamp - 1) % 24 for timestamp in published}) == 24
    assert np.abs(found[-480:] - counts[-480:]).mean() < 7
    without, _ = released(make("paced", SeededNoise(1), 24, 1), counts)
    assert np.abs(without[-480:] - counts[-480:]).mean() > 15


def test_counts_that_stay_are_published_rarely_and_those_that_run_at_every_timestamp() -> None:
    _, still = released(seasonal(40, 30, Fraction(1, 10)), poisson(100, 800))
    assert np.median(np.diff(still)) >= 20
    levels = 500 * np.exp(np.cumsum(np.random.default_rng(6).normal(0, 0.2, (400, 30)), axis=0))
    _, running = released(seasonal(40, 30), levels.astype(np.int64))
    assert np.median(np.diff(running)) == 1


def test_columns_that_do_not_rise_above_the_noise_are_zero_and_the_others_are_not() -> None:
    levels = np.where(np.arange(30) < 20, 0.1, 300.0)
    counts, _ = released(seasonal(40, 30, **HOURS), poisson(levels, 400))
    assert np.count_nonzero(counts[100:, :20]) < 0.1 * counts[100:, :20].size
    assert np.abs(counts[100:, 20:] - 300).mean() < 30


def test_a_jump_is_followed_at_the_next_publication() -> None:
    streams = np.where(np.arange(400)[:, np.newaxis] < 200, 100, 5000) * np.ones((1, 30), np.int64)
    counts, published = released(seasonal(40, 30, **HOURS), streams)
    after = next(timestamp for timestamp in published if timestamp > 200)
    assert np.abs(counts[after:] - 5000).max() < 500


def test_one_column_and_a_window_of_one_are_possible() -> None:
    counts, published = released(seasonal(1, 1, **HOURS), np.full((20, 1), 700))
    assert published == list(range(1, 21))
    assert np.abs(counts - 700).max() < 20


def test_a_first_publication_that_shows_nothing_is_followed_by_another_phase() -> None:
    mechanism = make("seasonal", ZeroNoise(), 24, 1, **HOURS)
    _, published = released(mechanism, np.zeros((40, 1), np.int64))
    assert published[:2] == [1, 10]


def test_a_night_at_the_beginning_does_not_cost_a_long_window_its_budget() -> None:
    mechanism = make("seasonal", ZeroNoise(), 720, 1, **HOURS)
    spent = [mechanism.step(np.array([0])).publish for _ in range(40)]
    assert np.flatnonzero(spent).tolist() == [0, 9, 18]
    assert spent[0] == spent[9] < sum(spent) / 10
    assert sum(spent) == mechanism.units


def test_what_the_first_noise_made_large_does_not_stay_large() -> None:
    counts = poisson(5, 90, 2000)
    found, published = released(seasonal(720, 2000, periods="7"), counts)
    assert published[:2] == [1, 3]
    assert found[2:].sum() == pytest.approx(counts[2:].sum(), rel=0.1)


def test_many_small_columns_that_are_alike_err_by_less_than_each_alone() -> None:
    counts = np.broadcast_to(np.where(np.arange(400) < 300, 8, 30), (60, 400))
    together, _ = released(seasonal(24, 400, Fraction(1, 2), periods="7"), counts)
    alone, _ = released(seasonal(24, 15, Fraction(1, 2), periods="7"), counts[:, 290:305])
    error = np.abs(together[:, 290:305] - counts[:, 290:305])[30:].mean()
    assert error < 0.75 * np.abs(alone - counts[:, 290:305])[30:].mean()


def test_a_first_look_that_showed_nothing_does_not_blur_a_far_better_one() -> None:
    counts = np.where(np.arange(400) < 300, 5, 15) * np.ones((3, 1), np.int64)
    found, published = released(seasonal(720, 400, periods="7"), counts)
    assert published == [1, 3]
    assert np.abs(found[2] - counts[2]).mean() < 0.9  # one count's noise errs by 1.1


def test_the_expected_error_is_that_of_fresh_counts_of_predictions_and_of_zeros() -> None:
    levels = np.array([0.1, 4.0, 30.0, 300.0])
    season = 1 + 0.8 * np.sin(2 * np.pi * np.arange(1200)[:, np.newaxis] / 24)
    mechanism = seasonal(24, 4, **HOURS)
    within: list[list[float]] = [[], []]
    for counts in poisson(levels * season, 1200, 4):
        release = mechanism.step(counts)
        assert release.error is not None
        within[release.fresh].append(np.abs(release.counts - counts) <= 1.96 * release.error)
    for some in within:
        assert 0.9 <= np.mean(some) <= 0.99
        assert (np.mean(some, axis=0) >= 0.85).all()


def test_the_expected_error_is_the_same_after_a_restart() -> None:
    mechanism, other = (make("seasonal", ZeroNoise(), 24, 2, **HOURS) for _ in range(2))
    for _ in range(30):
        errors = [one.step(np.array([40, 7])).error for one in (mechanism, other)]
        here, there = (np.asarray(error) for error in errors)
        assert here.dtype == np.float64
        assert here.tobytes() == there.tobytes()
        other = make("seasonal", ZeroNoise(), 24, 2, **HOURS)
        other.restore(mechanism.snapshot())


def test_what_errs_is_learned_from_columns_above_the_noise_or_the_only_one() -> None:
    """Others are nearly empty, often thousands: what is right of these says nothing of large ones."""
    streams = daily(3, 200, 40)
    hidden, alone = (seasonal(24, columns, Fraction(1, 20), **HOURS) for columns in (40, 1))
    for counts in streams:
        release = hidden.step(counts)
        alone.step(counts[:1])
    assert isinstance(hidden, Seasonal)
    assert isinstance(alone, Seasonal)
    assert not hidden._forecast.above.any()
    assert hidden._calibration.snapshot() == [0.0, 0.0]
    assert alone._calibration.snapshot()[1] > 0
    assert release.error is not None
    assert release.error == pytest.approx(np.sqrt(hidden._forecast.unseen(200)), rel=1e-6)


def replayed() -> str:
    """A digest of what a replay with a seed releases, and of its state: the last bit of anything counts."""
    mechanism = make("seasonal", SeededNoise(5), 24, 5, epsilon=Fraction(1, 2), **HOURS)
    found, _ = released(mechanism, daily(90, 120, 5) + np.arange(5) * 7)
    return hashlib.sha256(found.tobytes() + mechanism.snapshot()).hexdigest()


def test_a_seeded_replay_gives_the_bits_of_the_versions_before() -> None:
    mechanism = make("seasonal", SeededNoise(6), 24, 6, **HOURS)
    hours = np.arange(100)[:, np.newaxis]
    streams = hours % 24 * np.array([0, 1, 2, 5, 20, 40]) + hours * 7 % 5 + 300 * (hours > 70)
    found, _ = released(mechanism, streams)
    releases, state = (hashlib.sha256(one).hexdigest() for one in (found.tobytes(), mechanism.snapshot()))
    assert releases == "458975c7e4ebeb0074db76f1a60cfbdfa35ddd0a5441bb100e52cee84e649e4e"
    assert state == "811b768bbd14d093b3db00c32a48aebe7b65eae47766dfa484d6a4ea4ed367fa"


def test_a_seeded_replay_gives_the_same_bits_on_a_processor_without_vector_instructions() -> None:
    program = "from tests.unit.mechanisms.test_seasonal import replayed; print(replayed())"
    features = (
        "SSE41 POPCNT SSE42 AVX F16C FMA3 AVX2 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL"
    )
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, "NPY_DISABLE_CPU_FEATURES": features},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == replayed()


@pytest.mark.parametrize(
    "text", ["1", "0,24", "24,24", "168,24", "2,3,4", "24,", ",", "a", "024", "9999999", 24]
)
def test_periods_that_cannot_be_are_refused(text: Any) -> None:
    with pytest.raises(UnfitSetting, match="expected at most 2 different"):
        periods_of({"periods": text})


def test_periods_are_in_the_notes_for_check() -> None:
    (with_some,), (with_none,) = (one.notes for one in (seasonal(24, 1, **HOURS), seasonal(24, 1)))
    assert "Seasons of 24 and 168 timestamps" in with_some
    assert "No season is expected" in with_none


def test_the_audit_knows_what_a_timestamp_can_have_cost() -> None:
    units = 2 * 24 * 2**20
    for spend, possible in {
        Spend(0, 0): True,
        Spend(0, units): True,
        Spend(0, units // 24): True,
        Spend(0, units // 24 * 3 // 5 - 1): False,
        Spend(0, units + 1): False,
        Spend(1, units // 2): False,
    }.items():
        assert Seasonal.can_spend(spend, 24, units, 3, HOURS) == possible


def test_a_state_of_before_the_noise_of_a_look_was_kept_is_read() -> None:
    mechanism, other = (seasonal(24, 40, **HOURS) for _ in range(2))
    for row in poisson(60, 30, 40):
        mechanism.step(row)
    state = json.loads(mechanism.snapshot())
    assert state["forecast"].pop("noise")
    other.restore(json.dumps(state).encode())
    assert "noise" in json.loads(other.snapshot())["forecast"]
    few = json.loads(seasonal(24, 15, **HOURS).snapshot())["forecast"]
    assert "noise" not in few  # nothing depends on it: an earlier version can go on


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("published", 9),
        ("published", [1]),
        ("published", [5, 5]),
        ("published", [4, 2]),
        ("interval", 0),
        ("interval", 4),
        ("due", -1),
        ("decided", 99),
        ("forecast", {}),
        ("forecast.level", packed(np.zeros((2, 2)))),
        ("forecast.variance", packed(np.full((17, 2), -1.0))),
        ("forecast.variance", packed(np.full((8, 2), -1.0))),
        ("forecast.empty", packed(np.zeros((1, 2)))),
        ("forecast.score", packed(np.ones((14, 2)))),
        ("forecast.scatter", packed(-np.ones((3, 2)))),
        ("forecast.above", None),
        ("owed", 3.0),
        ("owed", 1),
        ("forecast.estimate", packed(-np.ones((2, 2)))),
        ("forecast.long", {"sum": packed(np.zeros(2)), "shared": packed(np.full(4, -1.0))}),
        ("forecast.long", None),
        ("forecast.own", None),
        ("forecast.own.moments", packed(-np.eye(37))),
        ("forecast.profile", {}),
        ("forecast.profile.season", 1),
    ],
)
def test_a_state_that_cannot_be_is_refused(field: str, value: Any) -> None:
    mechanism = make("seasonal", SeededNoise(2), 6, 2, **HOURS)
    for _ in range(4):
        mechanism.step(np.array([50, 60]))
    before = mechanism.snapshot()
    damaged = json.loads(before)
    part, names = damaged, field.split(".")
    for name in names[:-1]:
        part = part[name]
    assert names[-1] in part
    part[names[-1]] = value
    with pytest.raises(ValueError, match="should"):
        mechanism.restore(json.dumps(damaged).encode())
    assert mechanism.snapshot() == before


def heir(of: Mechanism, epsilon: Fraction = Fraction(1, 4), **settings: Any) -> Mechanism:
    """What a migration to these terms makes of a mechanism, where nothing else has changed."""
    made = seasonal(**{"window": 12, "columns": 2, "epsilon": epsilon, **HOURS, **settings})
    made.inherit(of.snapshot(), [])
    made.recall(of.snapshot())
    return made


def lived(timestamps: int) -> tuple[Mechanism, Counts]:
    """One of a stream that has days and nights, and the counts that follow."""
    counts = daily(200, timestamps + 48, 2)
    made = seasonal(24, 2, **HOURS)
    released(made, counts[:timestamps])
    return made, counts[timestamps:]


@pytest.mark.parametrize("timestamps", [240, 250])
def test_under_other_terms_it_continues_its_forecast_at_the_hour_that_it_is(timestamps: int) -> None:
    before, counts = lived(timestamps)
    found, _ = released(heir(before), counts)
    anew, _ = released(seasonal(12, 2, Fraction(1, 4), **HOURS), counts)
    assert 2 * np.abs(found - counts).mean() < np.abs(anew - counts).mean()
    # Also after the next change.
    middle = heir(before)
    first, _ = released(middle, counts[:7])
    second, _ = released(heir(middle, Fraction(1, 8), window=24), counts[7:])
    assert 2 * np.abs(np.concatenate([first, second]) - counts).mean() < np.abs(anew - counts).mean()


def test_what_continues_a_forecast_is_the_same_after_a_restart() -> None:
    before, counts = lived(250)
    one = heir(before)
    for at, row in enumerate(counts):
        other = seasonal(12, 2, Fraction(1, 4), **HOURS)
        other.restore(one.snapshot())
        assert other.snapshot() == one.snapshot()
        if at:
            other._noise = one._noise  # type: ignore[attr-defined]  # the same draws
        one = other
        one.step(row)
    assert json.loads(one.snapshot())["published"][2] == 250


@pytest.mark.parametrize("settings", [{"periods": "24"}, {"periods": ""}])
def test_a_forecast_of_other_periods_is_not_continued(settings: dict[str, Any]) -> None:
    before, _ = lived(60)
    assert len(json.loads(heir(before, **settings).snapshot())["published"]) == 2


def test_a_state_of_another_kind_teaches_nothing_and_a_damaged_one_is_refused() -> None:
    other = make("paced", SeededNoise(1), 24, 2)
    released(other, daily(200, 30, 2))
    assert len(json.loads(heir(other).snapshot())["published"]) == 2
    before, _ = lived(60)
    state = json.loads(before.snapshot())
    made = seasonal(12, 2, **HOURS)
    for damaged in ({**state, "published": [5, 61]}, {name: state[name] for name in state if name != "owed"}):
        with pytest.raises(ValueError, match=r"published|owed"):
            made.recall(json.dumps(damaged).encode())
