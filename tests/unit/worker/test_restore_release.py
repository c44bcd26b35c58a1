"""The sanitize role takes over: a state that could not be written any more is refused."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from eventveil.kinds.placement import StreamPlan
from eventveil.lifecycle.manifest import ManifestRecord
from eventveil.mechanisms.registry import of_stream
from eventveil.mechanisms.sizes import Room, largest_state
from eventveil.model.errors import StateRefused
from eventveil.model.records import MANAGED_MESSAGE_BYTES, MAX_MESSAGE_BYTES, TopicPartition
from eventveil.model.topology import Stream, TopicSettings
from eventveil.tasks.release import ReleaseState, StreamSanitizer
from eventveil.worker.restore.release import _restore
from tests.unit.support import INSTANCE, ZeroNoise, topology
from tests.unit.tasks.test_discovery import HOW, finding

PLACE = TopicPartition("app-ledger-changelog", 3)


def wide(**changes: Any) -> Stream:
    return finding(discover=replace(HOW, most=100_000, **changes))


def columns(number: int) -> tuple[str, ...]:
    return tuple(f"c{at:06}" for at in range(number))


#: As many as a managed cluster has room for, if none are forgotten, and one more.
MOST = Room(wide(message_bytes=MANAGED_MESSAGE_BYTES)).about(len(columns(1)[0]))
FOUND = columns(MOST + 1)


def restored(of: Stream, found: tuple[str, ...], settings: TopicSettings) -> StreamSanitizer:
    """What a worker takes over of a stream with these columns, by a file with these settings of topics."""
    app = replace(topology(of), topics=settings)
    plan = StreamPlan(of, settings.partials)
    snapshot = of_stream(of.having(found), ZeroNoise()).snapshot().decode()
    state = ReleaseState(INSTANCE, 1, 4, 30, snapshot, found=found)
    genesis = ManifestRecord(
        "visits", INSTANCE, plan.budget_fields(1, "sink-id"), app.partials, "partials-id", 3, 1, 0, 1
    )
    states = {b"genesis/visits": genesis.encode(), b"visits": state.encode()}
    live: Any = {
        "raw": SimpleNamespace(partitions=1),
        of.sink.topic: SimpleNamespace(id="sink-id"),
        app.partials: SimpleNamespace(id="partials-id"),
    }
    context: Any = SimpleNamespace(topology=app, noise=ZeroNoise)
    table: Any = SimpleNamespace(place=PLACE, partition=3)
    return _restore(plan, states, live, context, table)


def test_a_stream_with_more_columns_than_a_managed_cluster_has_room_for_is_refused_with_its_place() -> None:
    of, found = wide(message_bytes=MANAGED_MESSAGE_BYTES), FOUND
    with pytest.raises(StateRefused, match=f"to {largest_state(of.having(found))} bytes") as raised:
        restored(of, found, TopicSettings(managed="true"))
    assert raised.value.place == f"{PLACE}, stream visits"
    assert str(MANAGED_MESSAGE_BYTES) in raised.value.what
    assert "managed: true" in raised.value.remedy
    # Where they were found they still fit, and as many as there is room for fit everywhere.
    whole = restored(wide(message_bytes=MAX_MESSAGE_BYTES), found, TopicSettings())
    assert whole.state.found == found
    assert restored(of, found[:-1], TopicSettings(managed="true")).state.found == found[:-1]


def test_forgetting_may_begin_where_there_is_no_more_room() -> None:
    of = wide(message_bytes=MANAGED_MESSAGE_BYTES, forget=4)
    found = FOUND[:-1]
    assert largest_state(of.having(found)) > MANAGED_MESSAGE_BYTES
    assert restored(of, found, TopicSettings(managed="true")).state.found == found
