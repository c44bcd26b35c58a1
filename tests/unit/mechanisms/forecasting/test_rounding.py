"""Whole numbers that err little and add up."""

from __future__ import annotations

import numpy as np
import pytest

from eventveil.mechanisms.forecasting.rounding import Rounding, _least


@pytest.mark.parametrize("mean", [0.51, 0.6, 0.7, 1.1, 2.5, 1000.9])
def test_sums_over_time_are_right_for_a_single_column(mean: float) -> None:
    rounding = Rounding()
    released = np.array([rounding.whole(np.array([mean]), np.ones(1))[0] for _ in range(1000)])
    assert abs(released.sum() - 1000 * mean) <= 1.5
    assert np.abs(released - mean).max() < 1.5


def test_sums_over_columns_are_right_at_every_timestamp() -> None:
    means = np.random.default_rng(2).uniform(0.5, 4, 300)
    rounding = Rounding()
    for _ in range(10):
        assert abs(rounding.whole(means, np.ones(300)).sum() - means.sum()) <= 2


def test_columns_that_are_nearest_are_raised_and_small_ones_and_zeros_are_not() -> None:
    rounding = Rounding()
    assert rounding.whole(np.array([0.0, 0.3, 0.6, 0.5, 0.6]), np.ones(5)).tolist() == [0, 0, 1, 0, 1]
    assert [Rounding().whole(np.array([0.3, 0.4]), np.ones(2))[0] for _ in range(50)] == [0] * 50


def test_what_is_owed_is_bounded_and_negative_means_give_nothing_negative() -> None:
    rounding = Rounding()
    for mean in ([0.3, 0.3], [-1000.0, 0.0], [5e11, 2.2]):
        for _ in range(20):
            assert rounding.whole(np.array(mean), np.ones(2)).min() >= 0
            assert abs(rounding.owed) <= 2


def test_where_zeros_are_likelier_more_of_them_are_released() -> None:
    draw = np.random.default_rng(4)
    for phi, mean in ((3.0, 0.7), (10.0, 1.5)):
        counts = draw.negative_binomial(mean / (phi - 1), 1 / phi, 10_000)
        rounding, poisson = Rounding(), Rounding()
        some, others = (
            np.array([one.whole(np.array([mean]), np.array([scatter]))[0] for _ in range(10_000)])
            for one, scatter in ((rounding, phi), (poisson, 1.0))
        )
        assert np.abs(some - counts).mean() < 0.9 * np.abs(others - counts).mean()


@pytest.mark.parametrize("size", [1, 3, 60, 99, 100, 500])
def test_the_least_numbers_are_those_of_a_stable_sort(size: int) -> None:
    numbers = np.random.default_rng(5).integers(-9, 9, 100) / 4
    assert sorted(_least(numbers, size)) == sorted(np.argsort(numbers, kind="stable")[:size])
