"""``eventveil status``, ``tail`` and ``dead`` against a real broker."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from confluent_kafka import Producer

from eventveil.cli.main import main
from eventveil.counting.counter import CounterState
from eventveil.live.serving import Shown
from eventveil.model.records import Chunk
from eventveil.tasks.aggregate import PartitionAggregator
from eventveil.topology.loading import load
from tests.kafka.topics import produce, settled, transact, transactional_producer, unique
from tests.unit.read.making import record
from tests.worker.application import COLUMNS, ORIGIN, Application
from tests.worker.waiting import until


def released(timestamp: int, count: int = 700) -> bytes:
    return record(
        timestamp,
        interval=250,
        origin=ORIGIN,
        stream="places",
        window=10,
        counts=dict.fromkeys(COLUMNS, count),
    )


def run(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
    return found.exit_code, found.stdout


def test_status_and_tail_read_what_is_public(application: Application, kafka: str) -> None:
    path = str(application.path)
    status, told = run("status", path)
    assert status == 0
    assert "nothing yet" in told

    writer = transactional_producer(kafka, unique("writer"))
    last = (int(time.time() * 1000) - ORIGIN) // 250
    transact(writer, application.sink, [released(last - 20 + at) for at in range(20)])
    produce(kafka, application.sink, [None], key=b"barrier/nonce")
    settled(kafka, application.sink)
    status, text = run("status", path, "--json")
    (stream,) = json.loads(text)["streams"]
    assert status == 0
    assert (stream["released"], stream["next"], stream["counting"]) == (last - 1, last, "counting")
    assert (stream["spent"], stream["remaining"], stream["releases_looked_at"]) == (0.24, 0.76, 10)
    assert json.loads(text)["unread"] == []

    # A stream that was added and has no topic yet does not hide the others.
    whole = application.path.read_text(encoding="utf-8")
    document = json.loads(whole)
    added = json.loads(json.dumps(document["streams"]["places"]))
    added["sink"]["topic"] = f"{application.name}.added"
    application.path.write_text(json.dumps({**document, "streams": {**document["streams"], "added": added}}))
    found = CliRunner().invoke(main, ["status", path], catch_exceptions=False)
    application.path.write_text(whole, encoding="utf-8")
    assert found.exit_code == 1
    assert f"timestamp {last - 1}, " in found.stdout
    assert f"stream added: topic {application.name}.added: it does not exist" in found.stderr

    status, text = run("tail", path, "--last", "2", "--count", "2", "--json")
    found = [json.loads(line) for line in text.splitlines()]
    assert status == 0
    assert [one["timestamp"] for one in found] == [last - 2, last - 1]
    assert found[0]["low"]["north"] < 700 < found[0]["high"]["north"]

    # The page of a worker shows the same, and follows the sink.
    shown = Shown(load(path, {}))
    assert f"timestamp {last - 1}, fresh" in shown.serve([], {}).text
    transact(writer, application.sink, [released(last)])
    until(lambda: f"timestamp {last}, fresh" in shown.serve([], {}).text)
    last += 1

    answers: list[tuple[int, str]] = []
    follower = threading.Thread(
        target=lambda: answers.append(
            run("tail", path, "--stream", "places", "--last", "1", "--count", "4", "--json")
        ),
        daemon=True,
    )
    follower.start()
    for at in range(last, last + 600):
        transact(writer, application.sink, [released(at)])
        follower.join(0.1)
        if not follower.is_alive():
            break
    ((status, text),) = answers
    assert status == 0
    # Whenever it began: one that was there, and those that came, each once and in order.
    first, *_ = ordered = [json.loads(line)["timestamp"] for line in text.splitlines()]
    assert ordered == [*range(first, first + 4)]


def letters(application: Application, values: list[dict[str, Any]]) -> PartitionAggregator:
    """A task of the worker that has judged these events."""
    (stream,) = load(str(application.path), {}).streams
    made = PartitionAggregator(3, {stream.name: (stream, CounterState("instance", 0, 1, 1, 0, 0))})
    count = len(values)
    now = int(time.time() * 1000)
    chunk = Chunk(
        application.source, 0, 1, 0, range(count), [now] * count, [b"key"] * count,
        [json.dumps(one).encode() for one in values], count,
    )  # fmt: skip
    made.process(chunk)
    return made


def test_dead_letters_are_told_by_reason_with_samples(application: Application, kafka: str) -> None:
    path = str(application.path)
    assert run("dead", path)[1].startswith("0 dead letters read")
    events = [{"user": "u", "place": "nowhere", "time": 0}] * 5 + [{"place": "north", "time": 0}] * 2
    batch = letters(application, events).dead_letter_batch()
    assert batch is not None
    producer = Producer({"bootstrap.servers": kafka, "log_level": 0})
    for letter in batch.dead_letters:
        producer.produce(letter.topic, letter.value, letter.key, headers=list(letter.headers))
    producer.produce(application.dead, b"somebody else's")
    assert producer.flush(30) == 0

    status, text = run("dead", path, "--json")
    found = json.loads(text)
    assert status == 0
    assert (found["read"], found["held"]) == (7, 8)
    unknown, missing = found["reasons"]
    assert (unknown["reason"], unknown["letters"], unknown["setting"]) == (
        "unknown-column",
        5,
        "counts.columns",
    )
    assert (missing["reason"], missing["letters"], missing["setting"]) == ("missing-field", 2, "source.user")
    assert unknown["samples"][0]["value"] == json.dumps(events[0])
    assert unknown["samples"][0]["offset"] == 4
    line = Path(path).read_text().splitlines()[int(missing["place"].split(":")[-2]) - 1]
    assert '"user"' in line
    told = run("dead", path, "--stream", "places")[1]
    assert "places: 5 unknown-column" in told
    assert "'nowhere' is not a public column" in told
