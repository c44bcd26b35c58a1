"""Random decisions with exact rational probabilities, and randomised response along a line.

**Guarantee.** A ``SlidingWindow`` report is epsilon-locally private: for any two inputs, each output's
probabilities differ by a factor of at most e^epsilon.

**Source.** What Square Wave (Li et al., SIGMOD 2020) and the Piecewise mechanism (Wang et al., ICDE 2019)
have in common, on a public grid.

**Proof.** Input i of 0..inputs-1 gives each of the ``window`` outputs i..i+window-1 the weight w and each of
the other inputs - 1 outputs the weight 1. The total, window w + inputs - 1, is the same for every input, so
probabilities differ by w at most, and w is a rational not above e^epsilon. Choices are made with uniform
integers from the operating system's generator and rational probabilities: no floating point.

**Changed.** e^epsilon becomes a slightly smaller rational, inputs and outputs are integers.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from fractions import Fraction
from math import factorial
from typing import Protocol

EPSILON_LIMIT = 16
LEAST_EPSILON = Fraction(1, 1000)
_DENOMINATOR = 2**48


class Randomness(Protocol):
    """Where a producer gets its random numbers."""

    def below(self, bound: int) -> int:
        """Uniform in 0..bound-1, for ``bound`` >= 1."""


class SystemRandomness:
    """The operating system's cryptographic generator: the only source for live data."""

    def below(self, bound: int) -> int:
        """See ``Randomness``."""
        return secrets.randbelow(bound)


def happens(probability: Fraction, randomness: Randomness) -> bool:
    """True with exactly this probability, in 0..1."""
    return randomness.below(probability.denominator) < probability.numerator


def power_of_e(exponent: Fraction) -> Fraction:
    """e^exponent from below, within about 2^-48 of it: what may be promised as a ratio.

    A partial sum of the exponential series, whose terms are positive. ValueError unless the exponent is above
    0 and at most EPSILON_LIMIT.
    """
    if not 0 < exponent <= EPSILON_LIMIT:
        raise ValueError(f"epsilon should lie in (0, {EPSILON_LIMIT}], not {exponent}")
    total = sum((exponent**k / factorial(k) for k in range(96)), Fraction(0))
    return Fraction(total.numerator * _DENOMINATOR // total.denominator, _DENOMINATOR)


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Outputs 0..inputs+window-2; those in i..i+window-1 are ``weight`` times as likely as the others."""

    inputs: int
    window: int
    weight: Fraction

    @property
    def outputs(self) -> int:
        """How many different outputs there are."""
        return self.inputs + self.window - 1

    @property
    def total(self) -> Fraction:
        """The sum of all weights, for any input."""
        return self.window * self.weight + self.inputs - 1

    def report(self, i: int, randomness: Randomness) -> int:
        """A random output for input ``i``."""
        if happens(self.window * self.weight / self.total, randomness):
            return i + randomness.below(self.window)
        outside = randomness.below(self.inputs - 1)
        return outside if outside < i else outside + self.window

    def unbiased(self, output: int) -> Fraction:
        """The estimate of the input whose mean over the outputs of i is i exactly.

        The mean output is ((w - 1)(window i + window (window - 1)/2) + (outputs - 1) outputs/2) / total.
        """
        lift = self.weight - 1
        centre = lift * self.window * (self.window - 1) / 2 + Fraction((self.outputs - 1) * self.outputs, 2)
        return (output * self.total - centre) / (lift * self.window)
