"""Releases that are overdue and do not come: a warning, which a stream that waits for another worker needs.

Readiness is of the partitions that a worker has. A release that waits for the counts of partitions of another
worker makes none of its own stall. How late a release is, is public: every reader of the sink sees it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

log = logging.getLogger(__name__)

OVERDUE_SECONDS, AGAIN_SECONDS = 60.0, 600.0


class Overdue:
    """What was last seen of each stream, and when its wait was last told of; times are monotonic seconds.

    ``group`` is the consumer group of the workers.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._waiting: dict[str, tuple[int, float]] = {}
        self._told: dict[str, float] = {}
        #: The timestamp that was told of and is not released yet.
        self._missed: dict[str, int] = {}

    def look(self, delays: Mapping[str, tuple[int, int]], now: float) -> None:
        """``delays``: by stream the timestamp that is released next, and for how many ms it has been due."""
        for stream in self._waiting.keys() - delays.keys():
            del self._waiting[stream]
            self._missed.pop(stream, None)
        for stream, (timestamp, delay) in delays.items():
            known, since = self._waiting.get(stream, (None, now))
            if known != timestamp or not delay:
                self._waiting[stream] = timestamp, now
            elif min(now - since, delay / 1000) >= OVERDUE_SECONDS:
                self._tell(stream, timestamp, delay // 1000, now)
            if delay < OVERDUE_SECONDS * 1000:
                self._tell_released(stream, timestamp)

    def _tell_released(self, stream: str, following: int) -> None:
        missed = self._missed.get(stream, following)
        if missed < following:
            del self._missed[stream]
            log.info("stream %s releases again: timestamp %d was overdue and is released", stream, missed)

    def _tell(self, stream: str, timestamp: int, seconds: int, now: float) -> None:
        self._missed[stream] = timestamp
        if now - self._told.get(stream, -AGAIN_SECONDS) < AGAIN_SECONDS:
            return
        self._told[stream] = now
        log.warning(
            "stream %s: timestamp %d was due %d s ago and is not released: either its releases are held up,"
            " or a partition of its source is not counted to the end of the timestamp. /health/ready of each"
            " worker says which. A worker that runs an older file does not count a stream added since:"
            " restart it with the current file. If another program has joined consumer group %s, the"
            " partitions assigned to it are not counted: kafka-consumer-groups.sh --bootstrap-server ..."
            " --group %s --describe --members lists all members with their hosts; stop the program, or give"
            " it a group of its own",
            stream, timestamp, seconds, self._group, self._group,
        )  # fmt: skip
