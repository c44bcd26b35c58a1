"""Only a partition that has had no leader for the whole grace is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from operators.clock import Clock, OwnerClock
from operators.mechanisms import build
from operators.sanitizing import PartitionSanitizer, ReleaseState, StreamSanitizer, Topics
from operators.worker.missing import MissingPartitions
from tests.unit.support import INSTANCE, ZeroNoise, chunk, partial, stream

PLACE = ("app-partials", 0)
#: Timestamp 1 is due at 1018.
VISITS = stream(grace=5000)


class Surroundings:
    """A cluster whose metadata the test writes; None for a leader: nobody answers."""

    def __init__(self) -> None:
        self.gone: frozenset[int] | None = frozenset()
        self.end = 1
        self.asked = 0

    def leaderless(self, name: str) -> frozenset[int]:
        assert name == "raw"
        self.asked += 1
        if self.gone is None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return self.gone

    def end_offsets(self, places: Collection[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, self.end)


class Story:
    """One stream over two partitions, of which the first has reported on timestamp 1."""

    def __init__(self) -> None:
        self.now = 1018
        self.cluster = Surroundings()
        mechanism = build(VISITS.mechanism, 2, 1, ZeroNoise())
        visits = StreamSanitizer(VISITS, 2, mechanism, ReleaseState(INSTANCE, 1, 1, 0))
        self.sanitizer = PartitionSanitizer(Topics("ledger", "changelog", 0), {"visits": visits})
        self.sanitizer.observe(chunk([(0, partial().encode())], topic=PLACE[0]))
        clock = Clock(lambda: self.now, lambda: self.now)
        self.missing = MissingPartitions(self.cluster, PLACE, self._blocking, OwnerClock(clock, 0))

    async def _blocking(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return call(*arguments)

    def at(self, now: int, gone: Collection[int] | None = ()) -> bool:
        """Whether timestamp 1 goes without, once asked at ``now``."""
        self.now, self.cluster.gone = now, None if gone is None else frozenset(gone)
        asyncio.run(self.missing.give_up(self.sanitizer))
        return self.sanitizer.sanitizers["visits"].merger.complete()


def test_nothing_is_asked_before_a_timestamp_is_due() -> None:
    story = Story()
    assert not story.at(1017, {1})
    assert story.cluster.asked == 0


def test_a_partition_without_a_leader_for_the_whole_grace_is_given_up() -> None:
    story = Story()
    assert not any(story.at(now, {1}) for now in range(1018, 6018, 1000))
    assert story.at(6018, {1})


def test_one_that_had_a_leader_meanwhile_is_waited_for_anew() -> None:
    story = Story()
    story.at(1018, {1})
    story.at(3018, ())
    assert not any(story.at(now, {1}) for now in (4018, 6018, 8018))
    assert story.at(9018, {1})


def test_one_that_is_behind_is_never_given_up() -> None:
    story = Story()
    assert not any(story.at(now) for now in range(1018, 10**6, 5000))
    assert not any(story.at(now, {0}) for now in range(10**6, 2 * 10**6, 5000))


def test_a_partial_that_is_committed_but_not_merged_is_waited_for() -> None:
    story = Story()
    story.cluster.end = 2
    story.at(1018, {1})
    assert not story.at(7018, {1})
    story.cluster.end = 1
    assert story.at(8018, {1})


def test_while_nobody_answers_nothing_is_known() -> None:
    story = Story()
    story.at(1018, {1})
    assert not story.at(5018, None)
    assert not story.at(8018, {1})
    assert story.at(13018, {1})


def test_the_cluster_is_asked_once_a_second() -> None:
    story = Story()
    for now in range(1018, 3018, 100):
        story.at(now, {1})
    assert story.cluster.asked == 2
