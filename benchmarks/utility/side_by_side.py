"""All w-event mechanisms side by side: on real streams and drawn ones, ours and others', by many measures.

``Case.errors`` is the MAE over the mean count, ``Case.medians`` has every measure of
``benchmarks.utility.measures``, both by contender. A contender that releases negative numbers comes twice: as
it is, and clipped at 0, which costs no budget. Zero releases zeros.

Drawn streams are taken for hours, so that a day and a week are declared that they do not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from benchmarks.utility.contenders import Counts, Peer, Reals, adapub, dsat, pegasus, rescue, spas
from benchmarks.utility.measures import measured
from benchmarks.utility.measuring import AheadNoise, Case, Scope
from benchmarks.utility.real import REAL, WITHOUT_PACKAGES, RealStream
from benchmarks.utility.streams import CountStream, bursts, mixed, slow_drift
from benchmarks.utility.unseen import UNSEEN
from benchmarks.utility.w_event import Contender
from eventveil.model.topology import Option

REAL_PART, DRAWN_PART = "real", "drawn"
OURS, ZERO, CLIPPED = "seasonal", "Zero", ", clipped"
TERMS = (("1", 24), ("0.1", 24), ("0.5", 120), ("0.1", 120), ("1", 720))
"""Epsilon and window of the cases."""
DRAWN = (slow_drift, bursts, mixed, *UNSEEN)
DRAWN_TIMESTAMPS, QUICK_TIMESTAMPS = 1000, 60

Run = Callable[[RealStream, Fraction, int, int], Counts | Reals]


@dataclass(frozen=True)
class Kind:
    """A kind of ours, with the periods of the stream if it takes them."""

    contender: Contender
    seasonal: bool = False

    def __call__(self, stream: RealStream, epsilon: Fraction, window: int, seed: int) -> Counts:
        """What one run releases."""
        options: dict[str, Option] = {"periods": stream.periods} if self.seasonal and stream.periods else {}
        own = self.contender
        told = Contender(own.label, own.kind, {**own.options, **options})
        return told.releases(stream.counts, epsilon, window, seed)


def _peer(peer: Peer, stream: RealStream, epsilon: Fraction, window: int, seed: int) -> Reals:
    return peer(stream.counts, epsilon, window, AheadNoise(seed))


def _adapub_sampled(stream: RealStream, epsilon: Fraction, window: int, seed: int) -> Reals:
    periods = tuple(int(period) for period in stream.periods.split(",") if period)
    return adapub.sampled(stream.counts, epsilon, window, AheadNoise(seed), periods)


KINDS: dict[str, Run] = {
    OURS: Kind(Contender(OURS, "seasonal"), seasonal=True),
    "paced": Kind(Contender("paced", "paced"), seasonal=True),
    "uniform": Kind(Contender("uniform", "uniform")),
    "sample": Kind(Contender("sample", "sample"), seasonal=True),
    "budget-distribution": Kind(Contender("BD", "budget-distribution", {"factor": Fraction(2)})),
    "budget-absorption": Kind(Contender("BA", "budget-absorption", {"factor": Fraction(2)})),
    "fast": Kind(Contender("FAST", "fast"), seasonal=True),
}
PEERS: dict[str, Run] = {
    "DSAT": partial(_peer, dsat.dsat),
    "PeGaSus": partial(_peer, pegasus.pegasus),
    "AdaPub, always": partial(_peer, adapub.always),
    "AdaPub, sampled": _adapub_sampled,
    "RescueDP": partial(_peer, rescue.rescue),
    "SPAS": partial(_peer, spas.spas),
}


def measure_real(scope: Scope) -> Iterator[Case]:
    """The real streams, or those that need no package in a quick run."""
    return _cases(REAL_PART, (make() for make in (WITHOUT_PACKAGES if scope.quick else REAL)), scope)


def measure_drawn(scope: Scope) -> Iterator[Case]:
    """The drawn ones."""
    return _cases(DRAWN_PART, (_hourly(make()) for make in DRAWN), scope)


def _hourly(stream: CountStream) -> RealStream:
    return RealStream(stream.name, stream.counts[:DRAWN_TIMESTAMPS], 1)


def _cases(part: str, streams: Iterable[RealStream], scope: Scope) -> Iterator[Case]:
    for stream in streams:
        if scope.streams and stream.name not in scope.streams:
            continue
        tried = stream.first(QUICK_TIMESTAMPS) if scope.quick else stream
        for text, window in TERMS[:1] if scope.quick else TERMS:
            yield _case(part, tried, text, window, scope)


def _case(part: str, stream: RealStream, epsilon: str, window: int, scope: Scope) -> Case:
    runs: dict[str, list[dict[str, float]]] = {ZERO: [_measures(np.zeros_like(stream.counts), stream)]}
    all_of_them = {**KINDS, **PEERS}
    for label in scope.only or all_of_them:
        for seed in range(scope.seeds):
            released = all_of_them[label](stream, Fraction(epsilon), window, seed)
            runs.setdefault(label, []).append(_measures(released, stream))
            if (released < 0).any():
                runs.setdefault(label + CLIPPED, []).append(_measures(released.clip(0), stream))
    sizes = {"mean": float(f"{stream.counts.mean():.4g}")}
    errors = {label: [each["MAE"] for each in own] for label, own in runs.items()}
    return Case(part, stream.name, epsilon, {"window": window}, errors, _medians(runs), sizes)


def _measures(released: Counts | Reals, stream: RealStream) -> dict[str, float]:
    return measured(released, stream.counts, stream.day, stream.week)


def _medians(runs: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, float]]:
    return {
        label: {name: float(f"{np.median([each[name] for each in own]):.4g}") for name in own[0]}
        for label, own in runs.items()
    }
