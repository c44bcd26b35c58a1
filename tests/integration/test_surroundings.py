"""What surrounds a worker goes wrong: brokers pause and restart, records are hidden, state is rewound."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventveil.kafka.cluster import Cluster
from eventveil.model.topology import Kafka
from tests.kafka.broker import LocalBroker, local_broker
from tests.kafka.jars import missing_tools
from tests.kafka.topics import abandon, create_topic, produce, read, transactional_producer, unique
from tests.worker.application import Application, Traffic
from tests.worker.checks import assert_truth, refusal, worker
from tests.worker.process import ROOT, WorkerProcess
from tests.worker.waiting import wait_for_releases
from tests.worker.watch import Watch

#: Longer than every request timeout of the worker's clients.
PAUSE_SECONDS = 42


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[LocalBroker]:
    """A broker that may be stopped."""
    if missing := missing_tools():
        pytest.skip("; ".join(missing))
    with local_broker(directory=tmp_path / "broker") as broker:
        yield broker


@pytest.fixture
def creating_broker(tmp_path: Path) -> Iterator[LocalBroker]:
    """A broker that creates the topics that it is asked for with leave to do so, as Kafka's default is."""
    if missing := missing_tools():
        pytest.skip("; ".join(missing))
    settings = {"auto.create.topics.enable": "true"}
    with local_broker(directory=tmp_path / "broker", settings=settings) as broker:
        yield broker


def test_no_question_of_a_worker_creates_the_source_that_was_deleted(
    creating_broker: LocalBroker, tmp_path: Path
) -> None:
    application = Application(creating_broker.bootstrap, tmp_path)
    timeline = application.document["streams"]["places"]["timeline"]
    application.document["streams"]["places"]["timeline"] = timeline | {
        "on_missing": "release",
        "grace": "5s",
    }
    application.write()
    application.create()
    with worker(application, tmp_path) as running:
        wait_for_releases(application, 4)
        cluster = Cluster(Kafka(application.bootstrap))
        application.delete(application.source)
        # The driver and the watch over leaders ask for it.
        running.wait_for_log(f"Topic {application.source} not found in cluster metadata")
        running.wait_for_log(f"cannot find out which partitions of {application.source} have no leader")
        assert running.wait() == 1
        assert f"stopped: topic {application.source}: it does not exist" in running.log.read_text()
        # The controller creates one topic after the other.
        create_topic(application.bootstrap, later := unique("later"))
        assert cluster.topics({application.source, later}).keys() == {later}


def test_a_worker_outlives_a_paused_and_a_restarted_broker(own_broker: LocalBroker, tmp_path: Path) -> None:
    application = Application(own_broker.bootstrap, tmp_path)
    application.create()
    with worker(application, tmp_path) as running:
        with Traffic(application, seed=1, per_second=100):
            wait_for_releases(application, 8)
            own_broker.pause()
            time.sleep(PAUSE_SECONDS)
            own_broker.resume()
            wait_for_releases(application, (PAUSE_SECONDS + 3) * 4)
            own_broker.stop()
            own_broker.start()
        wait_for_releases(application, len(application.releases()) + 20)
        assert running.running
        running.signal(signal.SIGTERM)
        assert running.wait() == 0
    assert_truth(application, application.sink)


def test_an_outage_in_the_middle_of_an_hour_is_told_and_so_is_its_end(
    own_broker: LocalBroker, tmp_path: Path
) -> None:
    """Nothing is due, so no owner fails."""
    application = Application(own_broker.bootstrap, tmp_path)
    application.document["streams"]["places"]["timeline"] |= {"interval": "1h", "lateness": "30m"}
    application.write()
    application.create()
    arguments = ("--metrics", "127.0.0.1:0")
    log = tmp_path / "log"
    with WorkerProcess("eventveil", application.path, log, *arguments) as running, Watch(running) as watch:
        watch.wait_until_ready()
        own_broker.kill()
        text = running.wait_for_log("no broker answers, so nothing is counted or released")
        assert "nothing listens there" in text
        deadline = time.monotonic() + 60
        while "without an answered fetch" not in (reasons := " ".join(watch.obstacles())):
            assert time.monotonic() < deadline, reasons
            time.sleep(0.1)
        assert reasons.startswith("no broker answers: ")
        own_broker.start()
        running.wait_for_log("brokers answer again after")
        watch.wait_until_ready()
        assert running.running


def test_state_behind_an_open_transaction_is_waited_for(application: Application, tmp_path: Path) -> None:
    with worker(application, tmp_path, "before"):
        wait_for_releases(application, 4)
    # A stranger's: the worker's own would end with the take-over.
    identity = f"stranger-{application.name}"
    # Longer than a busy machine takes to get so far.
    stranger = transactional_producer(application.bootstrap, identity, transaction_timeout_ms=600_000)
    partition = state_of(application)[0]
    abandon(stranger, f"{application.name}-ledger-changelog", [b"hidden"], partition, b"key")
    before = len(application.releases())
    with worker(application, tmp_path, "after") as running:
        running.wait_for_log("a record just written is not readable yet")
        assert len(application.releases()) == before
        stranger.abort_transaction(30)
        wait_for_releases(application, before + 8)


def state_of(application: Application) -> tuple[int, list[bytes]]:
    """The partition of the stream's budget state, and all its states in order."""
    for partition in range(2):
        messages = read(application.bootstrap, f"{application.name}-ledger-changelog", partition=partition)
        states = [message.value() or b"" for message in messages if message.key() == b"places"]
        if states:
            return partition, states
    raise AssertionError("there is no budget state")


def test_a_budget_state_that_was_rewound_is_refused(application: Application, tmp_path: Path) -> None:
    with worker(application, tmp_path, "before"):
        wait_for_releases(application, 6)
        # What was due at the start may have been released in one transaction: then there is one state only.
        wait_for_releases(application, len(application.releases()) + 4)
    partition, states = state_of(application)
    changelog = f"{application.name}-ledger-changelog"
    old = next(state for state in states if not json.loads(state)["pending"])
    assert old != states[-1]
    produce(application.bootstrap, changelog, [old], key=b"places", partition=partition)
    log = refusal(application, tmp_path)
    assert "according to the ledger" in log
    assert "one of them was rewound or lost" in log
    assert "one of them was rewound or lost" in a_new_sink_is_refused(application)


def a_new_sink_is_refused(application: Application) -> str:
    """Why `migrate` does not continue into another sink, as it would if the state were the newest."""
    sink = create_topic(application.bootstrap, unique("another-sink"))
    application.document["streams"]["places"]["sink"]["topic"] = sink
    application.write()
    said = application.command("migrate", str(application.path))
    assert f"sink.topic {sink}, was {application.sink}" in said
    return application.failing_command("migrate", str(application.path), "--apply")


def test_state_and_ledger_that_were_rewound_together_are_refused(
    application: Application, tmp_path: Path
) -> None:
    with worker(application, tmp_path, "before"):
        wait_for_releases(application, 4)
    ledger, changelog = f"{application.name}-ledger", f"{application.name}-ledger-changelog"
    partition = state_of(application)[0]
    backup = {topic: backed_up(application, topic, partition) for topic in (ledger, changelog)}
    with worker(application, tmp_path, "later"):
        wait_for_releases(application, len(application.releases()) + 4)
    for topic, records in backup.items():
        application.recreate(topic)
        for key, value in records:
            produce(application.bootstrap, topic, [value], key=key, partition=partition)
    assert "it shows a release of places" in refusal(application, tmp_path)
    assert "it shows a release of places" in a_new_sink_is_refused(application)


def backed_up(
    application: Application, topic: str, partition: int
) -> list[tuple[bytes | None, bytes | None]]:
    messages = read(application.bootstrap, topic, partition=partition)
    return [(message.key(), message.value()) for message in messages]


def test_a_rewound_stream_that_shares_its_ledger_is_refused_however_far_back(
    application: Application, tmp_path: Path
) -> None:
    with worker(application, tmp_path, "before"):
        wait_for_releases(application, 4)
    partition = state_of(application)[0]
    ledger, changelog = f"{application.name}-ledger", f"{application.name}-ledger-changelog"
    # Only the state is lost; the genesis stays. Many entries of another stream follow.
    produce(application.bootstrap, changelog, [None], key=b"places", partition=partition)
    entry = json.loads(read(application.bootstrap, ledger, partition=partition)[-1].value() or b"")
    other = json.dumps({**entry, "stream": "other"})
    produce(application.bootstrap, ledger, [other] * 12_000, key=b"other", partition=partition)
    assert "one of them was rewound or lost" in refusal(application, tmp_path)


def test_a_ledger_that_was_emptied_is_refused(application: Application, tmp_path: Path) -> None:
    with worker(application, tmp_path, "before"):
        wait_for_releases(application, 4)
    nothing = min(application.releases()) - 1
    application.recreate(f"{application.name}-ledger")
    assert f"published up to {nothing} according to the ledger" in refusal(application, tmp_path)


def test_a_stranger_in_the_ledger_is_refused(application: Application, tmp_path: Path) -> None:
    with worker(application, tmp_path, "before"):
        wait_for_releases(application, 4)
    partition = state_of(application)[0]
    produce(application.bootstrap, f"{application.name}-ledger", [b"{}"], partition=partition)
    assert "the record is not a ledger entry" in refusal(application, tmp_path)


def test_two_who_create_at_once_make_one_genesis(kafka: str, tmp_path: Path) -> None:
    application = Application(kafka, tmp_path)
    application.create()
    application.document["streams"]["more"] = application.stream(
        application.source, f"{application.name}.more", {"kind": "sample", "epsilon": 1, "window": 5}
    )
    application.write()
    command = [sys.executable, "-c", "from eventveil.cli.main import main; main()", "topics"]
    command += [str(application.path), "--create"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    at_once = [subprocess.Popen(command, cwd=ROOT, env=environment) for _ in range(3)]
    assert 0 in [process.wait(180) for process in at_once]
    application.command("topics", str(application.path), "--create")
    records = [
        json.loads(message.value() or b"")
        for topic, partitions in (("counting", application.partitions), ("ledger", 2))
        for partition in range(partitions)
        for message in read(kafka, f"{application.name}-{topic}-changelog", partition=partition)
        if message.key() == b"genesis/more"
    ]
    assert len(records) == application.partitions + 1
    assert len({record["instance"] for record in records}) == 1
