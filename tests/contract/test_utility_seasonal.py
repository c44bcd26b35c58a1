"""What README and docs/mechanisms/seasonal.md say of its errors, on departures from New York."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np
import pytest

from benchmarks.utility.gaussian import DELTA
from benchmarks.utility.streams import Counts, departures
from benchmarks.utility.w_event import Contender
from eventveil.privacy import gaussian as privacy

pytestmark = pytest.mark.slow

SEASONAL = Contender("seasonal", "seasonal", {"periods": "24,168"})
WITHOUT = Contender("seasonal", "seasonal")
PACED = Contender("paced", "paced")
SAMPLE = Contender("sample", "sample")


def total(hours: int) -> Counts:
    return departures(hours).sum(axis=1, keepdims=True)


def test_hourly_departures_in_one_column_are_followed_through_days_and_nights() -> None:
    counts = total(1)
    released = SEASONAL.releases(counts, Fraction(1), 24, 0)
    assert np.abs(released - counts).mean() <= 5.0
    assert abs((released - counts).sum() / counts.sum()) < 0.01
    assert PACED.error(counts[:2000], Fraction(1), 24, 0) > 30


def test_a_season_that_is_declared_helps() -> None:
    counts = total(1)[:3000]
    error = SEASONAL.error(counts, Fraction(1), 24, 1)
    assert error < 0.8 * WITHOUT.error(counts, Fraction(1), 24, 1)
    assert error < 0.5 * SAMPLE.error(counts, Fraction(1), 24, 1)


@pytest.mark.parametrize(("epsilon", "window"), [(Fraction(1, 10), 120), (Fraction(1), 720)])
def test_it_is_better_than_others_where_noise_is_large_and_where_windows_are(
    epsilon: Fraction, window: int
) -> None:
    counts = total(1)[:4000]
    error = np.mean([SEASONAL.error(counts, epsilon, window, seed) for seed in range(3)])
    others = [other.error(counts, epsilon, window, seed) for other in (PACED, SAMPLE) for seed in range(3)]
    assert error < 0.8 * min(np.mean(others[:3]), np.mean(others[3:]))


def test_gaussian_noise_of_the_same_size_as_laplace_noise_makes_no_larger_errors() -> None:
    """Where it errs more, delta is what that costs, and not what the forecast believes of noise."""
    normal = Contender("seasonal", "seasonal", {"periods": "24,168", "noise": "gaussian", "delta": DELTA})
    epsilon, more = Fraction(1, 10), Fraction(274, 1000)
    prices = {one: _whole_budget(one) * float(one) / 2**0.5 for one in (epsilon, Fraction(1, 2), Fraction(1))}
    assert [*prices.values()] == pytest.approx([2.57, 2.85, 2.99], abs=0.005)
    assert [ceil(price**2) for price in prices.values()] == [7, 9, 9]  # looks in a window that pay for it
    assert _whole_budget(more) == pytest.approx(2**0.5 / float(epsilon), rel=0.005)
    counts = total(1)[:700]
    pure = SEASONAL.error(counts, epsilon, 24, 0)
    assert normal.error(counts, epsilon, 24, 0) > 1.2 * pure
    assert normal.error(counts, more, 24, 0) < pure


def _whole_budget(epsilon: Fraction) -> float:
    """The standard deviation of one look with all of a window's budget."""
    return float(privacy.noise(1, privacy.mu_squared(epsilon, DELTA)))
