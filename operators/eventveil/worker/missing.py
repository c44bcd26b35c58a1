"""``on_missing: release``: watches which partitions have a leader, all the time, whichever are behind.

A thread asks the cluster once a second for the leaders of the topics of such streams, from the start of the
worker to its end. What it saw and when is all that decides which partitions a timestamp goes without
(``eventveil.tasks.outages``). A question without an answer shows nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection

from confluent_kafka import KafkaException

from eventveil.kafka.cluster import Cluster
from eventveil.process.clock import Clock, PartitionClock
from eventveil.tasks.outages import Outage, Outages
from eventveil.worker.watching import Watch

log = logging.getLogger(__name__)

#: From the beginning of one round of questions to that of the next, unless the answers take longer.
_PAUSE_SECONDS = 1.0


class LeaderWatch:
    """Watches the leaders of these topics for all owners of one worker."""

    def __init__(
        self, cluster: Cluster, topics: Collection[str], clock: Clock, failed: Callable[[BaseException], None]
    ) -> None:
        self._cluster, self._clock = cluster, clock
        self._seen = {topic: Outages() for topic in topics}
        self._silent = False
        # An answer comes before or after a moment at which somebody asks what was seen, never in between.
        self._lock = threading.Lock()
        self._watch = Watch("leaders", self.look, failed)

    def start(self) -> None:
        """Begin to ask, if there is anything to be asked."""
        if self._seen:
            self._watch.start()

    def stop(self) -> None:
        """Ask no more."""
        self._watch.stop()

    def outages(self, topic: str, clock: PartitionClock) -> tuple[int, tuple[Outage, ...]]:
        """What was seen of a topic, and up to what time by ``clock``: nothing older will be seen later."""
        with self._lock:
            return clock.now(), self._seen[topic].all()

    def look(self) -> float:
        """Ask for the leaders of each topic. Blocks; returns after how many seconds to ask again."""
        began = time.monotonic()
        for topic in self._seen:
            try:
                self._see(topic, self._cluster.leaderless(topic))
            except KafkaException as error:
                if not self._silent:
                    log.warning("cannot find out which partitions of %s have no leader: %s", topic, error)
                self._silent = True
            else:
                self._silent = False
        return began + _PAUSE_SECONDS - time.monotonic()

    def _see(self, topic: str, leaderless: frozenset[int]) -> None:
        with self._lock:
            news = self._seen[topic].seen(self._clock.wall(), self._clock.monotonic(), leaderless)
        if news:
            log.warning("partitions %s of %s have no leader", news, topic)
