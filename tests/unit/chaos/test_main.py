"""The chaos command leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.process import ROOT

# A run that does nothing but wait, beside a worker that is frozen.
COMMAND = """
import signal, sys, time
from contextlib import ExitStack
from pathlib import Path
from tests.chaos import __main__ as chaos
from tests.chaos.process import ChaosWorker

def run(*_):
    with ExitStack() as stack:
        worker = ChaosWorker(Path("none"), Path("/dev/null"))
        worker._command = [sys.executable, "-c", "import time; time.sleep(600)"]
        stack.callback(worker.end)
        worker.start()
        worker.freeze()
        print(worker._process.pid, flush=True)
        time.sleep(600)

chaos.run = run
chaos.main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_chaos_command_that_is_ended_ends_its_workers(number: signal.Signals, tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", COMMAND]
    own = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(arguments, cwd=ROOT, env=own, stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        lines = iter(command.stdout)
        assert next(lines).startswith("make chaos")
        worker = int(next(lines))
        os.kill(worker, 0)
        assert list(tmp_path.iterdir())
        command.send_signal(number)
        assert command.wait(30) != 0
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
    assert not list(tmp_path.iterdir())
