"""A worker on an application under test, and what must hold of the two."""

from __future__ import annotations

import json
from pathlib import Path

from tests.kafka.topics import Isolation, read
from tests.worker.application import COLUMNS, Application
from tests.worker.process import WorkerProcess

SILENT = "tests.worker.silent"


def worker(application: Application, tmp_path: Path, name: str = "worker") -> WorkerProcess:
    """A worker without noise, with its log in ``tmp_path``."""
    return WorkerProcess(SILENT, application.path, tmp_path / f"{name}.log", "3")


def assert_truth(application: Application, sink: str, interval: int | None = None) -> None:
    """Every timestamp once, without gaps, with the true counts."""
    releases = application.releases(sink=sink)
    first, last = min(releases), max(releases)
    assert sorted(releases) == list(range(first, last + 1))
    truth = application.truth(interval, first)
    for timestamp, records in releases.items():
        assert len(records) == 1
        found = json.loads(records[0])["counts"]
        counts = dict(zip(COLUMNS, found, strict=True)) if isinstance(found, list) else found
        assert {name: count for name, count in counts.items() if count} == truth.get(timestamp, {}), timestamp


def refusal(application: Application, tmp_path: Path, *, of_source: bool = False) -> str:
    """The log of a worker that must stop by itself with status 1 and release nothing more.

    If it refuses the source, after a while, it may release meanwhile what was closed before.
    """
    application._wait_for_decisions()
    before, closed = application.releases(), last_closed(application) if of_source else 0
    with worker(application, tmp_path, "refused") as refused:
        assert refused.wait(120) == 1
    after = application.releases()
    assert {
        timestamp: after[timestamp] for timestamp in after if timestamp > closed or timestamp in before
    } == before
    return refused.log.read_text()


def last_closed(application: Application, partials: int = 2, isolation: Isolation = "read_committed") -> int:
    """The last timestamp that every partition of the source has closed."""
    last: dict[int, int] = {}
    for partition in range(partials):
        for message in read(application.bootstrap, f"{application.name}-partials", isolation, partition):
            partial = json.loads(message.value() or b"")
            if not partial:
                continue
            last[partial["partition"]] = max(partial["timestamp"], last.get(partial["partition"], 0))
    return min(last.values())
