"""A worker on an application under test, and what must hold of the two."""

from __future__ import annotations

import json
from pathlib import Path

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


def refusal(application: Application, tmp_path: Path) -> str:
    """The log of a worker that must stop by itself with status 1 and release nothing more."""
    before = application.releases()
    with worker(application, tmp_path, "refused") as refused:
        assert refused.wait(40) == 1
    assert application.releases() == before
    return refused.log.read_text()
