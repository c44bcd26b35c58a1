"""``noise: gaussian`` over pure epsilon, for the kinds that can have it, on real streams.

``Case.errors`` is the MAE over the mean count, by kind and noise, none below 0: ``minimum: 0`` of a sink
costs nothing. At event level (``time-unit``, window 1) what is released is as it is. A stream is *dense* if a
cell has ``DENSE`` events or more on average, else *sparse*. Kinds are compared with themselves; *best* is the
best Gaussian one over the best pure one, both in hindsight.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from benchmarks.utility import real
from benchmarks.utility.contenders import Counts
from benchmarks.utility.measuring import Case, Results, Scope
from benchmarks.utility.real import WITHOUT_PACKAGES, RealStream
from benchmarks.utility.w_event import Contender
from eventveil.model.topology import Option

PART = "gaussian"
DELTA = Fraction(1, 10**6)
DENSE = 5
KINDS = ("uniform", "sample", "seasonal")
EVENT_LEVEL, GAUSSIAN, BEST = "time-unit", ", gaussian", "best"
EPSILONS, WINDOWS = ("0.1", "1"), (24, 120, 720)
STREAMS = (
    real.births,
    real.clinics,
    real.us_routes,
    real.nyc_total,
    real.stations,
    real.nyc_destinations_daily,
    real.stops,
    real.commits,
)
TIMESTAMPS, QUICK_TIMESTAMPS = 1000, 30
_SEASONS = frozenset({"seasonal", "sample"})
_NOISES: dict[str, dict[str, Option]] = {"": {}, GAUSSIAN: {"noise": "gaussian", "delta": DELTA}}


def measure(scope: Scope) -> Iterator[Case]:
    """Some real streams, sparse and dense, or those that need no package in a quick run."""
    for make in WITHOUT_PACKAGES if scope.quick else STREAMS:
        stream = make().first(QUICK_TIMESTAMPS if scope.quick else TIMESTAMPS)
        for epsilon in EPSILONS[-1:] if scope.quick else EPSILONS:
            for window in WINDOWS[:1] if scope.quick else WINDOWS:
                yield _case(stream, epsilon, window, KINDS, scope.seeds)
            yield _case(stream, epsilon, 1, (EVENT_LEVEL,), scope.seeds)


def _case(stream: RealStream, epsilon: str, window: int, kinds: tuple[str, ...], seeds: int) -> Case:
    errors = {
        kind + noise: [_error(kind, options, stream, epsilon, window, seed) for seed in range(seeds)]
        for kind in kinds
        for noise, options in _NOISES.items()
    }
    sizes = {"mean": float(f"{stream.counts.mean():.4g}")}
    return Case(PART, stream.name, epsilon, {"window": window}, errors, sizes=sizes)


def _error(
    kind: str, noise: dict[str, Option], stream: RealStream, epsilon: str, window: int, seed: int
) -> float:
    seasons: dict[str, Option] = {"periods": stream.periods} if kind in _SEASONS and stream.periods else {}
    contender = Contender(kind, kind, {**seasons, **noise})
    released: Counts = contender.releases(stream.counts, Fraction(epsilon), window, seed)
    shown = released if kind == EVENT_LEVEL else released.clip(0)
    return float(np.abs(shown - stream.counts).mean() / stream.counts.mean())


def over_pure(results: Results, _: str = "") -> str:
    """Gaussian noise over Laplace noise: geometric means by kind and window, and both ends."""
    rows = []
    for name, cases in _by_density(results).items():
        for kind in (*KINDS, BEST):
            ratios = {case.title: _ratio(case, kind) for case in cases}
            means = [
                _mean([_ratio(case, kind) for case in cases if case.terms["window"] == window])
                for window in WINDOWS
            ]
            ends = min(ratios, key=lambda title: ratios[title]), max(ratios, key=lambda title: ratios[title])
            rows.append([name, kind, *means, *(f"{ratios[title]:.2f} ({title})" for title in ends)])
    windows = [f"window {window}" for window in WINDOWS]
    return _markdown(["streams", "kind", *windows, "flatters most", "flatters least"], rows)


def by_stream(results: Results, kind: str) -> str:
    """Of a kind by stream and case: the ratio, and in brackets the error with Gaussian noise."""
    rows: dict[str, list[str]] = {}
    cases = [case for case in results.of(PART) if kind in case.errors]
    for case in sorted(cases, key=lambda one: -one.sizes["mean"]):
        head = [f"{case.stream} ({case.sizes['mean']:,.3g})"]
        error = float(np.mean(case.errors[kind + GAUSSIAN]))
        rows.setdefault(case.stream, head).append(f"{_ratio(case, kind):.2f} ({error:.0%})")
    first = next(iter(rows))
    heads = [
        f"epsilon {case.epsilon}" + (f", window {case.terms['window']}" if kind in KINDS else "")
        for case in cases
        if case.stream == first
    ]
    return _markdown(["events of a cell", *heads], list(rows.values()))


def table(choice: str, results: Results) -> str:
    """``over pure``, or a kind by stream. Raises ValueError for what was not measured."""
    if not results.of(PART):
        raise ValueError(f"nothing was measured for the table {choice!r} of {PART}")
    return over_pure(results) if choice == "over pure" else by_stream(results, choice)


def _by_density(results: Results) -> dict[str, list[Case]]:
    cases = [case for case in results.of(PART) if EVENT_LEVEL not in case.errors]
    found = {
        f"dense, {DENSE} events a cell or more": [one for one in cases if one.sizes["mean"] >= DENSE],
        "sparse": [one for one in cases if one.sizes["mean"] < DENSE],
    }
    return {name: own for name, own in found.items() if own}


def _ratio(case: Case, kind: str) -> float:
    kinds = KINDS if kind == BEST else (kind,)
    pure, normal = (
        min(float(np.mean(case.errors[one + noise])) for one in kinds) for noise in ("", GAUSSIAN)
    )
    return normal / pure


def _mean(ratios: list[float]) -> str:
    return f"{np.exp(np.mean(np.log(ratios))):.2f}" if ratios else ""


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])
