"""A statistical audit: run two neighbouring streams often, and see how well they can be told apart.

**Source.** Lower bounds on epsilon from the outputs of a black box: Z. Ding, Y. Wang, G. Wang, D. Zhang,
D. Kifer, "Detecting Violations of Differential Privacy" (CCS 2018). Half of the runs choose the set of
transcripts that tells the streams apart best; the other half, which are independent of that choice, estimate
its two probabilities. Both are bounded by Chernoff's inequality, in both directions, with an error of 2.5e-7
each: a mechanism that keeps its promise is accused at most once in a million audits.
It finds what leaks much: half the noise, decisions from true counts. It does not find what leaks little.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import log

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.contract.subject import Counterexample, Subject, Watched

EPSILON = Fraction(2)
RUNS = 1000
ERROR = 2.5e-7
_LENGTH = 2

Transcript = tuple[bool, ...]


def audit(subject: Subject) -> str:
    """Two timestamps, epsilon 2; a user who is there at both, at event level at one."""
    rounds = [_sample(subject, present, seed) for seed in (1, 2) for present in (False, True)]
    bounds = []
    for first, second in ((0, 1), (1, 0)):
        likely = _choose(rounds[first], rounds[second])
        hits = [sum(rounds[2 + side][one] for one in likely) for side in (first, second)]
        low, high = below(hits[0]), above(hits[1])
        bounds.append(log(low / high) if low > 0 else 0.0)
    epsilon = max(0.0, *bounds)
    tried = f"{2 * RUNS} runs of each of two neighbours, epsilon {EPSILON}; it is at least {epsilon:.3g}"
    if epsilon > EPSILON:
        raise Counterexample(
            f"from the releases of {_LENGTH} timestamps one tells streams with and without a user apart by at"
            f" least e^{epsilon:.3g}, more than the e^{EPSILON} that it promises (wrong once in a million)",
            tried,
        )
    return tried


def _sample(subject: Subject, present: bool, seed: int) -> Counter[Transcript]:
    """How often each transcript came out: which releases were fresh, and which counts above the base."""
    source = _FastLaplace(np.random.default_rng([seed, present]))
    watched = Watched(subject, source.answer, _LENGTH, epsilon=EPSILON)
    start = watched.mechanism.snapshot()
    base = np.zeros(subject.columns, np.int64)
    visits = [base.copy() for _ in range(_LENGTH)]
    if present:
        visits[0][0] = 1
        if subject.mechanism.level != "event":
            visits[1][-1] = 1
    found: Counter[Transcript] = Counter()
    for _ in range(RUNS):
        watched.mechanism.restore(start)
        transcript: list[bool] = []
        for visit in visits:
            release = watched.mechanism.step(base + visit)
            transcript += [release.fresh, *(release.counts > base).tolist()]
        found[tuple(transcript)] += 1
    return found


class _FastLaplace:
    """Discrete Laplace noise at speed: the difference of two geometric variables, in floating point."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def answer(self, scale: Fraction, size: int, published: bool) -> NDArray[np.int64]:
        """See ``Answer``."""
        success = -np.expm1(-float(1 / scale))
        return self._generator.geometric(success, size) - self._generator.geometric(success, size)


def _choose(one: Counter[Transcript], other: Counter[Transcript]) -> set[Transcript]:
    """The transcripts that speak most clearly for ``one``, as many as make the estimate largest."""
    ranked = sorted({*one, *other}, key=lambda seen: (other[seen] + 0.5) / (one[seen] + 0.5))
    best, chosen, hits, misses = -1.0, 0, 0, 0
    for i, seen in enumerate(ranked, 1):
        hits, misses = hits + one[seen], misses + other[seen]
        low = below(hits)
        score = log(low / above(misses)) if low > 0 else -1.0
        if score > best:
            best, chosen = score, i
    return set(ranked[:chosen])


def below(hits: int) -> float:
    """A probability that is at least this, up to the error, if this many of RUNS hit."""
    return 1 - above(RUNS - hits)


def above(hits: int) -> float:
    """A probability that is at most this: the largest p with RUNS * KL(hits / RUNS, p) <= log(1 / error)."""
    seen, limit = hits / RUNS, log(1 / ERROR) / RUNS
    low, high = seen, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _divergence(seen, middle) <= limit:
            low = middle
        else:
            high = middle
    return min(1.0, high)


def _divergence(seen: float, p: float) -> float:
    """KL divergence of two coins."""
    first = seen * log(seen / p) if seen else 0.0
    second = (
        (1 - seen) * log((1 - seen) / (1 - p)) if seen < 1 and p < 1 else (0.0 if seen == 1 else float("inf"))
    )
    return first + second
