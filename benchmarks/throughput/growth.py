"""``python -m benchmarks.throughput.growth``: how speed grows from 1 to 64 workers.

This is arithmetic with measured service times, not a measurement. The times come from ``latest.json``: what
an event costs one worker (``eventveil run``) and what a timestamp costs beside its events (``releases``),
which one worker pays for a stream. The latter is taken to grow with the partitions, as if all of it were
their partial counts: that flatters least. Users are even, or their events follow Zipf's law. They are hashed
to partitions, partitions are dealt out to workers as the group does, and each worker takes one thing after
the other on a core of its own. A timestamp is done when the busiest worker is. The broker is not in it. The
table has the median of 25 ways to hash users, and the worst.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.throughput.__main__ import RESULTS

WORKERS = (1, 2, 4, 8, 16, 32, 64)
_USERS = 100_000
#: Partitions of the feed that releases were measured with.
_MEASURED_PARTITIONS = 4


@dataclass(frozen=True)
class Times:
    """Seconds of processor time: of an event, and of a timestamp for each partition's counts in it."""

    event: float
    partial: float

    @classmethod
    def measured(cls, costs: Mapping[str, float]) -> Times:
        """From microseconds by name, as ``latest.json`` has them. Raises KeyError if one is missing."""
        release = costs["releases: 1000 columns, 1 streams, 1 workers"]
        return cls(costs["eventveil run"] / 1e6, release / _MEASURED_PARTITIONS / 1e6)


def loads(partitions: int, skewed: bool, seed: int) -> NDArray[np.float64]:
    """The share of the events that each partition has; sums to 1."""
    weights = 1 / np.arange(1, _USERS + 1) if skewed else np.ones(_USERS)
    places = np.random.default_rng(seed).integers(0, partitions, _USERS)
    shares: NDArray[np.float64] = np.bincount(places, weights, partitions) / weights.sum()
    return shares


def seconds(shares: NDArray[np.float64], workers: int, events: int, times: Times) -> float:
    """Until the busiest of the workers has counted and released a timestamp of this many events."""
    busy = np.zeros(workers)
    np.add.at(busy, np.arange(len(shares)) % workers, shares * events * times.event)
    # The stream is sanitized by one of them; it may be the busiest.
    return float(busy.max() + len(shares) * times.partial)


def speeds(partitions: int, events: int, times: Times, skewed: bool, seeds: int = 25) -> list[list[float]]:
    """For each number of WORKERS: how many times as fast as one, by seed."""
    found = []
    for workers in WORKERS:
        shares = [loads(partitions, skewed, seed) for seed in range(seeds)]
        found.append(
            [seconds(one, 1, events, times) / seconds(one, workers, events, times) for one in shares]
        )
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput.growth", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000, help="of a timestamp")
    options = parser.parse_args()
    entries: list[dict[str, Any]] = json.loads(RESULTS.read_text())
    times = Times.measured({entry["name"]: entry["cpu_us_per_event"] for entry in entries})
    print(f"{times.event * 1e6:.2f} us an event, {times.partial * 1e6:.0f} us a timestamp and partition")
    print("| users | partitions | " + " | ".join(f"{one} workers" for one in WORKERS) + " |")
    print("| --- | --: |" + " --: |" * len(WORKERS))
    for skewed, told in ((False, "even"), (True, "Zipf")):
        for partitions in (16, 64, 256):
            found = speeds(partitions, options.events, times, skewed)
            cells = [f"{statistics.median(one):.1f} ({min(one):.1f})" for one in found]
            print(f"| {told} | {partitions} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
