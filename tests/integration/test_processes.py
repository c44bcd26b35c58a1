"""``eventveil run --processes 2``: both share the partitions, and one that is killed loses nothing."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter, defaultdict
from pathlib import Path

from eventveil.counting.counter import Partial
from tests.kafka.topics import read
from tests.worker.application import COLUMNS, Application, Traffic
from tests.worker.process import WorkerProcess
from tests.worker.waiting import settle, until


def test_two_processes_share_partitions_and_one_that_is_killed_loses_and_repeats_nothing(
    kafka: str, tmp_path: Path
) -> None:
    application = Application(kafka, tmp_path, lateness=1000)
    application.create()
    log = tmp_path / "worker.log"
    options = ("--processes", "2", "--member", "host", "--metrics", "127.0.0.1:0")
    with WorkerProcess("eventveil", application.path, log, *options) as command:
        until(lambda: owners(log) == {"1", "2"})
        with Traffic(application, 5) as traffic:
            settle(application)
            before = log.read_text()
            os.kill(processes(before)[-2], signal.SIGKILL)
            until(lambda: len(processes(log.read_text())) == 3)
            until(lambda: "[1]: ready" in since(log, before))
        settle(application)
        assert (
            "worker 1 was killed by signal 9; restarting in 2 s, other workers running: 1" in log.read_text()
        )
        # The other one continued: it was not given partitions anew, and did not stop.
        assert not re.search(r"\[2\]: (assigned|stopping)", since(log, before))
        command.signal(signal.SIGTERM)
        assert command.wait() == 0
    assert log.read_text().count("]: stopped\n") == 2
    # Whose noise is real; what it was added to is the truth.
    report = application.verify()
    assert [one for one in report.violations if " counts {" not in one] == []
    assert all(len(set(drawn)) == 1 for drawn in application.releases("read_uncommitted").values())
    releases = application.releases()
    assert sorted(releases) == list(range(min(releases), max(releases) + 1))
    assert counted(application, max(releases)) == application.truth(first=min(releases))
    assert report.produced == traffic.produced
    assert report.counted > 100
    for process in processes(log.read_text()):
        assert not Path(f"/proc/{process}").exists()


def counted(application: Application, last: int) -> dict[int, Counter[str]]:
    """The counts that were handed on, up to a timestamp; without timestamps that have none."""
    found: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for partition in range(2):
        for message in read(application.bootstrap, f"{application.name}-partials", partition=partition):
            one = Partial.decode(message.value() or b"", "partials")
            for column, count in zip(one.columns.tolist(), one.counts.tolist(), strict=True):
                if one.timestamp <= last:
                    found[one.timestamp][COLUMNS[column]] += count
    return dict(found)


def owners(log: Path) -> set[str]:
    """The numbers of the workers that own a partition of the source."""
    return set(re.findall(r"\[(\d)\]: .* owns \S+\.raw,", log.read_text()))


def processes(text: str) -> list[int]:
    """The processes of all workers that were started, in order."""
    return [int(one) for one in re.findall(r"worker \d started, pid (\d+)", text)]


def since(log: Path, before: str) -> str:
    """What has been logged since it was ``before``."""
    return log.read_text()[len(before) :]
