"""A worker that can be made to fail: ``python -m tests.chaos.worker TOPOLOGY SESSION_SECONDS [MUTANT]``.

It takes commands from standard input, a line each, and answers on standard output:

* ``arm kill POINT N`` (or ``freeze``): SIGKILL (SIGSTOP) itself when it comes to a fault point for the Nth
  time from now, or from the moment when what was armed before has happened; it says ``fired POINT`` first;
* ``readers HOST:PORT``, before ``go``: the clients by which it reads what it concludes from meet this broker
  first, as any of them may by chance;
* ``disarm``: forget all of that; ``clock MILLISECONDS``: set its clock apart from the machine's;
* ``go``: begin to work;
* ``reached POINT`` is said the first time that it comes to each point.

Its noise adds random multiples of a million: two draws always differ, and the true count can be read from
every fresh release. It runs as on a full disk: it can neither write a byte to a file nor make a directory.
It says that it is one of three versions, so that most take-overs judge anew what can still count.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import threading
import time
from collections import deque
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from confluent_kafka import Consumer
from numpy.typing import NDArray

from eventveil.cli.run import configure_logging, run_worker
from eventveil.kafka import log, reader
from eventveil.kafka.links import Links
from eventveil.model.topology import Kafka, Topology
from eventveil.process.clock import Clock
from eventveil.topology.loading import load
from eventveil.worker.app import Worker
from eventveil.worker.restore import aggregate
from tests.chaos.points import FAULT_POINTS
from tests.chaos.verifier import NOISE

_SIGNALS = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP}


class RevealingNoise:
    """Multiples of NOISE, never the same twice within a run of any length that matters.

    Of five times NOISE, for in the tree of the value stream (fan-out 4, two levels) a reading has fifths of
    what was drawn; and few enough that no sum of them reaches a limit of the program.
    """

    def __init__(self) -> None:
        self._random = np.random.default_rng()

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        return self._random.integers(-(2**15), 2**15, size) * (5 * NOISE)


class Faults:
    """The fault hook, armed by commands."""

    def __init__(self) -> None:
        self.clock_step = 0
        self.readers = ""
        self._go = threading.Event()
        self._reached: set[str] = set()
        self._armed: deque[tuple[str, str, int]] = deque()
        self._lock = threading.Lock()

    def clock(self) -> int:
        """Epoch milliseconds, as this worker has them."""
        return time.time_ns() // 1_000_000 + self.clock_step

    def hook(self, point: str) -> None:
        """Called by the worker, from several threads."""
        assert point in FAULT_POINTS, point
        with self._lock:
            if point not in self._reached:
                self._reached.add(point)
                _say(f"reached {point}")
            if not self._armed or self._armed[0][1] != point:
                return
            action, _, left = self._armed.popleft()
            if left > 1:
                self._armed.appendleft((action, point, left - 1))
                return
            _say(f"fired {point}")
            # To this very thread, so that it is here that the process stands still, and not a little later.
            signal.pthread_kill(threading.get_ident(), _SIGNALS[action])

    def listen(self) -> None:
        """Obey standard input until its end, then end the process: the driver is gone."""
        for line in sys.stdin:
            command, *arguments = line.split()
            if command == "arm":
                self._armed.append((arguments[0], arguments[1], int(arguments[2])))
            elif command == "disarm":
                self._armed.clear()
            elif command == "clock":
                self.clock_step = int(arguments[0])
            elif command == "readers":
                self.readers = arguments[0]
            elif command == "go":
                self._go.set()
        os._exit(2)

    def wait_for_go(self) -> None:
        """Return once the driver has said so, which is after its first commands."""
        self._go.wait()


def fill_the_disk() -> None:
    """Let this process write no byte to any file and make no directory, without ending it."""

    def refuse(path: object, *_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    os.mkdir = refuse


def read_from(bootstrap: str) -> None:
    """Let whatever reads a partition to its end find the cluster at ``bootstrap``."""
    make, links = log._consumer, reader.links

    def elsewhere(kafka: Kafka, *arguments: Any) -> Consumer:
        return make(replace(kafka, bootstrap=bootstrap), *arguments)

    def links_elsewhere(kafka: Kafka) -> Links:
        return links(replace(kafka, bootstrap=bootstrap))

    log._consumer = elsewhere
    reader.links = links_elsewhere


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def main(path: str, session_timeout: str, mutant: str = "") -> None:
    faults = Faults()
    threading.Thread(target=faults.listen, daemon=True).start()
    faults.wait_for_go()
    if mutant:
        from tests.chaos.mutants import MUTANTS

        MUTANTS[mutant]()

    if faults.readers:
        read_from(faults.readers)

    def make(topology: Topology) -> Worker:
        return Worker(
            topology,
            noise=RevealingNoise,
            clock=Clock(faults.clock),
            fault=faults.hook,
            session_timeout=float(session_timeout),
        )

    aggregate.JUDGE += f" {os.getpid() % 3}"
    configure_logging("info")
    fill_the_disk()
    run_worker(load(path, os.environ), make)


if __name__ == "__main__":
    main(*sys.argv[1:])
