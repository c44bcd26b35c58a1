"""A worker of ``tests.chaos.worker`` as a process: commanded, frozen, killed, started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]


class ChaosWorker:
    """One worker after another in one place; ``log`` has all that they said.

    ``reached`` are the fault points that they came to, ``stops`` the reasons for which they stopped by
    themselves.
    """

    def __init__(
        self, topology: Path, log: Path, *, session: float = 2, bootstrap: str = "", mutant: str = ""
    ) -> None:
        self.log = log
        self.reached: set[str] = set()
        self.stops: list[str] = []
        self._command = [sys.executable, "-m", "tests.chaos.worker", str(topology), str(session), mutant]
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT), "KAFKA_BOOTSTRAP": bootstrap}
        if not bootstrap:
            del self._environment["KAFKA_BOOTSTRAP"]
        self._process: subprocess.Popen[str] | None = None
        self._fired = threading.Event()
        self._reader: threading.Thread | None = None

    def start(self, *commands: str) -> None:
        """Start a worker, which obeys ``commands`` before anything else."""
        self.end()
        self._fired.clear()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=self._environment,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()
        for command in (*commands, "go"):
            self.tell(command)

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        said = len(self.stops)
        with self.log.open("a") as log:
            for line in process.stdout:
                log.write(line)
                log.flush()
                if line.startswith("reached "):
                    self.reached.add(line.split()[1])
                elif line.startswith("fired "):
                    self._fired.set()
                elif " stopped: " in line:
                    self.stops.append(line.split(" stopped: ")[1].strip())
        if process.wait() not in (0, -signal.SIGKILL, -signal.SIGTERM) and len(self.stops) == said:
            self.stops.append(f"status {process.returncode} and not a word")

    def tell(self, command: str) -> None:
        """Give a command; a worker that is gone does not hear it."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.write(f"{command}\n")
                self._process.stdin.flush()

    def arm(self, action: str, point: str, count: int = 1) -> None:
        """Let the worker ``kill`` or ``freeze`` itself at a fault point."""
        self._fired.clear()
        self.tell(f"arm {action} {point} {count}")

    def wait_until_fired(self, seconds: float) -> bool:
        """Whether what it was armed with happens within so long; disarmed if not."""
        if self._fired.wait(seconds):
            return True
        self.tell("disarm")
        return False

    @property
    def running(self) -> bool:
        """Whether there is a process, frozen or not."""
        return self._process is not None and self._process.poll() is None

    def freeze(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9."""
        self._signal(signal.SIGKILL)
        self.end()

    def stop(self, seconds: float = 60) -> None:
        """SIGTERM, and wait; a worker that takes longer than it may has stopped for no good reason."""
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        if self._process is not None:
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.stops.append(f"SIGTERM had no effect for {seconds} s")

    def end(self) -> None:
        """Make sure that no process is left."""
        if self._process is None:
            return
        self._signal(signal.SIGKILL)
        self._process.wait()
        if self._reader is not None:
            self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._process = None

    def wait_until_reached(self, point: str, seconds: float) -> None:
        """Wait until a worker in this place has come to a fault point. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while point not in self.reached:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{point} was not reached")
            time.sleep(0.02)

    def _signal(self, number: signal.Signals) -> None:
        if self.running and self._process is not None:
            self._process.send_signal(number)
