"""``counts.per_column`` with Gaussian noise: planes that leave New York, counted at their destinations.

A plane is a user. Each bound is applied to the flights in their order, by the code of the worker. Errors are
the MAE over the mean count, of releases around *all* flights, none below 0: what a bound leaves out is an
error too, and ``medians`` has its part of all flights.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from benchmarks import nycflights
from benchmarks.utility.contenders import Counts
from benchmarks.utility.measuring import AheadNoise, Case, Results, Scope
from benchmarks.utility.real import hours_of
from eventveil.counting.bounding_by_column import ColumnContributions
from eventveil.counting.users import Contributions
from eventveil.mechanisms.registry import build
from eventveil.model.topology import MechanismSettings, Option
from eventveil.privacy.gaussian import largest_square

PART = "per-column"
DELTA = Fraction(1, 10**6)
KINDS = ("uniform", "seasonal")
EPSILONS = ("0.1", "1", "4")
#: Of a stream: hours of a timestamp, the window in timestamps, and the bounds: contributions, per_column.
STREAMS: dict[str, tuple[int, int, tuple[tuple[int, int], ...]]] = {
    "planes by destination, day": (24, 24, ((1, 1), (3, 3), (3, 2), (3, 1))),
    "planes by destination, week": (168, 4, ((1, 1), (10, 10), (10, 3), (10, 2), (10, 1))),
}
LEFT_OUT = "left out"
_QUICK_TIMESTAMPS = 30


def measure(scope: Scope) -> Iterator[Case]:
    """A case for each stream and epsilon; contenders are a kind with its bounds."""
    for name, (hours, window, bounds) in STREAMS.items():
        every, bounded = _counts(hours, bounds)
        if scope.quick:
            every, bounded = (
                every[:_QUICK_TIMESTAMPS],
                {k: one[:_QUICK_TIMESTAMPS] for k, one in bounded.items()},
            )
        left_out = {_label("", *one): 1 - counts.sum() / every.sum() for one, counts in bounded.items()}
        for epsilon in EPSILONS[1:2] if scope.quick else EPSILONS:
            errors = {
                _label(kind, *one): [
                    _error(kind, one, every, counts, Fraction(epsilon), window, seed)
                    for seed in range(scope.seeds)
                ]
                for kind in KINDS
                for one, counts in bounded.items()
            }
            sizes = {"mean": float(f"{every.mean():.4g}")}
            yield Case(PART, name, epsilon, {"window": window}, errors, {LEFT_OUT: left_out}, sizes)


def _label(kind: str, contributions: int, per_column: int) -> str:
    return f"{kind} {contributions} {per_column}".strip()


def _counts(hours: int, bounds: tuple[tuple[int, int], ...]) -> tuple[Counts, dict[tuple[int, int], Counts]]:
    """All flights with a known plane by timestamp and destination, and those that each bound lets count."""
    rows = [row for row in nycflights.rows() if row["tailnum"] not in nycflights.MISSING]
    timestamps = np.array(hours_of(rows), np.int64)
    order = np.argsort(timestamps, kind="stable")
    timestamps = timestamps[order] // hours
    users, columns = (
        np.unique([row[field] for row in rows], return_inverse=True)[1][order].astype(np.int64)
        for field in ("tailnum", "dest")
    )
    shape = int(timestamps.max()) + 1, int(columns.max()) + 1
    every = np.zeros(shape, np.int64)
    np.add.at(every, (timestamps, columns), 1)
    bounded = {one: np.zeros(shape, np.int64) for one in bounds}
    for timestamp in range(shape[0]):
        at = timestamps == timestamp
        for one, counts in bounded.items():
            admitted = _admitted(*one, users[at], columns[at])
            np.add.at(counts[timestamp], columns[at][admitted], 1)
    return every, bounded


def _admitted(contributions: int, per_column: int, users: Counts, columns: Counts) -> np.ndarray:
    if per_column == contributions:
        return Contributions(contributions).admit(users)
    return ColumnContributions(contributions, per_column).admit(users, columns)


def _error(
    kind: str,
    bounds: tuple[int, int],
    every: Counts,
    counts: Counts,
    epsilon: Fraction,
    window: int,
    seed: int,
) -> float:
    contributions, per_column = bounds
    options: dict[str, Option] = {"noise": "gaussian", "delta": DELTA}
    settings = MechanismSettings(kind, epsilon, str(epsilon), window, options=options, per_column=per_column)
    mechanism = build(settings, counts.shape[1], contributions, AheadNoise(seed))
    released = np.array([mechanism.step(row).counts for row in counts]).clip(0)
    return float(np.abs(released - every).mean() / every.mean())


def table(results: Results) -> str:
    """By stream and bounds: what is left out, the noise over that of one event, and the errors."""
    cases = results.of(PART)
    if not cases:
        raise ValueError(f"nothing was measured for the tables of {PART}")
    heads = [f"{kind}, epsilon {epsilon}" for kind in KINDS for epsilon in EPSILONS]
    rows = [["stream", "contributions", "per_column", LEFT_OUT, "noise", *heads], ["---"] * (5 + len(heads))]
    for name, (_, _, bounds) in STREAMS.items():
        own = {case.epsilon: case for case in cases if case.stream == name}
        for one in bounds:
            left_out = next(iter(own.values())).medians[LEFT_OUT][_label("", *one)]
            errors = [
                f"{float(np.mean(own[epsilon].errors[_label(kind, *one)])):.0%}" if epsilon in own else ""
                for kind in KINDS
                for epsilon in EPSILONS
            ]
            noise = largest_square(*one) ** 0.5
            rows.append([name, str(one[0]), str(one[1]), f"{left_out:.1%}", f"{noise:.3g}", *errors])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
