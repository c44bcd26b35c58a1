"""Flink SQL counts and Eventveil releases, through kill -9 of Flink: `make test-flink`, for two minutes.

Not among the tests of `make test`: each start of Flink takes all that two cores have for many seconds, and
the release waits for a lateness that outlasts one.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.integration.test_engines import PAGES, PARTITIONS, begin, compiled, released, running, visit
from tests.kafka.topics import create_topic, produce, read
from tests.worker.application import Application
from tests.worker.process import ROOT, WorkerProcess

EXAMPLE = ROOT / "examples" / "flink"
#: Milliseconds. What Flink writes later than that after its window does not count.
WINDOW, LATENESS = 2000, 60_000
_SECONDS = 180
_OPENED = ("lang", "net", "io", "util", "util.concurrent", "time")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs a file of SQL."""
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
    text = (EXAMPLE / "unique-users.sql").read_text()
    changes = {
        "'10 s'": "'1 s'",
        "file:///var/flink/checkpoints": f"file://{folder}/checkpoints",
        "localhost:9092": application.bootstrap,
        "shop.events": f"{application.name}.events",
        "engine.counts": application.source,
        "'sink.transactional-id-prefix' = 'unique-users'": (
            f"'sink.transactional-id-prefix' = '{application.name}'"
        ),
        "INTERVAL '1' HOUR": f"INTERVAL '{WINDOW // 1000}' SECOND",
    }
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
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
