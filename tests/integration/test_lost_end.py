"""A source loses its newest records and grows beyond where it ended before a worker looks: it finds out."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from eventveil.kafka.cluster import Cluster
from eventveil.kafka.reader import epoch_end
from eventveil.model.reach import Reach
from eventveil.model.records import NO_EPOCH, TopicPartition
from eventveil.model.topology import Kafka
from tests.kafka.broker import LocalBroker
from tests.kafka.jars import missing_tools
from tests.kafka.ports import HOST, reserve
from tests.kafka.topics import end_offset, read
from tests.worker.application import ORIGIN, Application
from tests.worker.checks import worker
from tests.worker.waiting import wait_for_timestamp

pytestmark = pytest.mark.skipif(bool(missing_tools()), reason="; ".join(missing_tools()))
PARTED = "records that were read are gone; new ones have their offsets"
INTERVAL, LATENESS = 2000, 5000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    made = LocalBroker(tmp_path / "broker")
    made.start()
    yield made
    made.stop()
    made.release()


def send(application: Application, place: str, number: int) -> int:
    """Events that brokers acknowledge; the timestamp of the last one."""
    # A broker that has just started may take longer to answer than events may be late.
    end_offset(application.bootstrap, application.source)
    producer = Producer({"bootstrap.servers": application.bootstrap, "partitioner": "murmur2_random"})
    producer.list_topics(application.source, timeout=60)
    now = 0
    for one in range(number):
        now = time.time_ns() // 1_000_000
        user = f"{place}{one}"
        event = json.dumps({"user": user, "place": place, "time": now})
        producer.produce(application.source, key=user.encode(), value=event.encode())
    assert producer.flush(60) == 0
    return (now - ORIGIN) // INTERVAL + 1


def counted(application: Application) -> Counter[str]:
    """How many events of each place were released; every timestamp once."""
    found: Counter[str] = Counter()
    for records in application.releases().values():
        assert len(records) == 1
        found.update({place: number for place, number in json.loads(records[0])["counts"].items() if number})
    return found


@pytest.mark.parametrize(
    ("live", "rekeyed"), [(True, False), (False, False), (False, True)], ids=["live", "restarted", "rekeyed"]
)
def test_a_source_that_lost_its_end_and_grew_again_stops_the_worker_and_a_migration_goes_on(
    broker: LocalBroker, tmp_path: Path, live: bool, rekeyed: bool
) -> None:
    application = Application(
        broker.bootstrap, tmp_path, interval=INTERVAL, lateness=LATENESS, max_ahead=5000, partitions=1
    )
    application.document["streams"]["places"]["source"]["repartition"] = rekeyed
    application.write()
    application.create()
    log = next(one for one in (tmp_path / "broker").rglob(f"{application.source}-0") if one.is_dir())
    with worker(application, tmp_path) as running:
        running.wait_for_log("ready")
        wait_for_timestamp(application, send(application, "north", 5))
        broker.stop()
        shutil.copytree(log, tmp_path / "copy")
        broker.start()
        wait_for_timestamp(application, send(application, "east", 5))
        # Ordinary restarts, after which another epoch has all that there was.
        broker.kill()
        broker.start()
        wait_for_timestamp(application, send(application, "north", 2))
        told = running.log.read_text()
        assert PARTED not in told
        assert "Stopping" not in told
        assert counted(application) == {"north": 7, "east": 5}
        end = end_offset(application.bootstrap, application.source)
        if live:
            running.signal(signal.SIGSTOP)
        else:
            running.kill()
        broker.kill()
        shutil.rmtree(log)
        shutil.copytree(tmp_path / "copy", log)
        broker.start()
        assert end_offset(application.bootstrap, application.source) == 5
        before = application.releases()
        newest = send(application, "south", 12)
        assert end_offset(application.bootstrap, application.source) > end
        if live:
            running.signal(signal.SIGCONT)
        else:
            running.start()
        assert running.wait() == 1
        told = running.log.read_text()
    assert f"stopped: {application.source}, partition 0: {PARTED}. Repeated checks" in told
    assert "`eventveil migrate TOPOLOGY --lost --apply`" in told.splitlines()[-1]
    # What was closed before may still be released; nothing is closed of what took the place of records.
    after = application.releases()
    assert {timestamp: after[timestamp] for timestamp in before} == before
    assert counted(application) == {"north": 7, "east": 5}

    assert "events that were not released yet are gone" in application.failing_command(
        "migrate", str(application.path), "--apply"
    )
    told = application.command("migrate", str(application.path), "--lost", "--apply")
    assert "lost.from" in told
    assert application.command("migrate", str(application.path), "--apply") == "places: unchanged\n"
    with worker(application, tmp_path, "after"):
        wait_for_timestamp(application, newest)
    # All that the log has now counts, and what it had before stays counted.
    assert counted(application) == {"north": 7, "east": 5, "south": 12}
    # Of what is read again, some may belong to timestamps that were closed before.
    for letter in read(application.bootstrap, application.dead):
        assert dict(letter.headers() or [])["eventveil.reason"] == b"late"
        assert b"south" not in (letter.value() or b"")


def test_a_worker_finds_brokers_that_have_other_addresses_by_its_bootstrap_addresses(tmp_path: Path) -> None:
    directory, another = tmp_path / "broker", reserve()
    broker = LocalBroker(directory)
    broker.start()
    application = Application(
        broker.bootstrap, tmp_path, interval=INTERVAL, lateness=LATENESS, max_ahead=5000, partitions=1
    )
    application.create()
    application.document["kafka"]["bootstrap"] = f"{broker.bootstrap},{HOST}:{another.port}"
    application.write()
    with worker(application, tmp_path) as running:
        running.wait_for_log("ready")
        wait_for_timestamp(application, send(application, "north", 5))
        broker.release()
        another.release()
        moved = LocalBroker(directory, another.port)
        moved.start()
        try:
            application.bootstrap = moved.bootstrap
            wait_for_timestamp(application, send(application, "east", 5))
        finally:
            moved.release()


def test_what_a_broker_says_of_epochs(broker: LocalBroker, tmp_path: Path) -> None:
    """An epoch ends where the next leader began; one that is not known shows nothing."""
    application = Application(broker.bootstrap, tmp_path, interval=INTERVAL, partitions=1)
    application.create()
    kafka, place = Kafka(broker.bootstrap), TopicPartition(application.source, 0)
    send(application, "north", 3)
    cluster = Cluster(kafka)
    first = cluster.reached(place)
    assert first == Reach(first.epoch, 3)
    assert epoch_end(kafka, place, first.epoch, first.epoch) == first
    broker.stop()
    broker.start()
    send(application, "north", 2)
    second = Cluster(kafka).reached(place)
    assert second.epoch > first.epoch
    assert second.offset == 5
    # The leader is in a later epoch than the one that was asked for.
    assert epoch_end(kafka, place, first.epoch, first.epoch) == first
    assert epoch_end(kafka, place, first.epoch, second.epoch) == first
    assert epoch_end(kafka, place, second.epoch, second.epoch) == second
    assert epoch_end(kafka, place, second.epoch + 1, NO_EPOCH) == Reach(NO_EPOCH, -1)
    application.delete_records(application.source, 5)
    assert cluster.parted(place, first) is None
    assert cluster.parted(place, second) is None
