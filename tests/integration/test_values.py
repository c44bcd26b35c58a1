"""Value streams on a real broker: one reading per value, in order, of one draw, whatever is killed."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from itertools import cycle
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from confluent_kafka import Producer

from eventveil import __version__
from eventveil.cli.main import main
from eventveil.live.serving import Shown
from eventveil.replay.inputs import TopicInput
from eventveil.replay.values import replay_values
from eventveil.topology.loading import load
from tests.kafka.topics import Value, abandon, produce, read, transactional_producer, unique
from tests.worker.application import Application
from tests.worker.process import WorkerProcess
from tests.worker.silent import Silence
from tests.worker.taking_over import refusals

PARTITIONS = 2
#: Each becomes 0 in its place, for another reason; and values that are cut off, or fall between two steps.
UNREADABLE: list[Value] = [
    *(None, b"", b"{oops", b'{"other": 1}', b'{"value": "3"}', b'{"value": true}', b'{"value": [1]}'),
    b"7" * 300,
]
EDGES: list[Value] = [b'{"value": -5}', b'{"value": 1e99}', b'{"value": 12.25}', b'{"value": 99999}']


def values(count: int) -> list[Value]:
    """JSON events; every tenth of them is odd in some way."""
    odd = [*UNREADABLE, *EDGES]
    return [
        odd[i // 10 % len(odd)] if i % 10 == 9 else json.dumps({"value": 3 * i % 700}).encode()
        for i in range(count)
    ]


class Values(Application):
    """An application with value streams over one topic, ``values_topic``, perhaps beside one of counts."""

    def __init__(
        self, bootstrap: str, folder: Path, counts: bool = False, **mechanisms: dict[str, Any]
    ) -> None:
        super().__init__(bootstrap, folder, partitions=PARTITIONS)
        if not counts:
            del self.document["streams"]["places"]
        self.values_topic = f"{self.name}.values"
        for name, mechanism in mechanisms.items():
            self.document["streams"][name] = {
                "source": {"topic": self.values_topic, "value": "/value", "max_bytes": 200},
                "values": {"maximum": 500, "step": 0.5},
                "mechanism": mechanism,
                "sink": {"topic": self.readings_topic(name)},
            }
        self.write()
        self.create()

    def readings_topic(self, stream: str) -> str:
        return f"{self.name}.{stream}"

    def feed(self, count: int, partition: int) -> None:
        produce(self.bootstrap, self.values_topic, values(count), partition=partition)

    def readings(self, stream: str, partition: int, **isolation: Any) -> list[bytes]:
        found = read(self.bootstrap, self.readings_topic(stream), partition=partition, **isolation)
        return [message.value() or b"" for message in found]

    def wait_for_readings(self, stream: str, partition: int, count: int, seconds: float = 180) -> None:
        deadline = time.monotonic() + seconds
        while len(found := self.readings(stream, partition)) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count}"
            time.sleep(0.3)


TOPS = {"kind": "tops", "epsilon": 1, "held": 40, "chunk": 64, "fanout": 4, "smoothed": 1, "drift": 1.5}
PAK = {"kind": "pak", "epsilon": 1, "delta": 1e-6, "held": 60, "chunk": 128}


def test_replaying_a_topic_of_values_gives_the_records_of_the_worker(kafka: str, tmp_path: Path) -> None:
    application = Values(kafka, tmp_path, counts=True, tops=TOPS, pak=PAK)
    source, counts = application.values_topic, {0: 700, 1: 333}
    with WorkerProcess("tests.worker.silent", application.path, tmp_path / "worker.log", "2") as worker:
        for partition, count in counts.items():
            application.feed(count, partition)
        # What was never committed has no position.
        producer = transactional_producer(kafka, unique("never"))
        abandon(producer, source, [b'{"value": 1}'] * 5, partition=1)
        producer.abort_transaction(30)
        application.feed(50, partition=1)
        counts[1] += 50
        for partition, count in counts.items():
            for stream in ("tops", "pak"):
                application.wait_for_readings(stream, partition, count)
        assert worker.running
    topology = load(str(application.path), os.environ)
    replayed: defaultdict[tuple[str, int], list[bytes]] = defaultdict(list)
    for one in replay_values(topology, TopicInput(topology.kafka, source), noise=lambda *_: Silence()):
        replayed[one.stream.name, one.partition] += one.records
    for (stream, partition), records in replayed.items():
        assert application.readings(stream, partition) == records, (stream, partition)
        assert [json.loads(record)["position"] for record in records] == list(range(counts[partition]))
    assert len(replayed) == 4

    # Without noise the sum of the nodes that are complete is that of the values, unreadable ones being 0.
    records = [json.loads(record) for record in replayed["pak", 0]]
    true = [grid_value(value) for value in values(700)]
    assert [record["reading"] for record in records[:60]] == [None] * 60
    threshold = max(record["reading"] for record in records[60:])
    assert [record["reading"] for record in records[60:]] == [min(value, threshold) for value in true[60:]]
    looked_at_by_commands(application, counts)
    audit = application.audit()
    assert f"  eventveil {__version__}: " in audit
    assert "not recorded" not in audit
    assert "pak: 963 readings, 120 values held back" in audit
    assert "violation" not in audit


def looked_at_by_commands(application: Values, counts: dict[int, int]) -> None:
    """`status`, `tail` and the page have the last readings of each partition."""
    path = str(application.path)
    found = CliRunner().invoke(main, ["status", path, "--json"], catch_exceptions=False)
    told = {one["stream"]: one["partitions"] for one in json.loads(found.stdout)["values"]}
    assert set(told) == {"tops", "pak"}
    last = json.loads(application.readings("tops", 0)[-1])
    assert [one["position"] for one in told["tops"]] == [counts[0] - 1, counts[1] - 1]
    assert told["tops"][0]["value"] == last["reading"] / 2
    arguments = ["tail", path, "--stream", "tops", "--last", "3", "--count", "6"]
    lines = CliRunner().invoke(main, arguments, catch_exceptions=False).stdout.splitlines()
    places = [(one, counts[one] - at) for one in range(PARTITIONS) for at in (3, 2, 1)]
    assert [line.partition(":")[0] for line in lines] == [
        f"tops, partition {partition}, position {position}" for partition, position in places
    ]
    assert f"partition 0, position {counts[0] - 1}" in Shown(load(path, {})).serve([], {}).text


def grid_value(value: Value) -> int:
    """The number of halves that a value comes to, by hand."""
    try:
        found = json.loads(value or b"null")["value"]
    except (ValueError, TypeError, KeyError):
        return 0
    if isinstance(found, bool) or not isinstance(found, int | float) or value is None or len(value) > 200:
        return 0
    return max(0, min(1000, int(found * 2 + 0.5)))


#: Where, and for the how-manieth time there, a worker dies: between, and within, the two transactions.
DEATHS = (
    *("decide:before-commit:40", "decide:committed:40"),
    *("publish:produced:1500", "publish:before-commit:40"),
)


def test_killed_again_and_again_each_value_has_one_reading_of_one_draw(kafka: str, tmp_path: Path) -> None:
    application = Values(kafka, tmp_path, tops={**TOPS, "smoothed": 0})
    producer = Producer({"bootstrap.servers": kafka, "linger.ms": 0})
    supply, fed = cycle(values(1000)), 0
    log = tmp_path / "worker.log"
    for death in (*DEATHS, None):
        arguments = ("2", death) if death else ("2",)
        with WorkerProcess("tests.worker.quick", application.path, log, *arguments) as worker:
            deadline, begun = time.monotonic() + 120, fed
            while worker.running if death else fed < begun + 60:
                for partition in range(PARTITIONS):
                    producer.produce(application.values_topic, value=next(supply), partition=partition)
                producer.flush(30)
                fed += 1
                assert time.monotonic() < deadline, log.read_text()
            if death:
                assert worker.wait() == -9
            else:
                fed += feed_one_by_one(application, fed)
                for partition in range(PARTITIONS):
                    application.wait_for_readings("tops", partition, fed)

    copies = 0
    for partition in range(PARTITIONS):
        seen: defaultdict[int, set[bytes]] = defaultdict(set)
        for record in application.readings("tops", partition, isolation="read_uncommitted"):
            seen[json.loads(record)["position"]].add(record)
            copies += 1
        assert all(len(records) == 1 for records in seen.values())
        committed = application.readings("tops", partition)
        assert [json.loads(record)["position"] for record in committed] == list(range(fed))
    assert copies > PARTITIONS * fed, "no transaction was aborted"
    assert "violation" not in (audit := application.audit()), audit
    assert "of aborted transactions, the same as the committed ones" in audit

    changelog = f"{application.name}-state-changelog"
    states = [
        [one.value() for one in read(kafka, changelog, partition=partition) if one.key() == b"tops"]
        for partition in range(PARTITIONS)
    ]
    # Two transactions a batch, except for those that died.
    assert sum(map(len, states)) > 200
    # A state that was rewound knows less than the public does.
    assert refusals(application.path) == []
    for old, what in ((0, "was charged up to"), (-3, "it shows a reading of tops at position")):
        produce(kafka, changelog, [states[0][old]], key=b"tops")
        assert any(what in one and "rewound" in one for one in refusals(application.path)), what


def feed_one_by_one(application: Values, fed: int) -> int:
    """Feed batches of one value until two in a row are of one span; how many values that took."""
    changelog, charged, count = f"{application.name}-state-changelog", [-1, -2], 0
    while charged[-1] != charged[-2]:
        for partition in range(PARTITIONS):
            produce(application.bootstrap, application.values_topic, [b"{}"], partition=partition)
        count += 1
        for partition in range(PARTITIONS):
            application.wait_for_readings("tops", partition, fed + count)
        state = json.loads(read(application.bootstrap, changelog)[-1].value() or b"")
        charged.append(state["charged"])
    return count


def test_a_value_stream_refuses_what_would_break_it(kafka: str, tmp_path: Path) -> None:
    application = Values(kafka, tmp_path, tops=TOPS)
    application.feed(10, partition=0)
    assert refusals(application.path) == []

    application.alter(application.values_topic, {"cleanup.policy": "compact"})
    assert "compaction would remove values" in refusals(application.path)[0]
    application.alter(application.values_topic, {"cleanup.policy": "delete"})

    application.document["streams"]["tops"]["source"]["value"] = "/other"
    application.write()
    assert any("source.value was '/value' and is '/other' now" in one for one in refusals(application.path))
    application.document["streams"]["tops"]["source"]["value"] = "/value"
    application.write()

    application.delete_records(application.values_topic, 5)
    assert any(
        "it begins after the first record that the state needs" in one for one in refusals(application.path)
    )
