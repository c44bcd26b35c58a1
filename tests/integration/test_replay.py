"""Replay of a topic that was recorded on a real broker, against the rules applied by brute force."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer, TopicPartition

from eventveil.advise.reading import read_events
from eventveil.cli.main import main
from eventveil.kafka.admin import Admin
from eventveil.kafka.log import read_topic
from eventveil.model.timeline import format_rfc3339
from eventveil.model.topology import Kafka
from eventveil.replay.inputs import TopicInput
from eventveil.replay.rekeying import open_topic
from eventveil.replay.run import Replay, replay
from eventveil.topology.loading import load
from tests.integration.conftest import NewTopic
from tests.kafka.topics import (
    LOG_APPEND_TIME,
    abandon,
    create_topic,
    end_offset,
    produce,
    settled,
    transact,
    transactional_producer,
    unique,
)
from tests.unit.replay.history import zero_noise
from tests.worker.application import ORIGIN, Application, Traffic, java_partition

INTERVAL = 250
SECONDS = 5
NewApplication = Callable[..., Application]


@pytest.fixture
def new_application(kafka: str, tmp_path: Path) -> Iterator[NewApplication]:
    """Make an application with a source topic and nothing else; the topics are deleted at the end."""
    made: list[Application] = []

    def make(settings: Mapping[str, str] = LOG_APPEND_TIME, lateness: int = 150) -> Application:
        application = Application(kafka, tmp_path, interval=INTERVAL, lateness=lateness)
        slow = application.stream(application.source, f"{application.source}.slow", {
            "kind": "budget-distribution", "epsilon": 1, "window": 5,
        }, interval=4 * INTERVAL)  # fmt: skip
        application.document["streams"]["slow"] = slow
        application.write()
        create_topic(kafka, application.source, application.partitions, settings)
        made.append(application)
        return application

    yield make
    for application in made:
        application.delete(application.source)


@pytest.fixture
def application(new_application: NewApplication) -> Application:
    return new_application()


def now() -> int:
    """The first instant of a timestamp of both streams, a little while ago."""
    slow = 4 * INTERVAL
    return ORIGIN + (int(time.time() * 1000) - ORIGIN) // slow * slow - 2 * slow


def coming() -> int:
    """The first instant of the next timestamp of both: an event there that is appended soon counts."""
    return now() + 12 * INTERVAL


def timestamp_at(instant: int, interval: int = INTERVAL) -> int:
    return (instant - ORIGIN) // interval + 1


def replayed(application: Application, start: int, end: int | None) -> Replay:
    topology = load(str(application.path), {})
    source = TopicInput(topology.kafka, application.source)
    return replay(topology, source, start=start, end=end, noise=zero_noise)


def counts_of(running: Replay) -> dict[str, dict[int, dict[str, int]]]:
    found: dict[str, dict[int, dict[str, int]]] = {stream.name: {} for stream in running.streams}
    for released in running:
        record = json.loads(released.record)
        counts = dict(zip(record["counts"], released.counts.tolist(), strict=True))
        found[record["stream"]][record["timestamp"]] = counts
        assert record["counts"] == counts or not record["fresh"]
    return found


def event(user: str, instant: int) -> str:
    return json.dumps({"user": user, "place": "north", "time": instant})


def run(application: Application, output: Path, *options: str) -> Result:
    return CliRunner().invoke(
        main,
        ["replay", str(application.path), "--input", f"topic:{application.source}",
         "--output", str(output), *options],
    )  # fmt: skip


@pytest.mark.parametrize("append_time", ["broker", "boundary"])
def test_a_topic_whose_events_are_re_keyed_is_replayed_before_anything_else_exists(
    new_application: NewApplication, append_time: str, tmp_path: Path
) -> None:
    """Keyed by sessions; one partition has ended long before the others, and one is empty."""
    application = new_application(LOG_APPEND_TIME if append_time == "broker" else {})
    for stream in application.document["streams"].values():
        stream["source"] |= {
            "repartition": True,
            "append_time": append_time,
            "filter": {"$headers/bot": {"present": False}},
        }
    application.write()
    start = coming()
    producer = Producer({"bootstrap.servers": application.bootstrap})
    # Twenty of thirty users have an event in each of two partitions, and every third user is a robot.
    for partition, users in ((0, range(30)), (2, range(20))):
        for user in users:
            headers: list[tuple[str, str | bytes | None]] = [("bot", "yes")] if user % 3 == 0 else []
            value = event(f"u{user}", start)
            producer.produce(application.source, value, f"s{user}", partition, headers=headers)
    producer.flush(30)
    output = tmp_path / "releases.jsonl"
    span = "--from", format_rfc3339(start), "--to", format_rfc3339(start + 4 * INTERVAL)
    result = run(application, output, *span, "--seed", "1", "--truth", str(tmp_path / "truth.jsonl"))
    assert result.exit_code == 0, result.output
    first = json.loads((tmp_path / "truth.jsonl").read_text().splitlines()[0])
    assert (first["counts"]["north"], first["events"]["north"]) == (20, 33)
    assert ("no event is late or too far ahead" in result.output) is (append_time == "boundary")
    topology = load(str(application.path), {})
    read = read_events(topology.streams[0], open_topic(topology, application.source))
    assert read.outcomes == {"read": 33, "filtered": 17}
    assert len(set(read.events.users.tolist())) == 20


def test_a_topic_without_append_times_is_replayed_before_anything_else_exists(
    new_application: NewApplication, tmp_path: Path
) -> None:
    """No worker has run, so that there are no partial counts, and nothing is late or too far ahead."""
    application = new_application({})
    for stream in application.document["streams"].values():
        stream["source"]["append_time"] = "boundary"
    application.write()
    start = ORIGIN + 4 * INTERVAL
    producer = Producer({"bootstrap.servers": application.bootstrap})
    for user in (f"user {number}" for number in range(30)):
        partition = java_partition(user, application.partitions)
        producer.produce(application.source, event(user, start), user, partition)
    producer.flush(30)
    span = "--from", format_rfc3339(start), "--to", format_rfc3339(start + 4 * INTERVAL)
    output, truth = tmp_path / "releases.jsonl", tmp_path / "truth.jsonl"
    result = run(application, output, *span, "--seed", "1", "--truth", str(truth))
    assert result.exit_code == 0, result.output
    assert json.loads(truth.read_text().splitlines()[0])["counts"]["north"] == 30
    assert "have no boundary: no event is late or too far ahead here" in result.output


def test_a_recorded_topic_gives_the_counts_of_brute_force(application: Application) -> None:
    start = now()
    with Traffic(application, seed=7, per_second=800):
        time.sleep(SECONDS / 2)
        aborted = transactional_producer(application.bootstrap, unique("aborted"))
        user = "user of an aborted transaction"
        partition = java_partition(user, application.partitions)
        aborted.begin_transaction()
        aborted.produce(application.source, event(user, int(time.time() * 1000)), user, partition)
        aborted.flush(30)
        aborted.abort_transaction(30)
        time.sleep(SECONDS / 2)
    end = start + 12 * 4 * INTERVAL
    running = replayed(application, start, end)
    found = counts_of(running)
    for name, interval in (("places", INTERVAL), ("slow", 4 * INTERVAL)):
        first, last = timestamp_at(start, interval), timestamp_at(end, interval) - 1
        truth = application.truth(interval, first)
        assert list(found[name]) == list(range(first, last + 1))
        for timestamp in range(first, last + 1):
            counts = {column: count for column, count in found[name][timestamp].items() if count}
            assert counts == truth.get(timestamp, {}), (name, timestamp)
    assert sum(sum(counts.values()) for counts in found["places"].values()) > 300
    outcomes = running.outcomes["places"]
    expected = (
        "counted bounded tombstone not-json missing-field unknown-column time-unreadable wrong-partition"
    )
    assert all(outcomes[outcome] > 0 for outcome in (*expected.split(), "late", "too-far-ahead"))


def test_a_range_inside_the_recording_counts_the_same_and_reads_less(application: Application) -> None:
    with Traffic(application, seed=8, per_second=800) as traffic:
        time.sleep(SECONDS)
    # Whenever the traffic began: what was appended long before the range is not read.
    slow, begun = 4 * INTERVAL, min(record.time for record in application.raw())
    inside = ORIGIN + (begun + 2 * application.max_ahead - ORIGIN) // slow * slow + slow
    end = inside + slow
    running = replayed(application, inside, end)
    found = counts_of(running)["places"]
    first = timestamp_at(inside)
    truth = application.truth(first=first)
    assert list(found) == list(range(first, first + 4))
    for timestamp, counts in found.items():
        assert Counter(counts) == truth.get(timestamp, Counter())
    assert sum(running.outcomes["places"].values()) < traffic.produced


def test_with_last_a_topic_ends_with_its_last_event(application: Application) -> None:
    start = now()
    with Traffic(application, seed=9):
        time.sleep(SECONDS / 2)
    found = counts_of(replayed(application, start, None))
    for name, interval in (("places", INTERVAL), ("slow", 4 * INTERVAL)):
        truth = application.truth(interval, timestamp_at(start, interval))
        assert list(found[name]) == list(range(timestamp_at(start, interval), max(truth) + 1))


def test_advice_on_a_topic_is_that_on_a_file_with_its_events(
    new_application: NewApplication, tmp_path: Path
) -> None:
    # Nothing is late for advice, whatever the topology says.
    application = new_application(lateness=0)
    start = ORIGIN - ORIGIN % 3_600_000
    producer = transactional_producer(application.bootstrap, unique("advised"))
    lines: dict[int, list[str]] = {partition: [] for partition in range(application.partitions)}
    for number in range(3_000):
        user = f"user {number % 300}"
        lines[java_partition(user, application.partitions)].append(event(user, start + 3_000 * number))
    for partition, values in lines.items():
        transact(producer, application.source, values, partition)
        settled(application.bootstrap, application.source, partition)
    file = tmp_path / "events.jsonl"
    file.write_text("\n".join(line for values in lines.values() for line in values))
    options = ("--stream", "places", "--total", "hour", "--protect", "hour", "--contributions", "2")
    told = []
    for source in (f"topic:{application.source}", str(file)):
        arguments = ["advise", str(application.path), "--input", source, *options]
        advised = CliRunner().invoke(main, [*arguments, "--seed", "1", "--processes", "1"])
        assert advised.exit_code == 0, advised.output
        told.append(advised.stdout)
    assert told[0] == told[1]
    assert "3,000 can count" in told[0]


def test_a_topic_of_many_chunks_and_control_markers_gives_the_bytes_of_a_file(
    new_application: NewApplication, tmp_path: Path
) -> None:
    application = new_application(lateness=3_600_000)
    start = now()
    producer = transactional_producer(application.bootstrap, unique("many"))
    lines: dict[int, list[str]] = {partition: [] for partition in range(application.partitions)}
    for number in range(36_000):
        user = f"user {number % 5000}"
        value = event(user, start + number // 5000 * INTERVAL)
        lines[java_partition(user, application.partitions)].append(value)
    for begin in range(0, 13_000, 1000):
        for partition, values in lines.items():
            transact(producer, application.source, values[begin : begin + 1000], partition)
    for partition in lines:
        settled(application.bootstrap, application.source, partition)
    file = tmp_path / "events.jsonl"
    file.write_text("\n".join(line for values in lines.values() for line in values))
    end = format_rfc3339(start + 12 * INTERVAL)
    options = ("--from", format_rfc3339(start), "--to", end, "--seed", "1")
    assert run(application, tmp_path / "topic", *options).exit_code == 0
    assert run(application, tmp_path / "file", *options, "--input", str(file)).exit_code == 0
    assert run(application, tmp_path / "processes", *options, "--processes", "2").exit_code == 0
    assert (tmp_path / "topic").read_bytes() == (tmp_path / "file").read_bytes()
    assert (tmp_path / "topic").read_bytes() == (tmp_path / "processes").read_bytes()
    releases = [json.loads(line) for line in (tmp_path / "topic").read_text().splitlines()]
    places = [release["counts"]["north"] for release in releases if release["stream"] == "places"]
    assert max(abs(count - 5000) for count in places[:7]) < 500  # noise of scale 10
    assert max(map(abs, places[8:])) < 500


def test_the_same_seed_gives_the_same_bytes_from_a_topic(application: Application, tmp_path: Path) -> None:
    start = now()
    with Traffic(application, seed=10):
        time.sleep(1)
    options = ("--from", format_rfc3339(start), "--to", "last", "--seed", "3")
    for output in ("one", "two"):
        result = run(application, tmp_path / output, *options)
        assert result.exit_code == 0, result.output
    written = (tmp_path / "one").read_bytes()
    assert written == (tmp_path / "two").read_bytes()
    order = [(line["timestamp"], line["stream"]) for line in map(json.loads, written.splitlines())]
    assert order == sorted(order)


def test_a_transaction_that_is_open_holds_nothing_up_and_is_not_read(new_application: NewApplication) -> None:
    application = new_application(lateness=3_600_000)
    user, start = "user 1", now()
    partition = java_partition(user, application.partitions)
    here = int(time.time() * 1000)
    produce(application.bootstrap, application.source, [event(user, here)], user, partition)
    open_transaction = transactional_producer(application.bootstrap, unique("open"))
    abandon(open_transaction, application.source, [event(user, here + INTERVAL)], partition)
    found = counts_of(replayed(application, start, None))["places"]
    open_transaction.abort_transaction(30)
    assert max(found) == timestamp_at(here)
    assert sum(sum(counts.values()) for counts in found.values()) == 1


def test_a_topic_without_append_times_counts_nothing_and_says_why(
    new_application: NewApplication, tmp_path: Path
) -> None:
    application = new_application({"message.timestamp.type": "CreateTime"})
    start = now()
    values = [event(f"user {number}", start + 10) for number in range(10)]
    produce(application.bootstrap, application.source, values)
    end = format_rfc3339(start + 8 * INTERVAL)
    result = run(application, tmp_path / "out", "--from", format_rfc3339(start), "--to", end)
    assert result.exit_code == 3, result.output
    assert "counted for places; raw data, not to be published: 10 no-append-time" in result.stderr
    assert len((tmp_path / "out").read_text().splitlines()) == 8 + 2


def test_an_empty_topic_gives_every_timestamp(application: Application) -> None:
    start = now()
    found = counts_of(replayed(application, start, start + 8 * INTERVAL))
    assert [len(found["places"]), len(found["slow"])] == [8, 2]


def test_what_retention_has_removed_is_told(application: Application, tmp_path: Path) -> None:
    start = coming()
    produce(application.bootstrap, application.source, [event("u", start)] * 5)
    admin = Admin({"bootstrap.servers": application.bootstrap, "log_level": 0})
    for future in admin.delete_records([TopicPartition(application.source, 0, 3)]).values():
        future.result()
    result = run(application, tmp_path / "out", "--from", format_rfc3339(start), "--to", "last")
    assert result.exit_code == 0, result.output
    assert f"warning: {application.source}, partition 0: the log begins at offset 3" in result.stderr


def test_a_topic_that_is_not_there_is_exit_1(application: Application, tmp_path: Path) -> None:
    application.document["streams"]["places"]["source"]["topic"] = missing = unique("missing")
    application.write()
    result = CliRunner().invoke(
        main,
        ["replay", str(application.path), "--input", f"topic:{missing}", "--to", "last",
         "--output", str(tmp_path / "out")],
    )  # fmt: skip
    assert result.exit_code == 1
    assert f"topic {missing}: it does not exist" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_broker_that_does_not_answer_is_exit_1(application: Application, tmp_path: Path) -> None:
    application.document["kafka"]["bootstrap"] = "127.0.0.1:1"
    application.write()
    result = run(application, tmp_path / "out", "--to", "last")
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.stderr


def test_the_partition_that_is_furthest_behind_is_read_next(kafka: str, new_topic: NewTopic) -> None:
    topic = new_topic("raw", partitions=2, settings=LOG_APPEND_TIME)
    for partition in (0, 1):
        produce(kafka, topic, [b"value"] * 25_000, partition=partition)
        time.sleep(0.01)
    ends = {partition: end_offset(kafka, topic, partition=partition) for partition in (0, 1)}
    chunks = list(read_topic(Kafka(kafka), topic, {0: 0, 1: 0}, ends))
    # All of partition 0 is older; one chunk of partition 1 is needed to know it.
    assert [chunk.partition for chunk in chunks] == [0, 1, *[0] * 4, *[1] * 4]
    for partition in (0, 1):
        mine = [chunk for chunk in chunks if chunk.partition == partition]
        assert [chunk.start for chunk in mine] == list(range(0, 25_000, 5_000))
        assert [chunk.next_offset for chunk in mine] == list(range(5_000, 25_001, 5_000))
