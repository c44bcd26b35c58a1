"""A worker whose releases are the true counts: ``python -m tests.worker.silent TOPOLOGY``.

Only tests can have it; nothing in ``eventveil`` takes a noise source from outside the process. A second
argument is the session timeout in seconds, a third one the memory limit in bytes.
"""

from __future__ import annotations

import logging
import os
import sys
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from eventveil.cli.run import configure_logging, run_worker
from eventveil.model.topology import Topology
from eventveil.process import kernel
from eventveil.topology.loading import load
from eventveil.worker.app import Worker

#: Nothing is cut off where this worker runs: a doubt will stay.
DOUBT_SECONDS = 3.0


class Silence:
    """A noise source that adds nothing."""

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        return np.zeros(size, dtype=np.int64)

    def rounded_normal(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        return np.zeros(size, dtype=np.int64)


def main(path: str, session_timeout: str, memory_limit: str | None = None) -> None:
    def make(topology: Topology) -> Worker:
        limit = None if memory_limit is None else int(memory_limit)
        return Worker(
            topology,
            noise=Silence,
            session_timeout=float(session_timeout),
            doubt_seconds=DOUBT_SECONDS,
            memory_limit=limit,
        )

    configure_logging("info")
    logging.getLogger("eventveil").info("%s", kernel.WAY)
    run_worker(load(path, os.environ), make, doubt_seconds=DOUBT_SECONDS)


if __name__ == "__main__":
    # A process that was forked has the kernel of the process that imported the program.
    kernel.NATIVE, kernel.WAY = kernel._load()
    main(*sys.argv[1:])
