"""How much columns move together is learned from what was released of them."""

from __future__ import annotations

import numpy as np
import pytest

from eventveil import read
from eventveil.read.together import correlation
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
