"""Value streams whose source gets partitions continue under the same name, and lose no value."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition as Position

from eventveil.kafka.admin import Admin
from eventveil.kafka.cluster import Cluster
from eventveil.lifecycle.layout import Layout
from eventveil.replay.inputs import TopicInput
from eventveil.replay.values import replay_values
from eventveil.topology.loading import load
from tests.integration.test_values import PAK, TOPS, Values, values
from tests.kafka.topics import create_topic, grow_topic, produce
from tests.worker.process import WorkerProcess
from tests.worker.silent import Silence
from tests.worker.taking_over import refusals

#: Values by topic and partition.
Fed = dict[tuple[str, int], int]


class Two(Values):
    """``tops`` and ``pak`` over one topic, ``behind`` over another, whose state lies behind."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        super().__init__(bootstrap, folder, tops=TOPS, pak=PAK)

    def create(self) -> None:
        """Create all topics, and the genesis records of the second one too."""
        self.second = f"{self.values_topic}.second"
        behind: dict[str, Any] = json.loads(json.dumps(self.document["streams"]["tops"]))
        behind["source"]["topic"], behind["sink"]["topic"] = self.second, self.readings_topic("behind")
        self.document["streams"]["behind"] = behind
        self.write()
        create_topic(self.bootstrap, self.second, 2)
        super().create()

    def run(self, fed: Mapping[tuple[str, int], int]) -> None:
        """Let a worker read all that was fed."""
        log = self.path.with_suffix(".log")
        with WorkerProcess("tests.worker.silent", self.path, log, "3") as worker:
            for (topic, partition), count in fed.items():
                for stream in ("behind",) if topic == self.second else ("tops", "pak"):
                    self.wait_for_readings(stream, partition, count)
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0

    def check(self, fed: Mapping[tuple[str, int], int]) -> None:
        """Every value has one reading, in order, as a replay has it, and the audit finds nothing."""
        topology = load(str(self.path), {})
        for topic in (self.values_topic, self.second):
            found: dict[tuple[str, int], list[bytes]] = {}
            source = TopicInput(topology.kafka, topic)
            for one in replay_values(topology, source, noise=lambda *_: Silence()):
                if one.stream.source.topic == topic:
                    found.setdefault((one.stream.name, one.partition), []).extend(one.records)
            for (stream, partition), records in found.items():
                assert self.readings(stream, partition) == records, (stream, partition)
                positions = [json.loads(record)["position"] for record in records]
                assert positions == list(range(fed[topic, partition])), (stream, partition)
            streams = 1 if topic == self.second else 2
            assert len(found) == streams * sum(one == topic for one, _ in fed)
        assert "violation" not in (audit := self.audit()), audit


def test_a_source_of_values_gets_partitions_and_every_value_its_one_reading(
    kafka: str, tmp_path: Path
) -> None:
    application = Two(kafka, tmp_path)
    path, first, second = str(application.path), application.values_topic, application.second
    fed: Fed = {}

    def feed(topic: str, partition: int, count: int) -> None:
        produce(kafka, topic, values(count), partition=partition)
        fed[topic, partition] = fed.get((topic, partition), 0) + count

    for place in ((first, 0), (first, 1), (second, 0), (second, 1)):
        feed(*place, 150)
    application.run(fed)

    admin = Admin({"bootstrap.servers": kafka, "log_level": 0})
    grow_topic(kafka, first, 3)
    for place in ((first, 0), (first, 2), (second, 1)):
        feed(*place, 70)
    assert all("`eventveil migrate TOPOLOGY" in message for message in refusals(application.path))
    created = application.failing_command("topics", path, "--create")
    assert "state-changelog" in created
    assert f"`eventveil migrate {path} --apply`" in created
    dry = application.command("migrate", path)
    assert dry.count("would continue with\n  source.partitions 3, was 2\n") == 2
    assert "behind: unchanged" in dry
    assert "nothing was written" in dry
    # As a command does that is killed after its first step.
    topology = load(path, {})
    moved = Layout(topology, Cluster(topology.kafka), reader="values").arrange(lambda: None)
    assert moved == [(second, 0), (second, 1)]
    assert refusals(application.path) != []
    done = application.command("migrate", path, "--apply")
    assert done.count("continues with\n  source.partitions 3, was 2\n") == 2
    assert refusals(application.path) == []
    unchanged = "tops: unchanged\npak: unchanged\nbehind: unchanged\n"
    assert application.command("migrate", path, "--apply") == unchanged
    application.run(fed)
    application.check(fed)

    # Of a fourth one retention takes the first values before anybody reads them. The other topic grows too.
    for topic, partitions in ((first, 4), (second, 3)):
        grow_topic(kafka, topic, partitions)
    feed(second, 2, 30)
    produce(kafka, first, values(9), partition=3)
    gone = Position(first, 3, 9)
    admin.delete_records([gone])[gone].result(30)
    feed(first, 3, 40)
    refused = application.failing_command("migrate", path, "--apply")
    assert "values are gone from its beginning that were never read" in refused
    assert f"`eventveil migrate {path} --lost --apply`" in refused
    told = application.command("migrate", path, "--apply", "--lost")
    assert told.count(f"  values of {first}, partition 3 were lost before they were read") == 2
    assert "behind: continues with\n  source.partitions 3, was 2\n" in told
    application.run(fed)
    application.check(fed)

    # Retention overtakes the stopped worker.
    end = fed[first, 0]
    produce(kafka, first, values(20), partition=0)
    overtaken = Position(first, 0, end + 15)
    admin.delete_records([overtaken])[overtaken].result(30)
    fed[first, 0] += 5
    (found,) = {one for one in refusals(application.path) if "begins after the first record" in one}
    assert "`eventveil migrate TOPOLOGY --lost --apply`" in found
    assert "new name" not in found
    assert f"{first}, partition 0: values are gone" in application.failing_command("migrate", path, "--apply")
    told = application.command("migrate", path, "--apply", "--lost")
    assert f"tops: continues\n  values of {first}, partition 0 were lost before they were read\n" in told
    application.run(fed)
    for stream in ("tops", "pak"):
        readings = [json.loads(one) for one in application.readings(stream, 0)]
        assert [one["position"] for one in readings] == list(range(end + 5))
        assert [one["offset"] for one in readings[end:]] == list(range(end + 15, end + 20))
    assert "violation" not in application.audit()

    # An added partition whose state is gone does not begin again.
    produce(kafka, f"{application.name}-state-changelog", [None], key=b"tops", partition=3)
    assert any("tops, partition 3, was charged up to" in one for one in refusals(application.path))


def test_a_topic_that_left_the_file_keeps_its_places_and_one_that_was_created_again_gets_its_own(
    kafka: str, tmp_path: Path
) -> None:
    application = Two(kafka, tmp_path)
    path, first, second = str(application.path), application.values_topic, application.second
    behind = application.document["streams"].pop("behind")
    application.write()
    grow_topic(kafka, first, 3)
    assert f"it contains the state of {second}, partition 0" in application.failing_command(
        "migrate", path, "--apply"
    )
    application.document["streams"]["behind"] = behind
    application.write()
    assert application.command("migrate", path, "--apply").count("continues with") == 2

    # Its streams get new names, and all places that they need.
    application.delete(first)
    create_topic(kafka, first, 5)
    assert "was deleted and created again" in application.failing_command("migrate", path, "--apply")
    streams = application.document["streams"]
    application.document["streams"] = {
        "other": {**streams["tops"], "sink": {"topic": application.readings_topic("other")}}, "behind": behind
    }  # fmt: skip
    application.write()
    dry = application.command("migrate", path)
    assert "other: it has not begun" in dry
    assert "-state-changelog would get its missing partitions" in dry
    moved = application.command("migrate", path, "--apply")
    assert f"the state of {second}, partition 0, was moved to make room" in moved
    application.command("topics", path, "--create")
    assert refusals(application.path) == []
