"""To change one's mind: what is advised, what a name left behind, and that no spend is forgotten with it."""

from __future__ import annotations

import time
from copy import deepcopy
from pathlib import Path
from typing import Any

import orjson
from click.testing import CliRunner
from confluent_kafka import Consumer

from eventveil.cli.main import main
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.log import read_table
from eventveil.lifecycle.manifest import ManifestRecord
from eventveil.model.topology import Kafka
from eventveil.tasks.pan_private import release_key
from eventveil.topology.changes import ELSEWHERE, PLACES, RENAME
from tests.integration.test_fail_closed import refusals
from tests.integration.test_pan_private import PanPrivate
from tests.integration.test_values import TOPS, Values
from tests.kafka.topics import create_topic, transactional_producer, unique
from tests.unit.read.making import record
from tests.worker.application import COLUMNS, ORIGIN, Application

CHANGES: dict[str, tuple[str, dict[str, Any], str]] = {
    "user": ("source", {"user": "/session"}, RENAME),
    "columns": ("counts", {"columns": [*COLUMNS, "up"]}, RENAME),
    "repartition": ("source", {"repartition": True}, PLACES),
}


def call(command: str, path: str, *arguments: str) -> tuple[int, str]:
    """Status and output, in which what is advised has the path, unlike what a worker says here."""
    found = CliRunner().invoke(main, [command, path, *arguments], catch_exceptions=False)
    return found.exit_code, found.output.replace(path, "TOPOLOGY")


def names(application: Application) -> set[str]:
    """The topics that begin with its name."""
    admin = application._admin
    return {name for name in admin.list_topics(timeout=30).topics if name.startswith(application.name)}


def released(timestamp: int, **fields: Any) -> bytes:
    return record(timestamp, stream="places", interval=250, origin=ORIGIN, **fields)


def charged(application: Application, timestamp: int, window: int, kind: str = "uniform") -> None:
    """Let the ledger say that a release was charged."""
    entry = orjson.loads(released(timestamp, window=window, mechanism=kind))
    entry |= {"digest": "0" * 64, "instance": "0" * 32}
    for name in ("counts", "start", "end", "error", "noise_scale"):
        del entry[name]
    write(application, f"{application.name}-ledger", orjson.dumps(entry))


def write(
    application: Application, topic: str, value: bytes, partition: int = 0, key: str | bytes = "places"
) -> None:
    writer = transactional_producer(application.bootstrap, unique("writer"))
    writer.begin_transaction()
    writer.produce(topic, value, key, partition)
    writer.commit_transaction(30)


def now() -> int:
    return (time.time_ns() // 1_000_000 - ORIGIN) // 250


def test_what_is_advised_is_the_same_everywhere_and_works(application: Application) -> None:
    path, before = str(application.path), names(application)
    document = deepcopy(application.document)
    for section, settings, advice in CHANGES.values():
        application.document = deepcopy(document)
        application.document["streams"]["places"][section].update(settings)
        application.write()
        assert call("check", path)[0] == 0
        told = [call("migrate", path)] if advice == RENAME else [call("topics", path, "--create")]
        assert [(status, advice in text) for status, text in told] == [(1, True)]
        # A worker says the same, if it finds the topics that it needs.
        assert all(advice in one for one in refusals(application.path)) or advice == PLACES
    assert names(application) == before
    # The last change, events that are re-keyed, continues in the way that was advised, and costs nothing.
    assert all("at no cost" in advice for advice in (PLACES, RENAME, ELSEWHERE))
    status, told_now = call("topics", path, "--delete")
    assert status == 0
    assert "no count was released" in told_now
    assert names(application) == before
    assert call("topics", path, "--delete", "--name", "another")[0] == 2
    assert call("topics", path, "--delete", "--name", application.name)[0] == 0
    assert names(application) == {application.source, application.sink, application.dead}
    status, told_now = call("topics", path, "--create")
    assert status == 0
    assert "places: genesis written; it begins with" in told_now
    assert refusals(application.path) == []


def test_another_user_of_re_keyed_events_needs_another_file_and_finds_it_there(
    kafka: str, tmp_path: Path
) -> None:
    """The events are sent to their users' partitions once for all streams over the topic."""
    application = Application(kafka, tmp_path)
    source = application.document["streams"]["places"]["source"]
    source["repartition"] = True
    application.write()
    application.create()
    path = str(application.path)
    source["user"] = "/session"
    application.write()
    for one in (call("migrate", path)[1], *refusals(application.path)):
        assert "source.user was" in one
        assert ELSEWHERE in one, one
    # A new name in this file finds the same stage.
    document = deepcopy(application.document)
    application.document["streams"] = {
        "anew": {**document["streams"]["places"], "sink": {"topic": unique("s")}}
    }
    application.write()
    status, told = call("topics", path, "--create")
    assert (status, ELSEWHERE in told) == (1, True), told
    # What is advised.
    application.document |= {"name": unique("other")}
    application.write()
    status, told = call("topics", path, "--create")
    assert status == 0, told
    assert refusals(application.path) == []


def test_nothing_is_deleted_under_a_worker(application: Application) -> None:
    path, before = str(application.path), names(application)
    member = Consumer({"bootstrap.servers": application.bootstrap, "group.id": application.name})
    try:
        member.subscribe([application.source])
        give_up = time.monotonic() + 180
        while not member.assignment():
            assert time.monotonic() < give_up
            member.poll(0.1)
        status, told = call("topics", path, "--delete", "--name", application.name)
    finally:
        member.close()
    assert status == 1
    assert "so a worker seems to be running. Stop the workers. A worker that was killed" in told
    assert names(application) == before


def test_what_was_spent_is_not_forgotten_while_a_window_holds_it(application: Application) -> None:
    path, before = str(application.path), names(application)
    # A topic of another application, whose name begins alike.
    create_topic(application.bootstrap, f"{application.name}-eu-ledger")
    charged(application, now() - 100, 10)
    # Of an hour: wider than what the file says now.
    charged(application, now() - 200, 14_400)
    status, told = call("topics", path, "--delete", "--name", application.name)
    assert status == 1
    assert "the record of its spends is lost" in told
    assert "Wait until then" in told
    assert "deletes" not in told
    assert before <= names(application)


def test_when_all_windows_are_over_a_name_can_begin_again_in_another_sink(application: Application) -> None:
    path = str(application.path)
    charged(application, now() - 5_000, 10)
    write(application, application.sink, released(now() - 5_000))
    status, told = call("topics", path, "--delete", "--name", application.name)
    assert status == 0
    assert "stream places was released up to timestamp" in told
    assert "set timeline.start to" in told
    assert names(application) == {application.source, application.sink, application.dead}
    status, told = call("topics", path, "--create")
    assert status == 1
    assert "stream places has published before" in told
    application.document["streams"]["places"]["sink"]["topic"] = f"{application.sink}.2"
    application.write()
    assert call("topics", path, "--create")[0] == 0


def decided(application: Application) -> None:
    """Let the state say that the first timestamp is decided."""
    kafka, topic = Kafka(application.bootstrap), f"{application.name}-ledger-changelog"
    for number in range(Cluster(kafka).topic(topic).partitions):
        table = read_table(kafka, topic, number)
        if ManifestRecord.key("places") in table:
            manifest = ManifestRecord.find(table, "places", topic)
            state = manifest.release_state(table, topic).replace(next=manifest.first + 1, mechanism="{}")
            write(application, topic, state.encode(), number)


def test_what_the_state_has_decided_is_not_forgotten_with_the_ledger(application: Application) -> None:
    """A ledger that was lost, or is shown without its end, makes no spend undone."""
    path, before = str(application.path), names(application)
    decided(application)
    status, told = call("topics", path, "--delete", "--name", application.name)
    assert status == 1
    assert "which the current ledger does not have" in told
    assert "costs nothing" not in told
    # An older entry is there, whose window is over, and one that holds the decided timestamp is open.
    charged(application, now() - 5_000, 4_000)
    status, told = call("topics", path, "--delete", "--name", application.name)
    assert status == 1
    assert "the record of its spends is lost" in told
    assert names(application) == before


def test_the_windows_of_the_file_hold_what_was_released_too(application: Application) -> None:
    path, before = str(application.path), names(application)
    charged(application, now() - 5_000, 10)
    assert call("topics", path, "--delete")[0] == 0
    application.document["streams"]["places"]["mechanism"]["window"] = 14_400
    application.write()
    status, told = call("topics", path, "--delete", "--name", application.name)
    assert status == 1
    assert "the record of its spends is lost" in told
    assert names(application) == before


def test_a_promise_without_windows_is_never_forgotten(application: Application) -> None:
    charged(application, now() - 5_000, 10, "shp-point")
    status, told = call("topics", str(application.path), "--delete", "--name", application.name)
    assert status == 1
    assert "shp-point promises its epsilon for all that a person does" in told


def test_released_timestamps_are_not_released_again_from_a_start_in_the_past(
    application: Application,
) -> None:
    charged(application, now() - 5_000, 10)
    application.document["streams"]["places"]["timeline"]["start"] = "2026-01-02T00:00:00Z"
    application.write()
    status, told = call("topics", str(application.path), "--delete", "--name", application.name)
    assert status == 1
    assert "timeline.start is 2026-01-02T00:00:00Z, before what it has released" in told


def test_streams_of_values_and_pan_private_ones_leave_nothing_behind_either(
    kafka: str, tmp_path: Path
) -> None:
    for made in (Values(kafka, tmp_path, tops=TOPS), PanPrivate(kafka, tmp_path, "single")):
        path, before = str(made.path), names(made)
        status, told = call("topics", path, "--delete")
        assert (status, names(made)) == (0, before)
        assert "nothing was deleted" in told
        internal = {name for name in before if name.startswith(f"{made.name}-")}
        assert all(f"would delete {name}: " in told for name in internal)
        assert ("values that have no reading yet are lost" in told) == isinstance(made, Values)
        assert ("no count was released" in told) == isinstance(made, PanPrivate)
        assert call("topics", path, "--delete", "--name", made.name)[0] == 0
        assert names(made) == before - internal
        status, told = call("topics", path, "--create")
        assert status == 0
        assert "it begins with" in told
        assert names(made) == before
        assert refusals(made.path) == []


def test_what_a_pan_private_stream_has_decided_is_not_forgotten(kafka: str, tmp_path: Path) -> None:
    """Its state lies beside its counts."""
    made = PanPrivate(kafka, tmp_path, "single")
    place, topic = Kafka(kafka), f"{made.name}-counting-changelog"
    table = read_table(place, topic, 0)
    manifest = ManifestRecord.find(table, "places", topic)
    key = release_key("places")
    state = manifest.release_state(table, topic, key).replace(next=manifest.first + 1, mechanism="{}")
    write(made, topic, state.encode(), key=key)
    before = names(made)
    status, told = call("topics", str(made.path), "--delete", "--name", made.name)
    assert status == 1
    assert f"its state has decided timestamp {manifest.first}" in told
    assert names(made) == before
