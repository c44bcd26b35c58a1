"""The installed command ``eventveil``, called as a user would: in processes of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.demo.interruption import deferred

COMMAND = str(Path(sys.executable).with_name("eventveil"))
_STOP_SECONDS = 15.0


class CommandFailed(Exception):
    """A command or the worker ended with a failure; the message shows what it said."""


def eventveil(arguments: list[str], environment: Mapping[str, str]) -> str:
    """Run a command to its end; what it printed. Raises CommandFailed with its output."""
    done = subprocess.run(
        [COMMAND, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Ctrl-C is the demo's: it ends its processes itself.
        start_new_session=True,
    )
    if done.returncode != 0:
        raise CommandFailed(
            f"`eventveil {' '.join(arguments)}` ended with status {done.returncode}:\n{done.stdout}"
        )
    return done.stdout


class Worker:
    """``eventveil run`` as a process, with its log in a file."""

    def __init__(self, topology: Path, log: Path, environment: Mapping[str, str]) -> None:
        self._topology, self._log, self._environment = topology, log, environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with self._log.open("wb") as log, deferred():
            self._process = subprocess.Popen(
                [COMMAND, "run", "--metrics", "off", str(self._topology)],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def expect_running(self) -> None:
        """Raise CommandFailed with the end of its log if the worker is not there any more."""
        if self._process is None or self._process.poll() is not None:
            status = None if self._process is None else self._process.returncode
            raise CommandFailed(f"the worker ended by itself with status {status}:\n{self._told()}")

    def stop(self) -> int:
        """End it, by SIGTERM and in need by SIGKILL; its exit status. May be called twice."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self._process.wait()

    def _told(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
