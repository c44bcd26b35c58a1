"""Waiting for what a worker does."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable

from confluent_kafka import KafkaException

from tests.kafka.topics import end_offset, read
from tests.worker.application import ORIGIN, Application

_LAST_OFFSETS = 200
#: Only a worker that does not get on takes as long. A busy machine may take a minute for what takes seconds.
_PATIENCE = 180.0


def wait_for_releases(
    application: Application, count: int, seconds: float = _PATIENCE, sink: str | None = None
) -> int:
    """Wait until ``count`` timestamps are in the sink; the last one is returned."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        releases = application.releases(sink=sink)
        if len(releases) >= count:
            return max(releases)
        time.sleep(0.3)
    raise TimeoutError(f"only {len(releases)} of {count} releases")


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
) -> None:
    """Wait until every event that is in the source by now has had its verdict, in every stream.

    Whatever the source holds belongs to a timestamp before now plus ``max_ahead``; once that is released,
    it is counted, and what could not count is a dead letter. Raises TimeoutError.
    """
    horizon = time.time_ns() // 1_000_000 + application.max_ahead
    deadline = time.monotonic() + seconds
    for name, stream in application.document["streams"].items():
        if "timeline" not in stream:
            continue
        wanted = (horizon - ORIGIN) // application.rules(name).interval + 1
        while (last := last_release(application, stream["sink"]["topic"])) < wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} is at {last}, not at {wanted}, after {seconds} s")
            meanwhile()


def last_release(application: Application, sink: str) -> int:
    """The timestamp of the newest release in a sink, 0 if there is none."""
    # The last of them, for a sink may be long; but all, if these are the markers of transactions only.
    for first in (_near_the_end(application, sink), 0):
        if newest := read(application.bootstrap, sink, first=first)[-1:]:
            return int(json.loads(newest[0].value() or b"")["timestamp"])
    return 0


def _near_the_end(application: Application, sink: str) -> int:
    """An offset not far from the end; 0 while no leader tells where that is."""
    try:
        return max(0, end_offset(application.bootstrap, sink, seconds=5) - _LAST_OFFSETS)
    except KafkaException:
        return 0
