"""What exact noise costs, against numpy's Laplace, which is none to protect anybody with.

Run ``python -m benchmarks.throughput.noise``. Processor time, medians; ratios within the run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from eventveil.privacy.noise import SystemNoise

LARGE = 100_000
SMALL = (1, 10, 100)
SCALES = {
    "0.5": Fraction(1, 2),
    "1": Fraction(1),
    "7/3": Fraction(7, 3),
    "10": Fraction(10),
    "100": Fraction(100),
    "10,000": Fraction(10_000),
    "7/3 + 2^-61, both above 2^60": Fraction(7 * 2**60 + 1, 3 * 2**60),
    "1,000/3 or so, both above 2^190": Fraction(2**200, 3 * 2**191 + 1),
    "2^30": Fraction(2**30),
}


def seconds(draw: Callable[[], object], repetitions: int) -> float:
    """The median processor time of a call."""
    draw()
    taken = []
    for _ in range(repetitions):
        begun = time.process_time_ns()
        draw()
        taken.append(time.process_time_ns() - begun)
    return statistics.median(taken) / 1e9


def row(label: str, scale: Fraction, repetitions: int) -> str:
    """A line of the table."""
    source, plain = SystemNoise(), np.random.default_rng()
    exact = seconds(lambda: source.discrete_laplace(scale, LARGE), repetitions)
    unsafe = seconds(lambda: plain.laplace(0, float(scale), LARGE), repetitions)
    calls = [
        seconds(lambda size=size: source.discrete_laplace(scale, size), 20 * repetitions)  # type: ignore[misc]
        for size in SMALL
    ]
    small = " | ".join(f"{call * 1e6:.0f}" for call in calls)
    normal = seconds(lambda: source.rounded_normal(scale, LARGE), repetitions)
    return f"| {label} | {exact * 1e3:.1f} | {exact / unsafe:.1f} | {small} | {normal * 1e3:.1f} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=15)
    repetitions = parser.parse_args().repetitions
    print(f"| scale | ms, {LARGE:,} draws | numpy's Laplace = 1 | µs for 1 | 10 | 100 draws | normal: ms |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for label, scale in SCALES.items():
        print(row(label, scale, repetitions), flush=True)


if __name__ == "__main__":
    main()
