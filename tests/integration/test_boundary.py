"""``append_time: boundary`` on real Kafka: producers' times in the log, kills, a replay of the same log."""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME

from eventveil.model.timeline import start_of
from eventveil.replay.inputs import TopicInput
from eventveil.replay.run import replay
from eventveil.topology.loading import load
from tests.chaos.verifier import Record, java_partition
from tests.kafka.topics import read
from tests.worker.application import ORIGIN, Application, TimedTraffic, time_in_the_value, time_of_the_record
from tests.worker.process import WorkerProcess
from tests.worker.silent import Silence
from tests.worker.waiting import last_release, settle, wait_for_letters, wait_for_releases


def by_boundary(kafka: str, folder: Path) -> Application:
    application = Application(kafka, folder)
    application.document["streams"]["places"]["source"]["append_time"] = "boundary"
    application.write()
    return application


def boundaries(application: Application, stream: str = "places") -> dict[int, dict[int, int]]:
    """Boundary by timestamp, by partition, as the worker's partial counts have them."""
    found: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for partition in range(2):
        for message in read(application.bootstrap, f"{application.name}-partials", partition=partition):
            one = json.loads(message.value() or b"")
            if one["stream"] != stream:
                continue
            assert one["timestamp"] not in found[one["partition"]]
            found[one["partition"]][one["timestamp"]] = one["boundary"]
    return found


def truth(
    application: Application,
    first: int,
    stream: str = "places",
    event_in: Callable[[Record], dict[str, Any] | None] = time_in_the_value,
) -> tuple[dict[int, Counter[str]], Counter[str]]:
    """Counts by timestamp, and how many records were late and too far ahead."""
    bounds = boundaries(application, stream)
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    rejected: Counter[str] = Counter()
    seen = set()
    for record in application.raw():
        event, partition, offset = event_in(record), record.partition, record.offset
        if event is None or partition != java_partition(event["user"], application.partitions):
            continue
        passed = max((at for at, bound in bounds[partition].items() if bound <= offset), default=first - 1)
        deadline = ORIGIN + (passed + 1) * application.interval + application.lateness
        timestamp = (event["time"] - ORIGIN) // application.interval + 1
        if event["time"] > deadline + application.max_ahead:
            rejected["too-far-ahead"] += 1
        elif timestamp >= first and offset >= bounds[partition].get(timestamp, offset + 1):
            rejected["late"] += 1
        elif timestamp >= first and (timestamp, event["user"]) not in seen:
            seen.add((timestamp, event["user"]))
            counts[timestamp][event["place"]] += 1
    return dict(counts), rejected


def test_boundaries_survive_kills_and_decide_alike_for_the_worker_and_a_replay(
    kafka: str, tmp_path: Path
) -> None:
    """One stream has the time in the value; another, over the same records, goes by the record's time."""
    application = by_boundary(kafka, tmp_path)
    streams = application.document["streams"]
    sinks = {"places": application.sink, "claims": f"{application.name}.claims"}
    streams["claims"] = {**streams["places"], "sink": {"topic": sinks["claims"]}}
    streams["claims"]["source"] = {**streams["places"]["source"], "time": "$time"}
    application.write()
    application.create()
    with WorkerProcess("tests.worker.silent", application.path, tmp_path / "worker.log", "2") as worker:
        with TimedTraffic(application, seed=11):
            for seconds in (5, 3, 2, 4):
                time.sleep(seconds)
                worker.kill()
                if seconds == 2:
                    time.sleep(2)  # an outage: one boundary for all timestamps that it left open
                worker.start()
            wait_for_releases(application, 80)
            wait_for_letters(application, late=180, too_far_ahead=180)
        settle(application)
        last = min(last_release(application, sink) for sink in sinks.values())
        worker.kill()
    live = {
        (name, timestamp): records
        for name, sink in sinks.items()
        for timestamp, records in application.releases(sink=sink).items()
        if timestamp <= last
    }
    first = min(timestamp for _, timestamp in live)
    assert sorted(live) == [(name, one) for name in sorted(sinks) for one in range(first, last + 1)]
    kinds = {message.timestamp()[0] for message in read(application.bootstrap, application.source)}
    assert kinds == {TIMESTAMP_CREATE_TIME}, "the source has LogAppendTime after all"
    letters: Counter[tuple[str, str]] = Counter()
    for message in read(application.bootstrap, application.dead):
        told = dict(message.headers() or [])
        letters[told["eventveil.stream"].decode(), told["eventveil.reason"].decode()] += 1
    for name, event_in in (("places", time_in_the_value), ("claims", time_of_the_record)):
        expected, rejected = truth(application, first, name, event_in)
        for timestamp in range(first, last + 1):
            counts = json.loads(live[name, timestamp][0])["counts"]
            found = {column: count for column, count in counts.items() if count}
            assert found == expected.get(timestamp, {}), (name, timestamp)
        assert sum(sum(counts.values()) for counts in expected.values()) > 100
        assert {reason: letters[name, reason] for reason in rejected} == rejected
        assert rejected["late"] > 50
        assert rejected["too-far-ahead"] > 50

    topology = load(str(application.path), os.environ)
    rules = topology.streams[0].timeline
    source = TopicInput(topology.kafka, application.source, envelope=True)
    replayed = replay(
        topology,
        source,
        start=start_of(rules, first),
        end=start_of(rules, last + 1),
        noise=lambda _: Silence(),
    )
    assert {(one.stream.name, one.timestamp): [one.record] for one in replayed} == live
    assert source.warnings == []


def test_a_first_timestamp_in_the_past_is_refused_for_nobody_saw_its_boundary(
    kafka: str, tmp_path: Path
) -> None:
    application = by_boundary(kafka, tmp_path)
    application.document["streams"]["places"]["timeline"]["start"] = "2026-01-01T00:00:00Z"
    application.write()
    output = application.failing_command("topics", str(application.path), "--create", "--sources")
    assert "it cannot be known what was appended in time" in output
    assert "created" not in output
    topics = application._admin.list_topics(timeout=30).topics
    assert not [name for name in topics if name.startswith(application.name)]
