"""Processes that need not import the program: forked from one that has, by Python's own fork server.

To import it takes most of a second of a processor, as long as many a test's worker then runs.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["eventveil.worker.app", "eventveil.cli.run", "eventveil.kinds.registry"])


class Forked:
    """``python -m module arguments``, its output appended to ``log``. Has what tests use of ``Popen``."""

    def __init__(self, module: str, arguments: list[str], log: Path, folder: Path) -> None:
        self._process: BaseProcess = _SERVER.Process(
            target=_run, args=(module, arguments, log, folder, dict(os.environ)), daemon=True
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """How it ended, or the signal that ended it, negative; None while it runs."""
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, seconds: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        self._process.join(seconds)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self._process.name, seconds or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _run(module: str, arguments: list[str], log: Path, folder: Path, environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())
    os.chdir(folder)
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
