from __future__ import annotations

from fractions import Fraction

import numpy as np

from tests.contract.noises import ForcedNoise, WatchedNoise, ZeroNoise, make, spends


def test_the_first_timestamp_of_every_window_spends_everything() -> None:
    mechanism = make("sample", ForcedNoise([]), window=3)
    units = mechanism.units
    assert spends(mechanism, 7) == [(0, units), (0, 0), (0, 0), (0, units), (0, 0), (0, 0), (0, units)]


def test_a_window_of_one_publishes_always() -> None:
    mechanism = make("sample", ForcedNoise([]), window=1)
    assert spends(mechanism, 3) == [(0, mechanism.units)] * 3


def test_the_noise_has_scale_sensitivity_over_epsilon() -> None:
    scales: list[Fraction] = []
    noise = WatchedNoise(ZeroNoise(), lambda scale, is_test: scales.append(scale))
    mechanism = make("sample", noise, window=7, sensitivity=2, epsilon=Fraction(3, 10))
    mechanism.step(np.array([1, 2]))
    assert scales == [Fraction(20, 3)]
    assert mechanism.guarantee.best_scale == mechanism.guarantee.worst_scale == scales[0]


def test_a_restored_mechanism_keeps_to_the_rhythm() -> None:
    mechanism = make("sample", ForcedNoise([]), window=3)
    spends(mechanism, 2)
    restored = make("sample", ForcedNoise([]), window=3)
    restored.restore(mechanism.snapshot())
    assert spends(restored, 3) == [(0, 0), (0, mechanism.units), (0, 0)]


def test_with_periods_it_meets_every_hour_of_the_day_and_never_twice_in_a_window() -> None:
    mechanism = make("sample", ZeroNoise(), window=24, periods="24,168")
    spent = spends(mechanism, 29 * 24)
    published = [timestamp for timestamp, (_, publish) in enumerate(spent, 1) if publish]
    assert {timestamp % 24 for timestamp in published} == set(range(24))
    assert min(np.diff(published)) >= 24
    assert max(np.diff(published)) <= 36
