"""A migration that dies by kill -9: ``python -m tests.worker.killed_change TOPOLOGY POINT``."""

from __future__ import annotations

import os
import signal
import sys

from eventveil.kafka.cluster import Cluster
from eventveil.kinds.registry import plan_streams
from eventveil.lifecycle.apply import StreamMigrator
from eventveil.topology.loading import load


def main(path: str, point: str) -> None:
    def fault(step: str) -> None:
        if step == point:
            os.kill(os.getpid(), signal.SIGKILL)

    topology = load(path, os.environ)
    for plan in plan_streams(topology):
        StreamMigrator(topology, Cluster(topology.kafka), plan, fault).migrate(apply=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
