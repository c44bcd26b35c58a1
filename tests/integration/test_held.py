"""What holds a partition up until somebody undoes it: nothing is released, and everybody can see why."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME

from tests.integration.test_topics_changed import Events
from tests.kafka.topics import abandon, read, transactional_producer
from tests.worker.application import ORIGIN, Application
from tests.worker.process import WorkerProcess
from tests.worker.waiting import last_release, until, wait_for_releases
from tests.worker.watch import Watch

HELD = "eventveil_held_partitions"


@pytest.fixture
def application(kafka: str, tmp_path: Path) -> Application:
    made = Application(kafka, tmp_path, interval=500, lateness=300)
    made.create()
    return made


def running(application: Application, tmp_path: Path) -> WorkerProcess:
    return WorkerProcess("eventveil", application.path, tmp_path / "log", "--metrics", "127.0.0.1:0")


def wait_until_held(watch: Watch, words: str, reason: str, partitions: int) -> None:
    def is_held() -> bool:
        told = any(words in one for one in watch.obstacles())
        return told and watch.metrics()[HELD, reason] == partitions

    until(is_held, watch.obstacles)


def kinds_of(application: Application) -> Counter[int]:
    """Whose time the records of the source have: how many of each of librdkafka's kinds."""
    return Counter(
        message.timestamp()[0]
        for partition in range(application.partitions)
        for message in read(application.bootstrap, application.source, partition=partition)
    )


def send_until(events: Events, application: Application, kind: int) -> None:
    """Send events until the source gives one this kind of time: brokers hear of a setting a moment later."""
    before, deadline = kinds_of(application)[kind], time.monotonic() + 120
    while kinds_of(application)[kind] == before:
        assert time.monotonic() < deadline
        events.send(1)


def assert_consecutive(application: Application) -> None:
    releases = application.releases()
    assert sorted(releases) == list(range(min(releases), max(releases) + 1))
    assert all(len(values) == 1 for values in releases.values())
    application.command("ledger", str(application.path))


def test_records_without_append_times_are_held_and_nothing_is_charged(
    application: Application, tmp_path: Path
) -> None:
    events = Events(application)
    with running(application, tmp_path) as worker, Watch(worker) as watch:
        watch.wait_until_ready()
        events.send(20)
        wait_for_releases(application, 3)
        application.alter(application.source, {"message.timestamp.type": "CreateTime"})
        send_until(events, application, TIMESTAMP_CREATE_TIME)
        events.send(40)
        sent_at = time.time_ns() // 1_000_000
        wait_until_held(watch, "message.timestamp.type must be LogAppendTime", "append-time", 3)
        # A start would refuse it, and so the worker is not ready, soon after.
        watch.until(lambda found: found["eventveil_topic_mistakes",] == 1)
        assert any("message.timestamp.type is CreateTime" in one for one in watch.obstacles())
        time.sleep(4)
        before = last_release(application, application.sink)
        assert before < timestamp_of(sent_at), "a timestamp was released that lacks these events"
        assert read(application.bootstrap, application.dead) == []
        assert f"--topic {application.source} --add-config message.timestamp.type=LogAppendTime" in (
            worker.log.read_text()
        )

        application.alter(application.source, {"message.timestamp.type": "LogAppendTime"})
        send_until(events, application, TIMESTAMP_LOG_APPEND_TIME)
        events.send(30)
        watch.wait_until_ready()
        wait_for_releases(application, before - min(application.releases()) + 10)
        watch.until(lambda found: found[HELD, "append-time"] == found["eventveil_topic_mistakes",] == 0)
        assert "is no longer held up" in worker.log.read_text()
    reasons = Counter(
        dict(message.headers() or [])["eventveil.reason"]
        for message in read(application.bootstrap, application.dead)
    )
    # A busy machine may be late with some of the others.
    assert reasons[b"no-append-time"] == kinds_of(application)[TIMESTAMP_CREATE_TIME] > 40
    assert reasons.keys() <= {b"no-append-time", b"late"}
    assert_consecutive(application)


def timestamp_of(moment: int) -> int:
    return (moment - ORIGIN) // 500 + 1


def test_an_open_transaction_that_hides_the_end_of_a_partition_is_told_of(
    application: Application, tmp_path: Path
) -> None:
    events = Events(application)
    with running(application, tmp_path) as worker, Watch(worker) as watch:
        watch.wait_until_ready()
        events.send(20)
        wait_for_releases(application, 3)
        identity = f"{application.name}-stranger"
        # Longer than a busy machine takes to get so far.
        stranger = transactional_producer(application.bootstrap, identity, transaction_timeout_ms=600_000)
        value = json.dumps({"user": "user 1", "place": "east", "time": time.time_ns() // 1_000_000})
        abandon(stranger, application.source, [value], 1, b"user 1")
        events.send(30)
        wait_until_held(watch, "held up by a transaction that was left open", "open-transaction", 1)
        # The log is told up to half a second later than a client that asks the endpoint.
        told = f"{application.source}, partition 1, is held up: a producer has left a transaction open"
        worker.wait_for_log(told)
        before = last_release(application, application.sink)
        time.sleep(2)
        assert last_release(application, application.sink) == before
        stranger.abort_transaction(30)
        watch.wait_until_ready()
        wait_for_releases(application, len(application.releases()) + 4)
        watch.until(lambda found: found[HELD, "open-transaction"] == 0)
    assert_consecutive(application)
