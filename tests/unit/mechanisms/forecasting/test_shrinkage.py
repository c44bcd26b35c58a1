"""What many columns tell of each."""

from __future__ import annotations

import numpy as np
import pytest

from eventveil.mechanisms.forecasting.shrinkage import FEWEST, HIGHEST, NORMAL, expected

DRAW = np.random.default_rng(8)


def means(levels: np.ndarray, noise: float = 1.0, looks: int = NORMAL) -> np.ndarray:
    found = expected(levels, noise, looks)
    assert found
    return found.mean


@pytest.mark.parametrize("noise", [0.25, 4.0, 400.0])
def test_levels_that_are_alike_are_drawn_together_and_err_by_less(noise: float) -> None:
    deviation = noise**0.5
    true = deviation * np.where(np.arange(2000) < 1600, 1.5, 6.0)
    seen = true + DRAW.normal(0, deviation, 2000)
    found = means(seen, noise)
    assert np.abs(found - true).mean() < 0.6 * np.abs(seen - true).mean()
    assert found.sum() == pytest.approx(true.sum(), rel=0.05)


@pytest.mark.parametrize("looks", [1, 2, 3, 4])
def test_the_law_of_a_mean_of_few_laplace_numbers_says_more_than_a_normal_one(looks: int) -> None:
    true = np.repeat([1.0, 4.0], 4000)
    draw = np.random.default_rng(looks)
    noise = draw.laplace(0, (looks / 2) ** 0.5, (looks, 8000)).mean(axis=0)
    normal, right = (np.square(means(true + noise, 1.0, n) - true).mean() for n in (NORMAL, looks))
    assert noise.var() == pytest.approx(1, rel=0.1)
    assert right < normal * (0.98 if looks == 1 else 1.0)


def test_the_median_of_what_a_level_may_be_is_0_where_most_columns_are_empty() -> None:
    true = np.where(np.arange(2000) < 1500, 0.0, 3.0)
    seen = true + DRAW.laplace(0, 0.5**0.5, 2000)
    found = expected(seen, 1.0, 1)
    assert found
    small = seen < 0.5
    assert found.median[small].mean() < 0.1 < found.mean[small].mean()
    assert np.median(found.median[seen > 2.5]) == pytest.approx(3, abs=0.5)


def test_the_mean_square_of_what_a_level_may_be_is_that_of_the_levels() -> None:
    true = np.where(np.arange(4000) < 3000, 0.0, 3.0)
    seen = true + DRAW.laplace(0, 0.5**0.5, 4000)
    found = expected(seen, 1.0, 1)
    assert found
    small = seen < 2
    assert found.squares[small].mean() == pytest.approx(np.square(true[small]).mean(), rel=0.25)
    assert (found.squares + 1e-9 >= found.mean**2)[small].all()


def test_levels_that_are_spread_out_stay_and_so_do_those_far_above_the_noise() -> None:
    spread = DRAW.uniform(0, 11, 2000)
    seen = spread + DRAW.normal(0, 1, 2000)
    inside = (seen > 2) & (seen < 9)
    assert np.abs(means(seen) - seen)[inside].mean() < 0.2
    far = np.append(np.full(500, 2.0), [HIGHEST, HIGHEST + 1, 1e6])
    assert means(far)[-3:].tolist() == far[-3:].tolist()


def test_few_columns_tell_nothing_of_each_other_and_exact_levels_are_right() -> None:
    assert expected(np.arange(FEWEST - 1.0), 1.0, NORMAL) is None
    assert expected(np.arange(100.0), 0.0, NORMAL) is None


def test_what_is_expected_has_no_steps() -> None:
    seen = np.sort(DRAW.normal(3, 1.2, 5000))
    found = means(seen)
    assert (np.diff(found) >= -1e-9).all()
    assert np.diff(found[np.abs(seen - 3) < 2]).max() < 0.1


def test_levels_that_cannot_be_are_drawn_to_what_can() -> None:
    seen = np.append(DRAW.normal(0, 1, 500), [-50.0, -1e6])
    found = means(seen)
    assert np.isfinite(found).all()
    assert found[:-2].min() >= 0
    assert found[:-2].mean() < 0.3
