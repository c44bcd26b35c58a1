"""The leaders of partitions are watched all the time, and what was seen is told with its time."""

from __future__ import annotations

import logging
import threading
import time

import pytest
from confluent_kafka import KafkaError, KafkaException

from eventveil.process.clock import Clock, PartitionClock
from eventveil.tasks.outages import Outage
from eventveil.worker.missing import LeaderWatch


class Surroundings:
    """A cluster whose metadata the test writes; None for a leader: nobody answers."""

    def __init__(self) -> None:
        self.gone: frozenset[int] | None = frozenset()
        self.asked: list[str] = []

    def leaderless(self, name: str) -> frozenset[int]:
        self.asked.append(name)
        if self.gone is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return self.gone


class Story:
    """A worker with streams over two topics that may go without a partition."""

    def __init__(self) -> None:
        self.now = 1000
        self.cluster, self.failures = Surroundings(), list[BaseException]()
        clock = Clock(lambda: self.now, lambda: self.now - 900)
        self.clock = PartitionClock(clock, 0)
        self.watch = LeaderWatch(self.cluster, ["raw", "more"], clock, self.failures.append)

    def at(self, now: int, *gone: int, answers: bool = True) -> tuple[Outage, ...]:
        """What was seen of the first topic, once asked at ``now``."""
        self.now, self.cluster.gone = now, frozenset(gone) if answers else None
        self.watch.look()
        assert self.watch.outages("raw", self.clock)[0] == now
        return self.watch.outages("raw", self.clock)[1]


def test_what_is_seen_is_told_with_the_time_of_the_answer() -> None:
    story = Story()
    assert story.at(1000) == ()
    assert story.at(2000, 1) == (Outage(1, 2000, 2000, False),)
    assert story.at(3000, 1) == (Outage(1, 2000, 3000, False),)
    assert story.at(4000) == (Outage(1, 2000, 3000, True),)
    assert story.cluster.asked == ["raw", "more"] * 4
    assert story.watch.outages("more", story.clock)[1] == (Outage(1, 2000, 3000, True),)


def test_a_question_without_an_answer_shows_nothing(caplog: pytest.LogCaptureFixture) -> None:
    story = Story()
    story.at(1000, 1)
    with caplog.at_level(logging.WARNING):
        assert story.at(2000, answers=False) == (Outage(1, 1000, 1000, False),)
        story.at(3000, answers=False)
    assert caplog.text.count("cannot find out which partitions of raw have no leader") == 1
    assert story.at(4000, 1) == (Outage(1, 1000, 4000, False),)
    story.at(5000, answers=False)
    assert story.at(6000) == (Outage(1, 1000, 4000, True),)


def test_the_cluster_is_asked_once_a_second_though_nothing_is_due_and_everybody_is_at_work() -> None:
    story = Story()
    working = True

    def work() -> None:
        while working:
            sum(range(10_000))

    thread = threading.Thread(target=work)
    thread.start()
    story.watch.start()
    begun = time.monotonic()
    while len(story.cluster.asked) < 6:
        assert time.monotonic() < begun + 180
        time.sleep(0.05)
    took = time.monotonic() - begun
    story.watch.stop()
    working = False
    thread.join()
    assert story.failures == []
    assert story.cluster.asked[:6] == ["raw", "more"] * 3
    assert took > 1.5


def test_without_a_topic_nothing_is_asked_and_there_is_no_thread() -> None:
    threads = threading.active_count()
    watch = LeaderWatch(Surroundings(), [], Clock(), [].append)
    watch.start()
    assert threading.active_count() == threads
    watch.stop()
