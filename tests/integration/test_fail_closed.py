"""Whatever leaves a doubt stops the worker, with a message that names field, old, new and remedy (I6).

One application is run for a while; then its file, its state or its topics are damaged in every way that the
tables name, and each time the same take-overs are tried that a worker begins with. That a refusal stops a
whole worker with status 1 and releases nothing is shown for some of them in ``test_worker``.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eventveil.cli.main import main
from eventveil.kafka.cluster import Cluster
from eventveil.model.topology import Kafka
from eventveil.topology.changes import MIGRATE, REFUSED, SOUND, anew
from tests.kafka.topics import create_topic, end_offset, grow_topic, produce, read
from tests.worker.application import COLUMNS, Application, Traffic
from tests.worker.process import WorkerProcess
from tests.worker.taking_over import refusals
from tests.worker.waiting import wait_for_releases

MECHANISM = {"kind": "budget-absorption", "epsilon": 1, "window": 10}


def run_for_a_while(application: Application, log: Path) -> None:
    application.create()
    with WorkerProcess("tests.worker.silent", application.path, log, "3"), Traffic(application, seed=1):
        wait_for_releases(application, 3)


@pytest.fixture(scope="module")
def healthy(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Application:
    """An application that has released something; a test that changes its file puts it back."""
    folder = tmp_path_factory.mktemp("healthy")
    application = Application(kafka, folder, mechanism=MECHANISM)
    run_for_a_while(application, folder / "log")
    return application


@pytest.fixture
def edited(healthy: Application) -> Iterator[Application]:
    """The same, its file to be put back."""
    before = copy.deepcopy(healthy.document)
    yield healthy
    healthy.document = before
    healthy.write()


def test_nothing_stops_the_worker_of_an_unchanged_application(healthy: Application) -> None:
    assert refusals(healthy.path) == []


#: Field, section and settings of the file, old and new as the message has them.
FIELDS: list[tuple[str, str, dict[str, Any], str, str]] = [
    ("source.user", "source", {"user": "/who"}, "'/user'", "'/who'"),
    ("source.user_type", "source", {"user_type": "integer"}, "'string'", "'integer'"),
    ("source.column", "source", {"column": "/where"}, "'/place'", "'/where'"),
    ("source.time", "source", {"time": "/when"}, "'/time'", "'/when'"),
    ("source.time_unit", "source", {"time_unit": "s"}, "not set", "'s'"),
    ("source.time_zone", "source", {"time_zone": "Europe/Berlin"}, "not set", "'Europe/Berlin'"),
    ("source.filter", "source", {"filter": {"/kind": "seen"}}, "not set", "\"/kind is 'seen'\""),
    ("source.maps", "source", {"maps": {"/place": {"values": {"middle": COLUMNS[0]}}}}, "not set", "'[{"),
    ("source.append_time", "source", {"append_time": "boundary"}, "not set", "'boundary'"),
    ("source.partitioner", "source", {"partitioner": "crc32"}, "'murmur2'", "'crc32'"),
    ("source.max_bytes", "source", {"max_bytes": 1000}, "2000", "1000"),
    ("timeline.interval", "timeline", {"interval": "251ms"}, "250ms", "251ms"),
    (
        "timeline.origin",
        "timeline",
        {"origin": "2026-01-01T00:00:01Z"},
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:01Z",
    ),
    ("timeline.lateness", "timeline", {"lateness": "151ms"}, "150ms", "151ms"),
    ("timeline.max_ahead", "timeline", {"max_ahead": "2s"}, "1s", "2s"),
    ("counts.columns", "counts", {"columns": [*COLUMNS, "centre"]}, "4", "5"),
    ("counts.columns.digest", "counts", {"columns": COLUMNS[::-1]}, "'", "'"),
    ("counts.columns.type", "counts", {"columns": {"range": [0, 3]}}, "'string'", "'integer'"),
    ("counts.contributions", "counts", {"contributions": 2}, "1", "2"),
    ("counts.unknown", "counts", {"unknown": "ignore"}, "'dead-letter'", "'ignore'"),
    ("mechanism.kind", "mechanism", {"kind": "budget-distribution"}, "'budget-absorption'", "'budget-dist"),
    ("mechanism.epsilon", "mechanism", {"epsilon": 2}, "1", "2"),
    ("mechanism.window", "mechanism", {"window": 20}, "10", "20"),
    ("mechanism.factor", "mechanism", {"factor": 2}, "1", "2"),
    ("mechanism.shift", "mechanism", {"shift": True}, "not set", "'true'"),
    ("mechanism.groups", "mechanism", {"groups": 2}, "not set", "2"),
    ("mechanism.adjacency", "mechanism", {"adjacency": "substitute"}, "'add-remove'", "'substitute'"),
]
#: Fields that no other setting of the file can have, or that move state to other topics: tried below.
ELSEWHERE = {
    "source.format", "fingerprint.version", "source.topic", "source.partitions", "topics.partials",
    "sink.topic", "sink.topic_id", "source.repartition", "plugin.class", "plugin.source",
    "plugin.distribution", "plugin.level", "mechanism.regroup", "mechanism.max_samples", "mechanism.drift",
    "mechanism.periods", "mechanism.noise", "mechanism.delta", "mechanism.rollups", "source.counts",
    "source.count", "source.watermark", "sink.format", "counts.columns.delta", "counts.columns.share",
    "counts.columns.most", "counts.columns.longest", "counts.per_column",
}  # fmt: skip


def test_every_field_is_tried() -> None:
    assert {field for field, *_ in FIELDS} | ELSEWHERE == {*SOUND, *REFUSED}


@pytest.mark.parametrize(
    ("field", "section", "settings", "old", "new"), FIELDS, ids=[one[0] for one in FIELDS]
)
def test_a_changed_field_is_named_with_old_new_and_remedy(
    edited: Application, field: str, section: str, settings: dict[str, Any], old: str, new: str
) -> None:
    edited.document["streams"]["places"][section].update(settings)
    edited.write()
    found = refusals(edited.path)
    assert len(found) == edited.partitions + 1, found
    remedy = MIGRATE if field in SOUND else anew([field])
    for message in found:
        # Two fields say that the columns differ; the first in the alphabet is named.
        if field in ("counts.columns.digest", "counts.columns.type"):
            assert "stream places: the names of the columns or their order differ (counts.columns" in message
        elif field == "counts.columns":
            assert "stream places: counts.columns had 4 names and has 5 now" in message
        else:
            assert f"stream places: {field} was {old}" in message
            assert f" and is {new}" in message
        assert remedy in message


def test_another_sink_is_named(edited: Application) -> None:
    edited.document["streams"]["places"]["sink"]["topic"] = other = f"{edited.sink}.2"
    edited.write()
    create_topic(edited.bootstrap, other)
    (message,) = refusals(edited.path)
    assert f"sink.topic was '{edited.sink}' and is '{other}' now. {MIGRATE}" in message


def test_another_format_of_the_sink_is_named_before_any_registry_is_asked(edited: Application) -> None:
    edited.document["registry"] = {"url": "http://127.0.0.1:1"}
    edited.document["streams"]["places"]["sink"]["format"] = "avro"
    edited.write()
    (message,) = refusals(edited.path)
    assert f"sink.format was not set and is 'avro' now. {MIGRATE}" in message
    told = CliRunner().invoke(main, ["migrate", str(edited.path)])
    assert told.exit_code == 1
    assert "expect one format. Give the stream another sink.topic for the new format" in told.output


def test_another_source_is_refused(edited: Application) -> None:
    edited.document["streams"]["places"]["source"]["topic"] = other = f"{edited.source}.2"
    edited.write()
    create_topic(edited.bootstrap, other, edited.partitions, {"message.timestamp.type": "LogAppendTime"})
    found = refusals(edited.path)
    told = f"source.topic was '{edited.source}' and is '{other}' now. {anew(['source.topic'])}"
    assert any(told in one for one in found)
    for message in found:
        assert (
            "source.topic was" in message or f"it contains the state of {edited.source}, partition" in message
        )


def test_a_source_whose_name_is_wrong_is_not_created(edited: Application) -> None:
    """As many partitions as new sources get may be others than those of the source that was counted."""
    wrong = f"{edited.source}.wrong"
    edited.document["streams"]["places"]["source"]["topic"] = wrong
    edited.document["topics"]["partitions"] = edited.partitions + 2
    edited.write()
    output = edited.failing_command("topics", str(edited.path), "--create", "--sources")
    assert f"it contains the state of {edited.source}, partition 0 (stream places), not of {wrong}" in output
    assert "created" not in output
    assert wrong not in Cluster(Kafka(edited.bootstrap)).topics({wrong})


def test_another_number_of_partials_is_refused(edited: Application) -> None:
    edited.document["topics"]["partials"] = 3
    edited.write()
    (message,) = refusals(edited.path)
    assert f"topic {edited.name}-partials (partials): it has 2 partitions, it should have 3" in message
    assert "Restore topics.partials, or the other setting that the number follows" in message


def test_a_second_application_of_this_name_is_refused(edited: Application) -> None:
    """No topic is created for it, and no genesis is written into changelogs that are of other topics."""
    source, sink = f"{edited.name}.others.raw", f"{edited.name}.others"
    edited.document["streams"] = {"others": edited.stream(source, sink, MECHANISM)}
    edited.write()
    told = f"it contains the state of {edited.source}, partition 0 (stream places), not of {source}"
    output = edited.failing_command("topics", str(edited.path), "--create", "--sources")
    assert told in output
    assert "If another application has this name, give it one of its own" in output
    (refused,) = refusals(edited.path)
    assert f"topic {source} (source" in refused
    assert " does not exist" in refused
    # Where its topics are there already, it ends in the same way.
    create_topic(edited.bootstrap, source, edited.partitions, {"message.timestamp.type": "LogAppendTime"})
    create_topic(edited.bootstrap, sink)
    assert told in edited.failing_command("topics", str(edited.path), "--create")
    for message in refusals(edited.path):
        new = "If the stream is new, run `eventveil topics TOPOLOGY --create`"
        missing = f"there is no genesis record of stream others. {new}" in message
        assert missing or f"it contains the state of {edited.source}, partition" in message


# Damaged state


@dataclass
class Damage:
    """Where and how: ``role`` of the changelog, ``key`` of the record, what becomes of its value."""

    role: str
    key: str
    edit: Callable[[dict[str, Any]], dict[str, Any] | bytes | None]
    expected: str


def newer(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "version": 3}


def foreign(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "instance": "f" * 32}


def broken(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode()[:-9]


def gone(_: dict[str, Any]) -> None:
    return None


def another_fact(name: str, value: object) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda fields: {**fields, "fields": {**fields["fields"], name: value}}


NEWER = "the state has version 3, this program reads version {}. Run the version of Eventveil that wrote it"
DAMAGES = {
    "counting state of a newer version": Damage("counting", "places", newer, NEWER.format(1)),
    "counting genesis of a newer version": Damage("counting", "genesis/places", newer, NEWER.format(1)),
    "budget of a newer version": Damage("ledger", "places", newer, NEWER.format("1 and 2")),
    "budget genesis of a newer version": Damage("ledger", "genesis/places", newer, NEWER.format(1)),
    "foreign counting state": Damage("counting", "places", foreign, "does not belong to its genesis"),
    "foreign budget": Damage("ledger", "places", foreign, "does not belong to its genesis"),
    "foreign counting genesis": Damage(
        "counting", "genesis/places", foreign, "does not belong to its genesis. Restore all changelogs"
    ),
    "counting state cut short": Damage("counting", "places", broken, "the state cannot be read"),
    "budget cut short": Damage("ledger", "places", broken, "the state cannot be read"),
    "budget genesis cut short": Damage("ledger", "genesis/places", broken, "the state cannot be read"),
    "counting genesis gone": Damage("counting", "genesis/places", gone, "there is no genesis record"),
    "budget genesis gone": Damage("ledger", "genesis/places", gone, "there is no genesis record"),
    "budget gone, genesis left": Damage("ledger", "places", gone, "one of them was rewound or lost"),
    "fields of a newer fingerprint": Damage(
        "ledger", "genesis/places", another_fact("fingerprint.version", 2), "fingerprint.version was 2"
    ),
    "another format of events": Damage(
        "counting", "genesis/places", another_fact("source.format", "avro"), "source.format was 'avro'"
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_damaged_state_is_refused(healthy: Application, damage: Damage) -> None:
    topic = f"{healthy.name}-{damage.role}-changelog"
    partition, value = last_value(healthy, topic, damage.key)
    edit = damage.edit(json.loads(value))
    damaged = json.dumps(edit).encode() if isinstance(edit, dict) else edit
    produce(healthy.bootstrap, topic, [damaged], key=damage.key, partition=partition)
    try:
        (message,) = refusals(healthy.path)
    finally:
        produce(healthy.bootstrap, topic, [value], key=damage.key, partition=partition)
    assert damage.expected in message


def test_after_all_that_the_application_is_as_good_as_before(healthy: Application) -> None:
    assert refusals(healthy.path) == []


def last_value(application: Application, topic: str, key: str) -> tuple[int, bytes]:
    """The newest value of a key, and its partition."""
    partitions = application.partitions if "counting" in topic else 2
    for partition in range(partitions):
        records = read(application.bootstrap, topic, partition=partition)
        found = [record.value() for record in records if record.key() == key.encode()]
        if found and found[-1] is not None:
            return partition, found[-1]
    raise AssertionError(f"{topic} has no {key}")


# Topics that are gone, others, or shorter. Each destroys its application.


@pytest.fixture
def doomed(kafka: str, tmp_path: Path) -> Application:
    application = Application(kafka, tmp_path, mechanism=MECHANISM)
    run_for_a_while(application, tmp_path / "before.log")
    return application


def test_topics_that_are_gone_are_missed_and_new_ones_do_not_pass_for_them(doomed: Application) -> None:
    """One application for all: what is damaged stays so, and the next damage is met before it."""
    internal = [f"{doomed.name}-{role}" for role in ("counting-changelog", "partials", "ledger")]
    expected = {
        internal[2]: ("according to the ledger", "one of them was rewound or lost"),
        internal[1]: (
            f"topic {internal[1]} was deleted and created again",
            "run `eventveil migrate TOPOLOGY",
        ),
        doomed.sink: ("sink.topic_id was '", "The topic was deleted and created again"),
        doomed.source: (
            f"topic {doomed.source} was deleted and created again",
            "run `eventveil migrate TOPOLOGY",
        ),
        internal[0]: (
            "there is no genesis record",
            "If the stream is new, run `eventveil topics TOPOLOGY --create`",
        ),
    }
    for topic, texts in expected.items():
        doomed.delete(topic)
        (message,) = refusals(doomed.path)
        assert f"topic {topic} " in message
        assert "does not exist" in message
        doomed.create_again(topic)
        found = refusals(doomed.path)
        assert any(texts[0] in one and texts[1] in one for one in found), (topic, found)


def test_unread_records_that_retention_has_eaten_are_missed(doomed: Application) -> None:
    for partition in range(doomed.partitions):
        value = json.dumps({"user": "x"})
        produce(doomed.bootstrap, doomed.source, [value] * 3, partition=partition)
    end = end_offset(doomed.bootstrap, doomed.source)
    doomed.delete_records(doomed.source, end)
    (message,) = refusals(doomed.path)
    assert f"{doomed.source}, partition 0: it begins after the first record that the state needs" in message
    assert "Lengthen the retention" in message


def test_more_partitions_of_a_source_are_refused(doomed: Application) -> None:
    grow_topic(doomed.bootstrap, doomed.source, doomed.partitions + 1)
    (message,) = refusals(doomed.path)
    assert f"it has {doomed.partitions} partitions, it should have {doomed.partitions + 1}" in message
    assert "If a source was given partitions, stop the workers and run `eventveil migrate TOPOLOGY" in message


def test_a_sink_that_is_deleted_under_a_running_worker_stops_it(doomed: Application, tmp_path: Path) -> None:
    with WorkerProcess("tests.worker.silent", doomed.path, tmp_path / "log", "3") as running:
        running.wait_for_log("owns")
        wait_for_releases(doomed, len(doomed.releases()) + 3)
        doomed.delete(doomed.sink)
        assert running.wait() == 1
        log = running.log.read_text()
    assert f"topic {doomed.sink}" in log
    assert "eventveil migrate" in log or "eventveil topics" in log


def test_a_sink_that_is_replaced_under_a_running_worker_stops_it(doomed: Application, tmp_path: Path) -> None:
    with WorkerProcess("tests.worker.silent", doomed.path, tmp_path / "log", "3") as running:
        wait_for_releases(doomed, len(doomed.releases()) + 3)
        doomed.recreate(doomed.sink)
        assert running.wait() == 1
        assert "stopped: " in running.log.read_text()
    assert any("sink.topic_id was" in message for message in refusals(doomed.path))
