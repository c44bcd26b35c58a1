"""State is of one Kafka cluster: a copy on another one is refused, by every command, with the way back."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventveil.kafka.admin import Admin
from eventveil.kafka.cluster import Cluster
from eventveil.model.topology import Kafka
from eventveil.topology.loading import load
from tests.kafka.broker import LocalBroker, local_broker
from tests.kafka.jars import missing_tools
from tests.kafka.mirror import mirror
from tests.kafka.topics import produce, read
from tests.worker.application import Application, Traffic
from tests.worker.process import WorkerProcess
from tests.worker.taking_over import refusals
from tests.worker.waiting import wait_for_releases


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[LocalBroker]:
    """A broker of another cluster."""
    if missing := missing_tools():
        pytest.skip("; ".join(missing))
    with local_broker() as broker:
        yield broker


def cluster_id(bootstrap: str) -> str:
    return Cluster(Kafka(bootstrap=bootstrap)).id()


def value_stream(application: Application) -> dict[str, object]:
    """A value stream, over a topic of its own."""
    return {
        "source": {"topic": f"{application.name}.values", "value": "/minutes"},
        "values": {"maximum": 100},
        "mechanism": {"kind": "tops", "epsilon": 1},
        "sink": {"topic": f"{application.name}.readings"},
    }


def test_a_mirror_of_all_topics_on_another_cluster_is_refused_by_worker_and_commands(
    application: Application, elsewhere: LocalBroker, tmp_path: Path
) -> None:
    log, path = tmp_path / "log", application.path
    with WorkerProcess("tests.worker.silent", path, log, "3"), Traffic(application, seed=1):
        wait_for_releases(application, 3)
    there = Admin({"bootstrap.servers": application.bootstrap, "log_level": 0})
    topics = [topic for topic in there.list_topics(timeout=30).topics if topic.startswith(application.name)]
    mirror(application.bootstrap, elsewhere.bootstrap, topics)

    application.document["kafka"]["bootstrap"] = elsewhere.bootstrap
    application.write()
    old, new = cluster_id(application.bootstrap), cluster_id(elsewhere.bootstrap)
    message = (
        f"its state was made on the Kafka cluster {old}, and this is the cluster {new}. "
        "Point kafka.bootstrap to the cluster where the stream has run: that costs nothing. "
    )
    found = refusals(path)
    assert len(found) == application.partitions + 1
    assert all("stream places: " + message in one for one in found), found
    reset = ("reset", str(path), "--stream", "places", "--adds-epsilon", "1")
    for command in (("topics", str(path), "--create"), ("migrate", str(path), "--apply"), reset):
        assert message in application.failing_command(*command)

    # One that an earlier version wrote names no cluster, but the topics that it knew are not here.
    forget_cluster(application, elsewhere.bootstrap)
    copy = f"{application.source} has the topic id that it records: this may be a copy"
    for command in (("topics", str(path), "--create"), ("migrate", str(path), "--apply", "--lost")):
        assert copy in application.failing_command(*command)

    application.document["kafka"]["bootstrap"] = application.bootstrap
    application.write()
    assert refusals(path) == []


def manifest(
    application: Application, bootstrap: str | None = None
) -> dict[tuple[str, int, bytes], dict[str, object]]:
    """The newest genesis records, by changelog, partition and key."""
    topology = load(str(application.path), {})
    names = {
        topology.counting_changelog, topology.ledger_changelog,
        topology.state_changelog, topology.rekeying_changelog,
    }  # fmt: skip
    return {
        (topic.name, partition, message.key() or b""): json.loads(message.value() or b"")
        for topic in Cluster(topology.kafka).topics(names).values()
        for partition in range(topic.partitions)
        for message in read(bootstrap or application.bootstrap, topic.name, partition=partition)
        if (message.key() or b"").startswith(b"genesis/")
    }


def forget_cluster(application: Application, bootstrap: str | None = None) -> None:
    """Make the genesis records such as a version wrote that did not know the cluster."""
    for (topic, partition, key), record in manifest(application, bootstrap).items():
        del record["cluster"]
        record.pop("ledger_id", None)
        value, where = json.dumps(record), bootstrap or application.bootstrap
        produce(where, topic, [value], key=key, partition=partition)


def test_what_run_would_refuse_of_the_state_is_told_by_topics(kafka: str, tmp_path: Path) -> None:
    application = Application(kafka, tmp_path)
    source = application.document["streams"]["places"]["source"]
    source["repartition"] = True
    application.document["streams"]["minutes"] = value_stream(application)
    application.write()
    path, say = str(application.path), "run would refuse: "
    application.create()
    assert say not in application.command("topics", path)
    before = source["user"]
    source["user"] = "/another"
    application.write()
    told = application.failing_command("topics", path)
    # The stream, and the re-keying of its source.
    assert told.count(say) == told.count(f"source.user was '{before}' and is '/another' now") == 2
    for line in told.split(say)[1:]:
        # A command knows the path of the file.
        assert line.splitlines()[0].replace(path, "TOPOLOGY") in refusals(application.path)
    # Creating would not be enough: events go to other users' partitions already.
    assert f"source.user was '{before}' and is '/another'" in application.failing_command(
        "topics", path, "--create"
    )
    source["user"] = before
    application.write()
    application.recreate(f"{application.name}-ledger-changelog")
    told = application.failing_command("topics", path)
    assert told.count(say) == 1
    new = f"If the stream is new, run `eventveil topics {path} --create`"
    assert f"there is no genesis record of stream places. {new}" in told
    application.create()
    assert say not in application.command("topics", path)


def test_genesis_records_of_before_are_accepted_told_and_completed(kafka: str, tmp_path: Path) -> None:
    application = Application(kafka, tmp_path)
    application.document["streams"]["places"]["source"]["repartition"] = True
    application.document["streams"]["minutes"] = value_stream(application)
    application.write()
    application.create()
    before = manifest(application)
    assert {record["cluster"] for record in before.values()} == {cluster_id(kafka)}
    # Counting, budget, values and re-keying.
    assert len(before) == application.partitions * 3 + 1
    forget_cluster(application)
    assert manifest(application) != before

    create = ("topics", str(application.path), "--create")
    with WorkerProcess("tests.worker.silent", application.path, tmp_path / "log", "3") as worker:
        worker.wait_for_log("sanitize")
        worker.wait_for_log("the genesis of places has no cluster id")
        wait_for_releases(application, 3)
        output = application.command(*create)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    assert "has no cluster id because an earlier version wrote it, and a worker is runn" in output
    assert manifest(application) != before

    wait_until_nobody_is_in_the_group(application)
    application._wait_for_decisions()
    assert "places: cluster id added\n" in application.command(*create)
    assert manifest(application) == before
    assert "now" not in application.command(*create)
    assert refusals(application.path) == []


def wait_until_nobody_is_in_the_group(application: Application) -> None:
    cluster = Cluster(load(str(application.path), {}).kafka)
    while cluster.group_members(application.name):
        time.sleep(0.2)


def test_a_ledger_that_is_written_back_from_a_copy_is_as_good_as_the_old_one(
    application: Application, tmp_path: Path
) -> None:
    with WorkerProcess("tests.worker.silent", application.path, tmp_path / "log", "3"):
        wait_for_releases(application, 3)
    assert refusals(application.path) == []
    ledger = f"{application.name}-ledger"
    copies = [[one.value() for one in read(application.bootstrap, ledger, partition=each)] for each in (0, 1)]
    application.recreate(ledger)
    (message,) = refusals(application.path)
    assert "according to the ledger" in message
    assert "one of them was rewound or lost" in message
    for partition, values in enumerate(copies):
        produce(application.bootstrap, ledger, values[:-1], key="places", partition=partition)
    (message,) = refusals(application.path)
    assert "one of them was rewound or lost" in message
    for partition, values in enumerate(copies):
        produce(application.bootstrap, ledger, values[-1:], key="places", partition=partition)
    assert refusals(application.path) == []
    assert "violation" not in application.command("ledger", str(application.path))
