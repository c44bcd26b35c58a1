"""The server's side of local reports."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.utility.values import SeededRandomness
from eventveil.local import Hybrid, SquareWave
from eventveil.mechanisms.local_estimator import distribution, pruned, threshold, worst_variance

EPSILON = Fraction(2)


def expected_counts(mechanism: SquareWave, shares: np.ndarray, reports: int) -> np.ndarray:
    """How often each report comes on average, by the definition of the window, one entry at a time."""
    wave = mechanism.wave
    chances = np.array(
        [
            [float(wave.weight if i <= j < i + wave.window else 1) for j in range(wave.outputs)]
            for i in range(wave.inputs)
        ]
    ) / float(wave.total)
    return np.rint(shares @ chances * reports).astype(np.int64)


def test_expectation_maximisation_finds_the_distribution_behind_the_reports() -> None:
    mechanism = SquareWave(EPSILON, 63, cells=64)
    shares = np.zeros(64)
    shares[[3, 30, 31]] = 0.5, 0.3, 0.2
    found = distribution(mechanism, expected_counts(mechanism, shares, 10**9), rounds=20_000)
    assert found.sum() == pytest.approx(1)
    assert np.abs(np.cumsum(found) - np.cumsum(shares)).max() < 0.02


def test_each_round_makes_the_reports_more_likely() -> None:
    mechanism = SquareWave(EPSILON, 63, cells=64)
    source = SeededRandomness(2)
    counts = np.bincount(
        [mechanism.report(20, source) for _ in range(3000)], minlength=mechanism.wave.outputs
    )
    likelihoods = []
    for rounds in (1, 2, 5, 20, 100):
        shares = distribution(mechanism, counts, rounds)
        chances = expected_counts(mechanism, shares, 10**12) / 10**12
        likelihoods.append(float(counts @ np.log(chances)))
    assert likelihoods == sorted(likelihoods)
    assert likelihoods[-1] > likelihoods[0] + 1


@pytest.mark.parametrize("counts", [np.zeros(3, np.int64), None, "negative"])
def test_counts_that_cannot_be_are_refused(counts: object) -> None:
    mechanism = SquareWave(EPSILON, 63, cells=64)
    if not isinstance(counts, np.ndarray):
        counts = np.full(mechanism.wave.outputs, 0 if counts is None else -1)
    with pytest.raises(ValueError, match="there should be"):
        distribution(mechanism, counts)


def test_the_prune_drops_all_that_follows_five_rare_shares() -> None:
    shares = np.array([0.0] * 8 + [0.4, 0.3, 5e-5, 0.1, 0, 0, 0, 0, 0.05, 0, 0, 0, 0, 9e-5, 0.1])
    assert pruned(shares).tolist() == [*shares[:17], *[0.0] * 6]
    assert pruned(shares[:17]).tolist() == shares[:17].tolist()


def test_the_threshold_minimises_equation_8() -> None:
    maximum, longest = 999, 5000
    shares = np.zeros(1000)
    shares[:100], shares[500] = 0.0099, 0.01
    errors = [
        longest / 3 * worst_variance(EPSILON) * theta**2 / 4
        + longest**2 / 6 * sum(shares[t] * max(t - theta, 0) for t in range(1000)) ** 2
        for theta in range(1, 1000)
    ]
    assert threshold(shares, maximum, EPSILON, longest) == int(np.argmin(errors)) + 1


def test_wide_cells_offer_their_largest_value() -> None:
    shares = np.array([1.0, 0, 0, 0])
    assert threshold(shares, 399, EPSILON, 1) == 99
    assert threshold(shares, 10**6, EPSILON, 1) == 250_000


def test_sums_of_reports_are_unbiased() -> None:
    mechanism, source = Hybrid(EPSILON, 50), SeededRandomness(4)
    values = [value % 71 for value in range(20_000)]
    exact = sum(min(value, 50) for value in values)
    estimate = float(sum(mechanism.estimate(mechanism.report(value, source)) for value in values))
    deviation = (worst_variance(EPSILON) * 25**2 * len(values)) ** 0.5
    assert abs(estimate - exact) < 4 * deviation
    assert abs(estimate - sum(values)) > 8 * deviation  # without the clip the truth would be this one
