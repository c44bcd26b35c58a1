"""Workers as processes of their own, to be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.worker.forked import Forked

ROOT = Path(__file__).parents[2]


class WorkerProcess:
    """A worker of a topology file, its log in ``log``; ended when the ``with`` block is left.

    ``module`` is run by Python, in a process that has imported the program already, or it is ``eventveil``,
    whose command is run.
    """

    def __init__(self, module: str, topology: Path, log: Path, *arguments: str) -> None:
        self.log = log
        self._module = module
        self._arguments = [*arguments, str(topology)]
        if module in ("tests.worker.silent", "eventveil"):
            self._arguments = [str(topology), *arguments]
        self._process: subprocess.Popen[bytes] | Forked | None = None

    def __enter__(self) -> WorkerProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.signal(signal.SIGKILL)
            self.wait()

    def start(self) -> None:
        if self._module != "eventveil":
            self._process = Forked(self._module, self._arguments, self.log, ROOT)
            return
        command = [str(Path(sys.executable).with_name("eventveil")), "run", *self._arguments]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
            )

    @property
    def process(self) -> subprocess.Popen[bytes] | Forked:
        assert self._process is not None, "not started"
        return self._process

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float = 240) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(
                f"the worker did not end within {seconds} s:\n{self.log.read_text()}"
            ) from error

    def kill(self) -> None:
        """kill -9."""
        self.signal(signal.SIGKILL)
        self.wait()

    def wait_for_log(self, text: str, seconds: float = 180) -> str:
        """Wait until the log holds ``text``; the log is returned."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            content = self.log.read_text() if self.log.exists() else ""
            if text in content:
                return content
            if self._process is not None and self._process.poll() is not None:
                raise AssertionError(f"the worker ended with {self._process.returncode}:\n{content}")
            time.sleep(0.1)
        raise TimeoutError(f"{text!r} did not appear in the log:\n{content}")
