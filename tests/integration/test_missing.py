"""``on_missing: release`` with two brokers: one dies and takes the only replica of a partition with it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import NewTopic

from eventveil.kafka.admin import Admin
from eventveil.kafka.cluster import Cluster
from eventveil.lifecycle.topics import plan_topics
from eventveil.model.topology import Kafka
from eventveil.topology.loading import load
from tests.kafka.broker import LocalBroker, local_broker
from tests.kafka.jars import missing_tools
from tests.kafka.second import NODE, SecondBroker, second_broker
from tests.kafka.topics import read, transactional_producer, unique
from tests.worker.application import Application, Traffic
from tests.worker.process import WorkerProcess
from tests.worker.waiting import until

MISSING = 1
#: In the log of a worker, when it resumes releases.
TAKEN_OVER = re.compile(r"-sanitize-\d+ owns ")
ASSIGNMENT = {0: 1, MISSING: NODE, 2: 1}


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[tuple[LocalBroker, SecondBroker]]:
    """Two brokers; transactions and groups are coordinated by the first."""
    if lacking := missing_tools():
        pytest.skip("; ".join(lacking))
    with local_broker(directory=tmp_path / "first") as first:
        transactional_producer(first.bootstrap, unique("first"))
        group = Consumer({"bootstrap.servers": first.bootstrap, "group.id": unique("first")})
        group.subscribe(["none"])
        admin = Admin({"bootstrap.servers": first.bootstrap})
        deadline = time.monotonic() + 180
        while "__consumer_offsets" not in admin.list_topics(timeout=30).topics:
            assert time.monotonic() < deadline
            group.poll(0.5)
        group.close()
        with second_broker(tmp_path / "second", first) as second:
            yield first, second


def create_topics(application: Application) -> None:
    """All topics on the first broker, except for one partition of the source; without a genesis."""
    plans = plan_topics(load(str(application.path), {}), {application.source: 3})
    admin = Admin({"bootstrap.servers": application.bootstrap, "log_level": 0})
    topics = [
        NewTopic(
            plan.name,
            num_partitions=plan.partitions,
            replica_assignment=[
                [ASSIGNMENT[partition] if plan.is_source else 1] for partition in range(plan.partitions)
            ],
            config=plan.settings,
        )
        for plan in plans
    ]
    for future in admin.create_topics(topics).values():
        future.result(30)


def wait_for(
    application: Application, missing: bool, count: int, after: int = 0, seconds: float = 180
) -> int:
    """Wait for releases later than ``after`` with or without a missing partition; the last timestamp."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        released = application.releases()
        found = [
            timestamp
            for timestamp, records in released.items()
            if timestamp > after and ("missing" in json.loads(records[0])) == missing
        ]
        if len(found) >= count:
            return max(found)
        time.sleep(0.3)
    raise TimeoutError(f"{len(found)} of {count} releases, {len(released)} in all")


def wait_until_quiet(application: Application, seconds: float = 5) -> int:
    """Until nothing has been released for so long, for a busy machine may be behind; how many releases."""
    before, since, deadline = len(application.releases()), time.monotonic(), time.monotonic() + 180
    while time.monotonic() < since + seconds:
        assert time.monotonic() < deadline, "it continues"
        time.sleep(0.3)
        if (now := len(application.releases())) != before:
            before, since = now, time.monotonic()
    return before


def wait_until_taken_over(log: Path, before: int) -> None:
    """Until a worker has taken the release task over once more than ``before`` times."""
    until(lambda: len(TAKEN_OVER.findall(log.read_text())) > before)


def wait_until_leaderless(application: Application) -> None:
    """Until the first broker says that the partition on the second one has no leader."""
    cluster = Cluster(Kafka(application.bootstrap))
    until(lambda: cluster.leaderless(application.source) == {MISSING})


def test_timestamps_go_on_without_a_partition_that_was_gone_before_they_were_due_and_others_wait(
    brokers: tuple[LocalBroker, SecondBroker], tmp_path: Path
) -> None:
    first, second = brokers
    application = Application(first.bootstrap, tmp_path)
    timeline = application.document["streams"]["places"]["timeline"]
    timeline |= {"on_missing": "release", "grace": "3s"}
    application.write()
    create_topics(application)
    # By then the genesis is written, for which every partition has to be there, and then one of them is gone.
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=40)
    timeline["start"] = start.strftime("%Y-%m-%dT%H:%M:%SZ")
    application.write()
    application.create()
    second.kill()
    wait_until_leaderless(application)
    log = tmp_path / "worker.log"
    with WorkerProcess("tests.worker.silent", application.path, log, "3") as worker:
        with Traffic(application, seed=5):
            last = wait_for(application, missing=True, count=8)
            assert "partitions [1] of" in log.read_text()
            second.start()
            last = wait_for(application, missing=False, count=8, after=last)
            second.kill()
            wait_until_leaderless(application)
            worker.kill()
            taken_over = len(TAKEN_OVER.findall(log.read_text()))
            worker.start()
            wait_until_taken_over(log, taken_over)
            # What was due before the leader was seen to be gone waits, and what comes after it with it.
            waiting = wait_until_quiet(application)
            time.sleep(3)
            assert len(application.releases()) == waiting
            last = max(application.releases())
            second.start()
            last = wait_for(application, missing=True, count=8, after=last)
            last = wait_for(application, missing=False, count=20, after=last)
        wait_for(application, missing=False, count=8, after=last)
        worker.kill()
    releases = application.releases()
    assert sorted(releases) == list(range(min(releases), max(releases) + 1))
    released = {timestamp: json.loads(records[0]) for timestamp, records in releases.items()}
    missing = {timestamp: one.get("missing", []) for timestamp, one in released.items()}
    truth = application.truth(first=min(releases), without=missing)
    for timestamp, one in released.items():
        assert missing[timestamp] in ([], [MISSING])
        found = {name: count for name, count in one["counts"].items() if count}
        assert found == truth.get(timestamp, {}), timestamp
    assert 16 <= sum(map(bool, missing.values())) < len(missing)
    assert all(len(records) == 1 for records in releases.values())
    # A transaction that was aborted leaves the same bytes that the next one publishes.
    assert all(len({*records}) == 1 for records in application.releases("read_uncommitted").values())
    states = [
        json.loads(message.value() or b"")
        for partition in range(2)
        for message in read(first.bootstrap, f"{application.name}-ledger-changelog", partition=partition)
        if message.key() == b"places"
    ]
    assert any("missing" in state for state in states)
    assert "missing" not in states[-1], "partials of the missing partition were not passed over"
