"""What a timestamp of a mechanism costs with many columns.

Run ``python -m benchmarks.throughput.steps``. Processor time of ``Mechanism.step``, medians in milliseconds:
counting, releasing to Kafka and the snapshot are not in it. Counts are drawn: levels that differ by a factor
of thousands, with a season of a day. The first ``BEFORE`` timestamps are left out.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.registry import build
from eventveil.model.topology import MechanismSettings, Option
from eventveil.privacy.noise import SystemNoise

COLUMNS, WINDOW, BEFORE, DAY = 100_000, 24, 8, 24
KINDS: dict[str, tuple[str, dict[str, Option]]] = {
    "seasonal": ("seasonal", {"periods": "24,168"}),
    "seasonal, no periods": ("seasonal", {}),
    "paced": ("paced", {}),
    "sample": ("sample", {}),
    "uniform": ("uniform", {}),
}


def counts_of(columns: int, timestamps: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """One array of shape (columns,) a timestamp."""
    random = np.random.default_rng(seed)
    levels = random.lognormal(1, 2, columns)
    for timestamp in range(timestamps):
        day = 1 + 0.5 * np.sin(2 * np.pi * timestamp / DAY)
        yield random.poisson(levels * day).astype(np.int64)


def milliseconds(
    kind: str, options: dict[str, Option], columns: int, timestamps: int
) -> tuple[list[float], ...]:
    """Of each timestamp that publishes, and of each other one."""
    settings = MechanismSettings(kind, Fraction(1), "1", WINDOW, options=options)
    mechanism = build(settings, columns, 1, SystemNoise())
    published: list[float] = []
    others: list[float] = []
    for timestamp, counts in enumerate(counts_of(columns, timestamps, seed=0)):
        begun = time.thread_time_ns()
        fresh = mechanism.step(counts).fresh
        taken = (time.thread_time_ns() - begun) / 1e6
        if timestamp >= BEFORE:
            (published if fresh else others).append(taken)
    return published, others


def row(label: str, columns: int, timestamps: int) -> str:
    """A line of the table."""
    kind, options = KINDS[label]
    published, others = milliseconds(kind, options, columns, timestamps)
    cells = [f"{statistics.median(one):.0f}" if one else "" for one in (published, others)]
    return f"| {label} | {' | '.join(cells)} | {statistics.mean(published + others):.0f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--columns", type=int, default=COLUMNS)
    parser.add_argument("--timestamps", type=int, default=2 * WINDOW)
    parser.add_argument("--only", nargs="*", choices=KINDS, default=list(KINDS))
    options = parser.parse_args()
    print(f"| {options.columns:,} columns | a publication, ms | another timestamp, ms | mean, ms |")
    print("| --- | --- | --- | --- |")
    for label in options.only:
        print(row(label, options.columns, options.timestamps), flush=True)


if __name__ == "__main__":
    main()
