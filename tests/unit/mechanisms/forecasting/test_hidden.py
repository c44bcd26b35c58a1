"""What columns that drown in the noise are released as, when all of them together do not."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from eventveil.mechanisms.forecasting.hidden import FEWEST, alike, certain
from eventveil.privacy.noise import SeededNoise
from tests.contract.noises import make

DRAW = np.random.default_rng(11)
NOISE = 200.0


def levels(truth: np.ndarray) -> np.ndarray:
    return truth + DRAW.laplace(0, np.sqrt(NOISE / 2), len(truth))


@pytest.mark.parametrize("truth", [np.full(2000, 5.0), np.repeat([10.0, 60.0], 500)], ids=["alike", "not"])
def test_columns_that_hold_something_together_are_shown(truth: np.ndarray) -> None:
    assert certain(levels(truth))


@pytest.mark.parametrize("truth", [
    np.zeros(2000), np.full(2000, 0.3), np.full(40, 3.0), np.full(FEWEST - 1, 500.0),
    np.repeat([0.0, 3000.0], [970, 3]),
], ids=["empty", "nearly empty", "too few to tell", "too few", "a few hold everything"])  # fmt: skip
def test_zeros_stay_where_they_err_less(truth: np.ndarray) -> None:
    assert not certain(levels(truth))


def test_columns_that_differ_by_noise_alone_are_alike_and_others_are_not() -> None:
    assert alike(levels(np.full(2000, 5.0)), NOISE)
    assert not alike(levels(np.repeat([0.0, 300.0], [970, 30])), NOISE)


def test_columns_that_are_likely_empty_stay_zero_beside_those_that_are_not() -> None:
    mechanism = make("seasonal", SeededNoise(4), 720, 2000, epsilon=Fraction(1), periods="7")
    counts = np.where(np.arange(2000) < 600, 0, 5)
    for _ in range(3):
        found = mechanism.step(counts).counts
    assert np.count_nonzero(found[:600]) < 100
    assert np.abs(found - counts).mean() < 0.8  # one count's noise errs by 1.1


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
