"""What columns that drown in the noise are released as, when all of them together do not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from eventveil.mechanisms.forecasting.hidden import FEWEST, expected
from eventveil.privacy.noise import SeededNoise
from tests.contract.noises import make

DRAW = np.random.default_rng(11)
NOISE = 200.0


def levels(truth: np.ndarray) -> np.ndarray:
    return truth + DRAW.laplace(0, np.sqrt(NOISE / 2), len(truth))


def test_columns_of_the_same_size_are_expected_at_their_mean() -> None:
    found = expected(levels(np.full(2000, 5.0)), NOISE)
    assert found.mean() == pytest.approx(5, abs=1.5)
    assert found.std() < 1.5


def test_columns_that_differ_more_than_noise_keep_what_is_theirs() -> None:
    truth = np.repeat([10.0, 60.0], 500)
    found = expected(levels(truth), NOISE)
    assert found[500:].mean() - found[:500].mean() > 35
    assert found.min() >= 0


@pytest.mark.parametrize("truth", [
    np.zeros(2000), np.full(2000, 0.3), np.full(FEWEST - 1, 30.0), np.repeat([0.0, 300.0], [970, 30])
], ids=["empty", "nearly empty", "too few to tell", "a few hold everything"])  # fmt: skip
def test_zeros_stay_where_they_err_less(truth: np.ndarray) -> None:
    assert not expected(levels(truth), NOISE).any()


def test_totals_of_many_small_columns_are_not_lost_and_a_restart_changes_nothing() -> None:
    columns, terms = 1000, {"epsilon": Fraction(1, 10), "periods": "7"}
    mechanism = make("seasonal", SeededNoise(2), 24, columns, **terms)
    counts = DRAW.poisson(5, (40, columns)).astype(np.int64)
    released = []
    for row in counts:
        other = make("seasonal", SeededNoise(3), 24, columns, **terms)
        other.restore(mechanism.snapshot())
        release = mechanism.step(row)
        if not release.fresh:
            assert other.step(row).counts.tobytes() == release.counts.tobytes()
        released.append(release.counts)
    late = np.array(released)[10:]
    assert late.sum() == pytest.approx(counts[10:].sum(), rel=0.25)
    assert np.abs(late - counts[10:]).mean() < 3  # zeros would err by 5, one count's noise by 240
