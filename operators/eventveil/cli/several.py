"""Several workers under one command: ``eventveil run --processes N``.

Each runs in its own process, as if it had been started alone. One that ends while others run is restarted
after a pause, as systemd or Kubernetes would: its partitions are taken over, and the others do not wait
for an operator. The command ends when none is left, when the topology is invalid at the start, or when it is
asked to.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from typing import Any

from eventveil.cli.loading import EXIT_FAILED, EXIT_INVALID, EXIT_USAGE

log = logging.getLogger("eventveil")

#: Workers are gone 10 seconds after SIGTERM; what is left after this is killed.
_PATIENCE_SECONDS = 12.0
#: What no start can repair: a topology that is invalid, an option that is wrong.
_FINAL = {EXIT_INVALID, EXIT_USAGE}
#: What ends a worker that has not begun to work, and has nothing to commit: a shell sends SIGINT to it too.
_ASKED = {0, -signal.SIGTERM, -signal.SIGINT}


@dataclass(frozen=True)
class Pauses:
    """Seconds before a worker that has ended is restarted: twice as long each time, up to ``longest``.

    One that has run for ``settled`` seconds is restarted after ``first``.
    """

    first: float = 2.0
    longest: float = 30.0
    settled: float = 180.0

    def after(self, before: float | None, ran: float) -> float:
        """The pause, where ``before`` was the one before and the worker has run for ``ran`` seconds since."""
        return self.first if before is None or ran >= self.settled else min(2 * before, self.longest)


class WorkerProcesses:
    """Runs ``work(1)`` to ``work(number)``, each in a process; ``work`` has to be a name of a module.

    Only tests pass other ``pauses``.
    """

    def __init__(self, work: Callable[[int], object], number: int, pauses: Pauses | None = None) -> None:
        self._work, self._pauses = work, pauses or Pauses()
        # Not forked: librdkafka and numpy have threads.
        self._context = multiprocessing.get_context("spawn")
        self._running: dict[int, BaseProcess] = {}
        #: When those that are not running are to be started, by the monotonic clock.
        self._due = dict.fromkeys(range(1, number + 1), 0.0)
        self._started: dict[int, float] = {}
        #: The last pause of those that have been started again.
        self._paused: dict[int, float] = {}
        self._status = 0
        self._stopped_at: float | None = None

    def stop(self, *_: Any) -> None:
        """Ask all of them to end with SIGTERM; may be called from a signal handler, and again."""
        self._stopped_at = self._stopped_at or time.monotonic()
        for process in list(self._running.values()):
            process.terminate()

    def run(self) -> int:
        """Until none is left; the exit status of the command: 0 if they ended because they were asked to."""
        while True:
            self._start_those_due()
            if not self._running:
                return self._status
            wait([process.sentinel for process in self._running.values()], self._until_next())
            for number, process in list(self._running.items()):
                if process.exitcode is not None:
                    self._ended(number, process)
            self._kill_those_that_hang()

    def _start_those_due(self) -> None:
        for number, due in list(self._due.items()):
            if not self._is_asked_to_stop() and due <= time.monotonic():
                process = self._context.Process(target=_follow_parent, args=(self._work, number))
                self._started[number] = time.monotonic()
                process.start()
                log.info("worker %d started, pid %d", number, process.pid)
                del self._due[number]
                self._running[number] = process
                if self._is_asked_to_stop():  # while it was being started
                    process.terminate()

    def _is_asked_to_stop(self) -> bool:
        return self._stopped_at is not None

    def _until_next(self) -> float:
        """Seconds for which nothing has to be started; no signal is waited for longer than this."""
        due = [] if self._is_asked_to_stop() else self._due.values()
        return max(0.0, min([1.0, *(one - time.monotonic() for one in due)]))

    def _ended(self, number: int, process: BaseProcess) -> None:
        del self._running[number]
        status = process.exitcode or 0
        told = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        if self._is_asked_to_stop():
            self._status = self._status or (0 if status in _ASKED else _reported(status))
            return
        # A later start may read a file that somebody is editing; those that run do not depend on it.
        if not self._running or (status in _FINAL and number not in self._paused):
            log.error("worker %d %s; stopping all workers", number, told)
            self._status = _reported(status) or EXIT_FAILED
            self._due.clear()
            self.stop()
            return
        now = time.monotonic()
        pause = self._pauses.after(self._paused.get(number), now - self._started[number])
        log.error(
            "worker %d %s; restarting in %g s, other workers running: %d",
            number, told, pause, len(self._running),
        )  # fmt: skip
        self._paused[number] = pause
        self._due[number] = now + pause

    def _kill_those_that_hang(self) -> None:
        if self._stopped_at is None or time.monotonic() < self._stopped_at + _PATIENCE_SECONDS:
            return
        for number, process in self._running.items():
            log.error(
                "worker %d did not exit within %g s of SIGTERM; sending SIGKILL", number, _PATIENCE_SECONDS
            )
            process.kill()


def run_several(work: Callable[[int], object], number: int) -> int:
    """Run ``work(1)`` to ``work(number)`` until SIGTERM or SIGINT; the exit status of the command."""
    workers = WorkerProcesses(work, number)
    for asked in (signal.SIGTERM, signal.SIGINT):
        signal.signal(asked, workers.stop)
    return workers.run()


def _reported(status: int) -> int:
    """What a shell is told of it: a signal is a failure."""
    return EXIT_FAILED if status < 0 else status


def _follow_parent(work: Callable[[int], object], number: int) -> None:
    """In the new process: work, and end when the command is gone, as if it had said so."""
    # Until the worker handles it; Python would print a traceback, and multiprocessing end with 1.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    work(number)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
