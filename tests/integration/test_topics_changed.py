"""What people do to topics under a running worker: partitions added, topics deleted and created again."""

from __future__ import annotations

import json
import re
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from eventveil.kafka.admin import Admin
from tests.chaos.verifier import java_partition
from tests.kafka.topics import LOG_APPEND_TIME, create_topic, end_offset, grow_topic, read
from tests.worker.application import ORIGIN, Application
from tests.worker.checks import last_closed
from tests.worker.process import WorkerProcess
from tests.worker.waiting import wait_for_releases, wait_for_timestamp

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


def test_no_timestamp_is_released_that_lacks_a_partition_and_a_migration_goes_on(
    application: Application,
) -> None:
    events = Events(application)
    with run(application) as worker:
        worker.wait_for_log("ready")
        events.send(30)
        wait_for_releases(application, 4)
        grow_topic(application.bootstrap, application.source, 6)
        deadline = time.monotonic() + 180
        while worker.running:
            assert time.monotonic() < deadline, "the worker continues with half of the events"
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
    assert "eventveil migrate" in log.splitlines()[-1]
    # Of a timestamp before the change, however long the worker took to stop: half are in another partition.
    events.send(50, at=ORIGIN + (max(found) - 1) * INTERVAL)

    told = application.command("migrate", str(application.path))
    assert "places: would continue from timestamp" in told
    assert "source.partitions 6, was 3" in told
    assert "users who moved to other partitions count from timestamp" in told
    assert released(application) == found
    due = now(application)
    told = application.command("migrate", str(application.path), "--apply")
    since = int(re.search(r"source.partitions.since (\d+)", told)[1])  # type: ignore[index]  # it is there
    # The first that was not due then.
    assert due - LATENESS // INTERVAL - 1 <= since <= now(application) + 1
    assert "users who moved" not in told
    assert application.command("migrate", str(application.path), "--apply") == "places: unchanged\n"
    with run(application, "after.") as worker:
        worker.wait_for_log("ready")
        events.send(50)
        wait_for_timestamp(application, now(application) + 1)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0

    after = released(application)
    assert sorted(after) == list(range(min(after), max(after) + 1))
    # Before the change a user's partition is one of three, after it one of six; who was sent to another is
    # a dead letter, each once, and everybody else counts.
    right, wrong = divided(application, since)
    assert after == {timestamp: right[timestamp] for timestamp in after}
    letters = Counter(
        dict(message.headers() or [])["eventveil.reason"]
        for message in read(application.bootstrap, application.dead)
    )
    assert letters[b"wrong-partition"] == wrong > 0
    assert {*letters} <= {b"wrong-partition", b"late"}
    audit = application.command("ledger", str(application.path))
    assert "source.partitions 3 to 6" in audit


def divided(application: Application, since: int) -> tuple[Counter[int], int]:
    """By timestamp, how many events on time are in the partition of their user; how many are in another."""
    right: Counter[int] = Counter()
    wrong = 0
    for partition in range(6):
        for message in read(application.bootstrap, application.source, partition=partition):
            event = json.loads(message.value() or b"")
            timestamp = (event["time"] - ORIGIN) // INTERVAL + 1
            if java_partition(event["user"], 3 if timestamp < since else 6) != partition:
                wrong += 1
            elif message.timestamp()[1] < ORIGIN + timestamp * INTERVAL + LATENESS:
                right[timestamp] += 1
    return right, wrong


def now(application: Application) -> int:
    return (time.time_ns() // 1_000_000 - ORIGIN) // application.interval + 1


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
        before, closed = released(application), last_closed(application)
        application.delete(application.source)
        create_topic(application.bootstrap, application.source, 3, LOG_APPEND_TIME)
        events.send(records)
        worker.signal(signal.SIGCONT)
        assert worker.wait() == 1
        log = worker.log.read_text()
    assert f"topic {application.source} was deleted and created again" in log
    # What was closed may be released, and a transaction that was under way may commit; nothing is closed in
    # the new topic, none of whose events counts.
    later = {
        timestamp: count for timestamp, count in released(application).items() if timestamp not in before
    }
    assert sum([*before.values(), *later.values()]) <= 30
    assert max(later, default=0) <= closed + 1


@pytest.mark.parametrize("role", ["ledger", "ledger-changelog", "counting-changelog", "partials"])
def test_an_internal_topic_that_is_replaced_stops_the_worker_before_it_publishes(
    application: Application, role: str
) -> None:
    """What was closed before may still be released of what the worker has; nothing is made up."""
    events, topic = Events(application), f"{application.name}-{role}"
    with run(application) as worker:
        worker.wait_for_log("ready")
        events.send(30)
        wait_for_releases(application, 4)
        application.delete(topic)
        before = released(application)
        application.create_again(topic)
        events.send(30)
        assert worker.wait(180) == 1
        log = worker.log.read_text()
    after = released(application)
    assert after == on_time(application, 3, after)
    if role.startswith("ledger"):
        # One that was being published when the topic was deleted may be committed.
        assert {timestamp: after[timestamp] for timestamp in before} == before
        assert len(after) <= len(before) + 1
    assert "stopped: " in log
    assert ("the workers and run `eventveil migrate TOPOLOGY" in log.splitlines()[-1]) == (role == "partials")


def test_records_that_are_removed_before_a_frozen_worker_reads_them_stop_it_with_what_is_lost(
    application: Application,
) -> None:
    events = Events(application)
    admin = Admin({"bootstrap.servers": application.bootstrap, "log_level": 0})
    with run(application) as worker:
        worker.wait_for_log("ready")
        events.send(30)
        wait_for_releases(application, 4)
        worker.signal(signal.SIGSTOP)
        time.sleep(0.5)
        events.send(60)
        for partition in range(3):
            end = end_offset(application.bootstrap, application.source, partition=partition)
            place = TopicPartition(application.source, partition, end - 1)
            admin.delete_records([place])[place].result(30)
        worker.signal(signal.SIGCONT)
        assert worker.wait() == 1
        last = worker.log.read_text().splitlines()[-1]
    assert "it begins after the first record that the state needs; timestamps " in last
    named = re.search(r"timestamps (\d+) to (\d+) of places may lack events", last)
    assert named is not None
    # Timestamps may have been closed and not released when it was stopped.
    assert 0 < int(named[1]) - max(released(application)) <= 20
    assert int(named[1]) <= int(named[2])
    assert "`eventveil migrate TOPOLOGY --lost --apply`" in last
