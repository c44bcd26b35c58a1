"""Flink SQL counts and Eventveil releases, through kill -9 of Flink; `make test-flink` runs it alone.

It mostly waits: releases wait for a lateness that outlasts a start of Flink on a busy machine.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.integration.test_engines import PAGES, PARTITIONS, begin, compiled, released, running, visit
from tests.kafka.jars import BrokerError, jars_of
from tests.kafka.topics import create_topic, produce, read
from tests.worker.application import Application
from tests.worker.flink import EXAMPLE, adapted
from tests.worker.process import WorkerProcess

#: Milliseconds. What Flink writes later than that after its window does not count.
WINDOW, LATENESS = 2000, 150_000
_SECONDS = 540
_OPENED = ("lang", "net", "io", "util", "util.concurrent", "time")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs a file of SQL; skips where it cannot be had. Fetches 138 MB of jars, once."""
    if shutil.which("javac") is None:
        pytest.skip("javac is missing")
    try:
        jars_of(EXAMPLE / "pom.xml")
    except BrokerError as error:
        pytest.skip(str(error))
    java = compiled(EXAMPLE / "RunSql.java", tmp_path_factory.mktemp("engine"))
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED]
    # Of two limits the later one counts.
    return [*java, "-Xmx900m", *opened, "RunSql"]


def counting(kafka: str, folder: Path) -> Application:
    """An application behind the engine, with all topics. A user may be on every page."""
    application = Application(kafka, folder, interval=WINDOW, lateness=LATENESS, partitions=PARTITIONS)
    stream = application.document["streams"]["places"]
    stream["source"] = {
        "topic": application.source,
        "counts": "trusted",
        "column": "/page",
        "time": "/start",
        "time_zone": "UTC",
        "count": "/users",
    }
    columns = PAGES[:-1]
    stream["counts"] = {"columns": columns, "contributions": len(columns), "unknown": "ignore"}
    application.write()
    application.create()
    create_topic(kafka, f"{application.name}.events", PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
    return application


def statements(application: Application, folder: Path, checkpoint: Path | None = None) -> Path:
    """The example's file, for the topics of the test."""
    text = adapted(
        bootstrap=application.bootstrap,
        events=f"{application.name}.events",
        counts=application.source,
        checkpoints=folder / "checkpoints",
        prefix=application.name,
        seconds=WINDOW // 1000,
    )
    first = "SET 'parallelism.default' = '2';\n"
    if checkpoint is not None:
        first += f"SET 'execution.state-recovery.path' = 'file://{checkpoint}';\n"
    path = folder / "unique-users.sql"
    path.write_text(first + text)
    return path


def newest_checkpoint(folder: Path) -> Path:
    """The last one that is complete."""
    found = (folder / "checkpoints").glob("*/chk-*/_metadata")
    return max(found, key=lambda path: int(path.parent.name.removeprefix("chk-"))).parent


def tick(application: Application) -> None:
    topic = f"{application.name}.events"
    for partition in range(PARTITIONS):
        produce(application.bootstrap, topic, [b'{"tick": true}'], partition=partition)


def truth(application: Application) -> dict[int, Counter[str]]:
    """Distinct users by window and page."""
    users: defaultdict[int, set[tuple[str, str]]] = defaultdict(set)
    for partition in range(PARTITIONS):
        for message in read(application.bootstrap, f"{application.name}.events", partition=partition):
            event, time_ = json.loads(message.value() or b""), message.timestamp()[1]
            if "user" in event:
                users[time_ - time_ % WINDOW].add((event["user"], event["page"]))
    return {start: Counter(page for _, page in seen) for start, seen in users.items()}


def counts_written(application: Application) -> int:
    return sum(
        len(read(application.bootstrap, application.source, partition=partition))
        for partition in range(PARTITIONS)
    )


@pytest.mark.timeout(1200)
def test_flink_counts_exactly_once_through_kills(kafka: str, engine: list[str], tmp_path: Path) -> None:
    application, rnd = counting(kafka, tmp_path), random.Random(15)
    command = [*engine, str(statements(application, tmp_path))]
    worker = WorkerProcess("tests.worker.silent", application.path, tmp_path / "worker.log", "6")
    with worker, running(command, tmp_path / "engine.log") as one:
        begun, deadline = begin(application), time.monotonic() + _SECONDS
        while counts_written(application) < 6:
            visit(application, 2, rnd)
            assert time.monotonic() < deadline, (tmp_path / "engine.log").read_text()[-3000:]
        one.kill()
        killed = counts_written(application)
        visit(application, 3, rnd)
        statements(application, tmp_path, newest_checkpoint(tmp_path))
        one.start()
        last = max(truth(application))
        while max(released(application), default=0) < last:
            tick(application)
            assert time.monotonic() < deadline, (tmp_path / "engine.log").read_text()[-3000:]
            time.sleep(1)
    expected, found = truth(application), released(application)
    assert counts_written(application) > killed
    starts = range(begun, last + 1, WINDOW)
    for counts in expected.values():
        del counts["nowhere"]
    assert {start: found[start] for start in starts} == {
        start: expected.get(start, Counter()) for start in starts
    }
    assert sum(sum(found[start].values()) for start in starts) > 100
    assert read(kafka, application.dead) == []
    assert application.command("ledger", str(application.path))
