"""``repartition: true`` on real Kafka: a topic keyed by anything but the user, kills, and a replay."""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME

from eventveil.model.timeline import start_of
from eventveil.process import kernel
from eventveil.replay.rekeying import open_topic
from eventveil.replay.run import replay
from eventveil.topology.changes import ELSEWHERE
from eventveil.topology.loading import load
from eventveil.worker.ends import _LOST_SECONDS
from tests.chaos.verifier import Record
from tests.kafka.broker import local_broker
from tests.kafka.topics import Isolation, end_offset, read
from tests.worker.application import (
    ORIGIN,
    Application,
    ScatteredTraffic,
    SprayedTraffic,
    TimedScatteredTraffic,
    time_in_the_value,
    time_of_the_record,
    valid_event,
)
from tests.worker.process import WorkerProcess
from tests.worker.silent import Silence
from tests.worker.taking_over import refusals
from tests.worker.waiting import last_release, settle, wait_for_letters, wait_for_releases

#: Of ``Application``, in milliseconds.


def truth(
    application: Application,
    first: int,
    event_in: Callable[[Record], dict[str, Any] | None] = time_in_the_value,
) -> tuple[dict[int, Counter[str]], set[tuple[int, int]]]:
    """Counts by timestamp, the earliest appended event of a user counting; and the places of dead letters."""
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    dead, seen = set(), set()
    in_order = sorted(application.raw(), key=lambda record: (record.time, record.partition, record.offset))
    for record in in_order:
        append, event = record.time, event_in(record)
        timestamp = 0 if event is None else (event["time"] - ORIGIN) // application.interval + 1
        deadline = ORIGIN + timestamp * application.interval + application.lateness
        if (
            event is None
            or timestamp < first
            or append >= deadline
            or event["time"] > append + application.max_ahead
        ):
            dead.add((record.partition, record.offset))
        elif (timestamp, event["user"]) not in seen:
            seen.add((timestamp, event["user"]))
            counts[timestamp][event["place"]] += 1
    return dict(counts), dead


def test_events_keyed_otherwise_count_once_through_kills_and_alike_in_a_replay(
    kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By workers that have the compiled kernel and have it not in turns."""
    application = Application(kafka, tmp_path)
    streams = application.document["streams"]
    streams["places"]["source"]["repartition"] = True
    sinks = {"places": application.sink, "found": f"{application.name}.found"}
    discover = {"columns": {"discover": {"delta": 1e-6, "share": 0.5}}}
    streams["found"] = {
        **streams["places"],
        "sink": {"topic": sinks["found"]},
        "dead_letter": f"{sinks['found']}.dead",
        "counts": discover,
        # A handful of events is enough to be found.
        "mechanism": {"kind": "uniform", "epsilon": 100, "window": 10},
    }
    application.write()
    application.create()
    with WorkerProcess("tests.worker.silent", application.path, tmp_path / "worker.log", "2") as worker:
        with ScatteredTraffic(application, seed=12):
            for seconds, switch in zip((5, 3, 2, 3, 4), cycle(("off", "on")), strict=False):
                time.sleep(seconds)
                worker.kill()
                monkeypatch.setenv(kernel.SWITCH, switch)
                worker.start()
            wait_for_releases(application, 80)
        # However far behind the worker is: each event has its verdict, and so its dead letter, by then.
        settle(application)
        last = min(last_release(application, sink) for sink in sinks.values())
        worker.kill()
    # A transaction that was aborted leaves the same bytes that the next one publishes.
    assert all(len({*records}) == 1 for records in application.releases("read_uncommitted").values())
    assert all(len(records) == 1 for records in application.releases().values())
    every = {name: released(application, sink, last) for name, sink in sinks.items()}
    live = every["places"]
    first = min(live)
    assert sorted(live) == list(range(first, last + 1))
    columns = {name for record in every["found"].values() for name in json.loads(record[0])["counts"]}
    assert columns > {"other"}, "no column was found"
    expected, dead = truth(application, first)
    for timestamp, records in live.items():
        counts = json.loads(records[0])["counts"]
        found = {name: count for name, count in counts.items() if count}
        assert found == expected.get(timestamp, {}), timestamp
    assert sum(sum(counts.values()) for counts in expected.values()) > 500
    assert_dead_letters(application, dead)

    topology = load(str(application.path), os.environ)
    rules = topology.streams[0].timeline
    span = {"start": start_of(rules, first), "end": start_of(rules, last + 1)}
    # What the worker passed on, and the topic of events itself.
    for topic in (topology.streams[0].source.topic, application.source):
        source = open_topic(topology, topic)
        again: dict[str, dict[int, list[bytes]]] = {name: {} for name in every}
        for one in replay(topology, source, **span, noise=lambda _: Silence()):
            again[one.stream.name][one.timestamp] = [one.record]
        assert again == every, topic
        assert source.warnings == []

    assert refusals(application.path) == []
    del application.document["streams"]["places"]["source"]["repartition"]
    application.write()
    *counting, budget = refusals(application.path)
    assert f"source.repartition was 'true' and is not set now. {ELSEWHERE}" in budget
    assert all("source.repartition was 'true'" in message for message in counting)
    application.document["streams"]["places"]["source"]["repartition"] = True
    application.write()
    application.recreate(f"{application.name}-repartition-changelog")
    refused = application.failing_command("topics", str(application.path), "--create")
    assert "it has re-keyed events, but the state of the re-keying stage is gone" in refused


def user_in_the_key(record: Record) -> dict[str, Any] | None:
    """The event in a record, whose user is its key; None if there is none."""
    try:
        event = json.loads(record.value or b"")
    except ValueError:
        return None
    return valid_event(json.dumps({**event, "user": (record.key or b"").decode()}).encode())


def test_users_that_are_keys_in_any_partition_count_once(kafka: str, tmp_path: Path) -> None:
    application = Application(kafka, tmp_path)
    application.document["streams"]["places"]["source"] |= {"user": "$key", "repartition": True}
    application.write()
    application.create()
    with WorkerProcess("tests.worker.silent", application.path, tmp_path / "worker.log", "2") as worker:
        with SprayedTraffic(application, seed=21):
            wait_for_releases(application, 15)
            worker.kill()
            worker.start()
            wait_for_releases(application, 30)
        settle(application)
        last = last_release(application, application.sink)
    live = released(application, application.sink, last)
    expected, dead = truth(application, min(live), user_in_the_key)
    for timestamp, records in live.items():
        counts = json.loads(records[0])["counts"]
        assert {name: one for name, one in counts.items() if one} == expected.get(timestamp, {}), timestamp
    assert sum(sum(counts.values()) for counts in expected.values()) > 200
    assert_dead_letters(application, dead, 50)


def given_times(application: Application) -> dict[tuple[int, int], int]:
    """The times that the re-keying stage gave to events, by their place in the topic of events."""
    given: dict[tuple[int, int], int] = {}
    for place, time_given, _ in passed_on(application):
        assert place not in given
        given[place] = time_given
    return given


def passed_on(
    application: Application, isolation: Isolation = "read_committed"
) -> Iterator[tuple[tuple[int, int], int, str]]:
    """Of each event that was passed on: its place in the topic of events, its time, and where it is now."""
    rekeyed = load(str(application.path), {}).streams[0].source.topic
    for partition in range(application.partitions):
        for message in read(application.bootstrap, rekeyed, isolation, partition):
            told = {name: value.decode(errors="replace") for name, value in message.headers() or []}
            if "eventveil.offset" in told:
                place = int(told["eventveil.partition"]), int(told["eventveil.offset"])
                yield place, int(told["eventveil.timestamp"]), f"{partition}@{message.offset()}"


def traces(application: Application, lost: Collection[tuple[int, int]]) -> str:
    """Of events that were not passed on: what aborted transactions and another reading have of them."""
    isolations: tuple[Isolation, ...] = ("read_committed", "read_uncommitted")
    found = {
        isolation: {place: at for place, _, at in passed_on(application, isolation) if place in lost}
        for isolation in isolations
    }
    return f"not passed on: {sorted(lost)}; on looking again: {found}"


def true_by_given_times(
    application: Application,
    first: int,
    event_in: Callable[[Record], dict[str, Any] | None] = time_in_the_value,
) -> dict[int, Counter[str]]:
    """Counts by timestamp; of a user's events those count that come first by time, partition and offset."""
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    given, seen = given_times(application), set()
    raw = {(record.partition, record.offset): record for record in application.raw()}
    assert not (lost := raw.keys() - given.keys()), traces(application, lost)
    assert given.keys() == raw.keys()
    for place in sorted(raw, key=lambda place: (given[place], place)):
        if (event := event_in(raw[place])) is None:
            continue
        timestamp = (event["time"] - ORIGIN) // application.interval + 1
        passed = (given[place] - ORIGIN - application.lateness) // application.interval
        deadline = ORIGIN + (max(passed, first - 1) + 1) * application.interval + application.lateness
        on_time = max(passed + 1, first) <= timestamp and event["time"] <= deadline + application.max_ahead
        if on_time and (timestamp, event["user"]) not in seen:
            seen.add((timestamp, event["user"]))
            counts[timestamp][event["place"]] += 1
    return dict(counts)


def released(application: Application, sink: str, last: int) -> dict[int, list[bytes]]:
    """The releases of a sink up to a timestamp, each of which is there once."""
    found = application.releases(sink=sink)
    assert all(len(records) == 1 for records in found.values())
    return {timestamp: records for timestamp, records in found.items() if timestamp <= last}


def wait_for_counts(application: Application, sinks: Iterable[str], events: int) -> None:
    """Wait until the releases of every sink tell of more events: on a busy machine many come too late."""
    deadline = time.monotonic() + 180
    for sink in sinks:
        while (found := events_in(application.releases(sink=sink))) <= events:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{sink} tells of {found} events, not of {events}")
            time.sleep(0.3)


def events_in(releases: dict[int, list[bytes]]) -> int:
    """How many events were counted, where there is no noise."""
    return sum(sum(json.loads(records[0])["counts"].values()) for records in releases.values())


def has_an_event_but_no_time(record: Record) -> bool:
    """Whether all that a record lacks is a time."""
    return record.time == -1 and time_of_the_record(replace(record, time=1)) is not None


def test_a_topic_with_the_times_of_producers_is_re_keyed_by_boundaries_through_kills_and_alike_in_a_replay(
    kafka: str, tmp_path: Path
) -> None:
    """One stream has the time in the value; another, over the same records, goes by the record's time."""
    application = Application(kafka, tmp_path)
    streams = application.document["streams"]
    streams["places"]["source"] |= {"repartition": True, "append_time": "boundary"}
    sinks = {"places": application.sink, "claims": f"{application.name}.claims"}
    streams["claims"] = {**streams["places"], "sink": {"topic": sinks["claims"]}}
    streams["claims"]["source"] = {**streams["places"]["source"], "time": "$time"}
    application.write()
    application.create()
    with WorkerProcess("tests.worker.silent", application.path, tmp_path / "worker.log", "2") as worker:
        with TimedScatteredTraffic(application, seed=13):
            for seconds in (2, 2):
                time.sleep(seconds)
                worker.kill()
                worker.start()
            wait_for_releases(application, 30)
            wait_for_letters(application, late=80, too_far_ahead=40, missing_field=20)
            wait_for_counts(application, sinks.values(), 100)
        settle(application)
        last = min(last_release(application, sink) for sink in sinks.values())
        worker.kill()
    # Kafka's clients take a record without a time for one of this kind, too.
    kinds = {message.timestamp()[0] for message in read(kafka, application.source)}
    assert kinds == {TIMESTAMP_CREATE_TIME}, "the source has LogAppendTime after all"
    live = {name: released(application, sink, last) for name, sink in sinks.items()}
    first = min(live["places"])
    for name, event_in in (("places", time_in_the_value), ("claims", time_of_the_record)):
        assert sorted(live[name]) == list(range(first, last + 1))
        expected = true_by_given_times(application, first, event_in)
        for timestamp, records in live[name].items():
            counts = json.loads(records[0])["counts"]
            assert {name: n for name, n in counts.items() if n} == expected.get(timestamp, {}), timestamp
        assert sum(sum(counts.values()) for counts in expected.values()) > 100
    assert live["claims"] != live["places"]
    letters: defaultdict[str, set[str]] = defaultdict(set)
    without_time = 0
    for letter in read(application.bootstrap, application.dead):
        told = {name: text.decode(errors="replace") for name, text in letter.headers() or []}
        letters[told["eventveil.stream"]].add(told["eventveil.reason"])
        without_time += told["eventveil.detail"].startswith("no time at $time: the record carries none")
    assert {"late", "too-far-ahead", "time-unreadable"} <= letters["places"]
    assert {"late", "too-far-ahead", "missing-field"} <= letters["claims"]
    assert "time-unreadable" not in letters["claims"]
    assert without_time == sum(has_an_event_but_no_time(record) for record in application.raw()) > 0
    assert "of epsilon 1" in application.command("ledger", str(application.path))

    topology = load(str(application.path), os.environ)
    rules = topology.streams[0].timeline
    source = open_topic(topology, topology.streams[0].source.topic)
    span = {"start": start_of(rules, first), "end": start_of(rules, last + 1)}
    replayed: dict[str, dict[int, list[bytes]]] = {name: {} for name in live}
    for one in replay(topology, source, **span, noise=lambda _: Silence()):
        replayed[one.stream.name][one.timestamp] = [one.record]
    assert replayed == live
    assert source.warnings == []

    # Of the topic of events nobody knows what was late: each event counts that is in the range.
    source = open_topic(topology, application.source)
    users: dict[tuple[str, int], int] = {}
    for one in replay(topology, source, **span, noise=lambda _: Silence()):
        users[one.stream.name, one.timestamp] = int(one.counts.sum())
    for name, event_in in (("places", time_in_the_value), ("claims", time_of_the_record)):
        present: defaultdict[int, set[str]] = defaultdict(set)
        for record in application.raw():
            if (event := event_in(record)) is not None:
                present[(event["time"] - ORIGIN) // application.interval + 1].add(event["user"])
        for timestamp in live[name]:
            assert users[name, timestamp] == len(present[timestamp]), (name, timestamp)
    assert [warning.split(":")[0] for warning in source.warnings] == ["places", "claims"]


def test_twenty_partitions_of_a_re_keyed_topic_get_their_boundaries_after_a_broker_was_away(
    tmp_path: Path,
) -> None:
    """A partition that hears of no end any more would keep every release from being complete."""
    with local_broker() as broker:
        application = Application(broker.bootstrap, tmp_path, partitions=20, interval=1000)
        source = application.document["streams"]["places"]["source"]
        source |= {"repartition": True, "append_time": "boundary"}
        application.write()
        application.create()
        with WorkerProcess("tests.worker.silent", application.path, tmp_path / "worker.log", "2") as worker:
            with TimedScatteredTraffic(application, seed=20, per_second=200):
                wait_for_releases(application, 5)
                broker.kill()
                # Longer than any question for an end is waited for, so that clients are renewed meanwhile.
                time.sleep(3 * _LOST_SECONDS)
                broker.start()
                wait_for_counts(application, [application.sink], events_in(application.releases()) + 200)
            settle(application)
            last = last_release(application, application.sink)
            worker.kill()
        live = released(application, application.sink, last)
        expected = true_by_given_times(application, min(live))
        assert sorted(live) == list(range(min(live), last + 1))
        for timestamp, records in live.items():
            counts = json.loads(records[0])["counts"]
            assert {name: n for name, n in counts.items() if n} == expected.get(timestamp, {}), timestamp


def test_nonces_of_an_earlier_attempt_that_retention_has_removed_are_no_events(
    kafka: str, tmp_path: Path
) -> None:
    application = Application(kafka, tmp_path, partitions=1)
    application.document["streams"]["places"]["source"]["repartition"] = True
    application.write()
    application.create()
    name, path = application.name, str(application.path)
    rekeyed = load(path, {}).streams[0].source.topic
    changelogs = [f"{name}-{kind}-changelog" for kind in ("counting", "ledger", "repartition")]
    application.delete_records(rekeyed, end_offset(kafka, rekeyed))

    # A stream that counts them has begun, so there may have been some.
    application.recreate(changelogs[-1])
    refused = application.failing_command("topics", path, "--create")
    assert "it has re-keyed events, but the state of the re-keying stage is gone" in refused
    # An attempt that came no further than to the nonces has written nothing at all.
    for changelog in changelogs:
        application.recreate(changelog)
    # Whether retention has removed anything that the first timestamps need is another question.
    start = datetime.fromtimestamp(time.time() + 60, UTC).isoformat(timespec="milliseconds")
    application.document["streams"]["places"]["timeline"]["start"] = start
    application.write()
    application.command("topics", path, "--create")
    assert refusals(application.path) == []


def assert_dead_letters(application: Application, dead: set[tuple[int, int]], least: int = 200) -> None:
    """Each once, with the place, key and value that its record has in the topic of events."""
    raw = {(record.partition, record.offset): record for record in application.raw()}
    letters = {}
    for letter in read(application.bootstrap, application.dead):
        told = dict(letter.headers() or [])
        place = (int(told["eventveil.partition"]), int(told["eventveil.offset"]))
        assert told["eventveil.topic"] == application.source.encode()
        assert place not in letters
        letters[place] = letter
    assert set(letters) == dead
    for place, letter in letters.items():
        assert (letter.key(), letter.value()) == (raw[place].key, raw[place].value)
    assert len(letters) > least
