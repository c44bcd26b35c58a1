"""What a log that has lost records makes of a take-over, and of a question for its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from random import Random
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from eventveil.counting.boundaries import Boundary
from eventveil.kafka.cluster import Topic
from eventveil.lifecycle.manifest import ManifestRecord
from eventveil.model.errors import StateRefused, Unsettled
from eventveil.model.reach import REACH, Reach, header_of
from eventveil.model.records import NO_EPOCH, Headers, TopicPartition
from eventveil.process.clock import SYSTEM_CLOCK, PartitionClock
from eventveil.tasks.aggregate import VERSION
from eventveil.topology.changes import MIGRATE_LOST, lost
from eventveil.worker.ends import EndWatch
from eventveil.worker.observe.observation import Observation
from eventveil.worker.offsets import Lineage, check_resume, grown
from eventveil.worker.restore.aggregate import JUDGE, restore_aggregate
from eventveil.worker.restore.restored import Context
from eventveil.worker.runner import Runner
from eventveil.worker.threads import Threads
from eventveil.worker.topic_guard import Inquiry, TopicGuard
from tests.unit.migrating import COUNTING, FIRST, Lifetime
from tests.unit.support import topology

PLACE = TopicPartition("raw", 0)
OLD = "0.2.1"


class Log:
    """A cluster whose one partition has these offsets, and whose topic has this id.

    ``epochs`` are those of its leaders, each with its first offset; ``asked_epochs`` are those that were
    asked for, each with the least epoch of the leader.
    """

    def __init__(
        self, first: int, end: int, topic_id: str = "id", epochs: Mapping[int, int] = MappingProxyType({})
    ) -> None:
        self.first, self.end, self.topic_id = first, end, topic_id
        self.epochs, self.asked_epochs = dict(epochs), list[tuple[int, int]]()

    def first_offsets(self, places: Collection[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, self.first)

    def end_offsets(self, places: Collection[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return dict.fromkeys(places, self.end)

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        return {name: Topic(name, self.topic_id, 1) for name in names}

    def reached(self, place: tuple[str, int]) -> Reach:
        return Reach(max(self.epochs, default=NO_EPOCH), self.end)

    def parted(self, place: tuple[str, int], reach: Reach, least: int = NO_EPOCH) -> int | None:
        self.asked_epochs.append((reach.epoch, least))
        return reach.parted(end_of(reach.epoch, self.epochs, self.end))


def end_of(epoch: int, epochs: Mapping[int, int], end: int) -> Reach:
    """What a broker says of an epoch, as Apache Kafka does (LeaderEpochFileCache.endOffsetFor)."""
    later = [begin for one, begin in epochs.items() if one > epoch]
    if epoch in epochs and not later:
        return Reach(epoch, end)
    if not later:
        return Reach(NO_EPOCH, -1)
    return Reach(max((one for one in epochs if one <= epoch), default=epoch), min(later))


LOST = lost("perturb")


def check(log: Log, resume: int, known: int | None = None, remedy: str = LOST) -> None:
    check_resume(log, PLACE, resume, known, remedy=remedy)  # type: ignore[arg-type]  # all that is asked


def test_a_log_that_holds_what_is_needed_passes() -> None:
    check(Log(5, 9), 5, 9)
    check(Log(5, 9), 9)


def test_one_that_begins_too_late_is_refused_at_once() -> None:
    """No broker says that of a log that still has the records."""
    with pytest.raises(
        StateRefused, match="it begins after the first record that the state needs"
    ) as refusal:
        check(Log(6, 9), 5)
    assert refusal.value.remedy == LOST


@pytest.mark.parametrize(("resume", "known"), [(10, None), (5, 10)])
def test_one_that_ends_too_early_is_looked_at_again_before_it_is_refused(
    resume: int, known: int | None
) -> None:
    """A broker that is cut off shows less than there is."""
    with pytest.raises(Unsettled, match="it ends before the last record that the state refers to") as doubt:
        check(Log(5, 9), resume, known, MIGRATE_LOST)
    assert doubt.value.refusal is not None
    assert doubt.value.refusal.remedy == MIGRATE_LOST


class Found(Log):
    """All that a take-over asks of a cluster. ``begins`` is the first offset that has a given append time."""

    def __init__(
        self, end: int, begins: int = 0, first: int = 0, kept: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        super().__init__(first, end)
        self.begins, self.kept = begins, kept
        self.asked: list[int] = []

    def id(self) -> str:
        return "cluster"

    def existing(self, names: Collection[str]) -> dict[str, Topic]:
        return {name: Topic(name, "id", 2) for name in names}

    topics = existing

    def settings(self, names: Collection[str]) -> dict[str, Mapping[str, str]]:
        return dict.fromkeys(names, self.kept)

    def offsets_at(self, places: Collection[tuple[str, int]], time: int) -> dict[tuple[str, int], int]:
        self.asked.append(time)
        return dict.fromkeys(places, self.begins)


class Table:
    """All that a take-over asks of a table."""

    topic, partition, owner = COUNTING, 0, "app-aggregate-0"
    place = TopicPartition(COUNTING, 0)

    def __init__(self, states: dict[bytes, bytes], version: str = JUDGE, reach: Reach | None = None) -> None:
        self._states = states
        headers = [*([(VERSION, version.encode())] if version else []), *header_of(reach)]
        self.headers = dict.fromkeys(states, headers)

    def take_over(self, **_: object) -> dict[bytes, bytes]:
        return self._states

    def close(self) -> None: ...


def take_over(lived: Lifetime, found: Found, version: str = JUDGE, reach: Reach | None = None) -> int:
    """The offset from which an owner reads that takes over a counting partition."""

    async def run() -> int:
        cluster: Any = found
        table: Any = Table(lived.tables[TopicPartition(COUNTING, 0)], version, reach)
        missing: Any = None
        context = Context(
            topology(), cluster, Inquiry(cluster, Threads().waiting), Threads(),
            EndWatch(cluster, lambda _: None), missing, missing, Observation(topology()), missing,
        )  # fmt: skip
        restore = partial(restore_aggregate, [lived.plan], TopicPartition("t", 0))
        return Runner(
            TopicPartition("t", 0), restore, table, context, PartitionClock(SYSTEM_CLOCK, 0)
        ).take_over()

    return asyncio.run(run())


def test_a_take_over_finds_a_log_that_ends_below_the_last_boundary() -> None:
    """All that was read is there. Only the life that follows would find that more was, each anew."""
    lived = Lifetime(append_time="boundary")
    lived.count(TopicPartition(COUNTING, 0), FIRST + 1)
    state = lived.checkpoint.counting[TopicPartition(COUNTING, 0)][1]
    lived.tables[TopicPartition(COUNTING, 0)][b"visits"] = state.replace(
        boundaries=(Boundary(FIRST, 12),)
    ).encode()
    assert take_over(lived, Found(12)) == 7
    with pytest.raises(Unsettled, match="it ends before the last record that the state refers to") as doubt:
        take_over(lived, Found(11))
    assert "`eventveil migrate TOPOLOGY --lost --apply`" in str(doubt.value.refusal)


@pytest.mark.parametrize(
    ("settings", "version", "resume"),
    [
        ({}, JUDGE, 7),
        ({}, OLD, 3),
        ({}, "", 3),
        ({"format": "avro"}, JUDGE, 3),
        ({"time_zone": "Europe/Berlin"}, JUDGE, 3),
        ({"format": "avro", "append_time": "boundary"}, JUDGE, 0),
        ({"append_time": "boundary"}, JUDGE, 7),
        ({"append_time": "boundary"}, OLD, 0),
    ],
)
def test_a_take_over_reads_all_again_that_may_be_judged_in_another_way(
    settings: dict[str, Any], version: str, resume: int
) -> None:
    """By the time from which the next timestamp can have events, and not by the first event that counts."""
    lived = Lifetime(**settings)
    lived.count(TopicPartition(COUNTING, 0), FIRST + 1)
    found = Found(12, begins=3)
    assert take_over(lived, found, version) == resume
    rules = lived.stream.timeline
    begins = rules.origin + FIRST * rules.interval - rules.max_ahead - rules.clock_skew
    assert found.asked == ([begins] if resume == 3 else [])
    if resume:
        assert take_over(lived, Found(12, begins=9), version) == 7, "it is never later than the state says"


def test_a_stream_that_has_counted_nothing_asks_for_no_beginning() -> None:
    found = Found(12, begins=3)
    assert take_over(Lifetime(), found, "") == 0
    assert found.asked == []


@pytest.mark.parametrize(
    ("append_time", "first", "kept"),
    [
        ("broker", 3, {"retention.ms": "3600000", "retention.bytes": "-1"}),
        ("broker", 3, {"retention.ms": "-1", "retention.bytes": "1000000"}),
        ("boundary", 1, {}),
    ],
)
def test_what_retention_may_have_removed_of_it_is_refused_at_once(
    append_time: str, first: int, kept: dict[str, str]
) -> None:
    """Which records are left depends on how many bytes others sent."""
    lived, place = Lifetime(append_time=append_time), TopicPartition(COUNTING, 0)
    lived.count(place, FIRST + 1)
    found = Found(12, begins=first, first=first, kept=kept)
    with pytest.raises(StateRefused, match="begins after the first record that the state needs") as refusal:
        take_over(lived, found, OLD)
    assert refusal.value.remedy == MIGRATE_LOST
    assert take_over(lived, found) == 7, "by the same rules what counts is there"
    # Migrated with ``--lost``: what was given up is not missed again, wherever the state resumes later.
    manifest, _ = lived.checkpoint.counting[place]
    lived.tables[place][ManifestRecord.key("visits")] = manifest.replace(resume=first).encode()
    assert take_over(lived, found, OLD) == first


@pytest.mark.parametrize("kept", ["-1", "3600000"])
def test_what_is_left_is_all_there_was_where_retention_is_longer(kept: str) -> None:
    now = time.time_ns() // 1_000_000
    lived = Lifetime(origin=now - FIRST * 10 - 60_000, interval=10)
    lived.count(TopicPartition(COUNTING, 0), FIRST + 1)
    found = Found(12, begins=3, first=3, kept={"retention.ms": kept, "retention.bytes": "-1"})
    assert take_over(lived, found, OLD) == 3


class _Read(SimpleNamespace):
    """All that is asked of a task: what it knows of the log."""


def lineage(log: Log, position: int, reach: Reach | None = None) -> Lineage:
    async def in_place(call: Callable[..., Any], *arguments: Any) -> Any:
        return call(*arguments)

    guard = TopicGuard(Inquiry(log, in_place), {"raw": Topic("raw", "id", 1)})  # type: ignore[arg-type]
    task: Any = _Read(known=position, reach=reach)
    return Lineage(in_place, log, PLACE, task, guard)  # type: ignore[arg-type]  # as above


def ask(log: Log, position: int, reach: Reach | None = None) -> int:
    return asyncio.run(lineage(log, position, reach).end())


def test_the_end_is_told_and_a_shorter_log_leaves_a_doubt() -> None:
    assert ask(Log(0, 9), 9) == 9
    with pytest.raises(Unsettled, match="it ends before the last record that was read") as doubt:
        ask(Log(0, 8), 9)
    assert "`eventveil migrate TOPOLOGY --lost --apply`" in str(doubt.value.refusal)


def test_the_doubt_about_another_topic_names_that() -> None:
    with pytest.raises(Unsettled, match="it is another topic of the same name now"):
        ask(Log(0, 8, topic_id="other"), 9)
    with pytest.raises(Unsettled, match="it is another topic of the same name now"):
        ask(Log(0, 13, topic_id="other", epochs={1: 0, 2: 5}), 10, Reach(1, 10))


PARTED = "records that were read are gone; new ones have their offsets"


@pytest.mark.parametrize("end", [10, 13])
def test_a_log_that_lost_its_end_and_grew_again_leaves_a_doubt(end: int) -> None:
    """Its end tells nothing, neither to a worker that runs on nor to one that takes over."""
    log = Log(0, end, epochs={1: 0, 2: 5})
    with pytest.raises(Unsettled, match=PARTED) as doubt:
        ask(log, 10, Reach(1, 10))
    assert "`eventveil migrate TOPOLOGY --lost --apply`" in str(doubt.value.refusal)
    with pytest.raises(Unsettled, match=PARTED):
        asyncio.run(lineage(log, 10, Reach(1, 10)).confirm(2))
    with pytest.raises(Unsettled, match=PARTED) as doubt:
        check_resume(log, PLACE, 5, 10, remedy=MIGRATE_LOST, if_cut=LOST, reach=Reach(1, 10))  # type: ignore[arg-type]
    assert str(doubt.value.refusal).endswith(LOST)


def test_a_new_leader_that_has_what_was_read_is_asked_once() -> None:
    log = Log(0, 13, epochs={1: 0, 3: 10})
    around = lineage(log, 10, Reach(1, 10))

    async def run() -> None:
        await around.confirm(1)
        assert log.asked_epochs == []
        await around.confirm(3)
        await around.confirm(2)
        assert await around.end() == 13
        log.epochs[4] = 13
        await around.end()

    asyncio.run(run())
    assert log.asked_epochs == [(1, 3), (1, 4)]
    check_resume(log, PLACE, 5, 10, remedy=MIGRATE_LOST, reach=Reach(1, 10))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reach", "answer", "parted"),
    [
        (Reach(1, 10), Reach(1, 10), None),
        (Reach(1, 10), Reach(1, 12), None),
        (Reach(1, 10), Reach(1, 9), 9),
        (Reach(4, 10), Reach(2, 9), 9),
        (Reach(4, 10), Reach(2, 0), 0),
        (Reach(4, 10), Reach(2, 10), None),
        (Reach(4, 10), Reach(NO_EPOCH, -1), None),
        (Reach(4, 10), Reach(NO_EPOCH, 3), None),
        (Reach(4, 10), Reach(4, -1), None),
        (Reach(4, 10), None, None),
    ],
)
def test_only_an_epoch_that_ended_before_what_was_read_shows_a_loss(
    reach: Reach, answer: Reach | None, parted: int | None
) -> None:
    """Offset 10 is the first behind what was read: an epoch that ends there has all of it."""
    assert reach.parted(answer) == parted


@pytest.mark.parametrize("seed", range(50))
def test_logs_that_only_change_their_leader_never_show_a_loss_and_cut_ones_do(seed: int) -> None:
    chance = Random(seed)
    epochs, end, epoch = {0: 0}, chance.randrange(5), 0
    reach = Reach(0, end)
    for _ in range(8):
        if chance.random() < 0.5:
            epoch += chance.randrange(1, 3)
            epochs[epoch] = end
        end += chance.randrange(5)
        if chance.random() < 0.5 and end > reach.offset:
            reach = Reach(epoch, end)
        assert reach.parted(end_of(reach.epoch, epochs, end)) is None
        # Retention keeps the epoch of the first record that it leaves.
        first = chance.randrange(end + 1)
        newest = max(one for one, begin in epochs.items() if begin <= first)
        kept = {one: max(first, begin) for one, begin in epochs.items() if one >= newest}
        assert reach.parted(end_of(reach.epoch, kept, end)) is None
    if reach.offset:
        cut = chance.randrange(reach.offset)
        left = {one: begin for one, begin in epochs.items() if begin < cut} | {epoch + 1: cut}
        assert reach.parted(end_of(reach.epoch, left, cut + chance.randrange(20))) == cut


def test_states_carry_the_farthest_reach_in_a_header() -> None:
    assert header_of(None) == ()
    (header,) = header_of(Reach(3, 17))
    assert header == (REACH, b"3/17")
    other: Headers = [(VERSION, b"x"), Reach(4, 12).header]
    assert Reach.latest([[header], other, [(VERSION, b"y")]]) == Reach(3, 17)
    assert Reach.latest([[(VERSION, b"y")], ()]) is None


def test_a_take_over_finds_what_its_state_carries() -> None:
    lived = Lifetime()
    lived.count(TopicPartition(COUNTING, 0), FIRST + 1)
    found = Found(13)
    found.epochs = {1: 0, 2: 5}
    assert take_over(lived, found) == 7
    with pytest.raises(Unsettled, match=PARTED) as doubt:
        take_over(lived, found, reach=Reach(1, 10))
    assert "`eventveil migrate TOPOLOGY --lost --apply`" in str(doubt.value.refusal)
    found.epochs = {1: 0, 2: 10}
    assert take_over(lived, found, reach=Reach(1, 10)) == 7


@pytest.mark.parametrize("role", ["aggregate", "rekey", "perturb"])
def test_partitions_that_were_added_have_a_remedy_that_costs_nothing(role: str) -> None:
    refusal = grown("raw", 3, role)
    assert "more partitions than the 3" in refusal.what
    assert "`eventveil migrate TOPOLOGY" in refusal.remedy
    assert "new name" not in refusal.remedy


def test_where_no_migration_helps_the_refusal_says_what_does_and_its_price() -> None:
    remedy = grown("raw", 3, "accumulate").remedy
    assert "a source with one partition" in remedy
    assert "migrate" not in remedy
    assert "costs the epsilon of both" in remedy


@pytest.mark.parametrize(("role", "costs"), [("accumulate", True), ("perturb", False)])
def test_lost_records_cost_epsilon_only_where_windows_cross_two_streams(role: str, costs: bool) -> None:
    assert "migrate" not in lost(role)
    assert ("costs the epsilon of both" in lost(role)) == costs
    assert ("none costs more than it did" in lost(role)) != costs
