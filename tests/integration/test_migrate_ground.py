"""``eventveil migrate`` where a stream continues from other topics or partitions, or without lost records."""

from __future__ import annotations

import json
import re
import signal
import time
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from eventveil.cli import migrate
from eventveil.kafka.admin import Admin
from eventveil.kafka.cluster import Cluster, Topic
from eventveil.kinds.registry import merged_streams
from eventveil.lifecycle.apply import StreamMigrator
from eventveil.lifecycle.layout import Layout
from eventveil.model.errors import Unsettled
from eventveil.model.timeline import start_of
from eventveil.model.topology import Kafka, Topology
from eventveil.replay.inputs import TopicInput
from eventveil.replay.run import replay
from eventveil.topology.loading import load
from tests.chaos.verifier import java_partition
from tests.kafka.topics import (
    LOG_APPEND_TIME,
    abandon,
    create_topic,
    end_offset,
    grow_topic,
    produce,
    read,
    transactional_producer,
    unique,
)
from tests.worker.application import ORIGIN, Application
from tests.worker.checks import last_closed
from tests.worker.process import WorkerProcess
from tests.worker.silent import Silence
from tests.worker.taking_over import refusals
from tests.worker.waiting import last_release, until, wait_for_timestamp

#: Each event is to be in time, however long sending takes.
INTERVAL, LATENESS = 500, 5000
UNIFORM = {"kind": "uniform", "epsilon": 1, "window": 10}


def run(application: Application, events: list[tuple[str, int, int]] | None = None) -> None:
    """Let a worker release all that is due, and two timestamps of ``events``: source, partitions, number."""
    log = application.path.with_suffix(".log")
    log.unlink(missing_ok=True)
    with WorkerProcess("tests.worker.silent", application.path, log, "3") as worker:
        worker.wait_for_log("ready")
        for source, partitions, number in events or []:
            send(application, source, partitions, number)
        wanted = (time.time_ns() // 1_000_000 - ORIGIN) // INTERVAL + 1
        for stream in application.document["streams"].values():
            wait_for_timestamp(application, wanted, stream["sink"]["topic"])
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0


def send(application: Application, source: str, partitions: int, number: int, first: int = 0) -> None:
    """One event of each of this many users, in their partitions."""
    producer = Producer({"bootstrap.servers": application.bootstrap})
    # What costs time on a busy machine comes before the events' time.
    producer.list_topics(source, timeout=30)
    now = time.time_ns() // 1_000_000
    for user in (f"user {one}" for one in range(first, first + number)):
        value = json.dumps({"user": user, "place": "north", "time": now})
        producer.produce(source, value, partition=java_partition(user, partitions))
    assert producer.flush(30) == 0


def counted(application: Application, sink: str) -> dict[int, int]:
    """What each timestamp counts; every one has one release, without gaps."""
    releases = application.releases(sink=sink)
    assert sorted(releases) == list(range(min(releases), max(releases) + 1))
    assert all(len(values) == 1 for values in releases.values())
    return {one: sum(json.loads(values[0])["counts"].values()) for one, values in releases.items()}


def first_lost(message: str, before: Collection[int]) -> int:
    """The first timestamp that may lack events, as a message has it.

    It follows the last release, or timestamps that were counted and not released when the worker stopped.
    """
    found = re.search(r"timestamps (\d+) to \d+", message)
    assert found, message
    first = int(found[1])
    assert 0 < first - max(before) <= 20, (message, max(before))
    return first


def sent(application: Application, source: str, partitions: int) -> Counter[int]:
    """How many events of each timestamp a source has; they came in time."""
    found: Counter[int] = Counter()
    for partition in range(partitions):
        for message in read(application.bootstrap, source, partition=partition):
            found[(json.loads(message.value() or b"")["time"] - ORIGIN) // INTERVAL + 1] += 1
    return found


def test_a_source_in_the_middle_gets_partitions_and_those_behind_it_make_room(
    kafka: str, tmp_path: Path
) -> None:
    application = Application(kafka, tmp_path, interval=INTERVAL, lateness=LATENESS, partitions=2)
    first, second = application.source, f"{application.name}.second"
    streams = {
        "places": application.stream(first, application.sink, UNIFORM),
        "others": application.stream(second, f"{application.name}.others", UNIFORM),
        "more": application.stream(first, f"{application.name}.more", UNIFORM),
    }
    application.document["streams"] = streams
    application.write()
    application.create()
    run(application, [(first, 2, 20), (second, 2, 30)])
    grow_topic(kafka, first, 4)
    send(application, second, 2, 10)

    assert "stop the workers and run `eventveil migrate TOPOLOGY" in refusals(application.path)[0]
    dry = application.command("migrate", str(application.path))
    assert dry.count("source.partitions 4, was 2") == 2
    assert "others: unchanged" in dry
    topology = load(str(application.path), {})
    late = Layout(topology, Cluster(topology.kafka))
    done = application.command("migrate", str(application.path), "--apply")
    assert f"the state of {second}, partition 0, was moved to make room" in done
    assert f"the state of {second}, partition 1, was moved to make room" in done
    with pytest.raises(Unsettled, match="its state has been moved meanwhile"):
        late.arrange(lambda: None)
    assert refusals(application.path) == []
    again = application.command("migrate", str(application.path), "--apply")
    assert again == "places: unchanged\nothers: unchanged\nmore: unchanged\n"

    run(application, [(first, 4, 40), (second, 2, 50)])
    for stream, (source, partitions) in zip(
        streams.values(), [(first, 4), (second, 2), (first, 4)], strict=True
    ):
        found = counted(application, stream["sink"]["topic"])
        events = sent(application, source, partitions)
        assert found == {one: events[one] for one in found}
    assert sum(counted(application, application.sink).values()) == 60
    assert sum(counted(application, f"{application.name}.others").values()) == 90
    application.command("ledger", str(application.path))


def test_what_was_lost_is_named_and_nothing_else_is_lost(kafka: str, tmp_path: Path) -> None:
    """Retention overtakes a stopped worker; then the source is replaced; then the partial counts are."""
    application = Application(kafka, tmp_path, interval=INTERVAL, lateness=LATENESS)
    path, source = str(application.path), application.source
    application.create()
    run(application, [(source, 3, 30)])
    before = counted(application, application.sink)

    # Retention takes what partition 0 got while nobody read; one event comes after that.
    send(application, source, 3, 30)
    end = end_offset(kafka, source, partition=0)
    gone = sum(java_partition(f"user {one}", 3) == 0 for one in range(30))
    application.delete_records(source, end)
    send(application, source, 3, 1, first=1000)
    (message,) = refusals(application.path)
    assert (
        f"{source}, partition 0: it begins after the first record that the state needs; timestamps "
        in message
    )
    assert "of places may lack events" in message
    assert "`eventveil migrate TOPOLOGY --lost --apply`" in message
    assert "new name" not in message
    refused = application.failing_command("migrate", path, "--apply")
    # The worker knows what this partition has counted, and migrate what was released.
    target = first_lost(refused, before)
    assert target <= first_lost(message, before)
    told = application.command("migrate", path, "--apply", "--lost")
    assert f"lost.from {target}" in told
    assert refusals(application.path) == []
    run(application)
    found = counted(application, application.sink)
    assert {one: found[one] for one in before} == before
    assert sum(found.values()) == 30 + (30 - gone) + 1

    # The source is replaced, with events that nobody has counted.
    application.delete(source)
    create_topic(kafka, source, 3, LOG_APPEND_TIME)
    send(application, source, 3, 12)
    assert f"topic {source} was deleted and created again" in refusals(application.path)[0]
    assert "`eventveil migrate TOPOLOGY" in refusals(application.path)[0]
    assert "may lack events" not in application.failing_command("migrate", path, "--apply")
    application.command("migrate", path, "--apply", "--lost")
    run(application)
    now = counted(application, application.sink)
    assert {one: now[one] for one in found} == found
    assert sum(now.values()) == sum(found.values()) + 12

    # The partial counts are replaced: they are made again, nothing is lost and nothing has to be accepted.
    send(application, source, 3, 20)
    application.recreate(f"{application.name}-partials")
    application.command("migrate", path, "--apply")
    run(application)
    last = counted(application, application.sink)
    assert {one: last[one] for one in now} == now
    assert sum(last.values()) == sum(now.values()) + 20
    audit = application.command("ledger", path)
    assert "lost.from" in audit
    assert "partials.topic_id" in audit

    # Behind the barrier an old answer does not make partial counts look gone.
    topology = load(path, {})
    (plan,) = merged_streams(topology)
    assert StreamMigrator(topology, Forgetful(topology), plan).migrate(apply=True) is None


def test_events_that_are_re_keyed_go_on_from_more_partitions_and_from_another_topic(
    kafka: str, tmp_path: Path
) -> None:
    application = Application(kafka, tmp_path, interval=INTERVAL, lateness=LATENESS, partitions=2)
    path, first, second = str(application.path), application.source, f"{application.name}.second"
    streams = {
        "places": application.stream(first, application.sink, UNIFORM),
        "others": application.stream(second, f"{application.name}.others", UNIFORM),
        # Behind the same stage as `places`, in one partition of the ledger: its state has the same writers.
        "twins": application.stream(first, f"{application.name}.twins", UNIFORM),
    }
    for stream in streams.values():
        stream["source"]["repartition"] = True
    application.document["topics"]["partials"] = 1
    application.document["streams"] = streams
    application.write()
    application.create()
    run(application, [(first, 2, 20), (second, 2, 30)])
    before = counted(application, application.sink)

    # It gets a partition, and retention takes what partition 0 got while nobody read.
    grow_topic(kafka, first, 3)
    send(application, first, 3, 30)
    gone = sum(java_partition(f"user {one}", 3) == 0 for one in range(30))
    application.delete_records(first, end_offset(kafka, first, partition=0))
    assert any(
        "stop the workers and run `eventveil migrate TOPOLOGY" in one for one in refusals(application.path)
    )
    assert [one for one in refusals(application.path) if "`eventveil migrate TOPOLOGY" not in one] == []
    refused = application.failing_command("migrate", path, "--apply")
    target = first_lost(refused, before)
    told = application.command("migrate", path, "--lost")
    assert "source.partitions.events 3, was 2" in told
    assert f"lost.from {target}" in told
    # As a command does that is killed after its first step. Making what is missing is up to the next one.
    topology = load(path, {})
    moved = Layout(topology, Cluster(topology.kafka), reader="rekeying").arrange(lambda: None)
    assert moved == [(second, 0), (second, 1)]
    assert [one for one in refusals(application.path) if "`eventveil migrate TOPOLOGY" not in one] == []
    created = application.failing_command("topics", path, "--create")
    assert f"its source {first} had 2 partitions when it began and has 3 now" in created
    assert f"`eventveil migrate {path}" in created
    assert "others: unchanged" in application.command("migrate", path, "--apply", "--lost")
    assert refusals(application.path) == []
    again = application.command("migrate", path, "--apply")
    assert again == "places: unchanged\nothers: unchanged\ntwins: unchanged\n"
    run(application, [(first, 3, 40), (second, 2, 50)])
    found = counted(application, application.sink)
    assert {one: found[one] for one in before} == before
    assert sum(found.values()) == 20 + (30 - gone) + 40
    assert sum(counted(application, f"{application.name}.others").values()) == 80

    # The topic is replaced, with events that nobody has counted, some of them of nobody.
    application.delete(first)
    create_topic(kafka, first, 3, LOG_APPEND_TIME)
    send(application, first, 3, 12)
    produce(kafka, first, [b"{"], partition=2)
    assert any("was deleted and created again" in message for message in refusals(application.path))
    application.failing_command("migrate", path, "--apply")
    assert "source.topic_id" in application.command("migrate", path, "--apply", "--lost")
    run(application)
    last = counted(application, application.sink)
    assert {one: last[one] for one in found} == found
    assert sum(last.values()) == sum(found.values()) + 12
    assert sum(counted(application, f"{application.name}.twins").values()) == sum(last.values())
    topology = load(path, {})
    rules, live = topology.streams[0].timeline, application.releases()
    replayed = replay(
        topology,
        TopicInput(topology.kafka, topology.streams[0].source.topic, rekeyed=True),
        start=start_of(rules, min(live)),
        end=start_of(rules, max(live) + 1),
        only=["places"],
        noise=lambda _: Silence(),
    )
    assert {one.timestamp: [one.record] for one in replayed} == live
    letters = read(kafka, application.dead)
    assert [letter.value() for letter in letters] == [b"{", b"{"], "one for each stream behind the topic"
    audit = application.command("ledger", path)
    assert "source.partitions.events" in audit
    assert "lost.from" in audit


class Forgetful(Cluster):
    """A cluster whose brokers know of no partial count."""

    def __init__(self, topology: Topology) -> None:
        super().__init__(topology.kafka)
        self._partials = topology.partials

    def end_offsets(self, places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return {
            place: 0 if place[0] == self._partials else end
            for place, end in super().end_offsets(places).items()
        }


def test_an_old_answer_of_a_broker_does_not_cost_a_stream_its_name(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = Application(kafka, tmp_path, partitions=2)
    application.create()
    clients = 0

    class Old(Cluster):
        """A client that knows of one partition only, if it is one of the first two."""

        def __init__(self, kafka: Kafka) -> None:
            nonlocal clients
            super().__init__(kafka)
            clients += 1
            self._is_old = clients <= 2

        def topics(self, names: Collection[str]) -> dict[str, Topic]:
            found = super().topics(names)
            if self._is_old and application.source in found:
                found[application.source] = replace(found[application.source], partitions=1)
            return found

    monkeypatch.setattr(migrate, "Cluster", Old)
    told = application.command("migrate", str(application.path))
    assert told.count("its source has fewer partitions than its state") == 1
    assert "new name" not in told
    assert told.endswith("places: unchanged\n")
    assert clients == 3
    # What every client says is believed.
    clients = -10
    refused = application.failing_command("migrate", str(application.path))
    assert "Give the stream a new name" in refused


def test_partial_counts_that_were_not_released_are_made_again(kafka: str, tmp_path: Path) -> None:
    """Timestamps are closed, and their partial counts are gone before any of them is released."""
    application = Application(kafka, tmp_path, interval=INTERVAL, lateness=LATENESS)
    application.create()
    run(application, [(application.source, 3, 30)])
    before = counted(application, application.sink)
    admin = Admin({"bootstrap.servers": kafka, "log_level": 0})
    partials = f"{application.name}-partials"
    log = application.path.with_suffix(".log")
    (plan,) = merged_streams(load(str(application.path), {}))
    stranger = transactional_producer(kafka, unique("stranger"))
    with WorkerProcess("tests.worker.silent", application.path, log, "3") as worker:
        worker.wait_for_log("ready")
        # An open transaction hides all partial counts behind it, so nothing is released from now on.
        abandon(stranger, partials, [b"{}"], plan.partials_partition)
        send(application, application.source, 3, 40)
        wanted = (time.time_ns() // 1_000_000 - ORIGIN) // INTERVAL + 1
        until(lambda: last_closed(application, isolation="read_uncommitted") >= wanted)
        worker.kill()
    assert last_release(application, application.sink) < wanted
    stranger.abort_transaction(30)
    cluster = Cluster(Kafka(kafka))
    until(lambda: cluster.group_members(application.name) == 0)
    for partition in range(2):
        end = end_offset(kafka, partials, partition=partition)
        place = TopicPartition(partials, partition, end)
        admin.delete_records([place])[place].result(30)
    application.command("migrate", str(application.path), "--apply")
    run(application)
    found = counted(application, application.sink)
    assert {one: found[one] for one in before} == before
    assert sum(found.values()) == 70
    application.command("ledger", str(application.path))
