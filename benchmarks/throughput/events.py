"""The events that every contender counts, and the truth about them.

An event is ``{"user":"u000042","column":"c7","time":1767225600000}``, keyed by its user. Users and
columns are uniform. Messy events (220 bytes) also have an id, a price, null or a text, a flag, tags and the
name of a browser; nested ones (440 bytes) have all of it inside of objects, and two headers. Events are
written as fast as the broker takes them. Their times rise evenly over ten timestamps, or are those at which
they were written; the lateness of the stream is chosen afterwards, so that no event is late for a worker that
judges by append times. At most one event of a user counts per timestamp.

Malformed events have columns that no topology lists, each another one; deep ones also have lists in lists.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from random import Random
from typing import Any, Literal

import numpy as np
from confluent_kafka import Producer
from numpy.typing import NDArray

from tests.kafka.topics import LOG_APPEND_TIME, create_topic, unique

#: Milliseconds that the last event is written before the first deadline, at least.
LATENESS = 1000
_PORTION = 100_000
#: As long as brokers let a transaction be open.
_HIDDEN_MS = 900_000
Kind = Literal["friendly", "messy", "nested", "unknown", "deep"]
#: Where events of a kind have user, column and time.
FIELDS: dict[Kind, tuple[str, str, str]] = {
    "friendly": ("/user", "/column", "/time"),
    "messy": ("/user", "/column", "/time"),
    "nested": ("/who/user", "/page/section", "/at"),
    "unknown": ("/user", "/column", "/time"),
    "deep": ("/user", "/column", "/time"),
}
#: What follows the time of malformed events, none of which counts.
MALFORMED: dict[Kind, bytes] = {"unknown": b"}", "deep": b',"x":' + 38 * b"[" + 38 * b"]" + b"}"}
#: What nested events have.
HEADERS = [("type", b"viewed"), ("trace", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")]
_NESTED = (
    b'{"meta":{"id":"%032x","app":{"name":"shop","version":"4.2.1"}},'
    b'"who":{"user":"%b","session":"%032x","member":%b},'
    b'"page":{"section":"c%d","title":"Winter shoes \xc3\xa9","path":["shop",%d]},"at":%d,'
    b'"basket":[{"sku":%d,"price":%.2f},{"sku":%d,"price":%.2f}],"campaign":%b,"agent":"%b"}'
)
_AGENT = b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101"


@dataclass(frozen=True)
class Workload:
    """What is counted: ``events`` of ``users`` in ``columns``, over ``partitions``; the same for one seed.

    ``interval`` is the length of a timestamp in milliseconds; ``timestamps`` of them make the window.
    ``moments`` are the times of the portions, in milliseconds from the window's start; empty for times that
    rise evenly.
    """

    events: int = 1_000_000
    users: int = 100_000
    columns: int = 1_000
    partitions: int = 4
    interval: int = 1000
    timestamps: int = 10
    seed: int = 5
    moments: tuple[int, ...] = ()
    kind: Kind = "friendly"
    codec: str = "none"

    @property
    def window(self) -> int:
        """Milliseconds from the start of the first timestamp to the end of the last."""
        return self.timestamps * self.interval

    def portions(
        self, start: int
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
        """Users, columns and times, as many at a time; the window begins at ``start``, epoch milliseconds."""
        choose = np.random.default_rng(self.seed)
        for first in range(0, self.events, _PORTION):
            number = np.arange(first, min(first + _PORTION, self.events))
            users = choose.integers(0, self.users, len(number))
            columns = choose.integers(0, self.columns, len(number))
            even = number * self.window // self.events
            times = np.full(len(number), self.moments[first // _PORTION]) if self.moments else even
            yield users, columns, start + times

    def truth(self) -> NDArray[np.int64]:
        """Counts by timestamp and column."""
        truth = Truth(self, self.timestamps)
        for portion in () if self.kind in MALFORMED else self.portions(0):
            truth.add(*portion)
        return truth.counts

    def lines(self, start: int) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values."""
        for portion in self.portions(start):
            yield from encoded(*portion, kind=self.kind)


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
    """A workload in a topic; ``start`` is the beginning of its window, epoch milliseconds.

    With this ``lateness``, in milliseconds, no event is late.
    """

    workload: Workload
    bootstrap: str
    topic: str
    start: int
    lateness: int = LATENESS

    def deadline(self, timestamp: int) -> int:
        """Before which the events of a timestamp have to be appended, epoch milliseconds."""
        return self.start + timestamp * self.workload.interval + self.lateness

    def wait_until_due(self, skew: int) -> None:
        """Sleep until the last timestamp's deadline has passed by this many milliseconds."""
        time.sleep(max(0.0, (self.deadline(self.workload.timestamps) + skew) / 1000 - time.time()))

    def write(self, path: Path) -> None:
        """Write the events to a file, one JSON value a line."""
        with path.open("wb") as file:
            file.writelines(value + b"\n" for _, value in self.workload.lines(self.start))


def encoded(
    users: NDArray[np.int64], columns: NDArray[np.int64], times: NDArray[np.int64], *, kind: Kind = "friendly"
) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of events."""
    if kind == "nested":
        yield from _nested(users, columns, times)
        return
    if kind in MALFORMED:
        # As many columns as a stream may have are listed: none of these is.
        columns = np.arange(len(users)) + 10**9
    tails = _messy(len(users)) if kind == "messy" else repeat(MALFORMED.get(kind, b"}"), len(users))
    for (key, head), at, tail in zip(heads(users, columns), times.tolist(), tails, strict=True):
        yield key, b"%b%d%b" % (head, at, tail)


def _messy(number: int) -> Iterator[bytes]:
    """What messy events have behind the time, the same for one number."""
    chance = Random(number)
    for _ in range(number):
        yield (
            b',"id":"%032x","price":%.2f,"campaign":%b,"member":%b,"tags":[%b],"agent":"%b"}'
            % (
                chance.getrandbits(128),
                chance.random() * 100,
                chance.choice((b"null", b"null", b'"spring"')),
                chance.choice((b"true", b"false")),
                chance.choice((b"", b'"new"', b'"new","sale"')),
                _AGENT,
            )
        )


def _nested(
    users: NDArray[np.int64], columns: NDArray[np.int64], times: NDArray[np.int64]
) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of events whose fields are inside of objects, 440 bytes; the same for one number."""
    chance = Random(len(users))
    for user, column, at in zip(users.tolist(), columns.tolist(), times.tolist(), strict=True):
        key = b"u%06d" % user
        meta = chance.getrandbits(128), key, chance.getrandbits(128), chance.choice((b"true", b"false"))
        bought = [part for _ in range(2) for part in (chance.randrange(10**6), chance.random() * 100)]
        campaign = chance.choice((b"null", b'"spring"'))
        yield key, _NESTED % (*meta, column, chance.randrange(99), at, *bought, campaign, _AGENT)


def heads(users: NDArray[np.int64], columns: NDArray[np.int64]) -> Iterator[tuple[bytes, bytes]]:
    """Keys of events, and their values up to the time, behind which a brace is missing."""
    for user, column in zip(users.tolist(), columns.tolist(), strict=True):
        key = b"u%06d" % user
        yield key, b'{"user":"%b","column":"c%d","time":' % (key, column)


def producer_of(bootstrap: str, failed: list[object], codec: str = "none", **settings: Any) -> Producer:
    """A producer for events, compressed by ``codec``, with further ``settings`` of librdkafka.

    ``failed`` takes the errors of those that the broker refused.
    """
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": codec,
            "linger.ms": 20,
            "batch.num.messages": 100_000,
            "batch.size": 900_000,
            "queue.buffering.max.messages": 400_000,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: failed.append(error) if error else None,
            "log_level": 0,
            **settings,
        }
    )


def send(producer: Producer, topic: str, key: bytes, value: bytes, headers: Any = None) -> None:
    """Send an event; waits while the producer's queue is full."""
    while True:
        try:
            return producer.produce(topic, value, key, headers=headers)
        except BufferError:
            producer.poll(0.05)


def produce(bootstrap: str, workload: Workload, *, live: bool = False) -> Feed:
    """Write a workload to a new topic.

    If ``live``, events happen when they are written, a portion at a time, and there are as many timestamps as
    that takes. Raises RuntimeError if some were lost.
    """
    failed: list[object] = []
    return _written(bootstrap, workload, producer_of(bootstrap, failed, workload.codec), failed, live)


def produce_hidden(bootstrap: str, workloads: Iterable[Workload]) -> tuple[list[Feed], Callable[[], None]]:
    """Write workloads to new topics, in one transaction, and what commits it, within a quarter of an hour.

    Until then a worker that owns the topics waits for their events. Raises RuntimeError if some were lost.
    """
    failed: list[object] = []
    settings: dict[str, Any] = {
        "transactional.id": unique("bench"), "transaction.timeout.ms": _HIDDEN_MS,
    }  # fmt: skip
    producer = producer_of(bootstrap, failed, **settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    feeds = [_written(bootstrap, workload, producer, failed, live=False) for workload in workloads]
    return feeds, producer.commit_transaction


def _written(
    bootstrap: str, workload: Workload, producer: Producer, failed: list[object], live: bool
) -> Feed:
    topic = create_topic(bootstrap, unique("bench"), workload.partitions, LOG_APPEND_TIME)
    headers = HEADERS if workload.kind == "nested" else None
    start = _now() // 1000 * 1000
    moments: list[int] = []
    longest = 0
    for users, columns, times in workload.portions(start):
        moments.append(_now() - start)
        if live:
            times = np.full(len(times), start + moments[-1])
        for key, value in encoded(users, columns, times, kind=workload.kind):
            send(producer, topic, key, value, headers)
        if live:
            _flush(producer, failed)
            longest = max(longest, _now() - start - moments[-1])
    _flush(producer, failed)
    if live:
        timestamps = moments[-1] // workload.interval + 1
        workload = replace(workload, moments=tuple(moments), timestamps=timestamps)
    else:
        longest = _now() - start
    return Feed(workload, bootstrap, topic, start, longest + LATENESS)


def _flush(producer: Producer, failed: list[object]) -> None:
    if left := producer.flush(120) or failed:
        raise RuntimeError(f"events that were not written: {left}")


def _now() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000
