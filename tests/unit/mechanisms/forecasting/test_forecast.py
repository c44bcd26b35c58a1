"""The parts of a forecast, each against its plain definition; and what the whole makes of counts."""

from __future__ import annotations

import numpy as np
import pytest

from eventveil.mechanisms.forecasting import evidence
from eventveil.mechanisms.forecasting.forecast import Forecast
from eventveil.mechanisms.forecasting.harmonics import of_periods
from eventveil.mechanisms.forecasting.longrun import LongRun
from eventveil.mechanisms.forecasting.regression import AMPLITUDE, CONSTANT, Classes, Regression
from eventveil.mechanisms.forecasting.scatter import Scatter

DRAW = np.random.default_rng(8)


@pytest.mark.parametrize("periods", [(24, 168), (7,), (2, 14), (4, 7), (3, 8), (288, 2016)])
def test_harmonics_are_different_and_none_is_constant(periods: tuple[int, ...]) -> None:
    harmonics = of_periods(periods)
    assert len(set(harmonics.frequencies)) == len(harmonics.frequencies)
    assert all(0 < 2 * one <= 1 for one in harmonics.frequencies)
    cycle = periods[0] * periods[-1]
    assert np.allclose(harmonics.at(3), harmonics.at(3 + cycle))
    assert harmonics.terms == len(harmonics.at(1)) == 1 + 2 * len(harmonics.frequencies)


def test_a_regression_is_ridge_regression_for_each_nested_model_and_class() -> None:
    harmonics = of_periods((24, 168))
    levels = np.array([0.3, 20.0, 500.0])
    classes = Classes(levels)
    regression = Regression(harmonics, 3, 1.0)
    rows, values = [], []
    for timestamp in range(0, 300, 3):
        rows.append(harmonics.at(timestamp))
        values.append(levels * (1 + np.sin(timestamp / 24 * 2 * np.pi)) + DRAW.normal(0, 2, 3))
        regression.learn(rows[-1], values[-1], 3.0, 1.0, 3)
    means, variances = regression.at(harmonics.at(1001), classes)
    for model, size in enumerate(harmonics.sizes):
        design = np.array(rows)[:, :size]
        prior = np.array([CONSTANT, *(AMPLITUDE * one for one in harmonics.weights)])[:size]
        for column in range(3):
            ridge = np.diag(1 / (prior * (0.25 * 4.0 ** classes.of[column]) ** 2))
            covariance = np.linalg.inv(design.T @ design / 4 + ridge)
            terms = harmonics.at(1001)[:size]
            expected = terms @ covariance @ design.T @ np.array(values)[:, column] / 4
            assert means[model, column] == pytest.approx(expected)
            assert variances[model, column] == pytest.approx(terms @ covariance @ terms)


@pytest.mark.parametrize("level", [0.0, 3.0, 37.0])
def test_a_column_that_is_alone_has_the_prior_of_its_own_level(level: float) -> None:
    harmonics = of_periods((7,))
    regression, terms = Regression(harmonics, 1, 1.0), harmonics.at(1)
    regression.learn(terms, np.array([level]), 3.0, 1.0, 1)
    prior = np.array([CONSTANT, *(AMPLITUDE * one for one in harmonics.weights)]) * max(level, 0.25) ** 2
    covariance = np.linalg.inv(np.outer(terms, terms) / 4 + np.diag(1 / prior))
    _, uncertain = regression.at(harmonics.at(3), Classes(np.array([level])))
    assert uncertain[0, 0] == pytest.approx(harmonics.at(3) @ covariance @ harmonics.at(3))


def test_one_class_and_many_give_the_same_means() -> None:
    harmonics = of_periods((7,))
    regression = Regression(harmonics, 2, 0.99)
    for timestamp in range(30):
        regression.learn(harmonics.at(timestamp), np.array([50.0, 50.0]), 2.0, 50.0, 1)
    alone = regression.at(harmonics.at(3), Classes(np.array([50.0, 50.0])))
    mixed = regression.at(harmonics.at(3), Classes(np.array([50.0, 1e6])))
    for one, other in zip(alone, mixed, strict=True):
        assert one[0, 0] == other[0, 0]


def test_a_long_run_level_is_a_mean_and_knows_what_noise_makes_of_it() -> None:
    run = LongRun(1, 1.0)
    for value in (3.0, 5.0, 10.0):
        run.learn(np.array([value]), 8.0, 2.0, 1)
    assert run.level[0] == pytest.approx(6)
    assert run.empty == pytest.approx(8 / 3)


def test_evidence_against_noise_is_weaker_for_one_laplace_number_than_for_many() -> None:
    noise = 2.0
    one = evidence.sizes(np.array([4 * np.sqrt(noise)]), noise, noise)[0]
    many = evidence.sizes(np.array([4 * np.sqrt(noise / 1e6)]), noise / 1e6, noise)[0]
    assert one == pytest.approx(2.7, abs=0.1)
    assert many == pytest.approx(4, abs=0.01)
    assert evidence.sizes(np.array([-4.0, 0.0]), noise, noise).tolist()[1] == 0
    assert evidence.sizes(np.array([-4.0]), noise, noise)[0] < 0


def test_the_cut_lets_few_empty_columns_pass_and_all_that_stand_out() -> None:
    empty = DRAW.normal(size=100_000)
    assert evidence.above_cut(empty).mean() < 1e-4
    full = np.concatenate([empty[:1000], np.full(50, 4.5)])
    assert evidence.above_cut(full)[-50:].all()
    assert evidence.above_cut(np.array([3.95, 0.0])).tolist() == [True, False]
    assert not evidence.above_cut(np.array([3.85, 0.0])).any()


def test_a_column_that_is_alone_is_more_likely_to_be_there() -> None:
    assert evidence.above_cut(np.array([2.65])).all()
    assert not evidence.above_cut(np.array([2.55])).any()
    # With normal noise it is asked at every timestamp.
    assert evidence.above_cut(np.array([3.75]), normal=True).all()
    assert not evidence.above_cut(np.array([3.65]), normal=True).any()


def test_noise_is_seldom_taken_for_a_column_that_is_alone() -> None:
    noise = 200.0
    drawn = np.random.default_rng(8).laplace(0, np.sqrt(noise / 2), 20_000)
    taken = [evidence.above_cut(evidence.sizes(drawn[k : k + 1], noise, noise))[0] for k in range(len(drawn))]
    assert 0 < np.mean(taken) < 1 / 300


def test_scatter_is_learned_beyond_what_is_known_and_shared() -> None:
    levels, known = np.full(200, 100.0), np.full(200, 50.0)
    above = np.arange(200) < 150
    scatter = Scatter(200)
    for _ in range(200):
        scatter.learn(DRAW.normal(0, np.sqrt(50 + 400), 200) ** 2, known, levels, above)
    assert scatter.phi[above].mean() == pytest.approx(4, rel=0.15)
    assert scatter.phi[~above] == pytest.approx(scatter.phi[above].mean(), rel=0.15)


def learned(periods: tuple[int, ...], levels: np.ndarray, timestamps: int, every: int = 3) -> Forecast:
    """A forecast of Poisson counts around ``levels``, shape (timestamps, columns), with a little noise."""
    forecast = Forecast(levels.shape[1], 24, periods)
    for timestamp in range(1, timestamps, every):
        noisy = DRAW.poisson(levels[timestamp]) + np.rint(DRAW.laplace(0, 8, levels.shape[1]))
        forecast.learn(noisy, 128.0, timestamp)
    return forecast


def test_a_season_is_foreseen_where_it_is_declared() -> None:
    hours = np.arange(2000)[:, np.newaxis]
    levels = 200 * (1 + 0.9 * np.sin(2 * np.pi * (hours / 24 + np.array([0.0, 0.2, 0.5]))))

    def error(periods: tuple[int, ...]) -> float:
        forecast = learned(periods, levels, 1500)
        return float(np.mean([np.abs(forecast.shown(t)[0] - levels[t]) for t in range(1500, 1524)]))

    assert error((24,)) < 12
    assert error((24, 168)) < 14
    assert error(()) > 60


def test_small_columns_share_the_season_of_large_ones() -> None:
    season = 1 + 0.9 * np.sin(2 * np.pi * np.arange(800)[:, np.newaxis] / 24)
    levels = season * np.array([400.0] * 3 + [12.0] * 30)
    forecast = learned((24,), levels, 700)
    night, day = 24 * 29 + 18, 24 * 29 + 6
    assert forecast.shown(day)[0][3:].mean() > 2 * forecast.shown(night)[0][3:].mean()


def test_empty_columns_are_expected_to_be_zero_and_full_ones_are_not() -> None:
    levels = np.tile(np.where(np.arange(40) < 30, 0.0, 60.0), (400, 1))
    forecast = learned((24, 168), levels, 300)
    expected = forecast.shown(301)[0]
    assert np.count_nonzero(expected[:30]) <= 1
    assert np.abs(expected[30:] - 60).max() < 30


def test_columns_beyond_the_limit_have_no_season_of_their_own_but_the_shared_one() -> None:
    few, many = Forecast(5000, 24, (24, 168)), Forecast(6000, 24, (24, 168))
    assert "own" in few.snapshot()
    assert "own" not in many.snapshot()
    assert "profile" in many.snapshot()


@pytest.mark.parametrize("periods", [(), (7,), (24, 168)])
@pytest.mark.parametrize("columns", [1, 3, 5000])
def test_a_forecast_goes_on_bit_by_bit_from_its_state(columns: int, periods: tuple[int, ...]) -> None:
    levels = np.tile(np.linspace(0, 90, columns), (30, 1))
    forecast = learned(periods, levels, 20, every=2)
    other = forecast.restored(forecast.snapshot(), 24)
    other.published, other.last = forecast.published, forecast.last
    assert other.snapshot() == forecast.snapshot()
    for timestamp in (21, 23, 26):
        assert other.shown(timestamp)[0].tobytes() == forecast.shown(timestamp)[0].tobytes()
        noisy = levels[timestamp] + timestamp % 3
        one, two = (each.learn(noisy, 50.0, timestamp) for each in (forecast, other))
        assert one.tobytes() == two.tobytes()
    assert other.snapshot() == forecast.snapshot()


@pytest.mark.parametrize("few", [2, 10, 15])
def test_a_few_columns_that_become_many_are_shown_as_after_a_restart(few: int) -> None:
    """The noise of the last publication is not in the state of a few columns, and many are compared by it."""
    running = Forecast(few, 24, ())
    running.learn(np.rint(3.0 * np.arange(few)), 800.0, 1)
    again = Forecast(few, 24, ()).restored(running.snapshot(), 24)
    again.published, again.last = running.published, running.last
    more = 4.0 * np.arange(20 - few), 50.0, 24
    one, other = running.grown(*more), again.grown(*more)
    assert one.snapshot() == other.snapshot()
    assert np.array_equal(one.shown(2), other.shown(2))


def test_many_columns_of_which_a_few_stay_are_shown_as_after_a_restart_when_they_are_many_again() -> None:
    running = Forecast(20, 24, ())
    running.learn(np.rint(3.0 * np.arange(20)), 800.0, 1)
    few = running.kept(np.arange(20) < 10, 24)
    again = Forecast(10, 24, ()).restored(few.snapshot(), 24)
    again.published, again.last = few.published, few.last
    more = np.zeros(10), 50.0, 24
    one, other = few.grown(*more), again.grown(*more)
    assert one.snapshot() == other.snapshot()
    assert np.array_equal(one.shown(2), other.shown(2))
