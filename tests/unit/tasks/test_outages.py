"""Which partitions a timestamp goes without: decided by public times, whatever anybody sends."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from functools import cache
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventveil.counting.counter import CounterState
from eventveil.mechanisms.registry import build
from eventveil.model.partitioners import murmur2_partition
from eventveil.model.records import Outgoing
from eventveil.tasks.aggregate import PartitionAggregator
from eventveil.tasks.outages import LONGEST_GAP, Outage, Outages, left_out
from eventveil.tasks.release import PartitionSanitizer, ReleaseState, StreamSanitizer, Topics
from tests.unit.support import INSTANCE, ZeroNoise, chunk, counter_state, event, stream

#: Timestamp t is due at 1008 + 10 t, and decided 30 ms later if a partition has no leader.
RELEASING = stream(grace=30)
RULES = RELEASING.timeline


# What was seen


def test_an_outage_lasts_from_the_first_answer_without_a_leader_to_the_last_in_a_row() -> None:
    seen = Outages()
    assert seen.seen(1000, 0, ()) == []
    assert seen.seen(1001, 1, {1}) == [1]
    assert seen.seen(1005, 5, {1, 2}) == [2]
    assert seen.all() == (Outage(1, 1001, 1005, False), Outage(2, 1005, 1005, False))
    assert seen.seen(1009, 9, {2}) == []
    assert seen.all() == (Outage(1, 1001, 1005, True), Outage(2, 1005, 1009, False))
    assert seen.seen(1010, 10, {1, 2}) == [1]
    assert seen.all()[1:] == (Outage(1, 1010, 1010, False), Outage(2, 1005, 1010, False))


def test_a_clock_that_is_put_forward_or_back_does_not_change_how_long_an_outage_lasts() -> None:
    seen = Outages()
    seen.seen(1000, 0, {1})
    seen.seen(9_999_000, 10, {1})
    assert seen.all() == (Outage(1, 1000, 1010, False),)
    seen.seen(5, 20, {1})
    assert seen.all() == (Outage(1, 1000, 1020, False),)


def test_after_a_silence_nobody_knows_whether_there_was_a_leader_meanwhile() -> None:
    seen = Outages()
    seen.seen(1000, 0, {1})
    seen.seen(1000 + LONGEST_GAP, LONGEST_GAP, {1})
    assert len(seen.all()) == 1
    later = 2 * LONGEST_GAP + 1
    assert seen.seen(1000 + later, later, {1}) == [1]
    assert seen.all()[0] == Outage(1, 1000, 1000 + LONGEST_GAP, True)
    assert seen.all()[1] == Outage(1, 1000 + later, 1000 + later, False)


def test_of_many_outages_the_oldest_are_forgotten() -> None:
    seen = Outages()
    for number in range(1500):
        seen.seen(2 * number, 2 * number, {1})
        seen.seen(2 * number + 1, 2 * number + 1, ())
    assert len(seen.all()) == 1000
    assert seen.all()[-1].since == 2998


def test_a_timestamp_that_was_due_when_the_leader_was_seen_to_be_gone_waits() -> None:
    assert left_out(RULES, Outage(1, 1018, 2000, False))[0] == 2
    assert left_out(RULES, Outage(1, 1017, 2000, False))[0] == 1


def test_a_timestamp_goes_without_once_the_grace_is_over() -> None:
    assert left_out(RULES, Outage(1, 1000, 1047, False)) == (0, 0)
    assert left_out(RULES, Outage(1, 1000, 1048, False)) == (0, 1)


# Two worlds that differ in one user's load

PARTITIONS = 3
TOPICS = Topics("ledger", "changelog", 0)
START = ReleaseState(INSTANCE, 1, 1, 0)
LAST = 14
_END = 1400


@cache
def user_of(partition: int, number: int) -> str:
    """A user of this partition."""
    names = (f"user {one}" for one in range(10_000))
    return [name for name in names if murmur2_partition(name.encode(), PARTITIONS) == partition][number]


class World:
    """The real classes, driven by a script of public events; all that differs is what one user sends.

    Each partition has an owner that reads ``speed`` records at a time and closes what it may. ``gone`` are
    the partitions without a leader, which nobody can read, ``claimed`` those that a broker tells of
    although others can reach them.
    """

    def __init__(self, logs: list[list[tuple[int, bytes]]], speed: int) -> None:
        self.logs, self.speed = logs, speed
        self.now = 1000
        self.gone: frozenset[int] = frozenset()
        self.claimed: frozenset[int] = frozenset()
        self.seen = Outages()
        self.partials: list[bytes] = []
        self.released: list[dict[str, Any]] = []
        self.decided = 0
        self.owners = [self.owner(partition, None) for partition in range(PARTITIONS)]
        self.durable = START
        self.sanitizer = self.take_over()

    def owner(self, partition: int, state: CounterState | None) -> PartitionAggregator:
        state = state or counter_state(partition=partition)
        return PartitionAggregator(PARTITIONS, {"visits": (RELEASING, state)})

    def take_over(self) -> PartitionSanitizer:
        mechanism = build(RELEASING.mechanism, 2, 1, ZeroNoise())
        state = ReleaseState.decode(self.durable.encode(), "here")
        one = StreamSanitizer(RELEASING, PARTITIONS, mechanism, state, None)
        return PartitionSanitizer(TOPICS, {"visits": one})

    def restart(self) -> None:
        """The worker is restarted: it has seen nothing, and knows what is durable."""
        self.sanitizer, self.seen = self.take_over(), Outages()
        self.publish()

    def look(self) -> None:
        """The cluster answers."""
        self.seen.seen(self.now, self.now, self.gone | self.claimed)

    def pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds

    def count(self) -> None:
        """Each owner that can reach its partition reads on and closes."""
        for partition, owner in enumerate(self.owners):
            if partition not in self.gone:
                self.count_one(owner, self.logs[partition])

    def count_one(self, owner: PartitionAggregator, log: list[tuple[int, bytes]]) -> None:
        end = bisect_right(log, self.now, key=lambda record: record[0])
        partition = owner.counters["visits"].state_at(0).partition
        part = log[owner.position : min(end, owner.position + self.speed)]
        owner.process(chunk(part, start=owner.position, partition=partition))
        if owner.wants_end(self.now):
            owner.capture_end(self.now, end)
        while (batch := owner.close(self.now)) is not None:
            owner.durable(batch)
            self.partials += [one.encode() for one in batch.partials]

    def settle(self, dies: bool = False) -> None:
        """As a runner does it; it may die between deciding and publishing."""
        unread = self.partials[self.sanitizer.position :]
        records = [(0, value) for value in unread]
        self.sanitizer.process(chunk(records, start=self.sanitizer.position, topic="app-partials"))
        self.sanitizer.sanitizers["visits"].look(self.now, self.seen.all())
        while decided := self.sanitizer.decide():
            self.durable = written(decided)
            if dies:
                self.restart()
                return
            self.publish()

    def publish(self) -> None:
        records = self.sanitizer.publish()
        self.released += [
            orjson.loads(one.value or b"") for one in records if one.topic == "visits.sanitized"
        ]
        if records:
            self.durable = written(records)
        self.sanitizer.published()

    def run(self, script: list[tuple[str, int]]) -> list[tuple[int, tuple[int, ...]]]:
        """Follow the script, then let everything come in; the partitions left out of each timestamp."""
        for what, number in script:
            if what == "lose":
                self.gone ^= {number % PARTITIONS}
            elif what == "claim":
                self.claimed ^= {number % PARTITIONS}
            elif what == "restart":
                self.restart()
            elif what == "time":
                self.pass_time(number)
                self.look()
                self.count()
                self.settle()
            elif what == "blind":
                self.pass_time(number)
                self.count()
                self.settle(dies=number % 2 == 0)
        self.gone, self.claimed, self.speed = frozenset(), frozenset(), 10_000
        while self.now < _END:
            self.pass_time(40)
            self.look()
            self.count()
            self.settle()
        return [
            (one["timestamp"], tuple(one.get("missing", ())))
            for one in self.released
            if one["timestamp"] <= LAST
        ]


def written(records: list[Outgoing]) -> ReleaseState:
    (state,) = [one.value for one in records if one.topic == TOPICS.changelog]
    return ReleaseState.decode(state or b"", "here")


def logs_of(users: int, flood: list[tuple[int, int]], partition: int) -> list[list[tuple[int, bytes]]]:
    """An event of each user at each timestamp, and one user's: this many records at some times."""
    logs = [
        [
            (time, event(user_of(one, number), time=time))
            for time in range(1002, 1002 + 10 * LAST, 10)
            for number in range(users)
        ]
        for one in range(PARTITIONS)
    ]
    mallory = user_of(partition, 50)
    for time, records in flood:
        logs[partition] += [(time, event(mallory, time=time))] * records
    return [sorted(log, key=lambda record: record[0]) for log in logs]


SCRIPTS = st.lists(
    st.tuples(st.just("time"), st.integers(1, 25))
    | st.tuples(st.just("time"), st.integers(1, 9))
    | st.tuples(st.just("blind"), st.integers(1, 12))
    | st.tuples(st.sampled_from(["lose", "lose", "claim", "restart"]), st.integers(0, 5)),
    min_size=5,
    max_size=40,
)
FLOODS = st.lists(st.tuples(st.integers(1000, 1140), st.integers(1, 60)), min_size=1, max_size=4)


@pytest.mark.slow
def test_what_one_user_sends_never_decides_which_partitions_are_left_out() -> None:
    """Two worlds with the same outages, claims, restarts and answers; one user is there in one of them."""
    happened: Counter[str] = Counter()

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(SCRIPTS, FLOODS, st.integers(0, PARTITIONS - 1), st.integers(2, 8))
    def any_story(
        script: list[tuple[str, int]], flood: list[tuple[int, int]], partition: int, speed: int
    ) -> None:
        without, beside = World(logs_of(2, [], 0), speed), World(logs_of(2, flood, partition), speed)
        expected, found = without.run(script), beside.run(script)
        assert [timestamp for timestamp, _ in expected] == list(range(1, LAST + 1))
        assert found == expected
        for (_, missing), one in zip(expected, without.released, strict=False):
            assert one["counts"] == {"a": 2 * (PARTITIONS - len(missing)), "b": 0}
        for one, other in zip(without.released[:LAST], beside.released[:LAST], strict=True):
            far = sum(abs(one["counts"][name] - other["counts"][name]) for name in one["counts"])
            assert far <= 1, "one user changes more than the sensitivity"
        happened["left out"] += sum(bool(missing) for _, missing in expected)
        happened["complete"] += sum(not missing for _, missing in expected)
        merged = beside.sanitizer.sanitizers["visits"].combiner
        happened["discarded"] += merged.discarded
        happened["behind"] += without.partials != beside.partials

    any_story()
    # Nothing above means anything if the random stories never got there.
    assert min(happened[one] for one in ("left out", "complete", "discarded", "behind")) > 20, happened


def test_what_is_told_of_a_partition_that_a_broker_wrongly_names_does_not_depend_on_its_events() -> None:
    def told(flood: list[tuple[int, int]]) -> list[tuple[int, list[dict[str, Any]], list[int]]]:
        world, seen = World(logs_of(1, flood, 1), speed=2), []
        for claimed, milliseconds in ((False, 1), (True, 5), (True, 14), (True, 15), (True, 15)):
            world.claimed = frozenset({1}) if claimed else frozenset()
            world.pass_time(milliseconds)
            world.look()
            world.count()
            world.settle()
            left_out = [view.discarded for view in world.sanitizer.views().values()]
            seen.append((world.now, [*world.released], left_out))
        return seen

    # Its partial counts are there when the timestamp goes without them, or come later.
    expected = told([])
    assert expected == told([(1005, 10)])
    assert (expected[-1][1][0]["missing"], expected[-1][2]) == ([1], [1])


def test_a_partition_that_is_behind_when_its_leader_dies_is_waited_for() -> None:
    """Its owner has a thousand events of one user to read when it is due, and then the broker dies."""
    counts = []
    for flood in ([], [(1005, 1000)]):
        world = World(logs_of(2, flood, 1), 50)
        found = world.run([("time", 19), ("lose", 1), ("time", 5), ("time", 40), ("time", 40), ("lose", 1)])
        assert dict(found)[1] == ()
        counts.append(world.released[0]["counts"]["a"])
    assert counts[1] - counts[0] == 1


def test_a_partition_that_was_gone_in_time_is_left_out_even_if_its_count_is_there() -> None:
    """A broker that is cut off calls the others gone: whether counts come in time must not decide."""
    for speed in (1, 1000):
        world = World(logs_of(2, [], 0), speed)
        found = world.run([("time", 1), ("claim", 1), ("time", 5), ("time", 12), ("time", 35), ("claim", 1)])
        assert dict(found)[1] == (1,)
        assert world.released[0]["counts"]["a"] == 4


def test_who_has_given_up_a_partition_keeps_to_it_through_a_restart() -> None:
    """Another partition is behind, so the timestamp is decided later, when the missing one has come back."""
    story = [("lose", 1), ("time", 10), ("time", 10), ("time", 35), ("restart", 0), ("lose", 1), ("time", 5)]
    for flood in ([], [(1001, 700)]):
        world = World(logs_of(2, flood, 0), 10)
        assert dict(world.run(story))[1] == (1,)


def test_who_has_seen_nothing_waits() -> None:
    """A worker that was started after the timestamp was due has not seen the partition without a leader."""
    story = [("lose", 1), ("time", 10), ("time", 10), ("restart", 0), *[("time", 20)] * 5, ("lose", 1)]
    found = dict(World(logs_of(2, [], 0), 10).run(story))
    assert found[1] == ()
    assert found[6] == (1,), "those that were due after it had looked go on"
