from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from eventveil.mechanisms.base import Counts
from eventveil.privacy.noise import SeededNoise
from tests.contract.noises import ForcedNoise, WatchedNoise, ZeroNoise, make, spends


@pytest.mark.parametrize("window", [1, 2, 3, 40, 10_000])
def test_every_timestamp_spends_an_equal_part(window: int) -> None:
    mechanism = make("uniform", ForcedNoise([]), window)
    assert spends(mechanism, 6) == [(0, mechanism.units // window)] * 6


def test_the_noise_has_scale_sensitivity_times_window_over_epsilon() -> None:
    scales: list[Fraction] = []
    noise = WatchedNoise(ZeroNoise(), lambda scale, is_test: scales.append(scale))
    mechanism = make("uniform", noise, 7, sensitivity=2, epsilon=Fraction(3, 10))
    mechanism.step(np.array([1, 2]))
    assert scales == [Fraction(2 * 7 * 10, 3)]
    assert mechanism.guarantee.best_scale == mechanism.guarantee.worst_scale == scales[0]


def test_every_release_is_the_counts_plus_fresh_noise() -> None:
    counts: Counts = np.array([10, 20])
    noise = SeededNoise(1)
    mechanism = make("uniform", SeededNoise(1), 5)
    for _ in range(5):
        release = mechanism.step(counts)
        assert release.fresh
        assert release.counts.tolist() == (counts + noise.discrete_laplace(Fraction(5), 2)).tolist()
