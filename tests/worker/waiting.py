"""Waiting for what a worker does."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable

from confluent_kafka import KafkaException, Message

from tests.kafka.topics import end_offset, following, read
from tests.worker.application import ORIGIN, Application

_LAST_OFFSETS = 200
#: Only a worker that does not get on takes as long. A busy machine may take a minute for what takes seconds.
_PATIENCE = 180.0


def until(holds: Callable[[], object], told: Callable[[], object] = lambda: "it did not happen") -> None:
    """Wait until something holds; ``told`` says how it stands if it never does."""
    deadline = time.monotonic() + _PATIENCE
    while not holds():
        assert time.monotonic() < deadline, told()
        time.sleep(0.1)


def wait_for_timestamp(application: Application, timestamp: int, sink: str | None = None) -> None:
    """Wait until a timestamp is released, or a later one."""
    until(lambda: last_release(application, sink or application.sink) >= timestamp)


def wait_for_releases(
    application: Application, count: int, seconds: float = _PATIENCE, sink: str | None = None
) -> int:
    """Wait until ``count`` timestamps are in the sink; the last one is returned."""
    deadline = time.monotonic() + seconds
    released: set[int] = set()
    with following(application.bootstrap, sink or application.sink) as more:
        while True:
            released.update(_timestamp(message) for message in more(0.3))
            if len(released) >= max(count, 1):
                return max(released)
            if time.monotonic() > deadline:
                raise TimeoutError(f"only {len(released)} of {count} releases")
            # Several come at once where a worker catches up.
            time.sleep(0.1)


def wait_for_letters(application: Application, **least: int) -> None:
    """Wait until there are this many dead letters of each reason or more, "_" standing for "-".

    How soon depends on when the worker gets on: one that is away makes no event late.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        letters = read(application.bootstrap, application.dead)
        found = Counter(dict(one.headers() or [])["eventveil.reason"].decode() for one in letters)
        if all(found[reason.replace("_", "-")] >= number for reason, number in least.items()):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"dead letters: {found}, not {least}")
        time.sleep(0.3)


def settle(
    application: Application,
    seconds: float = _PATIENCE,
    meanwhile: Callable[[], None] = lambda: time.sleep(0.3),
    now: int | None = None,
) -> None:
    """Wait until every event that was in the source ``now`` has had its verdict, in every stream.

    ``now`` in epoch ms is the time of the call if it is None. Whatever the source held then belongs to a
    timestamp before it plus ``max_ahead``; once that is released, it is counted, and what could not count
    is a dead letter. Raises TimeoutError.
    """
    horizon = (time.time_ns() // 1_000_000 if now is None else now) + application.max_ahead
    deadline = time.monotonic() + seconds
    for name, stream in application.document["streams"].items():
        if "timeline" not in stream:
            continue
        wanted = (horizon - ORIGIN) // application.rules(name).interval + 1
        sink = stream["sink"]["topic"]
        last = last_release(application, sink)
        with following(application.bootstrap, sink, _near_the_end(application, sink)) as more:
            while last < wanted:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{name} is at {last}, not at {wanted}, after {seconds} s")
                meanwhile()
                last = max([last, *map(_timestamp, more(0))])


def last_release(application: Application, sink: str) -> int:
    """The timestamp of the newest release in a sink, 0 if there is none."""
    newest = newest_of(application, sink)
    return 0 if newest is None else _timestamp(newest)


def newest_of(application: Application, topic: str, partition: int = 0) -> Message | None:
    """The newest committed record of a partition, None if there is none."""
    # The last of them, for there may be many; but all, if these are the markers of transactions only.
    for first in (_near_the_end(application, topic, partition), 0):
        if newest := read(application.bootstrap, topic, partition=partition, first=first)[-1:]:
            return newest[0]
        if not first:
            break
    return None


def _timestamp(release: Message) -> int:
    return int(json.loads(release.value() or b"")["timestamp"])


def _near_the_end(application: Application, topic: str, partition: int = 0) -> int:
    """An offset not far from the end; 0 while no leader tells where that is."""
    try:
        end = end_offset(application.bootstrap, topic, partition=partition, seconds=5)
    except KafkaException:
        return 0
    return max(0, end - _LAST_OFFSETS)
