"""A topic of counts on real Kafka: a watermark that does not come, other terms, and a replay of the topic."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

from confluent_kafka import Producer

from tests.chaos.verifier import java_partition
from tests.kafka.topics import read
from tests.worker.application import ORIGIN, Application
from tests.worker.process import WorkerProcess
from tests.worker.taking_over import refusals
from tests.worker.waiting import last_release, until, wait_for_timestamp
from tests.worker.watch import Watch

WINDOW = 1000
#: One in each partition.
PAGES = {java_partition(page, 2): page for page in ("home", "shop", "help", "search", "basket")}
#: Large enough for the noise to be zero.
EPSILON = 500


class Engine:
    """Writes the counts of whole windows, and that they are complete; ``written`` has them by timestamp."""

    def __init__(self, application: Application) -> None:
        self._producer = Producer({"bootstrap.servers": application.bootstrap})
        self._topic = application.source
        self.written: dict[int, dict[str, int]] = {}
        # The window after the next boundary is the first one with counts.
        self._next = time.time_ns() // 1_000_000 // WINDOW * WINDOW + WINDOW

    def count(self, page: str, start: int, users: int) -> None:
        """The newest number of a window."""
        self._send(java_partition(page, 2), {"page": page, "start": start, "users": users})
        self.written.setdefault((start - ORIGIN) // WINDOW + 1, {})[page] = users

    def complete(self, *partitions: int) -> int:
        """Count each window that is over, and complete it in these partitions; the last timestamp."""
        now = time.time_ns() // 1_000_000
        while self._next + WINDOW <= now:
            for page in PAGES.values():
                self.count(page, self._next, 1)
                self.count(page, self._next, self._next // WINDOW % 50 + len(page))
            self._next += WINDOW
        for partition in partitions:
            self._send(partition, {"until": self._next})
        self._producer.flush(30)
        return (self._next - ORIGIN) // WINDOW

    def _send(self, partition: int, record: dict[str, object]) -> None:
        self._producer.produce(self._topic, json.dumps(record), partition=partition)


def behind_an_engine(kafka: str, folder: Path) -> Application:
    mechanism = {"kind": "uniform", "epsilon": EPSILON, "window": 10}
    made = Application(kafka, folder, interval=WINDOW, lateness=0, partitions=2, mechanism=mechanism)
    stream = made.document["streams"]["places"]
    stream["source"] = {
        "topic": made.source, "counts": "trusted", "column": "/page", "time": "/start", "count": "/users",
        "watermark": "/until",
    }  # fmt: skip
    stream["counts"] = {"columns": [*PAGES.values()]}
    made.write()
    made.create()
    return made


def running(application: Application, folder: Path) -> WorkerProcess:
    return WorkerProcess("eventveil", application.path, folder / "log", "--metrics", "127.0.0.1:0")


def go_on(application: Application, engine: Engine, releases: int) -> None:
    """Count and complete until there are as many releases more."""
    wanted, deadline = len(application.releases()) + releases, time.monotonic() + 120
    while len(application.releases()) < wanted:
        assert time.monotonic() < deadline
        engine.complete(0, 1)
        time.sleep(0.2)


def test_a_watermark_holds_a_stream_that_goes_on_under_other_terms_and_is_replayed(
    kafka: str, tmp_path: Path
) -> None:
    application = behind_an_engine(kafka, tmp_path)
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    engine = Engine(application)
    with running(application, tmp_path) as worker:
        with Watch(worker) as watch:
            watch.wait_until_ready()
            go_on(application, engine, 3)
            complete = engine.complete(0, 1)
            # The engine's second task is away.
            deadline = time.monotonic() + 120
            while (held := engine.complete(0)) < complete + 3:
                assert time.monotonic() < deadline
                time.sleep(0.2)
            # By now the other partition may wait for its next one too.
            watch.until(lambda found: found["eventveil_held_partitions", "watermark"] >= 1)
            words = "an engine that has not marked"
            until(lambda: any(words in one for one in watch.obstacles()), watch.obstacles)
            wait_for_timestamp(application, complete)
            assert last_release(application, application.sink) == complete, "released without its watermark"
            assert "watermark" in worker.log.read_text()
            # Long due, and not complete: the newest number counts.
            engine.count(PAGES[1], ORIGIN + (held - 1) * WINDOW, 4711)
            engine.complete(1)
            wait_for_timestamp(application, held)
            while watch.get("/health/ready")[0] != 200:
                assert time.monotonic() < deadline + 60, watch.obstacles()
                engine.complete(0, 1)
                time.sleep(0.2)
            last = engine.complete(0, 1)
            wait_for_timestamp(application, last)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0

    # All that was complete is released, and nothing is under way.
    # Other terms that leave each timestamp as much as before, so that none has to be repeated.
    application.document["streams"]["places"]["mechanism"] |= {"epsilon": EPSILON // 2, "window": 5}
    application.write()
    refused = refusals(application.path)
    assert refused
    assert all("eventveil migrate" in one for one in refused)
    told = application.command("migrate", str(application.path), "--apply")
    assert f"places: continues from timestamp {last + 1}" in told
    with running(application, tmp_path) as worker:
        go_on(application, engine, 3)
        last = engine.complete(0, 1)
        wait_for_timestamp(application, last)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0

    records = [json.loads(one) for values in application.releases().values() for one in values]
    assert [one["timestamp"] for one in records] == list(range(records[0]["timestamp"], last + 1))
    assert [one["window"] for one in records] == sorted((one["window"] for one in records), reverse=True)
    assert {one["window"] for one in records} == {10, 5}
    none = dict.fromkeys(PAGES.values(), 0)
    released = {one["timestamp"]: one["counts"] for one in records}
    assert released == {one: engine.written.get(one, none) for one in released}
    assert released[held][PAGES[1]] == 4711
    assert read(kafka, application.dead) == []
    audit = application.command("ledger", str(application.path))
    assert f"mechanism.epsilon {EPSILON} to {EPSILON // 2}" in audit

    paths = [tmp_path / name for name in ("again.jsonl", "truth.jsonl")]
    source = ("--input", f"topic:{application.source}", "--from", began, "--to", "last", "--seed", "1")
    given = ("--output", str(paths[0]), "--truth", str(paths[1]))
    application.command("replay", str(application.path), *source, *given)
    replayed = [
        {line["timestamp"]: line["counts"] for line in map(json.loads, path.open())} for path in paths
    ]
    for found in replayed:
        assert held in found
        assert {one: found[one] for one in found if one in released} == {
            one: released[one] for one in released if one in found
        }
