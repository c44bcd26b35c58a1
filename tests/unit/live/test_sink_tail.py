"""The sinks are followed while somebody looks, and what goes wrong there is told."""

from __future__ import annotations

import ast
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

import eventveil.live
from eventveil.kafka import log as reading
from eventveil.live import sink_tail
from eventveil.live.sink_tail import SinkTail
from eventveil.model.errors import EventveilError
from eventveil.model.topology import Topology
from eventveil.read.following import Followed
from tests.unit.live.test_recent import VIEWS, release
from tests.unit.support import topology

SHOP = topology(VIEWS)


def found(timestamp: int) -> Followed:
    return Followed(VIEWS, release(timestamp), "here")


def test_the_first_who_looks_gets_the_releases_that_are_there() -> None:
    def read(_: Topology) -> Generator[Followed | None, None, None]:
        yield found(1)
        yield found(2)
        yield None

    seen = SinkTail(SHOP, read).look()["views"]
    assert [row.timestamp for row in seen.rows] == [1, 2]


def test_releases_that_come_are_seen_and_what_was_seen_stays_as_it_was() -> None:
    more, there, told = threading.Event(), threading.Event(), threading.Event()

    def read(_: Topology) -> Generator[Followed | None, None, None]:
        yield found(1)
        yield None
        more.wait(60)
        yield found(2)
        there.set()
        told.wait(60)
        yield None

    tail = SinkTail(SHOP, read)
    before = tail.look()["views"]
    more.set()
    assert there.wait(60)
    assert [row.timestamp for row in tail.look()["views"].rows] == [1, 2]
    assert [row.timestamp for row in before.rows] == [1]
    told.set()


def test_a_sink_that_cannot_be_read_is_told_and_read_again_later() -> None:
    tries: list[int] = []
    healed = threading.Event()

    def read(_: Topology) -> Generator[Followed | None, None, None]:
        tries.append(1)
        if len(tries) == 1:
            raise EventveilError("topic sink: it does not exist")
        yield found(1)
        yield None
        healed.set()

    tail = SinkTail(SHOP, read, pause=0.0)
    assert tail.look() == {}
    assert tail.problem == "topic sink: it does not exist"
    # The next who looks starts anew, once the thread of the first has ended.
    for _ in range(1000):
        tail.look()
        if healed.wait(0.06):
            break
    assert tail.problem == ""
    assert tail.look().keys() == {"views"}


def test_what_nobody_expected_is_told_too(caplog: pytest.LogCaptureFixture) -> None:
    def read(_: Topology) -> Generator[Followed | None, None, None]:
        yield from ()
        raise RuntimeError("odd")

    tail = SinkTail(SHOP, read, pause=0.0)
    tail.look()
    assert "odd" in tail.problem
    assert "the page of releases cannot be made" in caplog.text


def test_when_nobody_looks_any_more_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(sink_tail, "_IDLE_SECONDS", 0.0)

    def read(_: Topology) -> Generator[Followed | None, None, None]:
        try:
            while True:
                yield None
        finally:
            ended.set()

    SinkTail(SHOP, read).look()
    assert ended.wait(60)


def test_where_releases_never_pause_nothing_is_read_either_once_nobody_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = threading.Event()
    read_on: list[int] = []

    def read(_: Topology) -> Generator[Followed | None, None, None]:
        try:
            yield None
            monkeypatch.setattr(sink_tail, "_IDLE_SECONDS", 0.0)
            for timestamp in range(1, 1000):
                read_on.append(timestamp)
                yield found(timestamp)
        finally:
            ended.set()

    SinkTail(SHOP, read).look()
    assert ended.wait(60)
    assert len(read_on) < 999


def test_the_page_is_given_nothing_that_was_counted() -> None:
    """It is made of the topology and of what read/ reads, and imports nothing of the worker."""
    folder = Path(eventveil.live.__file__).parent
    imported = {
        node.module
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("eventveil.")
    }
    allowed = ("eventveil.describe.", "eventveil.live.", "eventveil.model.", "eventveil.read.")
    assert [one for one in sorted(imported) if not one.startswith(allowed)] == []


def test_only_sinks_are_read_and_only_what_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever topic or isolation it asks for goes through here."""
    asked: list[tuple[str, str]] = []

    class Stop(Exception):
        pass

    class Cluster:
        def __init__(self, kafka: object) -> None:
            self.kafka = kafka

        def topic(self, name: str) -> object:
            asked.append(("topic", name))

            class Topic:
                partitions, places = 1, [reading.TopicPartition(name, 0)]

            Topic.name = name  # type: ignore[attr-defined]
            return Topic()

        def first_offsets(self, places: list[object]) -> dict[object, int]:
            return dict.fromkeys(places, 0)

    class LogReader:
        def __init__(self, kafka: object, place: reading.TopicPartition, isolation: str) -> None:
            asked.extend([("topic", place.topic), ("isolation", isolation)])

        def end(self, least: int) -> int:
            return 5

        def first(self) -> int:
            return 0

        def fetch(self, position: int) -> None:
            raise Stop

    monkeypatch.setattr("eventveil.read.following.Cluster", Cluster)
    monkeypatch.setattr("eventveil.kafka.reader.LogReader", LogReader)
    monkeypatch.setattr(reading, "LogReader", LogReader)
    with pytest.raises(Stop):
        [*sink_tail.read_sinks(SHOP)]
    assert {name for kind, name in asked if kind == "topic"} == {VIEWS.sink.topic}
    assert {name for kind, name in asked if kind == "isolation"} == {"read_committed"}
    assert len(asked) >= 4
