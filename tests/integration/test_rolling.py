"""Workers with names in the group are restarted one after the other, and nobody else stops for it."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from eventveil.cli.main import main
from eventveil.read.status import LATE_SECONDS
from tests.kafka.topics import read
from tests.worker.application import ORIGIN, Application
from tests.worker.process import WorkerProcess
from tests.worker.waiting import settle

#: Milliseconds; the last is what every topology of an application has.
INTERVAL, LATENESS, SKEW = 250, 1000, 100


def test_a_rolling_restart_of_named_workers_moves_no_partition(kafka: str, tmp_path: Path) -> None:
    application = Application(kafka, tmp_path, interval=INTERVAL, lateness=LATENESS)
    application.create()

    def started(name: str, run: int) -> WorkerProcess:
        log = tmp_path / f"{name}-{run}.log"
        made = WorkerProcess(
            "tests.worker.patient", application.path, log, "--metrics", "off", "--member", name
        )
        return stack.enter_context(made)

    def assignments() -> dict[str, int]:
        """How often each process was given partitions, once all of them have got as far as now."""
        settle(application)
        logs = {log.stem: log.read_text() for log in tmp_path.glob("*-?.log")}
        return {name: len(re.findall(r" assigned \d+ partitions", text)) for name, text in logs.items()}

    with ExitStack() as stack:
        workers = {name: started(name, 1) for name in ("a", "b")}
        for worker in workers.values():
            worker.wait_for_log(" ready")
        before = assignments()
        first = max(application.releases())
        for name in ("a", "b"):
            workers[name].signal(signal.SIGTERM)
            assert workers[name].wait() == 0
            workers[name] = started(name, 2)
            workers[name].wait_for_log(" ready")
            # It got its partitions again, and the other one was not asked to join anew.
            before[f"{name}-2"] = 1
            assert assignments() == before
        for worker in workers.values():
            worker.signal(signal.SIGTERM)
        assert [worker.wait() for worker in workers.values()] == [0, 0]
    # Nothing was skipped, repeated or drawn twice.
    found = application.releases()
    assert sorted(found) == list(range(min(found), max(found) + 1))
    assert all(len(values) == 1 for values in found.values())
    late = [
        message.timestamp()[1] - ORIGIN - timestamp * INTERVAL - LATENESS - SKEW
        for message in read(kafka, application.sink)
        for timestamp in [json.loads(message.value() or b"")["timestamp"]]
        if timestamp > first
    ]
    print(f"of {len(late)} releases the latest came {max(late)} ms after it was due")
    # So no deadline of an hour's stream is missed by what `eventveil status` and docs/deploy.md call late.
    assert max(late) < 1000 * LATE_SECONDS


@contextmanager
def namesakes(application: Application, tmp_path: Path, *, at_once: bool) -> Iterator[list[WorkerProcess]]:
    """Two workers with one name: at once, or the second when the first is ready."""
    workers = [
        WorkerProcess(
            "tests.worker.patient", application.path, tmp_path / log, "--metrics", "off", "--member", "same"
        )
        for log in ("first.log", "second.log")
    ]
    with ExitStack() as stack:
        for worker in workers:
            stack.enter_context(worker)
            if not at_once:
                worker.wait_for_log("ready; next: ")
        yield workers


def test_two_workers_under_one_name_are_told_of_each_other(kafka: str, tmp_path: Path) -> None:
    application = Application(kafka, tmp_path, interval=INTERVAL, lateness=LATENESS)
    application.create()
    with namesakes(application, tmp_path, at_once=False) as (_, second):
        second.wait_for_log("another worker may run with --member same. Give each worker a name of its own")


def test_two_workers_that_join_at_once_under_one_name_are_told_or_one_ends(
    kafka: str, tmp_path: Path
) -> None:
    """A broker may refuse one while it joins, which then ends and says why."""
    application = Application(kafka, tmp_path, interval=INTERVAL, lateness=LATENESS)
    application.create()
    told = ("another worker may run with --member same", "another worker has started with the same --member")
    with namesakes(application, tmp_path, at_once=True) as workers:
        deadline = time.monotonic() + 180
        while not any(words in log.read_text() for log in tmp_path.glob("*.log") for words in told):
            assert time.monotonic() < deadline, [worker.log.read_text() for worker in workers]
            time.sleep(0.2)


@pytest.mark.parametrize("name", ["", "two words", "..", "x" * 241])
def test_a_name_that_brokers_do_not_take_is_wrong_usage(name: str) -> None:
    called = CliRunner().invoke(main, ["run", "topology.yaml", "--member", name])
    assert called.exit_code == 2
    assert "it should be 1 to 240 of the characters" in called.output
