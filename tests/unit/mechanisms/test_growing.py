"""Further columns for a mechanism that is running: what was spent stays, and noise is as for all columns."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import orjson
import pytest

from eventveil.mechanisms.registry import KINDS, build
from eventveil.model.topology import MechanismSettings
from eventveil.privacy.noise import SeededNoise
from tests.unit.support import ZeroNoise

GROWING = sorted(kind for kind, of in KINDS.items() if of.grows)


def make(kind, columns=2, noise=None, window=4, periods="6", sensitivity=3):
    options = {"periods": periods} if kind == "seasonal" and periods else {}
    settings = MechanismSettings(kind, Fraction(2), "2", window, options=options)
    return build(settings, columns, sensitivity, noise or SeededNoise(2))


class Watched:
    """Noise that is zero, with what was asked for."""

    def __init__(self):
        self.asked = []

    def discrete_laplace(self, scale, size):
        self.asked.append((scale, size))
        return np.zeros(size, np.int64)


@pytest.mark.parametrize("kind", GROWING)
def test_what_was_spent_stays_and_no_window_holds_more(kind):
    one, spends = make(kind), []
    for step in range(30):
        before = one.window_spent
        if step in (3, 11, 12):
            one.grow([100.0, 7.0], 4.0)
            assert one.window_spent == before
        columns = orjson.loads(one.snapshot())["settings"]["columns"]
        release = one.step(np.full(columns, 50))
        spends.append(release.test + release.publish)
        assert len(release.counts) == columns
        assert release.error is None or len(release.error) in (1, columns)
    assert max(sum(spends[at : at + 4]) for at in range(27)) <= one.units
    assert columns == 8


@pytest.mark.parametrize("kind", GROWING)
def test_all_columns_have_noise_of_the_scale_that_was_charged(kind):
    noise = Watched()
    one = make(kind, noise=noise)
    for step in range(20):
        if step == 5:
            one.grow([10.0] * 3, 1.0)
        release = one.step(np.full(5 if step >= 5 else 2, 40))
        asked, noise.asked = noise.asked, []
        if release.publish:
            assert asked == [(3 * one.units / (release.publish * Fraction(2)), len(release.counts))]
        else:
            assert asked == []


@pytest.mark.parametrize("kind", GROWING)
@pytest.mark.parametrize("before", [0, 1, 9])
def test_a_state_goes_on_after_growing_as_a_run(kind, before):
    noise, other = SeededNoise(5), SeededNoise(5)
    running, stopped = make(kind, noise=noise), make(kind, noise=other)
    for one in (running, stopped):
        for step in range(before):
            one.step(np.array([30 + step, 4]))
        one.grow([25.5, 0.0, 3.0], 9.0)
    again = make(kind, columns=5, noise=other)
    again.restore(stopped.snapshot())
    for step in range(20):
        counts = np.array([30, 4, 25, 0, 3]) + step
        one, two = running.step(counts), again.step(counts)
        assert one.counts.tolist() == two.counts.tolist()
        assert np.array_equal(one.error, two.error)
    assert running.snapshot() == again.snapshot()


@pytest.mark.parametrize("kind", GROWING)
@pytest.mark.parametrize("before", [0, 1, 9])
def test_a_state_goes_on_after_columns_are_forgotten_as_a_run(kind, before):
    noise, other = SeededNoise(5), SeededNoise(5)
    kept = np.array([True, False, True, False])
    running, stopped = (make(kind, columns=4, noise=one) for one in (noise, other))
    for one in (running, stopped):
        for step in range(before):
            one.step(np.array([30 + step, 4, 70, 1]))
        spent = one.window_spent
        one.shrink(kept)
        assert one.window_spent == spent
    again = make(kind, columns=2, noise=other)
    again.restore(stopped.snapshot())
    for step in range(20):
        counts = np.array([35, 70]) + step
        one, two = running.step(counts), again.step(counts)
        assert one.counts.tolist() == two.counts.tolist()
        assert np.array_equal(one.error, two.error)
    assert running.snapshot() == again.snapshot()


@pytest.mark.parametrize("kind", GROWING)
def test_of_columns_that_are_kept_what_was_learned_stays(kind):
    one = make(kind, columns=4, noise=ZeroNoise(), window=12)
    for _ in range(40):
        last = one.step(np.array([500, 80, 300, 0]))
    one.shrink(np.array([True, False, True, False]))
    assert orjson.loads(one.snapshot())["last"] == last.counts[[0, 2]].tolist()
    release = one.step(np.array([500, 300]))
    assert np.abs(release.counts - last.counts[[0, 2]]).max() < 30
    one.grow([90.0], 4.0)
    assert len(one.step(np.array([500, 300, 90])).counts) == 3


@pytest.mark.parametrize("kind", GROWING)
def test_after_columns_are_forgotten_noise_is_that_of_what_was_charged(kind):
    noise = Watched()
    one = make(kind, columns=5, noise=noise)
    spends = []
    for step in range(24):
        if step in (5, 6):
            one.shrink(np.arange(5 if step == 5 else 3) < 8 - step)
        release = one.step(np.full(5 if step < 5 else 3 if step == 5 else 2, 40))
        spends.append(release.publish)
        asked, noise.asked = noise.asked, []
        scale = 3 * one.units / (release.publish * Fraction(2)) if release.publish else None
        assert asked == ([(scale, len(release.counts))] if scale else [])
    assert max(sum(spends[at : at + 4]) for at in range(21)) <= one.units


@pytest.mark.parametrize("kind", sorted({*KINDS} - {*GROWING}))
def test_other_kinds_keep_all_columns(kind):
    with pytest.raises(ValueError, match="keeps all"):
        KINDS[kind].shrink(object.__new__(KINDS[kind]), np.ones(2, bool))


@pytest.mark.parametrize("kept", [[False, True], [True], [1, 0]])
def test_the_first_column_is_kept_and_all_are_told_of(kept):
    with pytest.raises(ValueError, match="which stay"):
        make("uniform").shrink(np.array(kept))


@pytest.mark.parametrize("periods", ["", "6"])
def test_seasonal_expects_of_a_further_column_what_it_was_told(periods):
    one = make("seasonal", noise=ZeroNoise(), window=24, periods=periods)
    for _ in range(40):
        one.step(np.array([500, 80]))
    one.grow([300.0], 25.0)
    shown = [one.step(np.array([500, 80, 320])).counts.tolist() for _ in range(30)]
    assert all(abs(release[0] - 500) < 40 for release in shown)
    assert all(240 < release[2] < 400 for release in shown)
    assert abs(shown[-1][2] - 320) < 25


def test_columns_beyond_own_seasons_begin_anew_and_stay_sound(monkeypatch):
    from eventveil.mechanisms.forecasting import forecast

    monkeypatch.setattr(forecast, "OWN_SEASON_NUMBERS", 20)
    one = make("seasonal", window=12)
    for _ in range(10):
        one.step(np.array([50, 8]))
    one.grow([20.0] * 9, 4.0)
    again = make("seasonal", columns=11, window=12)
    again.restore(one.snapshot())
    assert len(one.step(np.full(11, 20)).counts) == 11


@pytest.mark.parametrize("kind", sorted({*KINDS} - {*GROWING}))
def test_other_kinds_take_no_further_columns(kind):
    with pytest.raises(ValueError, match="no further columns"):
        KINDS[kind].grow(object.__new__(KINDS[kind]), [1.0], 1.0)


def test_nothing_and_too_much_are_refused():
    one = make("uniform")
    for levels in ([], [1.0] * 2**20):
        with pytest.raises(ValueError, match="further columns"):
            one.grow(levels, 1.0)


def test_blocks_of_roll_ups_take_no_further_columns():
    settings = MechanismSettings("uniform", Fraction(1), "1", 4, options={"rollups": "2"})
    with pytest.raises(ValueError, match="roll-ups"):
        build(settings, 4, 1, SeededNoise(1)).grow([1.0, 2.0], 1.0)
    with pytest.raises(ValueError, match="roll-ups"):
        build(settings, 4, 1, SeededNoise(1)).shrink(np.ones(4, bool))
