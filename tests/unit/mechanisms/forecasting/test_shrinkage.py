"""What many columns tell of each."""

from __future__ import annotations

import numpy as np
import pytest

from eventveil.mechanisms.forecasting.shrinkage import HIGHEST, corrections

DRAW = np.random.default_rng(8)


@pytest.mark.parametrize("noise", [0.25, 4.0, 400.0])
def test_levels_that_are_alike_are_drawn_together_and_err_by_less(noise: float) -> None:
    deviation = noise**0.5
    true = deviation * np.where(np.arange(2000) < 1600, 1.5, 6.0)
    seen = true + DRAW.normal(0, deviation, 2000)
    found = seen + corrections(seen, noise)
    assert np.abs(found - true).mean() < 0.6 * np.abs(seen - true).mean()
    assert found.sum() == pytest.approx(true.sum(), rel=0.05)


def test_levels_that_are_spread_out_stay_and_so_do_those_far_above_the_noise() -> None:
    spread = DRAW.uniform(0, 11, 2000)
    seen = spread + DRAW.normal(0, 1, 2000)
    inside = (seen > 2) & (seen < 9)
    assert np.abs(corrections(seen, 1.0)[inside]).mean() < 0.2
    far = np.append(np.full(500, 2.0), [HIGHEST, HIGHEST + 1, 1e6])
    assert corrections(far, 1.0)[-3:].tolist() == [0, 0, 0]


def test_few_columns_tell_nothing_of_each_other_and_exact_levels_are_right() -> None:
    assert not corrections(np.arange(15.0), 1.0).any()
    assert not corrections(np.arange(100.0), 0.0).any()


def test_a_correction_has_no_steps() -> None:
    seen = np.sort(DRAW.normal(3, 1.2, 5000))
    corrected = seen + corrections(seen, 1.0)
    assert (np.diff(corrected) >= -1e-9).all()
    assert np.diff(corrected[np.abs(seen - 3) < 2]).max() < 0.1


def test_levels_that_cannot_be_are_drawn_to_what_can() -> None:
    seen = np.append(DRAW.normal(0, 1, 500), [-50.0, -1e6])
    corrected = seen + corrections(seen, 1.0)
    assert np.isfinite(corrected).all()
    assert corrected[:-2].min() >= 0
    assert corrected[:-2].mean() < 0.3
