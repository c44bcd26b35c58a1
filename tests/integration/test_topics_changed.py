"""What people do to topics under a running worker: partitions added, topics deleted and created again."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.kafka.topics import LOG_APPEND_TIME, create_topic, read
from tests.worker.application import ORIGIN, Application
from tests.worker.process import WorkerProcess
from tests.worker.waiting import wait_for_releases

INTERVAL, LATENESS = 500, 300


@pytest.fixture
def application(kafka: str, tmp_path: Path) -> Application:
    made = Application(kafka, tmp_path, interval=INTERVAL, lateness=LATENESS)
    made.create()
    return made


def run(application: Application, label: str = "") -> WorkerProcess:
    log = application.path.with_suffix(f".{label}log")
    return WorkerProcess("tests.worker.silent", application.path, log, "3")


class Events:
    """Sends events of ever new users; its producer knows the partitions that the topic has now."""

    def __init__(self, application: Application) -> None:
        self._application, self._sent = application, 0

    def send(self, number: int, at: int | None = None) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._application.bootstrap,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
            }
        )
        for _ in range(number):
            self._sent += 1
            event = {
                "user": f"user {self._sent}",
                "place": "north",
                "time": at or time.time_ns() // 1_000_000,
            }
            producer.produce(self._application.source, key=event["user"], value=json.dumps(event))
        assert producer.flush(20) == 0


def grow(application: Application, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": application.bootstrap, "log_level": 0})
    admin.create_partitions([NewPartitions(application.source, partitions)])[application.source].result(30)


def released(application: Application) -> dict[int, int]:
    """How many events each release counts; every timestamp has one."""
    found = {}
    for timestamp, values in application.releases().items():
        assert len(values) == 1
        found[timestamp] = sum(json.loads(values[0])["counts"].values())
    return found


def on_time(application: Application, partitions: int, released: dict[int, int]) -> dict[int, int]:
    """How many events of each released timestamp were appended before its deadline, in any partition."""
    counts: Counter[int] = Counter()
    for partition in range(partitions):
        for message in read(application.bootstrap, application.source, partition=partition):
            event = json.loads(message.value() or b"")
            timestamp = (event["time"] - ORIGIN) // INTERVAL + 1
            if message.timestamp()[1] < ORIGIN + timestamp * INTERVAL + LATENESS:
                counts[timestamp] += 1
    return {timestamp: counts[timestamp] for timestamp in released}


def test_no_timestamp_is_released_that_lacks_a_partition(application: Application) -> None:
    events = Events(application)
    with run(application) as worker:
        worker.wait_for_log("ready")
        events.send(30)
        wait_for_releases(application, 4)
        grow(application, 6)
        deadline = time.monotonic() + 60
        while worker.running:
            assert time.monotonic() < deadline, "the worker goes on with half of the events"
            events.send(10)
            time.sleep(0.1)
        assert worker.wait() == 1
        log = worker.log.read_text()
    found = released(application)
    assert found == on_time(application, 6, found)
    # None of them went into the new partitions: what was sent there has not been released.
    assert sum(found.values()) < sum(
        len(read(application.bootstrap, application.source, partition=one)) for one in range(6)
    )
    assert "stopped: " in log
    assert "source.partitions was 3 and is 6 now" in log or "it has more partitions than the 3" in log


@pytest.mark.parametrize("records", [0, 300], ids=["empty", "filled beyond the old offsets"])
def test_a_source_that_is_replaced_while_the_worker_is_frozen_stops_it(
    application: Application, records: int
) -> None:
    events = Events(application)
    with run(application) as worker:
        worker.wait_for_log("ready")
        events.send(30)
        wait_for_releases(application, 4)
        worker.signal(signal.SIGSTOP)
        time.sleep(0.2)
        before = released(application)
        application.delete(application.source)
        create_topic(application.bootstrap, application.source, 3, LOG_APPEND_TIME)
        events.send(records)
        worker.signal(signal.SIGCONT)
        assert worker.wait(60) == 1
        log = worker.log.read_text()
    assert f"topic {application.source} was deleted and created again" in log
    # A transaction that was under way may commit; nothing is closed in the new topic.
    later = {
        timestamp: count for timestamp, count in released(application).items() if timestamp not in before
    }
    assert sum(later.values()) == 0
    assert len(later) <= 1
