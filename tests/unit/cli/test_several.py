"""Several workers under one command: who is restarted, and when all of it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from eventveil.cli.run import ProcessShare, WorkerSettings
from eventveil.cli.several import Pauses, WorkerProcesses
from tests.unit.cli.stand_in import PATIENCE, Work
from tests.worker.waiting import until

#: Of processes that are to start again at once.
QUICK = Pauses(0.01, 0.04)
#: Of processes that are not to start again.
NEVER = Pauses(PATIENCE, PATIENCE)


def started(folder: Path, count: int) -> list[tuple[int, int]]:
    """Number and process of all that were started, once there are this many."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        found = [path for path in folder.iterdir() if not path.suffix]
        if len(found) >= count:
            ordered = sorted(found, key=lambda path: path.stat().st_mtime_ns)
            return [(int(path.name.partition("-")[0]), int(path.name.partition("-")[2])) for path in ordered]
        time.sleep(0.01)
    raise TimeoutError(f"{count} did not start")


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def run_beside(workers: WorkerProcesses, act: Callable[[], None]) -> int:
    """The status of the command, while a thread acts, and stops it at the end."""

    def acting() -> None:
        try:
            act()
        finally:
            workers.stop()

    thread = threading.Thread(target=acting)
    thread.start()
    status = workers.run()
    thread.join()
    return status


def test_one_that_is_killed_is_started_again_while_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen: dict[str, Any] = {}

    def kill_one() -> None:
        both = dict(started(tmp_path, 2))
        os.kill(both[1], signal.SIGKILL)
        seen["new"] = started(tmp_path, 3)[2]
        seen["both"], seen["other runs"] = both, is_running(both[2])

    assert run_beside(WorkerProcesses(Work(tmp_path), 2, QUICK), kill_one) == 0
    number, process = seen["new"]
    assert number == 1
    assert process != seen["both"][1]
    assert seen["other runs"]
    assert "worker 1 was killed by signal 9; restarting in 0.01 s, other workers running: 1" in caplog.text
    assert not any(is_running(one) for one in (process, *seen["both"].values()))


def test_the_command_ends_with_the_status_of_the_last_once_none_is_left(tmp_path: Path) -> None:
    assert WorkerProcesses(Work(tmp_path, ((1, 75), (2, 75))), 2, NEVER).run() == 75


def test_the_last_one_that_is_killed_is_a_failure(tmp_path: Path) -> None:
    workers = WorkerProcesses(Work(tmp_path), 1)
    assert run_beside(workers, lambda: os.kill(started(tmp_path, 1)[0][1], signal.SIGKILL)) == 1


def test_a_topology_that_is_invalid_for_one_ends_all(tmp_path: Path) -> None:
    workers = WorkerProcesses(Work(tmp_path, ((2, 78),)), 2, NEVER)
    assert workers.run() == 78
    assert not any(is_running(process) for _, process in started(tmp_path, 0))


def test_a_file_that_is_invalid_when_one_is_started_again_does_not_end_the_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen: dict[str, bool] = {}

    def kill_one() -> None:
        both = dict(started(tmp_path, 2))
        os.kill(both[1], signal.SIGKILL)
        until(lambda: caplog.text.count("worker 1 ended with status 78; restarting") >= 2)
        seen["other runs"] = is_running(both[2])

    assert run_beside(WorkerProcesses(Work(tmp_path, later=((1, 78),)), 2, QUICK), kill_one) == 0
    assert seen["other runs"]


def test_the_pause_grows_up_to_the_longest(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def wait_for_four() -> None:
        until(lambda: caplog.text.count("worker 1 ended with status 75; restarting") >= 4)

    assert run_beside(WorkerProcesses(Work(tmp_path, ((1, 75),)), 2, QUICK), wait_for_four) == 0
    pauses = re.findall(r"worker 1 ended with status 75; restarting in (\S+) s", caplog.text)
    assert pauses[:4] == ["0.01", "0.02", "0.04", "0.04"]


def test_the_pause_is_the_first_again_after_one_has_run_for_some_minutes() -> None:
    pauses = Pauses()
    found = [pauses.after(None, 0.1)]
    for ran in (0.1, 0.1, 179.0, 0.1, 0.1, 181.0, 0.1):
        found.append(pauses.after(found[-1], ran))
    assert found == [2, 4, 8, 16, 30, 30, 2, 4]


def test_ctrl_c_before_a_worker_handles_it_is_no_failure(tmp_path: Path) -> None:
    workers = WorkerProcesses(Work(tmp_path, interrupted=True), 1)
    assert run_beside(workers, lambda: started(tmp_path, 1) and None) == 0


COMMAND = """
import pathlib, sys
from eventveil.cli.several import run_several
from tests.unit.cli.stand_in import Work
sys.exit(run_several(Work(pathlib.Path(sys.argv[1])), 2))
"""


def test_workers_end_when_the_command_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", COMMAND, str(tmp_path)]) as command:
        both = started(tmp_path, 2)
        command.kill()
    until(lambda: not any(is_running(process) for _, process in both))


def settings(**changes: Any) -> WorkerSettings:
    whole: dict[str, Any] = {
        "topology": "shop.yaml", "metrics": ("127.0.0.1", 9464), "chosen": True, "page": None,
        "raw_metrics": False, "raw_log": False, "memory_limit": 6000, "witness": None, "member": "host",
        "log_level": "info",
    }  # fmt: skip
    return WorkerSettings(**(whole | changes))


def test_each_process_has_its_own_port_and_name_and_its_share_of_the_memory() -> None:
    found = [ProcessShare(settings(), 3).of(number) for number in (1, 2, 3)]
    assert [one.metrics for one in found] == [("127.0.0.1", port) for port in (9464, 9465, 9466)]
    assert [one.member for one in found] == ["host-1", "host-2", "host-3"]
    assert [one.memory_limit for one in found] == [2000] * 3
    assert [one.number for one in found] == [1, 2, 3]


def test_ports_that_nobody_chose_are_found_as_by_workers_that_are_started_alone() -> None:
    for whole in (settings(chosen=False), settings(metrics=("127.0.0.1", 0))):
        assert ProcessShare(whole, 2).of(2).metrics == whole.metrics
    assert ProcessShare(settings(metrics=None, member=None, memory_limit=None), 2).of(2) == settings(
        metrics=None, member=None, memory_limit=None, number=2
    )


def test_ports_and_names_that_do_not_go_round_are_wrong_usage() -> None:
    with pytest.raises(click.UsageError, match="3 processes need ports up to 65536"):
        ProcessShare(settings(metrics=("127.0.0.1", 65_534)), 3).check()
    with pytest.raises(click.UsageError, match="--member"):
        ProcessShare(settings(member="x" * 240), 3).check()
    ProcessShare(settings(metrics=("127.0.0.1", 65_533)), 3).check()
