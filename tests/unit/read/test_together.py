"""How much columns move together is learned from what was released of them."""

from __future__ import annotations

import numpy as np
import pytest

from eventveil import read
from eventveil.read.together import correlation, of_predictions
from tests.unit.read.making import releases

STRETCH, STRETCHES, COLUMNS, SCALE = 6, 80, 12, 2.0


def repeated(shared: float, *, told: float = 40.0, noise: float = SCALE) -> tuple[read.Releases, np.ndarray]:
    """A fresh count every ``STRETCH`` timestamps; of the movement in between ``shared`` is common to all.

    ``told`` is the standard deviation of movement that errors speak of.
    """
    draw = np.random.default_rng(7)
    size = STRETCH * STRETCHES
    common, own = draw.normal(0, 1, (size, 1)), draw.normal(0, 1, (size, COLUMNS))
    # What counts differ by from one time to another has twice the variance of what they scatter by.
    true = 300 + 40 / 2**0.5 * (np.sqrt(shared) * common + np.sqrt(1 - shared) * own)
    fresh = np.arange(size) % STRETCH == 0
    noisy = np.rint(true + draw.laplace(0, noise, true.shape)).astype(int)
    counts = noisy[np.flatnonzero(fresh)].repeat(STRETCH, axis=0)
    deviation = noise * 2**0.5
    errors = np.where(fresh, deviation, np.hypot(deviation, told))[:, np.newaxis]
    scales = np.where(fresh, noise, np.nan)
    return releases(counts, errors, fresh=fresh, scales=scales, kind="sample"), true


@pytest.mark.parametrize("shared", [0.0, 0.5, 1.0])
def test_the_correlation_is_found(shared: float) -> None:
    found, _ = repeated(shared)
    assert correlation(found, range(COLUMNS), 0.3) == pytest.approx(shared, abs=0.2)


@pytest.mark.parametrize("shared", [0.0, 1.0])
def test_intervals_of_groups_cover_whether_columns_move_together_or_not(shared: float) -> None:
    found, true = repeated(shared)
    sums = found.totals(groups={"all": found.columns})
    covered = ((sums.low[:, 0] <= true.sum(axis=1)) & (true.sum(axis=1) <= sums.high[:, 0])).mean()
    assert 0.9 <= covered <= 0.99


def test_what_noise_hides_is_assumed() -> None:
    found, _ = repeated(1.0, noise=4000.0)
    assert correlation(found, range(COLUMNS), 0.3) == pytest.approx(0.3, abs=0.1)
    fresh, _ = repeated(1.0)
    assert correlation(fresh.part(0).between(end=fresh.starts[3]), range(COLUMNS), 0.3) == 0.3


def test_a_single_column_errs_by_what_its_releases_say() -> None:
    found, _ = repeated(1.0)
    one = found.totals(groups={"one": ["c0"]}).errors[:, 0]
    assert one == pytest.approx(found.errors[:, 0])


GAIN, HOURS = 0.5, 60 * 24


def predicted(shared: float, *, every: int = 7) -> tuple[read.Releases, float]:
    """What a filter says of levels that wander between publications, where all columns have the same day.

    ``shared`` is common to all columns, of a step of their levels. Of their errors before a publication less
    is, because noise is not: the second number, the correlation that is to be found.
    """
    draw, before = np.random.default_rng(3), 30.0
    after = before * np.sqrt(1 - GAIN)
    noise, step = before * np.sqrt(1 / GAIN - 1), before * np.sqrt(GAIN)
    level, estimate = np.zeros((2, COLUMNS))
    counts = np.zeros((HOURS, COLUMNS))
    fresh = np.arange(HOURS) % every == 0
    day = 1000 + 600 * np.sin(2 * np.pi * np.arange(HOURS) / 24)
    for hour in range(HOURS):
        if fresh[hour]:
            common, own = draw.normal(0, 1), draw.normal(0, 1, COLUMNS)
            level = level + step * (np.sqrt(shared) * common + np.sqrt(1 - shared) * own)
            estimate = estimate + GAIN * (level + draw.normal(0, noise, COLUMNS) - estimate)
        counts[hour] = day[hour] + estimate
    errors = np.where(fresh, after, before)[:, np.newaxis]
    found = releases(np.rint(counts).astype(int), errors, fresh=fresh, kind="seasonal")
    return found, shared / (2 - GAIN)


@pytest.mark.parametrize("shared", [0.0, 0.4, 0.8])
def test_how_much_predictions_err_together_is_found_and_the_day_is_not_taken_for_it(shared: float) -> None:
    found, together = predicted(shared)
    assert of_predictions(found, range(COLUMNS), 0.1) == pytest.approx(together, abs=0.1)


def test_intervals_of_groups_grow_with_what_predictions_err_by_together() -> None:
    errors = []
    for shared in (0.0, 0.4, 0.8):
        found, _ = predicted(shared)
        errors.append(found.totals("1d", groups={"all": found.columns}).errors.mean())
    assert errors[0] < errors[1] < errors[2]


@pytest.mark.parametrize("every", [1, 2])
def test_where_all_hours_are_published_what_predictions_err_by_together_is_assumed(every: int) -> None:
    found, _ = predicted(0.8, every=every)
    assert of_predictions(found, range(COLUMNS), 0.1) == 0.1


def test_a_few_publications_at_odd_times_say_nothing_of_all() -> None:
    found, _ = predicted(0.8, every=2)
    fresh = found.fresh.copy()
    fresh[[100, 101, 200, 201]] = [False, True, False, True]
    object.__setattr__(found, "fresh", fresh)
    assert of_predictions(found, range(COLUMNS), 0.1) == 0.1


def test_columns_that_are_released_as_0_say_nothing_and_keep_what_is_assumed() -> None:
    fresh = np.arange(HOURS) % 7 == 0
    empty = np.zeros((HOURS, COLUMNS), int)
    errors = np.where(fresh, 2.0, 3.0)[:, np.newaxis]
    found = releases(empty, errors, fresh=fresh, kind="seasonal")
    assert of_predictions(found, range(COLUMNS), 0.1) == 0.1


def test_gaps_and_columns_that_come_later_are_left_out() -> None:
    found, _ = predicted(0.4)
    whole = of_predictions(found, range(COLUMNS), 0.1)
    counts = found.counts.astype(float)
    counts[:200, 0] = np.nan
    object.__setattr__(found, "counts", counts)
    assert of_predictions(found, range(COLUMNS), 0.1) == pytest.approx(whole, abs=0.1)
    kept = np.arange(len(found)) % 50 != 0
    some = found._rows(kept)
    assert of_predictions(some, range(COLUMNS), 0.1) == pytest.approx(whole, abs=0.15)
