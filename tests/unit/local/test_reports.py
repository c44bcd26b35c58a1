"""Local reports: their exact privacy loss and mean, and the sampler behind them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from math import exp, log

import numpy as np
import pytest

from eventveil.local import Hybrid, SquareWave, reports, sampling
from eventveil.local.sampling import SlidingWindow, SystemRandomness, happens, power_of_e
from eventveil.mechanisms.local_estimator import worst_variance
from tests.unit.local.branching import Masses, follow_probabilities, masses
from tests.unit.privacy.goodness import p_value

VALUES = range(8)
EPSILONS = [Fraction(1, 5), Fraction(61, 100), Fraction(1), Fraction(5, 2)]
EVERY_EPSILON = pytest.mark.parametrize("epsilon", EPSILONS, ids=str)


def wave_masses(epsilon: Fraction) -> list[Masses]:
    """Of Square Wave reports, a value each, also outside of 0..7."""
    mechanism = SquareWave(epsilon, 7, cells=4)
    return [masses(lambda script, v=value: mechanism.report(v, script)) for value in (-99, *VALUES, 99)]


def hybrid_masses(epsilon: Fraction) -> list[Masses]:
    """Of Hybrid reports, a value each, also outside of 0..7."""
    mechanism = Hybrid(epsilon, 7, steps=5)
    return [masses(lambda script, v=value: mechanism.report(v, script)) for value in (-99, *VALUES, 99)]


def privacy_loss(tables: list[Masses]) -> float:
    """The largest logarithm of a ratio of probabilities of one report."""
    assert all(sum(table.values()) == 1 for table in tables)
    everything = {report for table in tables for report in table}
    assert all(set(table) == everything for table in tables), "a report that only some values can give"
    return max(log(a[report] / b[report]) for a in tables for b in tables for report in everything)


@pytest.mark.parametrize("tables", [wave_masses, hybrid_masses])
@EVERY_EPSILON
def test_a_report_costs_epsilon_and_not_more(
    tables: Callable[[Fraction], list[Masses]], epsilon: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow_probabilities(monkeypatch)
    loss = privacy_loss(tables(epsilon))
    assert loss <= float(epsilon) + 1e-12
    assert loss >= float(epsilon) - 1e-9  # nothing is left unused


@EVERY_EPSILON
def test_the_mean_of_an_estimate_is_the_clipped_value_exactly(
    epsilon: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow_probabilities(monkeypatch)
    mechanism = Hybrid(epsilon, 7, steps=5)
    for value, table in zip((0, *VALUES, 7), hybrid_masses(epsilon), strict=True):
        assert sum(mass * mechanism.estimate(report) for report, mass in table.items()) == value


@EVERY_EPSILON
def test_the_variance_is_at_most_that_of_equation_22(epsilon: Fraction) -> None:
    """On the grid of live reports, for the two ends and the middle; a value in 0..2 is one in -1..1."""
    mechanism = Hybrid(epsilon, 2)
    for value in (0, 1, 2):
        assert float(variance(mechanism, value)) <= worst_variance(epsilon) * 1.01


def variance(mechanism: Hybrid, value: int) -> Fraction:
    """Of the estimate, in closed form; both parts have the value as their mean."""
    wave, half = mechanism.wave, Fraction(mechanism.threshold, 2)
    rounding = (half / (2 * mechanism.keep - 1)) ** 2 - (value - half) ** 2
    step = value * (wave.inputs - 1) // mechanism.threshold
    squares = Fraction(0)
    for output in range(wave.outputs):
        weight = wave.weight if step <= output < step + wave.window else 1
        squares += weight / wave.total * (mechanism.estimate(2 + output) - value) ** 2
    return mechanism.piecewise * squares + (1 - mechanism.piecewise) * rounding


def test_decisions_have_exactly_their_probability() -> None:
    class Counting:
        def __init__(self, value: int) -> None:
            self.value = value

        def below(self, bound: int) -> int:
            assert bound == 7
            return self.value

    assert [happens(Fraction(3, 7), Counting(value)) for value in range(7)] == [True] * 3 + [False] * 4
    assert not happens(Fraction(0), SystemRandomness())
    assert happens(Fraction(1), SystemRandomness())


@pytest.mark.parametrize("i", [0, 3, 9])
def test_the_operating_system_s_reports_have_the_exact_distribution(i: int) -> None:
    wave = SlidingWindow(10, 4, Fraction(5, 2))
    drawn = np.bincount([wave.report(i, SystemRandomness()) for _ in range(40_000)], minlength=wave.outputs)
    weights = np.array([2.5 if i <= output < i + 4 else 1 for output in range(wave.outputs)])
    assert fit(drawn, weights) > 1e-6  # fails once in a million runs
    assert fit(drawn, np.roll(weights, 1)) < 1e-9
    assert fit(drawn, np.where(weights > 1, 2.2, 1)) < 1e-6


def fit(drawn: np.ndarray, weights: np.ndarray) -> float:
    expected = weights / weights.sum() * drawn.sum()
    assert len(drawn) % 2 == 1
    return p_value(float(((drawn - expected) ** 2 / expected).sum()), len(drawn) - 1)


@pytest.mark.parametrize("exponent", ["1/1000", "1/2", "1", "7/2", "16"])
def test_powers_of_e_are_rounded_down(exponent: str) -> None:
    power = power_of_e(Fraction(exponent))
    assert exp(float(Fraction(exponent))) * (1 - 1e-13) <= float(power) + 2**-47
    # 2 to the 200th part of an upper bound: (1 + x/n)^(n + x) > e^x for x, n > 0.
    x, n = Fraction(exponent), 10**30
    assert power < (1 + x) ** 0 * sum(x**k / sampling.factorial(k) for k in range(150)) + Fraction(1, n)


@pytest.mark.parametrize(("epsilon", "expected"), [(1e-3, 0.5), (1, 0.2561), (2, 0.1293), (16, 0.0)])
def test_the_half_width_is_that_of_equation_16(epsilon: float, expected: float) -> None:
    assert reports.half_width(Fraction(epsilon)) == pytest.approx(expected, abs=1e-3)


def test_the_half_width_is_smooth_where_its_formula_cancels() -> None:
    below, above = (reports.half_width(Fraction(e, 10**6)) for e in (9_999, 10_001))
    assert below == pytest.approx(above, abs=2e-5)


def test_a_public_grid_is_all_that_a_report_can_be() -> None:
    wave, hybrid = SquareWave(Fraction(1), 1000), Hybrid(Fraction(1), 120)
    assert all(0 <= wave.report(value) < wave.wave.outputs for value in range(-5, 1100, 7))
    assert all(0 <= hybrid.report(value) < hybrid.reports for value in range(-5, 200))


@pytest.mark.parametrize("report", [-1, 2000, True, 1.0, "1"])
def test_forged_reports_are_refused(report: object) -> None:
    with pytest.raises(ValueError, match="a report should be"):
        Hybrid(Fraction(1), 10).estimate(report)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [SquareWave, Hybrid])
def test_settings_and_values_that_make_no_sense_are_refused(kind: type[SquareWave] | type[Hybrid]) -> None:
    for epsilon in (Fraction(0), Fraction(17), Fraction(1, 1001), 1.0):
        with pytest.raises(ValueError, match="epsilon should be"):
            kind(epsilon, 10)  # type: ignore[arg-type]
    for maximum in (0, 2.0):
        with pytest.raises(ValueError, match="the largest value"):
            kind(Fraction(1), maximum)  # type: ignore[arg-type]
    for value in (1.5, None, True):
        with pytest.raises(ValueError, match="a value should be an integer"):
            kind(Fraction(1), 10).report(value)  # type: ignore[arg-type]


def test_a_producer_needs_nothing_but_the_standard_library() -> None:
    program = (
        "import sys; from eventveil.local import Hybrid, SquareWave; "
        "print(sorted({name.split('.')[0] for name in sys.modules} "
        "& {'faust', 'aiokafka', 'confluent_kafka', 'numpy', 'yaml', 'orjson'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
