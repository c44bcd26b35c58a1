"""Plain events of each kind of stream are read, placed and bounded together, by the kernel or in arrays."""

from __future__ import annotations

from typing import Any

import pytest

from eventveil.counting.assigner import Assigner
from eventveil.counting.users import PlainContributions
from eventveil.model.records import Chunk
from eventveil.model.topology import Stream
from eventveil.tasks.aggregate import PartitionAggregator
from eventveil.tasks.pan_private import SingleAggregator, SingleCounter
from tests.fuzz.ways import WAYS, read_by
from tests.unit.support import aggregator, chunk, counter_state, event, stream

EVENTS = [event(user, column) for user, column in ("ua", "ub", "va", "wb", "wb")]


def counting(one: Stream) -> PartitionAggregator:
    made = aggregator(one)
    if one.source.append_time == "boundary":
        made.capture_boundary(1018, 100)
    return made


def pan_private(one: Stream) -> PartitionAggregator:
    return SingleAggregator(one, counter_state())


def rekeyed(read: Chunk) -> Chunk:
    headers = [
        (
            ("eventveil.partition", b"0"),
            ("eventveil.offset", b"%d" % offset),
            ("eventveil.timestamp", b"1001"),
        )
        for offset in read.offsets
    ]
    return Chunk(read.topic, 0, 1, 0, read.offsets, read.append_times, read.keys, read.values, 5, headers)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("changes", "make", "counted"),
    [
        ({}, counting, 3),
        ({"append_time": "boundary"}, counting, 3),
        ({"raw": "events"}, counting, 3),
        ({"append_time": "boundary", "kind": "pan-private"}, pan_private, 5),
    ],
    ids=["append times", "boundaries", "re-keyed", "pan-private"],
)
def test_plain_events_are_not_judged_one_by_one(
    changes: Any, make: Any, counted: int, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("one by one")

    one, read = stream(**changes), chunk([(1001, value) for value in EVENTS])
    with read_by(way):
        made = make(one)
        monkeypatch.setattr(Assigner, "verdict", refuse)
        if way == "kernel":
            # In arrays neither.
            monkeypatch.setattr(Assigner, "_on_time", refuse)
            monkeypatch.setattr(PlainContributions, "admit", refuse)
        made.process(rekeyed(read) if "raw" in changes else read)
    (counter,) = made.counters.values()
    assert made.position == len(EVENTS)
    # Those of a pan-private stream are booked when their timestamp closes.
    found = counter._taken if isinstance(counter, SingleCounter) else counter.outcomes["counted"]
    assert found == counted
