"""What (epsilon, delta) allows in mu squared, against other computations of it; and the noise for a share."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from math import comb, erfc, exp, pi, sqrt
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventveil.audit import mu
from eventveil.privacy import gaussian

MILLIONTH, BILLIONTH = Fraction(1, 10**6), Fraction(1, 10**9)
PAIRS = [
    (Fraction(1), MILLIONTH),
    (Fraction(1), BILLIONTH),
    (Fraction(1, 10), MILLIONTH),
    (Fraction(1, 1000), Fraction(1, 10**10)),
    (Fraction(10), Fraction(1, 10**5)),
    (Fraction(100), BILLIONTH),
    (Fraction(7, 3), Fraction(1, 10**30)),
]
EPSILONS = st.fractions(Fraction(1, 100), 30)
DELTAS = st.integers(4, 25).map(lambda digits: Fraction(1, 10**digits))


def by_integral(epsilon: float, mu_squared: float) -> float:
    """The integral of (q - e^epsilon p)+ over numbers of N(mu, 1) and N(0, 1), by the trapezoid rule."""
    root = sqrt(mu_squared)
    start = epsilon / root + root / 2
    x = np.linspace(start, start + 40, 2_000_001)
    density = (np.exp(-((x - root) ** 2) / 2) - np.exp(epsilon - x**2 / 2)) / sqrt(2 * pi)
    return float(np.trapezoid(density, x))


@pytest.mark.parametrize(("epsilon", "delta"), PAIRS[:-1])
def test_mu_squared_is_what_the_definition_gives(epsilon: Fraction, delta: Fraction) -> None:
    found = gaussian.mu_squared(epsilon, delta)
    assert by_integral(float(epsilon), float(found)) == pytest.approx(float(delta), rel=1e-6)
    assert mu.mu_squared(epsilon, delta) == pytest.approx(float(found), rel=1e-6)  # of the audit


def test_known_standard_deviations_come_out() -> None:
    # B. Balle and Y.-X. Wang, "Improving the Gaussian Mechanism" (ICML 2018), by their published code.
    for epsilon, delta, sigma in ((1, 5, 3.730632), (1, 6, 4.224679), (10, 5, 0.499889)):
        found = gaussian.mu_squared(Fraction(epsilon), Fraction(1, 10**delta))
        assert 1 / sqrt(found) == pytest.approx(sigma, abs=1e-6)


@settings(max_examples=20, deadline=None)
@given(epsilon=EPSILONS, delta=DELTAS)
def test_mu_squared_is_rounded_down_and_by_little(epsilon: Fraction, delta: Fraction) -> None:
    found = gaussian.mu_squared(epsilon, delta)
    assert Fraction(gaussian.delta(epsilon, found)) <= delta
    assert Fraction(gaussian.delta(epsilon, found * (1 + Fraction(1, 2**38)))) > delta


@settings(max_examples=10, deadline=None)
@given(epsilon=EPSILONS, delta=DELTAS, windows=st.integers(1, 50))
def test_epsilon_is_rounded_up_and_by_little(epsilon: Fraction, delta: Fraction, windows: int) -> None:
    mu_squared = windows * gaussian.mu_squared(epsilon, delta)
    found = gaussian.epsilon(mu_squared, delta)
    assert found >= epsilon
    if found <= gaussian.LARGEST_EPSILON:
        assert Fraction(gaussian.delta(found, mu_squared)) <= delta
        if found < 500:
            assert Fraction(gaussian.delta(found * Fraction(998, 1000), mu_squared)) > delta


def test_an_epsilon_beyond_all_that_is_computed_is_bounded() -> None:
    # P(N(0, 1) > a) is less than e^(-a^2 / 2) / 2.
    found = gaussian.epsilon(Fraction(10**6), MILLIONTH)
    a = float(found) / 1000 - 500
    assert erfc(a / sqrt(2)) / 2 <= 1e-6
    assert found < 506_000


def test_decimals_agree_with_floating_point_where_that_is_exact_enough() -> None:
    for epsilon, mu_squared in ((0.5, 0.25), (1.0, 1.0), (3.0, 2.25), (0.0, 1.0)):
        root = sqrt(mu_squared)
        a, b = epsilon / root - root / 2, epsilon / root + root / 2
        expected = erfc(a / sqrt(2)) / 2 - exp(epsilon) * erfc(b / sqrt(2)) / 2
        assert float(gaussian.delta(Fraction(epsilon), Fraction(mu_squared))) == pytest.approx(expected)


def test_pi_has_all_its_decimals() -> None:
    assert str(gaussian._pi(50)).startswith("3.1415926535897932384626433832795028841971693993751")
    assert abs(gaussian._pi(400) - gaussian._pi(900)) < Decimal(10) ** -398


@given(
    square=st.integers(1, 10**6),
    share=st.fractions(Fraction(1, 10**12), 1000).filter(lambda share: share > 0),
)
def test_noise_is_rounded_up_and_by_little(square: int, share: Fraction) -> None:
    sigma = gaussian.noise(square, share)
    assert square / sigma**2 <= share <= square / sigma**2 * (1 + Fraction(1, 2**37))


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0, MILLIONTH), (1001, MILLIONTH), (1, Fraction(1, 3)), (1, Fraction(1, 10**31))]
)
def test_what_makes_no_sense_is_refused(epsilon: int, delta: Fraction) -> None:
    with pytest.raises(ValueError, match="should be"):
        gaussian.mu_squared(Fraction(epsilon), delta)


# Steps of pure epsilon among those with Gaussian noise

STEPS = [0.001, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0]


def trade_off(epsilon: float, a: float) -> float:
    """The least error of the second kind of a test of level ``a`` of what is epsilon-private."""
    return max(0.0, 1 - exp(epsilon) * a, exp(-epsilon) * (1 - a))


def normal_trade_off(mu: float, a: float) -> float:
    """The same of N(0, 1) against N(mu, 1)."""
    normal = NormalDist()
    return normal.cdf(normal.inv_cdf(1 - a) - mu)


@pytest.mark.parametrize("epsilon", STEPS)
def test_a_step_of_pure_epsilon_is_no_easier_to_tell_apart_than_its_price(epsilon: float) -> None:
    mu = sqrt(float(gaussian.PURE)) * epsilon
    corner = 1 / (1 + exp(epsilon))
    for a in (*np.linspace(1e-6, 1 - 1e-6, 2001).tolist(), corner):
        assert normal_trade_off(mu, a) <= trade_off(epsilon, a) + 1e-12


def test_the_price_of_small_steps_could_not_be_one_percent_less() -> None:
    epsilon, mu = 0.001, sqrt(0.99 * float(gaussian.PURE)) * 0.001
    corner = 1 / (1 + exp(epsilon))
    assert normal_trade_off(mu, corner) > trade_off(epsilon, corner) + 1e-12


@pytest.mark.parametrize(("steps", "epsilon"), [(1, 0.5), (10, 0.1), (50, 0.05), (200, 0.01)])
@pytest.mark.parametrize("whole", [0.05, 0.2, 0.5])
def test_randomised_responses_together_keep_the_delta_that_their_price_has(
    steps: int, epsilon: float, whole: float
) -> None:
    """The costliest steps of pure epsilon, whose delta together is known exactly."""
    likely = exp(epsilon) / (1 + exp(epsilon))
    exact = 0.0
    for yes in range(steps + 1):
        one = comb(steps, yes) * likely**yes * (1 - likely) ** (steps - yes)
        other = comb(steps, yes) * (1 - likely) ** yes * likely ** (steps - yes)
        exact += max(0.0, one - exp(whole) * other)
    price = steps * gaussian.PURE * Fraction(epsilon) ** 2
    assert exact <= float(gaussian.delta(Fraction(whole), price)) + 1e-15
