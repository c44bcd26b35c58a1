"""What predictions are said to err by comes nearer to what they err by, and one publication proves little."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eventveil.mechanisms.forecasting.calibration import LEAST, MOST, Calibration

COLUMNS, NOISE = 50, 4.0


def learned(truth: float, said: float, publications: int) -> Calibration:
    calibration, random = Calibration(COLUMNS), np.random.default_rng(1)
    for _ in range(publications):
        off = random.normal(0, np.sqrt(truth + NOISE), COLUMNS)
        calibration.learn(off, np.full(COLUMNS, said), NOISE)
    return calibration


def test_nothing_is_changed_before_anything_was_published() -> None:
    assert Calibration(COLUMNS).factor == Calibration(1).factor == 1


@pytest.mark.parametrize(("truth", "said"), [(2.0, 8.0), (8.0, 8.0), (32.0, 8.0)])
def test_half_of_the_way_to_what_was_seen_is_gone_in_logarithms(truth: float, said: float) -> None:
    assert learned(truth, said, 200).factor == pytest.approx((truth / said) ** 0.5, rel=0.15)


@pytest.mark.parametrize(("truth", "said"), [(2.0, 8.0), (8.0, 8.0), (32.0, 8.0)])
def test_of_a_column_that_is_alone_all_of_the_way_is_gone(truth: float, said: float) -> None:
    factors = []
    for seed in range(100):
        calibration, random = Calibration(1), np.random.default_rng(seed)
        for off in random.normal(0, np.sqrt(truth + NOISE), 200):
            calibration.learn(np.array([off]), np.array([said]), NOISE)
        factors.append(calibration.factor)
    assert np.mean(factors) == pytest.approx((4 + truth / said * 22) / (4 + 22), rel=0.15)


def test_a_single_publication_changes_less_than_many() -> None:
    assert learned(1.0, 8.0, 200).factor < learned(1.0, 8.0, 1).factor < 1


@pytest.mark.parametrize(("off", "factor"), [(0.0, LEAST**0.5), (1e9, MOST**0.5)])
def test_the_factor_has_bounds(off: float, factor: float) -> None:
    calibration = Calibration(COLUMNS)
    for _ in range(1000):
        calibration.learn(np.full(COLUMNS, off), np.full(COLUMNS, 8.0), NOISE)
    assert calibration.factor == pytest.approx(factor)


def test_it_goes_on_from_its_state() -> None:
    calibration = learned(2.0, 8.0, 5)
    other = Calibration.restored(json.loads(json.dumps(calibration.snapshot())), COLUMNS)
    assert other.snapshot() == calibration.snapshot()
    assert other.factor == calibration.factor


@pytest.mark.parametrize(
    "state", [None, [], [1.0], [1, 2.0], [1.0, -2.0], [float("nan"), 1.0], "1,2", [1.0] * 3]
)
def test_what_is_no_state_is_refused(state: object) -> None:
    with pytest.raises(ValueError, match="calibration should be two finite numbers"):
        Calibration.restored(state, COLUMNS)
