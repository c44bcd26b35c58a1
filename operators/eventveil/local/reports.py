"""What a producer sends instead of its value: Square Wave for the distribution, Hybrid for sums.

**Guarantee.** Each report is epsilon-locally private on its own: whatever else is known, any two values in
0..maximum make the report equally likely up to e^epsilon. It does not matter who receives it. That a report
was sent, by whom and when, is not protected; k reports of one person cost the sum of their epsilons.

**Source.** ToPL: T. Wang et al., "Continuous Release of Data Streams under both Centralized and Local
Differential Privacy" (CCS 2021), Section 4 and Appendix E. Square Wave: Li et al. (SIGMOD 2020). Stochastic
rounding: Duchi et al. (JASA 2018). Piecewise and Hybrid: N. Wang et al. (ICDE 2019).

**Proof.** Both are randomised response along a line (``eventveil.local.sampling``), or binary randomised
response: keep a sign with probability w / (w + 1), w <= e^epsilon. Clipping, cells and stochastic rounding
come before it and see one value only; Hybrid tosses a public coin between two epsilon-private reports.

**Changed.** Reports are integers on a public grid, probabilities exact rationals; w is just below e^epsilon.
A Square Wave input is one of CELLS equal cells, its half-width a whole number of cells. The Piecewise
interval has the ratio 1 to e^(epsilon/2) to the rest, rounded to whole steps; ``estimate`` uses the rounded
numbers, so it stays unbiased exactly.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate
from math import exp

from eventveil.local.sampling import (
    EPSILON_LIMIT,
    LEAST_EPSILON,
    Randomness,
    SlidingWindow,
    SystemRandomness,
    happens,
    power_of_e,
)

CELLS = 1024
STEPS = 1024
ROUNDING_ONLY = Fraction(61, 100)
"""Up to this epsilon the Hybrid mechanism never uses the Piecewise one."""


def clipped(value: int, maximum: int) -> int:
    """``value`` in 0..maximum. Raises ValueError unless it is an integer (an invalid value is a 0)."""
    if type(value) is not int:
        raise ValueError(f"a value should be an integer number of steps, not {value!r}")
    return min(max(value, 0), maximum)


class SquareWave:
    """Reports for estimating the distribution of values in 0..maximum, Equation 16."""

    def __init__(self, epsilon: Fraction, maximum: int, cells: int = CELLS) -> None:
        _check(epsilon, maximum)
        if not 2 <= cells <= maximum + 1:
            cells = max(2, min(cells, maximum + 1))
        self.epsilon, self.maximum, self.cells = epsilon, maximum, cells
        self.half_width = int(half_width(epsilon) * cells)
        self.wave = SlidingWindow(cells, 2 * self.half_width + 1, power_of_e(epsilon))

    def report(self, value: int, randomness: Randomness | None = None) -> int:
        """A random integer in 0..wave.outputs-1."""
        cell = clipped(value, self.maximum) * self.cells // (self.maximum + 1)
        return self.wave.report(cell, randomness or SystemRandomness())


def half_width(epsilon: Fraction) -> float:
    """b of Equation 16, as part of the domain; between 0 and 1/2. Public, so floating point does no harm."""
    e = float(epsilon)
    if e < 1e-2:  # the formula cancels; its limit is 1/2, with slope -1/3
        return 0.5 - e / 3
    return (e * exp(e) - exp(e) + 1) / (2 * exp(e) * (exp(e) - 1 - e))


class Hybrid:
    """Reports for unbiased sums of values in 0..threshold: stochastic rounding or Piecewise."""

    def __init__(self, epsilon: Fraction, threshold: int, steps: int = STEPS) -> None:
        _check(epsilon, threshold)
        self.epsilon, self.threshold = epsilon, threshold
        weight = power_of_e(epsilon)
        self.keep = weight / (weight + 1)
        root = power_of_e(epsilon / 2)
        self.wave = SlidingWindow(steps + 1, max(1, round(steps / root)), weight)
        self.piecewise = Fraction(0) if epsilon <= ROUNDING_ONLY else 1 - 1 / root

    @property
    def reports(self) -> int:
        """Reports are integers in 0..reports-1: 0 and 1 from rounding, then those of the Piecewise grid."""
        return 2 + self.wave.outputs

    def report(self, value: int, randomness: Randomness | None = None) -> int:
        """A random integer in 0..reports-1, to be clipped to the threshold first."""
        randomness = randomness or SystemRandomness()
        value = clipped(value, self.threshold)
        if happens(self.piecewise, randomness):
            return 2 + self.wave.report(self._step(value, randomness), randomness)
        high = happens(Fraction(value, self.threshold), randomness)
        return int(high == happens(self.keep, randomness))

    def estimate(self, report: int) -> Fraction:
        """The contribution of a report to a sum of values: its mean is the clipped value, exactly."""
        if type(report) is not int or not 0 <= report < self.reports:
            raise ValueError(f"a report should be an integer in 0..{self.reports - 1}, not {report!r}")
        if report >= 2:
            return self.threshold * self.wave.unbiased(report - 2) / (self.wave.inputs - 1)
        lift = 1 / (2 * self.keep - 1)
        return self.threshold * (1 + (lift if report else -lift)) / 2

    def worst_variance(self) -> float:
        """Variance of the estimate of one report, at the value of the grid where it is largest.

        Values between two steps add a quarter of a step's square at most, which is in it.
        """
        wave, steps = self.wave, self.wave.inputs - 1
        squares = [float(wave.unbiased(output)) ** 2 for output in range(wave.outputs)]
        sums = [0.0, *accumulate(squares)]
        lift, piecewise = float(wave.weight - 1), float(self.piecewise)
        keep, largest = float(self.keep), 0.0
        for step in range(wave.inputs):
            within = sums[step + wave.window] - sums[step]
            fine = (sums[-1] + lift * within) / float(wave.total)
            high = (keep * step + (1 - keep) * (steps - step)) / steps
            signs = [steps * (1 + sign / (2 * keep - 1)) / 2 for sign in (1, -1)]
            coarse = high * signs[0] ** 2 + (1 - high) * signs[1] ** 2
            largest = max(largest, piecewise * fine + (1 - piecewise) * coarse - step * step)
        return (largest + piecewise / 4) * (self.threshold / steps) ** 2

    def _step(self, value: int, randomness: Randomness) -> int:
        """The value as a number of steps of the Piecewise grid, rounded so that its mean is right."""
        step, rest = divmod(value * (self.wave.inputs - 1), self.threshold)
        return step + happens(Fraction(rest, self.threshold), randomness)


def _check(epsilon: Fraction, maximum: int) -> None:
    if not isinstance(epsilon, Fraction) or not LEAST_EPSILON <= epsilon <= EPSILON_LIMIT:
        raise ValueError(f"epsilon should be a Fraction in {LEAST_EPSILON}..{EPSILON_LIMIT}, not {epsilon!r}")
    if type(maximum) is not int or maximum < 1:
        raise ValueError(f"the largest value should be an integer of at least 1, not {maximum!r}")
