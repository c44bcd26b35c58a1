"""Which intervals there are between publications, and which of them errs least."""

from __future__ import annotations

from math import gcd

import numpy as np
import pytest

from eventveil.mechanisms.forecasting.pace import PHASES, PaceOutlook, expected_error, first, intervals

WINDOWS = (1, 2, 5, 7, 20, 24, 40, 120, 168, 720, 10_000)
PERIODS = ((), (24, 168), (7,), (8, 56), (288, 2016), (2, 14))


@pytest.mark.parametrize("periods", PERIODS)
@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_can_pay_for_all_the_publications_it_can_hold(window: int, periods: tuple[int, ...]) -> None:
    for interval, parts in intervals(window, periods).items():
        assert parts == len(range(0, window, interval))
        assert interval >= 1


@pytest.mark.parametrize("periods", [one for one in PERIODS if one])
@pytest.mark.parametrize("window", WINDOWS)
def test_publications_meet_many_phases_of_every_period(window: int, periods: tuple[int, ...]) -> None:
    for interval in intervals(window, periods):
        for period in periods:
            assert period // gcd(interval, period) >= min(period, PHASES)


def test_no_interval_crawls_through_a_night_for_days() -> None:
    for window in WINDOWS:
        for interval in intervals(window, (24, 168)):
            assert interval <= 12 or 24 * 0.2 <= interval % 24 <= 24 * 0.8


@pytest.mark.parametrize(("scale", "parts"), [(0.1, 12), (1.0, 12), (10.0, 4), (100.0, 2), (1e6, 2)])
def test_the_first_publication_has_a_twelfth_of_the_budget_or_more_if_noise_is_large(
    scale: float, parts: int
) -> None:
    choices = intervals(720, ())
    assert choices[first(choices, 720, scale)] == pytest.approx(parts, abs=1)
    assert first(intervals(1, (24,)), 1, scale) == 1


@pytest.mark.parametrize(("drift", "interval"), [(0.0, 29), (1e6, 1)])
def test_counts_that_stay_are_published_rarely_and_those_that_run_often(drift: float, interval: int) -> None:
    outlook = PaceOutlook(np.full(3, drift), np.full(3, 1.0), np.zeros(3), 1000)
    choices = intervals(24, (24, 168))
    errors = {one: expected_error(one, 2.0 * (10 * parts) ** 2, outlook) for one, parts in choices.items()}
    assert min(errors, key=lambda one: errors[one]) == interval


def test_a_season_is_learned_from_few_accurate_publications_where_noise_exceeds_scatter() -> None:
    def best(seasons: float, noise: float) -> int:
        outlook = PaceOutlook(np.full(1, 0.01), np.full(1, 40.0), np.full(1, seasons), 500)
        choices = intervals(720, (24, 168))
        return min(choices, key=lambda one: expected_error(one, noise * choices[one] ** 2, outlook))

    assert best(1.0, 2.0) > best(0.0, 2.0)
