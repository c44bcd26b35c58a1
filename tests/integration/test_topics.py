"""``eventveil topics`` on real Kafka."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from eventveil.cli.run import check_surroundings
from eventveil.kafka.changelog import FencedTable
from eventveil.kafka.cluster import Cluster
from eventveil.lifecycle.create import create_topics, inspect_topics, write_manifest
from eventveil.model.errors import EventveilError
from eventveil.model.topology import Kafka
from eventveil.topology.loading import load
from tests.kafka.topics import create_topic, produce, read, unique
from tests.unit.read.making import record
from tests.worker.application import Application


@pytest.fixture
def application(kafka: str, tmp_path: Path) -> Application:
    return Application(kafka, tmp_path)


def manifest(application: Application) -> list[dict[str, object]]:
    """Every genesis record, the one of the ledger changelog last."""
    name = application.name
    changelogs = [(f"{name}-counting-changelog", application.partitions), (f"{name}-ledger-changelog", 2)]
    return [
        json.loads(message.value() or b"")
        for changelog, partitions in changelogs
        for partition in range(partitions)
        for message in read(application.bootstrap, changelog, partition=partition)
    ]


def test_a_source_that_came_back_smaller_is_wrong_and_not_the_changelog_that_has_records(
    application: Application,
) -> None:
    """As where a producer asks for a topic that was deleted, and brokers create it with their defaults."""
    application.create()
    application.delete(application.source)
    create_topic(application.bootstrap, application.source, 1)
    output = application.failing_command("topics", str(application.path))
    changelog = f"{application.name}-counting-changelog"
    (told,) = [line for line in output.splitlines() if line.startswith(f"topic {changelog} ")]
    assert "it has 3 partitions, it should have 1. The sources have fewer partitions than when" in told
    assert told.endswith(f"Do not delete {changelog}: it may hold records that cannot be recreated")
    application.recreate(changelog)
    output = application.failing_command("topics", str(application.path))
    assert "is empty: if it was created with a wrong number, delete and recreate it" in output


def test_without_sources_nothing_is_created_and_the_source_is_named(application: Application) -> None:
    output = application.failing_command("topics", str(application.path), "--create")
    # Another test may have a topic with a similar name.
    (told,) = [line for line in output.splitlines() if " does not exist: create it, or let" in line]
    assert told.startswith(f"topic {application.source} (source")
    assert f"nothing was created: a source is missing ({application.source})" in output
    assert output.count("created") == 1
    assert output.count("does not exist") == 1


def test_a_source_with_the_name_of_another_topic_but_for_a_letter_is_told(application: Application) -> None:
    meant = unique("clicks")
    create_topic(application.bootstrap, meant)
    misspelt = meant.replace("clicks", "clikcs")
    application.document["streams"]["places"]["source"]["topic"] = misspelt
    application.write()
    output = application.failing_command("topics", str(application.path))
    assert f"topic {misspelt} (source; {meant} has a similar name) does not exist: create it," in output
    output = application.command("topics", str(application.path), "--create", "--sources")
    assert f"hint: topic {meant} has a similar name; is that the source you meant?" in output


def test_a_sink_of_another_stream_is_refused(application: Application) -> None:
    create_topic(application.bootstrap, application.sink)
    produce(application.bootstrap, application.sink, [record(1, stream="shops")], key=b"shops")
    output = application.failing_command("topics", str(application.path), "--create", "--sources")
    assert "it has releases of stream shops; a sink must have those of one stream only" in output
    assert "Give stream places a sink of its own" in output
    # Nothing is left behind that nobody needs.
    own = {name for name in Cluster(Kafka(application.bootstrap)).names() if application.name in name}
    assert own <= {application.sink}


def test_a_file_of_another_name_creates_nothing_where_its_sink_has_releases(application: Application) -> None:
    application.create()
    produce(application.bootstrap, application.sink, [record(1, stream="places")], key=b"places")
    former = Cluster(Kafka(application.bootstrap)).names()
    application.document["name"] = renamed = f"{application.name}-renamed"
    application.write()
    output = application.failing_command("topics", str(application.path), "--create")
    assert "stream places has published before" in output
    assert f"{renamed} has neither a ledger nor state of it" in output
    assert Cluster(Kafka(application.bootstrap)).names() <= former


def test_of_two_commands_that_begin_streams_at_once_one_is_told_to_try_again(
    application: Application,
) -> None:
    loaded = load(application.path, {})
    cluster = Cluster(loaded.kafka)
    create_topics(loaded, cluster, inspect_topics(loaded, cluster).missing)

    def clock() -> int:
        # The other one comes while this one has not written yet.
        FencedTable(loaded.kafka, f"{loaded.name}-genesis", "", 0).fence()
        return time.time_ns() // 1_000_000

    with pytest.raises(
        EventveilError, match=r"another command is creating the streams of .* Run this command again"
    ):
        write_manifest(loaded, cluster, clock)


def test_more_copies_than_brokers_is_told_with_the_setting(application: Application) -> None:
    application.document["topics"]["replication"] = 99
    application.write()
    output = application.failing_command("topics", str(application.path), "--create", "--sources")
    assert output.startswith(
        "eventveil topics: topics.replication is 99, and 1 broker can be reached, too few to create "
    )
    assert application.source in output
    assert "If a broker is down, start it and run this again, which keeps what there is" in output
    # As if some had been created before, and the broker is back.
    create_topic(application.bootstrap, application.sink)
    application.document["topics"]["replication"] = 1
    application.write()
    output = application.command("topics", str(application.path), "--create", "--sources")
    assert f"created {application.source} " in output
    assert f"created {application.sink} " not in output
    assert "places: genesis written" in output


def test_a_topic_that_another_created_meanwhile_is_created(application: Application) -> None:
    create_topic(application.bootstrap, application.sink)
    cluster = Cluster(Kafka(application.bootstrap))
    cluster.create([NewTopic(name, 1, 1) for name in (application.sink, application.source)])
    assert {application.sink, application.source} <= cluster.names()


def test_a_stream_may_look_back_to_before_1970(application: Application) -> None:
    application.max_ahead = 100 * 365 * 86_400_000
    timeline = application.document["streams"]["places"]["timeline"]
    timeline["max_ahead"] = f"{application.max_ahead}ms"
    application.write()
    application.create()
    counting = [record for record in manifest(application) if record["topic"] == application.source]
    assert {record["resume"] for record in counting} == {0}


def test_every_changelog_partition_gets_one_genesis_record_of_the_same_instance(
    application: Application,
) -> None:
    application.create()
    records = manifest(application)
    assert len(records) == application.partitions + 1
    assert len({record["instance"] for record in records}) == 1
    assert len({record["first"] for record in records}) == 1


def test_creating_again_changes_nothing(application: Application) -> None:
    application.create()
    before = manifest(application)
    output = application.command("topics", str(application.path), "--create")
    assert "created" not in output
    assert manifest(application) == before


def test_a_new_stream_gets_its_own_genesis_and_moves_no_other(application: Application) -> None:
    application.create()
    before = manifest(application)
    mechanism = {"kind": "sample", "epsilon": 1, "window": 5}
    application.document["streams"]["more"] = application.stream(
        application.source, f"{application.name}.more", mechanism
    )
    application.write()
    application.create()
    after = manifest(application)
    assert [record for record in after if record["stream"] == "places"] == before
    assert len([record for record in after if record["stream"] == "more"]) == application.partitions + 1


def test_an_interrupted_creation_is_completed_with_the_same_instance(application: Application) -> None:
    application.create()
    before = manifest(application)
    application.recreate(f"{application.name}-ledger-changelog")
    application.create()
    assert {record["instance"] for record in manifest(application)} == {before[0]["instance"]}


@pytest.mark.parametrize(
    ("topic", "setting", "value", "remedy"),
    [
        ("{}.raw", "message.timestamp.type", "CreateTime", "message.timestamp.type=LogAppendTime"),
        ("{}.raw", "cleanup.policy", "compact", "cleanup.policy=delete"),
        ("{}-counting-changelog", "cleanup.policy", "delete", "cleanup.policy=compact"),
        ("{}-ledger", "retention.ms", "604800000", "retention.ms=-1"),
        ("{}-partials", "retention.ms", "1000", "retention.ms=604800000"),
        (
            "{}-ledger-changelog",
            "unclean.leader.election.enable",
            "true",
            "unclean.leader.election.enable=false",
        ),
        ("{}-ledger-changelog", "max.message.bytes", "1000000", "max.message.bytes=16777216"),
    ],
)
def test_a_wrong_setting_is_named_with_its_remedy(
    application: Application, topic: str, setting: str, value: str, remedy: str
) -> None:
    application.create()
    name = topic.format(application.name)
    application.alter(name, {setting: value})
    output = application.failing_command("topics", str(application.path))
    assert f"topic {name} " in output
    assert f"{setting} is {value}" in output
    assert f"kafka-configs.sh --bootstrap-server ... --alter --topic {name} --add-config {remedy}" in output


def test_a_past_start_that_retention_has_eaten_into_is_refused(application: Application) -> None:
    application.document["streams"]["places"]["timeline"]["start"] = "2026-01-02T00:00:00Z"
    application.write()
    create_topic(
        application.bootstrap,
        application.source,
        application.partitions,
        {"message.timestamp.type": "LogAppendTime", "segment.bytes": "1048576"},
    )
    produce(application.bootstrap, application.source, ["x"] * 10)
    application.delete_records(application.source, 5)
    output = application.failing_command("topics", str(application.path), "--create")
    assert "retention has removed records that the first timestamps of places may need" in output
    assert "Choose a later timeline.start" in output


def test_the_commands_for_those_who_create_topics_themselves_need_no_broker(application: Application) -> None:
    application.document["kafka"]["bootstrap"] = "127.0.0.1:1"
    application.write()
    output = application.command("topics", str(application.path), "--print")
    assert output.count("kafka-topics.sh") == 7
    assert "--config message.timestamp.type=LogAppendTime" in output


def test_topics_with_fewer_replicas_than_the_file_says_are_refused(application: Application) -> None:
    """Brokers take a min.insync.replicas that a topic has not enough replicas for, and lower it silently."""
    application.create()
    application.document["topics"] |= {"replication": 3, "min_insync": 1}
    application.write()
    output = application.failing_command("topics", str(application.path))
    names = [f"{application.name}-counting-changelog", f"{application.name}-ledger", application.sink]
    (told,) = [line for line in output.splitlines() if "topics.replication is 3" in line]
    assert all(f"{name} (" in told for name in names)
    assert f"{application.source} (" not in told
    assert f"{application.dead} (" not in told
    refused = check_surroundings(load(str(application.path), {}))
    assert refused is not None
    assert "have 1 replica, and topics.replication is 3" in str(refused)
    application.document["topics"]["replication"] = 1
    application.write()
    assert check_surroundings(load(str(application.path), {})) is None


def test_a_limit_on_bytes_is_a_mistake_of_our_topics_and_a_hint_about_sources(
    application: Application,
) -> None:
    """A broker may have one as its default (log.retention.bytes)."""
    application.create()
    partials = f"{application.name}-partials"
    application.alter(application.source, {"retention.bytes": "1000000"})
    output = application.command("topics", str(application.path))
    assert f"hint: topic {application.source} (source): retention.bytes is 1000000, so records may" in output
    assert check_surroundings(load(str(application.path), {})) is None
    application.alter(partials, {"retention.bytes": "1000000"})
    output = application.failing_command("topics", str(application.path))
    assert f"topic {partials} (partials): retention.bytes is 1000000, it should be at least -1" in output
    assert f"--alter --topic {partials} --add-config retention.bytes=-1" in output
