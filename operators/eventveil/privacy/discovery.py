"""Columns that nobody listed: a noisy threshold on what a block of timestamps has counted.

**The test.** Timestamps lie in blocks of ``window``, whose ends follow from their numbers. At the end of a
block every column that is not known, and of which the block has counted at least one event, is tested once:
s + Z >= T, s its sum over the block, Z discrete Laplace of scale b = k window / epsilon, k the contribution
bound, T the threshold. What is told are the columns that pass, with s + Z.

**Guarantee.** (epsilon, delta)-differential privacy for neighbours that differ in one user's events at
timestamps which fit in ``window`` consecutive ones, all of them present in one stream and none in the other.

**Proof.** Let D' have the user's events, and D not. The user adds v_x of n = k window events at most, over
all columns x of all blocks together: at most k at a timestamp (sums over columns, known or not). Such a
window touches one block or two, and nothing else depends on it.

* *Columns with events of others* (s_x >= 1 in D) are tested in both. The probability of each s_x + Z changes
  by a factor of at most e^(v_x / b), and of all of them together by e^(n / b) = e^epsilon.
* *Columns of this user alone* (s_x = 0 in D) are not tested in D, and in D' each passes with probability
  p(v_x) = P(Z >= T - v_x). Let E be that any of them passes, so P(E) is at most the sum of the p(v_x). Unless
  E, nothing that is told depends on them.
* So for every set S of outputs P'(S) <= P'(S and not E) + P(E) <= e^epsilon P(S) + P(E). The other way, with
  P'(S | not E) >= e^-epsilon P(S) and x <= y / (1 - d) => x <= y + d for x <= 1:
  P(S) <= e^epsilon P'(S) / (1 - P(E)), hence P(S) <= e^epsilon P'(S) + P(E).
* *The sum.* Below T, p(v) = q^(T - v) / (1 + q), q = e^(-1 / b), which is convex in v. For m columns, each of
  at least one event and together of n, the sum is largest if one has n - m + 1 and the others 1 each, and
  that is convex in m: so it is at most the larger of p(n) and n p(1). ``threshold`` keeps both below delta.
* *Two blocks.* What is known at the second test depends on the first, and on all that was released before.
  Given that, each test is (V / b, D)-private, V the user's events in its block and D the sum of its p(v_x).
  These are fixed by the two streams, so basic composition holds: the V add up to n, and the D as above.

A test costs no more where columns are known already: those are not tested, for both neighbours, and their
events are the mechanism's. With a mechanism of epsilon' on what is known, by basic composition again, a
window is (epsilon + epsilon', delta)-private. Which of those that pass are kept is post-processing: the first
ones, the largest noisy sum first, that there is room for by the names of all that are kept.

**Tests and releases take turns**, each with noise of its own. The law of each is a function of the events of
its timestamp, or block, and of all outputs before it, on which the columns, the schedule and the levels that
new columns start with depend. Take a transcript y, and let E be that in D' a column of this user alone passes
in any test.

* *A release* that spends u of N units at a timestamp at which the user has v <= k events has, given the same
  outputs before it, probabilities that differ by a factor of at most e^(u v epsilon' / (N k)). The ledger
  lets no window spend more than N on any transcript, so these factors multiply to at most e^epsilon'.
* *A test* without E differs by at most e^(V / b), given the same outputs before it, and its lone columns all
  fail with a probability of at least 1 - D, independently of the others. V and D are from the two streams
  alone; the V add up to n at most, so the factors to e^epsilon, and the D to delta.
* Multiplied over all steps, for any set S of transcripts: P'(S and not E) <= e^(epsilon + epsilon') P(S), and
  P'(E) <= delta, so P'(S) <= e^(epsilon + epsilon') P(S) + delta. The other way, P'(S and not E) >=
  e^-(epsilon + epsilon') P(S) times the product of the 1 - D, which is at least 1 - delta; as above,
  P(S) <= e^(epsilon + epsilon') P'(S) + delta.

So it does not matter that units are chosen by outputs, nor in which order tests and releases come.

**Forgetting** costs nothing. Which columns are known in a block is fixed when it begins, by what has passed
before and by released counts and their errors, which are functions of outputs. What a block counts of a known
column is the mechanism's; of any other, forgotten ones too, it is in the sums of that block alone, and tested
once. So for the same outputs both streams test columns that are unknown to both, and the above holds as it
stands. That the mechanism drops what it has learned of a column is post-processing.

The noise is integer, exact (``noise``), and the sums are whole numbers without bound. T is computed with
fifty digits and rounded up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from eventveil.privacy.exponential import SATURATION
from eventveil.privacy.gaussian import LARGEST_DELTA, LEAST_DELTA
from eventveil.privacy.noise import NoiseSource

LARGEST_THRESHOLD = SATURATION // 2**10
"""Of noise that is cut off at SATURATION a part is lost that is below delta^1000 up to here."""
_DIGITS = 50
#: Far above the error of a few operations with this many digits.
_MARGIN = Decimal(10) ** -30


class FoundColumn(NamedTuple):
    """A column that has passed, and its noisy sum over the block."""

    column: str
    noisy: int


@dataclass(frozen=True, slots=True)
class Test:
    """What a block's test is made of: the scale of its noise, and the threshold."""

    scale: Fraction
    threshold: int

    def __call__(self, sums: Mapping[str, int], noise: NoiseSource) -> list[FoundColumn]:
        """The columns that pass, the largest noisy sum first, ties by text.

        ``sums`` has what the block counted of each column that is not known, 1 at least. Draws one number for
        each, in the order of their texts.
        """
        if not sums:
            return []
        if min(sums.values()) < 1:
            raise ValueError("a column of which nothing was counted is not tested")
        columns = sorted(sums)
        draws = noise.discrete_laplace(self.scale, len(columns))
        noisy = (
            FoundColumn(one, sums[one] + draw) for one, draw in zip(columns, draws.tolist(), strict=True)
        )
        passed = [one for one in noisy if one.noisy >= self.threshold]
        return sorted(passed, key=lambda one: (-one.noisy, one.column))


def test_of(epsilon: Fraction, delta: Fraction, contributions: int, window: int) -> Test:
    """The test that costs epsilon and delta in any ``window`` timestamps.

    ``contributions``: how many events of a user count at a timestamp, in all columns together. Raises
    ValueError for values out of range, and for a threshold above ``LARGEST_THRESHOLD``.
    """
    if epsilon <= 0 or contributions < 1 or window < 1:
        raise ValueError("epsilon, contributions and window should be positive")
    if not LEAST_DELTA <= delta <= LARGEST_DELTA:
        raise ValueError(f"delta should be in {LEAST_DELTA}..{LARGEST_DELTA}, not {delta}")
    events = contributions * window
    scale = events / Fraction(epsilon)
    least = threshold(scale, events, delta)
    if least > LARGEST_THRESHOLD:
        raise ValueError(f"a threshold of {least} is more than noise is drawn for")
    return Test(scale, least)


def threshold(scale: Fraction, events: int, delta: Fraction) -> int:
    """A T with p(events) <= delta and events p(1) <= delta, the least one or one more; see the module.

    p(v) = q^(T - v) / (1 + q), q = e^(-1 / scale), for v < T.
    """
    alone = events + _beyond(scale, delta)
    apart = 1 + _beyond(scale, delta / events)
    return max(alone, apart)


def _beyond(scale: Fraction, delta: Fraction) -> int:
    """An m >= 1 with q^m / (1 + q) <= delta, the least one or one more."""
    with localcontext(prec=_DIGITS):
        b = Decimal(scale.numerator) / Decimal(scale.denominator)
        limit = Decimal(delta.numerator) / Decimal(delta.denominator)
        q = (-1 / b).exp()
        least = -b * (limit * (1 + q)).ln()
        return max(1, ceil(least + abs(least) * _MARGIN + _MARGIN))
