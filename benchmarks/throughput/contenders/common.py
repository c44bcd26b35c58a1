"""What the contenders share: their task, how they are measured, and the counting of one event.

Only numpy and orjson are needed, for some contenders live in an environment without Eventveil.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Task:
    """What to count, from the command line: the ``events`` that there are in these ``partitions``.

    ``begin`` is when to, in seconds since the epoch; ``kind`` is that of ``events.FIELDS``; ``out`` takes the
    counts, by timestamp and column.
    """

    bootstrap: str
    topic: str
    partitions: list[int]
    events: int
    begin: float
    start: int
    interval: int
    timestamps: int
    columns: int
    kind: str
    out: str

    @classmethod
    def given(cls) -> Task:
        """The task of this process."""
        return cls(**json.loads(sys.argv[1]))


class Measured:
    """The counts of one process, and what counting took from ``begin`` to ``finish``: all its threads."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.counts: list[defaultdict[str, int]] = [defaultdict(int) for _ in range(task.timestamps)]
        self.users: list[set[str]] = [set() for _ in range(task.timestamps)]
        self._left = task.events
        self._begun: tuple[float, float] | None = None

    def begin(self) -> None:
        """The first events are about to come."""
        self._begun = _cpu(), time.monotonic()

    def add(self, user: str, column: str, at: int) -> None:
        """Count one event; with the last one the process ends."""
        if self._begun is None:
            self.begin()
        timestamp = (at - self.task.start) // self.task.interval
        if user not in self.users[timestamp]:
            self.users[timestamp].add(user)
            self.counts[timestamp][column] += 1
        self._left -= 1
        if not self._left:
            self.finish()

    def finish(self, counts: Any = None) -> None:
        """Write the counts and what they took, and end the process, which may be inside a framework."""
        assert self._begun is not None
        cpu, wall = _cpu() - self._begun[0], time.monotonic() - self._begun[1]
        if counts is None:
            counts = np.zeros((self.task.timestamps, self.task.columns), np.int64)
            for row, found in zip(counts, self.counts, strict=True):
                for column, number in found.items():
                    row[int(column[1:])] = number
        np.savez(self.task.out, counts=counts, cpu=cpu, wall=wall)
        os._exit(0)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def consumer(task: Task) -> Any:
    """A confluent-kafka consumer of the partitions from their beginning, when it is time to."""
    from confluent_kafka import Consumer, TopicPartition

    time.sleep(max(0.0, task.begin - time.time()))
    made = Consumer(
        {
            "bootstrap.servers": task.bootstrap,
            "group.id": f"{task.topic}-{os.getpid()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.queue.backoff.ms": 5,
            "queued.min.messages": 100_000,
        }
    )
    made.assign([TopicPartition(task.topic, partition, 0) for partition in task.partitions])
    return made
