"""A worker whose clock runs fast: ``python -m tests.worker.accelerated ANCHOR SPEED TOPOLOGY``.

Its clock shows ANCHOR (epoch milliseconds) when it is, and runs SPEED times as fast. Noise is real.
"""

from __future__ import annotations

import os
import sys
from functools import partial

from eventveil.cli.run import configure_logging, run_worker
from eventveil.model.topology import Topology
from eventveil.process.clock import Clock, monotonic_clock, wall_clock
from eventveil.topology.loading import load
from eventveil.worker.app import Worker


def accelerated(anchor: int, speed: float, now: int | None = None) -> int:
    """What the fast clock shows now, or when the broker's shows ``now``, in epoch milliseconds."""
    return anchor + int(((wall_clock() if now is None else now) - anchor) * speed)


def main(anchor: str, speed: str, path: str) -> None:
    def make(topology: Topology) -> Worker:
        fast = partial(accelerated, int(anchor), float(speed))
        return Worker(topology, clock=Clock(fast, lambda: int(monotonic_clock() * float(speed)), fast))

    configure_logging("info")
    run_worker(load(path, os.environ), make)


if __name__ == "__main__":
    main(*sys.argv[1:])
