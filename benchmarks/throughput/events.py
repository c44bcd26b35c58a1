"""The events that every contender counts, and the truth about them.

An event is ``{"user":"u000042","column":"c7","time":1767225600000}``, keyed by its user. Users and
columns are uniform. Times rise evenly over a window of ten timestamps that begins when everything has been
produced, so that no event is late for a worker that judges by append times. At most one event of a user
counts per timestamp.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from confluent_kafka import Producer
from numpy.typing import NDArray

from tests.kafka.topics import LOG_APPEND_TIME, create_topic, unique

_PORTION = 100_000


@dataclass(frozen=True)
class Workload:
    """What is counted: ``events`` of ``users`` in ``columns``, over ``partitions``; the same for one seed.

    ``interval`` is the length of a timestamp in milliseconds; ``timestamps`` of them make the window.
    """

    events: int = 1_000_000
    users: int = 100_000
    columns: int = 1_000
    partitions: int = 4
    interval: int = 1000
    timestamps: int = 10
    seed: int = 5

    @property
    def window(self) -> int:
        """Milliseconds from the first event to the last."""
        return self.timestamps * self.interval

    def portions(
        self, start: int
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
        """Users, columns and times, so many at a time; the window begins at ``start``, epoch milliseconds."""
        choose = np.random.default_rng(self.seed)
        for first in range(0, self.events, _PORTION):
            number = np.arange(first, min(first + _PORTION, self.events))
            users = choose.integers(0, self.users, len(number))
            columns = choose.integers(0, self.columns, len(number))
            yield users, columns, start + number * self.window // self.events

    def truth(self) -> NDArray[np.int64]:
        """Counts by timestamp and column."""
        truth = Truth(self, self.timestamps)
        for portion in self.portions(0):
            truth.add(*portion)
        return truth.counts

    def lines(self, start: int) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values."""
        for portion in self.portions(start):
            yield from encoded(*portion)


class Truth:
    """Counts by timestamp and column: of each user the first event of a timestamp."""

    def __init__(self, workload: Workload, timestamps: int) -> None:
        self.counts = np.zeros((timestamps, workload.columns), np.int64)
        self._interval = workload.interval
        self._seen = np.zeros((timestamps, workload.users), np.bool_)

    def add(self, users: NDArray[np.int64], columns: NDArray[np.int64], times: NDArray[np.int64]) -> None:
        """Add events in their order; times are milliseconds since the first timestamp's start."""
        timestamps = times // self._interval
        _, first = np.unique(timestamps * self._seen.shape[1] + users, return_index=True)
        first = first[~self._seen[timestamps[first], users[first]]]
        np.add.at(self.counts, (timestamps[first], columns[first]), 1)
        self._seen[timestamps[first], users[first]] = True


@dataclass(frozen=True)
class Feed:
    """A workload in a topic; ``start`` is the beginning of its window, epoch milliseconds."""

    workload: Workload
    bootstrap: str
    topic: str
    start: int

    def wait_until_due(self, lateness: int) -> None:
        """Sleep until the last timestamp's deadline has passed by so many milliseconds."""
        time.sleep(max(0.0, (self.start + self.workload.window + lateness) / 1000 - time.time()))

    def write(self, path: Path) -> None:
        """Write the events to a file, one JSON value a line."""
        with path.open("wb") as file:
            file.writelines(value + b"\n" for _, value in self.workload.lines(self.start))


def encoded(
    users: NDArray[np.int64], columns: NDArray[np.int64], times: NDArray[np.int64]
) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of events."""
    for user, column, at in zip(users.tolist(), columns.tolist(), times.tolist(), strict=True):
        key = b"u%06d" % user
        yield key, b'{"user":"%b","column":"c%d","time":%d}' % (key, column, at)


def producer_of(bootstrap: str, failed: list[object]) -> Producer:
    """A producer for events; ``failed`` takes the errors of those that the broker refused."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 20,
            "batch.num.messages": 100_000,
            "batch.size": 900_000,
            "queue.buffering.max.messages": 400_000,
            "on_delivery": lambda error, _: failed.append(error) if error else None,
            "log_level": 0,
        }
    )


def send(producer: Producer, topic: str, key: bytes, value: bytes) -> None:
    """Send an event; waits while the producer's queue is full."""
    while True:
        try:
            return producer.produce(topic, value, key)
        except BufferError:
            producer.poll(0.05)


def produce(bootstrap: str, workload: Workload) -> Feed:
    """Write a workload to a new topic; how long many events will take is tried with a few of them first.

    Raises RuntimeError if the window began before all events were written, or if some were lost.
    """
    slowest = 3.0
    if workload.events > _PORTION:
        begun = time.monotonic()
        _write(bootstrap, replace(workload, events=_PORTION), int(time.time() * 1000))
        slowest = 2 * (time.monotonic() - begun) * workload.events / _PORTION
    start = (int(time.time() + slowest) + 3) * 1000
    topic = _write(bootstrap, workload, start)
    if time.time() * 1000 > start:
        raise RuntimeError(
            f"writing {workload.events} events took more than {slowest:.0f} s: the machine is busy"
        )
    return Feed(workload, bootstrap, topic, start)


def _write(bootstrap: str, workload: Workload, start: int) -> str:
    """The topic with the events."""
    topic = create_topic(bootstrap, unique("bench"), workload.partitions, LOG_APPEND_TIME)
    failed: list[object] = []
    producer = producer_of(bootstrap, failed)
    for number, (key, value) in enumerate(workload.lines(start)):
        send(producer, topic, key, value)
        if number % 10_000 == 0:
            producer.poll(0)
    if left := producer.flush(120) or failed:
        raise RuntimeError(f"events that were not written: {left}")
    return topic
