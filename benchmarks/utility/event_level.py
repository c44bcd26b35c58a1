"""Sum of squared errors of window histograms, at event level: the mean over timestamps of a sum over columns.

A window is the last ``span`` timestamps, fewer in the beginning. *Baseline* is ``time-unit``. What was made
for another guarantee is adapted as by Chen et al. (CIKM 2015, Section 7): BA with a window of one timestamp,
and FAST, sanitize each timestamp, and their releases are summed over the window. A window of one timestamp
meets one block of FAST, not two, so that all of epsilon may be spent in it: hence 2 epsilon in its settings.
The two first cuts perturb each window afresh (Section 4.1): by sequential composition over all T of them,
scale T / epsilon, and by the sensitivity, scale span / epsilon.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from benchmarks.utility.measuring import AheadNoise, Case, Scope, epsilons, window_sums
from benchmarks.utility.streams import COUNT_STREAMS, Counts, CountStream
from eventveil.mechanisms.registry import build
from eventveil.model.topology import MechanismSettings, Option

PART = "event-level"
BASELINE, RG = "Baseline", "RG"
QUICK_TIMESTAMPS = 100


@dataclass(frozen=True)
class Contender:
    """A mechanism with its options; ``per_unit``: its releases are of timestamps, and summed over windows."""

    label: str
    kind: str
    options: dict[str, Option] = field(default_factory=dict)
    per_unit: bool = False
    share: int = 1

    def releases(self, stream: CountStream, epsilon: Fraction, seed: int) -> Counts:
        """Window histograms, int64 of shape (timestamps, columns)."""
        options = self.options if self.per_unit else {"span": stream.span, **self.options}
        settings = MechanismSettings(self.kind, self.share * epsilon, str(epsilon), 1, options=options)
        mechanism = build(settings, stream.counts.shape[1], 1, AheadNoise(seed))
        steps = np.array([mechanism.step(row).counts for row in stream.counts])
        return window_sums(steps, stream.span) if self.per_unit else steps


CONTENDERS = (
    Contender(BASELINE, "time-unit"),
    Contender(RG, "retroactive-grouping"),
    Contender("RG, half for the monitor", "retroactive-grouping", {"share": Fraction(1, 2)}),
    Contender("RG, half, factor 8", "retroactive-grouping", {"share": Fraction(1, 2), "factor": Fraction(8)}),
    Contender("BA, adapted", "budget-absorption", per_unit=True),
    Contender("FAST, adapted", "fast", {"max_samples": 1}, per_unit=True, share=2),
)
FIRST_CUTS = ("windows by composition", "windows by sensitivity")


def measure(scope: Scope) -> Iterator[Case]:
    """A case for each stream and epsilon."""
    for make in COUNT_STREAMS:
        stream = make().first(QUICK_TIMESTAMPS) if scope.quick else make()
        truth = window_sums(stream.counts, stream.span)
        for text, epsilon in epsilons("0.1", "1"):
            errors = {"Zero": [_squares(truth)]}
            for label, window in zip(FIRST_CUTS, (len(truth), stream.span), strict=True):
                errors[label] = [
                    _squares(_perturbed(truth, epsilon, window, seed) - truth) for seed in range(scope.seeds)
                ]
            for each in CONTENDERS:
                errors[each.label] = [
                    _squares(each.releases(stream, epsilon, seed) - truth) for seed in range(scope.seeds)
                ]
            yield Case(PART, stream.name, text, {"span": stream.span}, errors)


def _perturbed(truth: Counts, epsilon: Fraction, window: int, seed: int) -> Counts:
    """A first cut: an event is in at most ``window`` consecutive histograms, so this is Uniform on them."""
    settings = MechanismSettings("uniform", epsilon, str(epsilon), window)
    mechanism = build(settings, truth.shape[1], 1, AheadNoise(seed))
    return np.array([mechanism.step(row).counts for row in truth])


def _squares(difference: Counts) -> float:
    return float((difference.astype(float) ** 2).sum(axis=1).mean())
