"""The web shop's topics, as they are, on a broker: headers, session keys, mixed ids, gzip, schema ids.

The topology is the one that is shipped, at the speed of a test; what must be counted is written out here.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from click.testing import CliRunner
from confluent_kafka import TIMESTAMP_CREATE_TIME, Producer

from eventveil.cli.main import main
from eventveil.model.timeline import format_rfc3339, start_of, timestamp_of
from eventveil.replay.rekeying import open_topic
from eventveil.replay.run import replay
from eventveil.topology.loading import load
from tests.kafka.topics import read, unique
from tests.worker.process import WorkerProcess
from tests.worker.silent import Silence

SHOP = Path(__file__).parents[2] / "topologies" / "web-shop.yaml"
#: What is otherwise: the names, and that a test does not last an hour.
FASTER = {
    "${KAFKA_REPLICATION:3}": "1",
    "${KAFKA_MIN_INSYNC:2}": "1\n  partitions: 20",
    "interval: 1h": "interval: 1s",
    "lateness: 5m": "lateness: 8s\n      max_ahead: 1h",
    "kind: seasonal": "kind: uniform",
    "user: $key ": "format: json-schema\n      user: $key ",
}
VISITORS = 300
Record = tuple[str | None, dict[str, str], Any]


def topology(folder: Path, bootstrap: str, name: str) -> Path:
    text = SHOP.read_text(encoding="utf-8").partition("\nbudget:")[0]
    for old, new in {**FASTER, "${KAFKA_BOOTSTRAP:localhost:9092}": bootstrap, "web-shop": name}.items():
        assert old in text
        text = text.replace(old, new)
    path = folder / "shop.yaml"
    path.write_text(text.replace("topic: shop.", f"topic: {name}."), encoding="utf-8")
    return path


def view(number: int, at: int, **changes: Any) -> dict[str, Any]:
    """A visitor who is logged in with a number, or the same as text, or not at all."""
    user: dict[str, Any] = [{"id": number}, {"id": str(number)}, {"id": None}][number % 3]
    data = {"user": user, "session": f"s-{number}", "page": "/", "country": "DE"}
    kind = {"type": "com.example.shop.viewed", "specversion": "1.0"}
    return {**kind, "time": format_rfc3339(at), "data": {**data, **changes}}


def views(at: int) -> tuple[list[Record], Counter[str]]:
    """Records of the topic of events, and what has to be counted of them."""
    pages = {"/": "home", "/shoes/1": "shoes", "/shoes/kids/2": "kids", "/imprint": "rest"}
    sent: list[Record] = []
    counted: Counter[str] = Counter()
    for number in range(VISITORS):
        page, country = [*pages][number % 4], ("AT", "CH", "DE", "FR")[number // 4 % 4]
        headers = {"env": "live"} if number % 2 else {}
        sent.append((f"s-{number}", headers, view(number, at, page=page, country=country)))
        counted["elsewhere" if country == "FR" else f"{pages[page]}|{country}"] += 1
    # Nine views of one user, written in both ways, in several sessions: three count.
    for session in range(9):
        user = {"id": 999 if session % 2 else "999"}
        sent.append((f"other-{session}", {}, view(999, at, user=user, page="/help/1", country="AT")))
    counted["help|AT"] += 3
    left_out: list[Record] = [
        ("s-1", {}, {"type": "com.example.shop.bought", "data": {}}),
        ("s-1", {"env": "test"}, "no JSON at all"),
        ("s-1", {"env": "staging"}, view(1000, at)),
        ("s-1", {}, view(1001, at, bot="crawler")),
    ]
    return sent + left_out * 20, counted


def orders(at: int) -> tuple[list[Record], Counter[str]]:
    """The same of the topic of orders, whose customers are keys and whose clocks are in Berlin."""
    local = datetime.fromtimestamp(at / 1000, ZoneInfo("Europe/Berlin")).strftime("%Y-%m-%dT%H:%M:%S")
    kind = {"ce_type": "com.example.shop.ordered"}
    sent: list[Record] = [
        (str(number), kind, {"payment": ("card", "cash")[number % 2], "placed": local})
        for number in range(50)
    ]
    sent += [
        (str(number), {"ce_type": "com.example.shop.cancelled"}, {"number": number}) for number in range(50)
    ]
    # As the serializer of a schema registry writes it, with schema 7.
    framed = [(key, headers, "\0\0\0\0\7" + json.dumps(value)) for key, headers, value in sent]
    return framed, Counter({"card": 25, "other": 25})


def produce(bootstrap: str, topic: str, sent: list[Record]) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "compression.type": "gzip", "partitioner": "murmur2_random"}
    )
    for key, headers, value in sent:
        text = value if isinstance(value, str) else json.dumps(value)
        producer.produce(topic, text, key, headers=[(name, one.encode()) for name, one in headers.items()])
        producer.poll(0)
    assert producer.flush(60) == 0


def releases(bootstrap: str, sink: str) -> dict[int, bytes]:
    return {json.loads(one.value() or b"")["timestamp"]: one.value() or b"" for one in read(bootstrap, sink)}


def test_a_shops_own_topics_are_counted_and_replayed_alike(kafka: str, tmp_path: Path) -> None:
    name = unique("shop")
    path = topology(tmp_path, kafka, name)
    made = CliRunner().invoke(main, ["topics", str(path), "--create", "--sources"], catch_exceptions=False)
    assert made.exit_code == 0, made.output
    loaded = load(str(path), os.environ)
    # A whole second that has not begun, for timestamps begin when the topics are there.
    at = (time.time_ns() // 10**9 + 2) * 1000
    expected = {"views": views(at), "orders": orders(at)}
    for stream in loaded.streams:
        produce(kafka, stream.source.topic_of_events, expected[stream.name][0])
    kinds = {one.timestamp()[0] for at in range(20) for one in read(kafka, f"{name}.events", partition=at)}
    assert kinds == {TIMESTAMP_CREATE_TIME}, "the topic of views has Kafka's default"
    with WorkerProcess("tests.worker.silent", path, tmp_path / "worker.log", "6"):
        for stream in loaded.streams:
            timestamp, deadline = timestamp_of(stream.timeline, at), time.monotonic() + 180
            while timestamp not in (live := releases(kafka, stream.sink.topic)):
                assert time.monotonic() < deadline, (tmp_path / "worker.log").read_text()
                time.sleep(0.3)
            counts = json.loads(live[timestamp])["counts"]
            counted = {label: number for label, number in counts.items() if number}
            letters = Counter(
                dict(one.headers() or [])["eventveil.detail"] for one in read(kafka, f"{name}.dead")
            )
            assert counted == expected[stream.name][1], (stream.name, letters)
    for stream in loaded.streams:
        timestamp = timestamp_of(stream.timeline, at)
        start = start_of(stream.timeline, timestamp)
        # What the worker passed on, and the topic as the shop writes it.
        for topic in {stream.source.topic, stream.source.topic_of_events}:
            (again,) = replay(
                loaded, open_topic(loaded, topic), start=start, end=start + 1000, only=[stream.name],
                noise=lambda _: Silence(),
            )  # fmt: skip
            counts = json.loads(again.record)["counts"]
            assert {label: number for label, number in counts.items() if number} == expected[stream.name][1]
    assert [*read(kafka, f"{name}.dead")] == [], "what a filter leaves out is no dead letter"
