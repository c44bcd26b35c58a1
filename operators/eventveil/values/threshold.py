"""How far up values are kept: a threshold by noisy maximum over a public grid.

**Guarantee.** The threshold is epsilon-differentially private in the values that it is estimated from.
*Neighbours*: one value replaced in its place. *Assumptions*: the number m of values, the candidates and all
settings are public; the noise is independent of everything else.

**Source.** T. Wang et al., "Continuous Release of Data Streams under both Centralized and Local Differential
Privacy" (CCS 2021), Section 3.3, Equations 5 and 6: the candidate theta with the largest noisy

    q(theta) = -(3 m theta) / (c r epsilon) sqrt(2 (b - 1) log_b(r)^3) - #{i : v_i >= theta}

where r is the longest range queried, b the fan-out and c a public constant, the typical excess of a value
that is cut off, in steps of the grid.

**Proof.** The first term is public. Raising a value from v to v' adds 1 to the count of every candidate in
v < theta <= v' and nothing to the others; so all queries move in one direction, by at most 1. Let candidate i
win with noise z_i, all other noise fixed, exactly if z_i >= k. When the queries move, every difference
between q_i and another query moves by at most 1, in either direction, so i wins with z_i >= k + 1, ties
included, since they are broken in a fixed order. Discrete Laplace noise of scale 1/epsilon has
P(z >= k + 1) >= e^-epsilon P(z >= k) for all k, and so has the one-sided geometric one: for it,
P(z >= k) = min(1, e^(-epsilon k)). Hence P(i wins) changes by at most e^epsilon.

**Changed.** Algorithm 1 prints the inequality of the count the wrong way round (#{v <= theta} favours the
smallest candidates); Equation 5 has it right. Queries and noise are integers, in steps of 1/RESOLUTION, with
noise of scale RESOLUTION/epsilon; log_b(r) is the integer height of the tree. One-sided noise
("exponential") makes report-noisy-max the permute-and-flip mechanism (Ding et al. 2021), up to ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import isqrt
from typing import Literal

import numpy as np

from eventveil.privacy.noise import NoiseSource
from eventveil.values.draws import Integers, geometric, laplace

RESOLUTION = 2**10
CANDIDATE_LIMIT = 2**16
_FRACTION_BITS = 64

NoisyMaximum = Literal["laplace", "exponential"]


def candidates(maximum: int) -> list[int]:
    """Every step up to ``maximum``, or CANDIDATE_LIMIT evenly spaced ones."""
    count = min(maximum, CANDIDATE_LIMIT)
    return [maximum * i // count for i in range(1, count + 1)]


def penalty(epsilon: Fraction, held: int, chunk: int, fanout: int, height: int, excess: Fraction) -> int:
    """What a step of theta costs in the query, in 2**-64 steps of 1/RESOLUTION; rounded down."""
    factor = Fraction(RESOLUTION << _FRACTION_BITS) * 3 * held / (excess * chunk * epsilon)
    return isqrt(int(factor**2 * 2 * (fanout - 1) * height**3))


def scores(values: Integers, thetas: Sequence[int], cost: int) -> Integers:
    """The queries of Equation 6 in steps of 1/RESOLUTION, as Python integers; ``cost`` is a ``penalty``."""
    ascending = np.sort(values)
    reached = len(values) - np.searchsorted(ascending, np.array(thetas, np.int64), side="left")
    return np.array(
        [
            -(theta * cost >> _FRACTION_BITS) - RESOLUTION * int(n)
            for theta, n in zip(thetas, reached, strict=True)
        ],
        object,
    )


def noisy_maximum(queries: Integers, epsilon: Fraction, kind: NoisyMaximum, noise: NoiseSource) -> int:
    """The index of the noisy maximum, the first one if several are equal."""
    draw = laplace if kind == "laplace" else geometric
    return int(np.argmax(queries + draw(noise, RESOLUTION / epsilon, len(queries))))
