"""Mean absolute error of the w-event mechanisms: of |release - count| over all timestamps and columns.

Repeated releases count like fresh ones. Zero publishes zeros. Pan-private contenders have one partition and
nobody intrudes: what is measured is the price of being prepared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from benchmarks.utility.measuring import AheadNoise, Case, Scope, epsilons
from benchmarks.utility.streams import COUNT_STREAMS, Counts, CountStream
from benchmarks.utility.unseen import UNSEEN
from eventveil.mechanisms.registry import build
from eventveil.model.topology import MechanismSettings, Option

PART, NEVER_SEEN = "w-event", "unseen"
ZERO, UNIFORM, SAMPLE, OURS = "Zero", "Uniform", "Sample", "Paced, our own"
BASELINES = (ZERO, UNIFORM, SAMPLE)
WINDOWS = (40, 120)
GROUPS = 20  # the best number in Kellaris et al., Figure 10
QUICK_TIMESTAMPS = 60


@dataclass(frozen=True)
class Contender:
    """A mechanism with its options."""

    label: str
    kind: str
    options: dict[str, Option] = field(default_factory=dict)

    def releases(self, counts: Counts, epsilon: Fraction, window: int, seed: int) -> Counts:
        """What one run releases."""
        settings = MechanismSettings(self.kind, epsilon, str(epsilon), window, options=self.options)
        noise = AheadNoise(seed)
        releases = np.empty_like(counts)
        mechanism = build(settings, counts.shape[1], 1, noise)
        step = mechanism.on_truth
        for timestamp, row in enumerate(counts):
            releases[timestamp] = step(row).counts
        return releases

    def error(self, counts: Counts, epsilon: Fraction, window: int, seed: int) -> float:
        """Mean absolute error of one run."""
        return float(np.abs(self.releases(counts, epsilon, window, seed) - counts).mean())


BD, BA = "budget-distribution", "budget-absorption"
TWO = Fraction(2)
SHIFT: dict[str, Option] = {"shift": "true"}
IN_GROUPS: dict[str, Option] = {"groups": GROUPS}
CONTENDERS = (
    Contender(UNIFORM, "uniform"),
    Contender(SAMPLE, "sample"),
    Contender("BD", BD),
    Contender("BD, factor 2", BD, {"factor": TWO}),
    Contender("BD, shift", BD, SHIFT),
    Contender("BD, 20 groups", BD, IN_GROUPS),
    Contender("BD, factor 2, shift, 20 groups", BD, {"factor": TWO, **SHIFT, **IN_GROUPS}),
    Contender("BA", BA),
    Contender("BA, factor 2", BA, {"factor": TWO}),
    Contender("BA, shift", BA, SHIFT),
    Contender("BA, 20 groups", BA, IN_GROUPS),
    Contender("BA, factor 2, shift, 20 groups", BA, {"factor": TWO, **SHIFT, **IN_GROUPS}),
    Contender("FAST", "fast"),
    Contender(OURS, "paced"),
    Contender("FAST, drift 1", "fast", {"drift": Fraction(1)}),
    Contender("BD, pan-private, single", BD, {"pan_private": "single"}),
    Contender("BD, pan-private, announced", BD, {"pan_private": "announced"}),
    Contender("BA, pan-private, single", BA, {"pan_private": "single"}),
    Contender("BA, pan-private, announced", BA, {"pan_private": "announced"}),
)


COMPARED = (UNIFORM, SAMPLE, "BD", "BD, factor 2", "BA", "BA, factor 2", "FAST", OURS)
"""What our own mechanism was to be better than, and itself."""


def measure(scope: Scope) -> Iterator[Case]:
    """A case for each stream, window and epsilon."""
    for make in COUNT_STREAMS:
        yield from _cases(PART, make(), CONTENDERS, scope)


def measure_unseen(scope: Scope) -> Iterator[Case]:
    """The same on the streams that no design was fitted to, of what matters there."""
    contenders = [contender for contender in CONTENDERS if contender.label in COMPARED]
    for make in UNSEEN:
        yield from _cases(NEVER_SEEN, make(), contenders, scope)


def _cases(part: str, stream: CountStream, contenders: Sequence[Contender], scope: Scope) -> Iterator[Case]:
    counts = stream.counts[:QUICK_TIMESTAMPS] if scope.quick else stream.counts
    for window in WINDOWS[:1] if scope.quick else WINDOWS:
        for text, epsilon in epsilons("1") if scope.quick else epsilons("0.1", "1"):
            errors = {ZERO: [float(counts.mean())]}
            for contender in contenders:
                errors[contender.label] = [
                    contender.error(counts, epsilon, window, seed) for seed in range(scope.seeds)
                ]
            yield Case(part, stream.name, text, {"window": window}, errors)
