"""Where events are judged by other rules, how many of them count depends on no event of another user.

Two worlds differ in one event of one user. Others sent events that did not count by the first rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest

from eventveil.counting.boundaries import Boundary
from eventveil.counting.counter import CounterState
from eventveil.formats.change import Difference
from eventveil.lifecycle.beginning import judged_anew_from
from eventveil.lifecycle.manifest import ManifestRecord
from eventveil.lifecycle.migration import check_judged_anew, check_sound
from eventveil.lifecycle.relocation import InputTopics, Log, relocate
from eventveil.model.errors import StateRefused
from eventveil.model.partitioners import murmur2_partition
from eventveil.model.records import Chunk, TopicPartition
from eventveil.model.topology import Condition, NameMap
from eventveil.tasks.aggregate import PartitionAggregator
from eventveil.topology.changes import REFUSED_BY_BOUNDARY, SOUND
from tests.unit.migrating import COUNTING, FIRST, PARTITIONS, Lifetime
from tests.unit.support import aggregator, chunk, sparse, stream

HOUR = 3_600_000
LINE: dict[str, Any] = {
    "interval": HOUR, "origin": 0, "lateness": HOUR // 6, "max_ahead": HOUR, "clock_skew": 1000,
}  # fmt: skip
FIRST_PLACE = TopicPartition(COUNTING, 0)
#: Timestamp 6 begins; timestamp 5 is closed ten minutes later.
BEGIN = 5 * HOUR
NAMES = [f"u{number}" for number in range(2000)]
ALICE, *OTHERS = [one for one in NAMES if murmur2_partition(one.encode(), PARTITIONS) == 0][:101]


def event(user: str, time: int, **more: object) -> bytes:
    return orjson.dumps({"user": user, "column": "a", "time": time, **more})


def log(alice: bytes | None, other: Callable[[str, int], bytes], append_time: int = BEGIN) -> Chunk:
    """The record of one user, if she is there, and of others after it."""
    first = [] if alice is None else [(append_time + 1, alice)]
    others = [(append_time + 2 + at, other(one, append_time + 2 + at)) for at, one in enumerate(OTHERS)]
    return chunk([*first, *others])


def counted(one: PartitionAggregator, now: int, end: int) -> int:
    """How many events count in the timestamps that are due."""
    one.capture_end(now, end)
    batch = one.close(now)
    assert batch is not None
    return sum(sum(sparse(partial).values()) for partial in batch.partials)


def until_the_change(life: Lifetime, records: Chunk) -> None:
    """A worker judges all, closes timestamp 5 and is stopped."""
    state = life.checkpoint.counting[FIRST_PLACE][1]
    worker = aggregator(life.stream, partitions=PARTITIONS, states={"visits": state})
    worker.process(records)
    now = BEGIN + HOUR // 6 + 1000
    worker.capture_end(now, records.next_offset)
    batch = worker.close(now)
    assert batch is not None
    worker.durable(batch)
    life.release(1)
    life.tables[FIRST_PLACE][b"visits"] = batch.states["visits"].encode()


class Cluster:
    """All records of its log were appended after the time from which timestamp 6 can have events."""

    def first_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, 0)

    def offsets_at(self, places: Iterable[TopicPartition], time: int) -> dict[TopicPartition, int]:
        assert time == BEGIN - HOUR - 1000 or time == BEGIN - 2 * HOUR - 1000
        return dict.fromkeys(places, 0)


def judged_anew(life: Lifetime, manifest: ManifestRecord, state: CounterState) -> CounterState:
    """What ``restore_aggregate`` makes of a state that no worker of this version has written."""
    cluster: Any = Cluster()
    begin = judged_anew_from(cluster, life.plan, TopicPartition("t", 0), manifest, state)
    return state.judging_from(begin, keeps_marks=False)


def taken_over(life: Lifetime) -> CounterState:
    return judged_anew(life, *life.checkpoint.counting[FIRST_PLACE])


def plain(user: str, time: int) -> bytes:
    return event(user, time, type="buy", place="a", pad="")


#: By field: settings before and after, and the event of another user.
CHANGES: Mapping[str, tuple[dict[str, Any], dict[str, Any], Callable[[str, int], bytes]]] = {
    "source.filter": (
        {"filter": (Condition("/type", "in", ("buy",)),)},
        {"filter": (Condition("/type", "in", ("buy", "view")),)},
        lambda user, time: event(user, time, type="view"),
    ),
    "source.column": ({}, {"column": "/place"}, lambda user, time: event(user, time, column="c", place="a")),
    "source.maps": (
        {"maps": (NameMap("/column", {"a": "a"}, (), None),)},
        {"maps": (NameMap("/column", {"a": "a", "c": "a"}, (), None),)},
        lambda user, time: event(user, time, column="c"),
    ),
    "source.max_bytes": (
        {"max_bytes": 100},
        {"max_bytes": 1000},
        lambda user, time: event(user, time, pad="x" * 200),
    ),
    "timeline.max_ahead": ({}, {"max_ahead": 2 * HOUR}, lambda user, time: event(user, time + 7 * HOUR // 6)),
    "timeline.lateness": (
        {"lateness": HOUR // 6},
        {"lateness": HOUR // 3},
        # On time under both: nobody is late for a timestamp that is not due.
        plain,
    ),
    "counts.unknown": (
        {},
        {"unknown": "column", "unknown_column": 1},
        lambda user, time: event(user, time, column="c"),
    ),
    "counts.contributions": ({}, {"contributions": 2}, plain),
    "counts.per_column": (
        {"contributions": 2, "per_column": 1},
        {"contributions": 2, "per_column": 2},
        plain,
    ),
}


def test_every_setting_by_which_events_are_judged_is_here() -> None:
    judging = {name for name in SOUND if name.startswith(("source.", "timeline.", "counts."))}
    assert judging - {"source.partitions"} == CHANGES.keys()


@pytest.mark.parametrize(
    ("field", "append_time"),
    [
        *((field, "broker") for field in CHANGES),
        *((field, "boundary") for field in sorted(CHANGES.keys() - REFUSED_BY_BOUNDARY.keys())),
    ],
)
def test_a_migration_lets_no_event_count_because_of_another_users(field: str, append_time: str) -> None:
    before, after, other = CHANGES[field]
    found = []
    for alice in (plain(ALICE, BEGIN + 1), None):
        records, life = log(alice, other), Lifetime(**{**LINE, "append_time": append_time, **before})
        until_the_change(life, records)
        life.change(**after)
        moved = taken_over(life)
        assert (moved.resume, moved.judged) == (0, records.next_offset)
        worker = aggregator(life.stream, partitions=PARTITIONS, states={"visits": moved})
        worker.process(records.since(moved.resume))
        found.append(counted(worker, BEGIN + 4 * HOUR, records.next_offset))
    assert found == [len(OTHERS) + 1, len(OTHERS)]


@pytest.mark.parametrize("field", sorted(CHANGES.keys() & REFUSED_BY_BOUNDARY.keys()))
def test_with_boundaries_rules_that_they_rest_on_cannot_change(field: str) -> None:
    before, after, _ = CHANGES[field]
    life = Lifetime(**{**LINE, "append_time": "boundary", **before})
    life.release(1)
    life.settings |= after
    with pytest.raises(StateRefused, match=f"{field}.* which cannot be migrated"):
        check_sound(life.checkpoint, life.checkpoint.differences(life.target()))


def test_with_boundaries_that_do_not_reach_back_no_rule_changes() -> None:
    """Version 0.2.0 kept those that were needed behind the first event that counts, and no others."""
    life = Lifetime(**{**LINE, "append_time": "boundary"})
    life.release(4)
    change = {"counts.unknown": Difference("refuse", "column")}
    seventh, eighth = Boundary(FIRST + 2, 5), Boundary(FIRST + 3, 6)
    for captured, known in (((seventh, eighth), False), ((Boundary(FIRST, 1), seventh, eighth), True)):
        for place in life.places[:-1]:
            state = life.checkpoint.counting[place][1]
            life.tables[place][b"visits"] = state.replace(boundaries=captured).encode()
        if known:
            check_judged_anew(life.stream, life.checkpoint, change)
        else:
            with pytest.raises(StateRefused, match="do not show from which offset on") as refusal:
                check_judged_anew(life.stream, life.checkpoint, change)
            # What max_ahead, lateness and two steps of the reference come to.
            assert "run the workers for 190m, and migrate then" in refusal.value.remedy
            # Another sink, or more partitions, is no other rule.
            check_judged_anew(life.stream, life.checkpoint, {"source.partitions": Difference(2, 3)})


def test_clock_skew_does_not_decide_what_is_too_far_ahead_by_boundaries() -> None:
    rules: dict[str, Any] = {"append_time": "boundary", "interval": HOUR, "origin": 0, "max_ahead": HOUR}
    far = event(ALICE, 3 * HOUR + 30_000)
    found = []
    for skew in (1000, 60_000):
        one = aggregator(stream(**rules, lateness=0, clock_skew=skew))
        one.capture_boundary(HOUR + skew, 0)
        one.process(chunk([(-1, far)]))
        found.append(one.counters["visits"].outcomes)
    assert found[0] == found[1] == {"too-far-ahead": 1}


class Known:
    """A schema of JSON."""

    form = None

    def read(self, body: bytes) -> Any:
        return orjson.loads(body)


def test_a_schema_that_becomes_known_lets_no_event_count_because_of_another_users() -> None:
    """What ``restore_aggregate`` does with the state of such a stream."""
    rules = stream(**LINE, format="avro")
    assert rules.source.verdicts_may_change
    found = []
    for alice in (b"\0\0\0\0\1" + plain(ALICE, BEGIN + 1), None):
        records = log(alice, lambda user, time: b"\0\0\0\0\2" + plain(user, time))
        worker = aggregator(rules, partitions=PARTITIONS)
        worker.process(replace(records, schemas={1: Known(), 2: None}))
        batch = worker.dead_letter_batch()
        assert batch is not None
        worker.durable(batch)
        state = batch.states["visits"].judging_from(0, keeps_marks=False)
        worker = aggregator(rules, partitions=PARTITIONS, states={"visits": state})
        worker.process(replace(records.since(state.resume), schemas={1: Known(), 2: Known()}))
        found.append(counted(worker, BEGIN + 4 * HOUR, records.next_offset))
    assert found == [len(OTHERS) + 1, len(OTHERS)]


@pytest.mark.parametrize("partitions", [3, 4])
@pytest.mark.parametrize("append_time", ["broker", "boundary"])
def test_more_partitions_let_no_event_count_because_of_another_users(
    partitions: int, append_time: str
) -> None:
    """Others were in the wrong partition of two, and are in the right one of more."""
    alice = next(one for one in NAMES if {murmur2_partition(one.encode(), n) for n in (2, partitions)} == {0})
    moving = [
        one
        for one in NAMES
        if murmur2_partition(one.encode(), 2) and not murmur2_partition(one.encode(), partitions)
    ]
    assert bool(moving) == (partitions == 3), "who is in a partition of twice as many was in it before"
    rules = {**LINE, "append_time": append_time}
    now, found = BEGIN + HOUR // 6 + 1000, []
    for first in ([plain(alice, BEGIN + 1)], []):
        others = [plain(one, BEGIN + 2 + at) for at, one in enumerate(moving)]
        times = BEGIN if append_time == "broker" else -1
        records = chunk([(times, one) for one in [*first, *others]])
        life = Lifetime(**rules)
        state = life.checkpoint.counting[FIRST_PLACE][1]
        worker = PartitionAggregator(2, {"visits": (life.stream, state)})
        worker.process(records)
        judged = worker.counters["visits"].state_at(records.next_offset)
        moved = relocated(life, judged, partitions, now, records.next_offset)
        new = PartitionAggregator(partitions, {"visits": (life.stream, moved[1])}, grown={"visits": moved[0]})
        new.process(records.since(moved[1].resume))
        if append_time == "boundary":
            new.capture_boundary(BEGIN + 2 * HOUR, records.next_offset)
        found.append(counted(new, BEGIN + 2 * HOUR, records.next_offset))
    assert found == [1 + len(moving), len(moving)]


def relocated(
    life: Lifetime, judged: CounterState, partitions: int, now: int, end: int, source: str = "id"
) -> tuple[Any, Any]:
    """Genesis growth and state of the first partition once the source has more."""
    life.tables[FIRST_PLACE][b"visits"] = judged.encode()
    checkpoint = life.checkpoint
    logs = {
        number: Log(TopicPartition(COUNTING, number), 0, 0 if number else end, 0, now)
        for number in range(partitions)
    }
    topics = InputTopics(source, checkpoint.manifest.topic_id, 0, 10**6, now, logs)
    found = relocate(life.stream, checkpoint, topics)
    assert found is not None
    manifest, state = found.counting[FIRST_PLACE]
    return manifest.grown, judged_anew(life, manifest, state)


def test_where_boundaries_do_not_reach_back_more_partitions_count_only_what_was_never_judged() -> None:
    reaching = (Boundary(FIRST, 1),)
    # Of another topic nothing was judged.
    cases = (((), 3, "id", 12), (reaching, 3, "id", 9), ((), 4, "id", 9), ((), 3, "new", 9))
    for captured, partitions, source, since in cases:
        life = Lifetime(**LINE, append_time="boundary")
        life.release(4)
        kept = (*captured, Boundary(FIRST + 2, 5), Boundary(FIRST + 3, 6))
        for place, (_, state) in life.checkpoint.counting.items():
            life.tables[place][b"visits"] = state.replace(boundaries=kept).encode()
        growth, _ = relocated(life, life.checkpoint.counting[FIRST_PLACE][1], partitions, 1, 9, source)
        # Else the reference is the deadline of the timestamp after the last captured one, and one hour.
        assert growth[-1].since == since
