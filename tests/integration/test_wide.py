"""A stream of 100,000 columns: partial counts, state and releases fit through every topic."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.kafka.topics import produce, read
from tests.worker.application import ORIGIN, Application, java_partition
from tests.worker.process import WorkerProcess
from tests.worker.waiting import wait_for_releases

COLUMNS = 100_000


@pytest.mark.parametrize("form", ["object", "array"])
def test_100_000_columns_are_released_with_every_event_counted(kafka: str, tmp_path: Path, form: str) -> None:
    application = Application(kafka, tmp_path, interval=2000, max_ahead=60_000, partitions=2)
    stream = application.document["streams"]["places"]
    stream["counts"] = {"columns": {"range": [0, COLUMNS - 1]}}
    stream["mechanism"] = {"kind": "uniform", "epsilon": 1, "window": 3}
    stream["sink"]["counts"] = form
    application.write()
    application.create()
    with WorkerProcess("tests.worker.silent", application.path, tmp_path / "worker.log", "3") as worker:
        worker.wait_for_log("owns")
        soon = int(time.time() * 1000) + 5000
        for partition, events in events_by_partition(soon).items():
            produce(kafka, application.source, events, partition=partition)
        wait_for_releases(application, 5)
        worker.kill()
        worker.start()
        while wait_for_releases(application, 9) <= (soon - ORIGIN) // 2000 + 1:
            time.sleep(0.3)
    records = [json.loads(message.value() or b"") for message in read(kafka, application.sink)]
    sums = [
        sum(counts.values() if form == "object" else counts) for counts in (one["counts"] for one in records)
    ]
    assert all(len(record["counts"]) == COLUMNS for record in records)
    assert max(sums) == 5000
    assert min(sums) == 0


def events_by_partition(soon: int) -> dict[int, list[str]]:
    """5,000 users with a column each, in a few seconds, so that none is late however slow the machine."""
    events: dict[int, list[str]] = {0: [], 1: []}
    for number in range(5000):
        user = f"user {number}"
        event = {"user": user, "place": number * 20, "time": soon}
        events[java_partition(user, 2)].append(json.dumps(event))
    return events
