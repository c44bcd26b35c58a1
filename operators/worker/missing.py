"""``on_missing: release``: which partitions of a source a timestamp does without.

A partition may be given up only while it has no leader, and has had none for the whole grace as far as was
asked: then nobody can read it or append to it. One that is merely behind is waited for, however long.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Protocol

from confluent_kafka import KafkaException

from operators.clock import OwnerClock
from operators.sanitizing import PartitionSanitizer
from operators.worker.owner import Blocking

log = logging.getLogger(__name__)

_PAUSE = 1000  # ms between two questions


class Surroundings(Protocol):
    """What is asked of the cluster (``operators.kafka.cluster.Cluster``)."""

    def leaderless(self, name: str) -> frozenset[int]:
        """The partitions of a topic without a leader."""

    def end_offsets(self, places: Collection[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Where the logs end."""


class MissingPartitions:
    """Watches the sources of the streams in one partition of the partials topic, which is ``place``."""

    def __init__(
        self, cluster: Surroundings, place: tuple[str, int], blocking: Blocking, clock: OwnerClock
    ) -> None:
        self._cluster, self._place, self._blocking, self._clock = cluster, place, blocking, clock
        self._ask_again = 0
        #: Since when, by the monotonic clock, each partition has been without a leader, by source topic.
        self._since: dict[str, dict[int, int]] = {}

    async def give_up(self, sanitizer: PartitionSanitizer) -> None:
        """Let timestamps go without what is missing. An error of the cluster means: wait."""
        now, elapsed = self._clock.now(), self._clock.elapsed()
        overdue = [one for one in sanitizer.sanitizers.values() if one.overdue(now)]
        if not overdue:
            self._since.clear()
            return
        if elapsed < self._ask_again:
            return
        self._ask_again = elapsed + _PAUSE
        try:
            await self._ask({one.stream.source.topic for one in overdue}, elapsed)
            # What was committed before a partition lost its leader is merged first.
            end = (await self._blocking(self._cluster.end_offsets, [self._place]))[self._place]
        except KafkaException as error:
            log.warning("cannot find out which partitions are missing: %s", error)
            self._since.clear()
            return
        for one in overdue if sanitizer.position >= end else ():
            absent, timestamp = one.merger.absent, one.state.next
            topic, grace = one.stream.source.topic, one.stream.timeline.grace or 0
            gone = {number for number, since in self._since[topic].items() if elapsed - since >= grace}
            news = set(absent) - one.merger.missing.keys()
            if one.go_without(now, gone) and news:
                log.warning("%s goes on from %d without partitions %s", one.stream.name, timestamp, absent)

    async def _ask(self, topics: Collection[str], elapsed: int) -> None:
        self._since = {
            topic: {
                number: self._since.get(topic, {}).get(number, elapsed)
                for number in await self._blocking(self._cluster.leaderless, topic)
            }
            for topic in topics
        }
