"""A real worker that kills itself: ``python -m tests.worker.quick SESSION [POINT:COUNT] TOPOLOGY``.

Its noise is the product's own. The session timeout is in seconds; ``kill -9`` comes at the fault point when
it is reached for the so-manieth time.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter

from eventveil.cli.run import configure_logging, run_worker
from eventveil.model.topology import Topology
from eventveil.topology.loading import load
from eventveil.worker.app import Worker
from tests.worker.silent import DOUBT_SECONDS


def main(session_timeout: str, *rest: str) -> None:
    *doom, path = rest
    point, _, count = doom[0].rpartition(":") if doom else ("", "", "0")
    reached: Counter[str] = Counter()

    def fault(name: str) -> None:
        reached[name] += 1
        if name == point and reached[name] == int(count):
            os.kill(os.getpid(), signal.SIGKILL)

    def make(topology: Topology) -> Worker:
        seconds = float(session_timeout)
        return Worker(topology, fault=fault, session_timeout=seconds, doubt_seconds=DOUBT_SECONDS)

    configure_logging("info")
    run_worker(load(path, os.environ), make, doubt_seconds=DOUBT_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
