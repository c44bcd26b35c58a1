"""What a runner does around the transactions of a task: in which order, how often, and not at all."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaException

from eventveil.counting import users
from eventveil.kafka.cluster import Topic
from eventveil.mechanisms.registry import of_stream
from eventveil.model.errors import Unsettled
from eventveil.model.reach import Reach
from eventveil.model.records import NO_APPEND_TIME, Chunk, Outgoing, TopicPartition
from eventveil.model.topology import Condition, Stream
from eventveil.process.clock import Clock, PartitionClock
from eventveil.tasks.aggregate import Aggregation, Outputs
from eventveil.tasks.release import PartitionSanitizer, ReleaseState, StreamSanitizer, Topics
from eventveil.tasks.task import Task
from eventveil.worker import runner
from eventveil.worker.observe.observation import Observation
from eventveil.worker.restore.restored import Restored
from eventveil.worker.runner import Runner
from eventveil.worker.threads import Threads
from eventveil.worker.topic_guard import Inquiry, TopicGuard
from tests.unit.support import INSTANCE, ZeroNoise, chunk, counter_state, event, partial, stream, topology
from tests.unit.tasks.test_pan_private import World, pan_private

PLACE = TopicPartition("input", 0)


class Surroundings:
    """A table, topics and a cluster that note what they are asked; ``refuses`` is what fails.

    A look at topics takes ``slow`` seconds.
    """

    owner, topic, partition = "app-0", "changelog", 0

    def __init__(self, refuses: str = "", slow: float = 0.0) -> None:
        self.refuses, self.slow, self.done = refuses, slow, list[str]()

    def note(self, what: str) -> None:
        self.done.append(what)
        if what == self.refuses:
            raise Unsettled("here", "it may be another topic")

    def transact(
        self,
        name: str,
        records: Iterable[Outgoing],
        clock: PartitionClock | None = None,
        confirm: Callable[[], object] | None = None,
    ) -> None:
        assert [*records]
        if confirm is not None:
            self.note(f"{name} is written")
            confirm()
        self.note(name)

    def close(self) -> None: ...

    async def check_with(self, inquiry: Any) -> None:
        """The sinks."""
        self.note("sinks")

    def settings(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        self.note("append times")
        return {}


def run(task: Task, around: Surroundings, now: int, *chunks: Chunk) -> Observation:
    """Let a runner handle chunks; raises what ends it."""
    seen, given = Observation(topology()), around

    class TopicGuard:
        async def check(self) -> None:
            await asyncio.sleep(given.slow)
            given.note("ground")

    async def handle() -> None:
        restored = Restored(task, TopicGuard(), lambda: None, "", given)  # type: ignore[arg-type]
        context: Any = SimpleNamespace(
            threads=Threads(), cluster=given, end_watch=None, observation=seen, topology=topology(),
            schemas=None, inquiry=None,
        )  # fmt: skip
        clock, table = PartitionClock(Clock(lambda: now, lambda: now), 0), given
        owner = Runner(PLACE, lambda *_: restored, table, context, clock)  # type: ignore[arg-type]
        owner.take_over()
        for one in chunks:
            owner.sent(1)
            assert await owner.handle(one)

    asyncio.run(handle())
    return seen


def sanitizer() -> PartitionSanitizer:
    one = stream()
    state = ReleaseState(INSTANCE, 1, 1, 0)
    released = StreamSanitizer(one, 1, of_stream(one, ZeroNoise()), state, None)
    return PartitionSanitizer(Topics("ledger", "changelog", 0), {one.name: released})


PARTIAL = chunk([(0, partial(1, {0: 4}).encode())], topic="partials")


def test_nothing_is_published_before_it_is_decided_durably_and_the_topics_were_looked_at() -> None:
    around = Surroundings()
    seen = run(sanitizer(), around, 1018, PARTIAL)
    assert sorted(around.done[:3]) == ["decide", "ground", "sinks"]
    assert around.done[3:] == ["publish"]
    assert seen.releases == {("visits", True): 1}


@pytest.mark.parametrize("refuses", ["ground", "sinks", "decide"])
def test_what_is_in_doubt_is_not_published(refuses: str) -> None:
    around = Surroundings(refuses)
    with pytest.raises(Unsettled):
        run(sanitizer(), around, 1018, PARTIAL)
    assert "publish" not in around.done


def test_the_records_of_a_release_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    publish = PartitionSanitizer.publish

    def counting(self: PartitionSanitizer) -> list[Outgoing]:
        made.append(found := publish(self))
        return found

    monkeypatch.setattr(PartitionSanitizer, "publish", counting)
    run(sanitizer(), Surroundings(), 1018, PARTIAL)
    assert len([one for one in made if one]) == 1


def test_no_thread_is_asked_for_what_is_there_already(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second transaction was made during the first."""
    here = where(monkeypatch, PartitionSanitizer, "next")
    run(sanitizer(), Surroundings(), 1018, PARTIAL)
    assert here == [False, True]


def test_a_pan_private_timestamp_is_exposed_decided_and_published_each_after_a_look_at_the_topics() -> None:
    around = Surroundings()
    run(World(pan_private()).worker, around, 1018, chunk([(1001, event()), (1020, event(time=1018))]))
    assert (
        "".join(around.done).replace("groundsinks", "?").replace("sinksground", "?")
        == "?exposedecide?publish"
    )


@pytest.mark.parametrize(
    ("values", "at_once"),
    [
        ([event()] * 256, True),
        ([event()] * 257, False),
        ([b"{" + b" " * 30_000, None], True),
        ([b"{" + b" " * 33_000], False),
    ],
)
def test_small_chunks_are_observed_where_they_arrive_and_others_in_a_thread(
    values: list[bytes | None], at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What many events take must not hold up the event loop; a thread costs more than few."""
    threads: list[int] = []

    def process(task: PartitionSanitizer, given: Chunk) -> None:
        threads.append(threading.get_ident())
        task.position = given.next_offset

    monkeypatch.setattr(PartitionSanitizer, "process", process)
    run(sanitizer(), Surroundings(), 900, chunk([(0, value) for value in values]))
    assert [thread == threading.get_ident() for thread in threads] == [at_once]


def counting(*streams: Stream) -> Aggregation:
    outputs = Outputs("partials", {one.name: 0 for one in streams}, TopicPartition("changelog", 0))
    return Aggregation(outputs, 1, {one.name: (one, counter_state()) for one in streams})


def where(monkeypatch: pytest.MonkeyPatch, of: type, name: str) -> list[bool]:
    """Whether each call of a method is in the event loop, as they come."""
    found, call, here = list[bool](), getattr(of, name), threading.get_ident()

    def noted(*arguments: Any) -> Any:
        found.append(threading.get_ident() == here)
        return call(*arguments)

    monkeypatch.setattr(of, name, noted)
    return found


def closing() -> tuple[Aggregation, Chunk]:
    """A task, and a chunk after which it can close a timestamp."""
    return counting(stream()), chunk([(1001, event()), (1020, event(time=1018))])


def test_what_closes_is_written_while_the_topics_are_looked_at_and_committed_afterwards() -> None:
    around, (task, events) = Surroundings(), closing()
    run(task, around, 1018, events)
    assert sorted(around.done[:3]) == ["close is written", "ground", "sinks"]
    assert around.done[3:] == ["close"]


@pytest.mark.parametrize("refuses", ["ground", "close is written"])
def test_nothing_is_closed_over_topics_that_are_in_doubt(refuses: str) -> None:
    around, (task, events) = Surroundings(refuses), closing()
    with pytest.raises(Unsettled):
        run(task, around, 1018, events)
    assert "close" not in around.done


def test_topics_are_looked_at_although_every_thread_waits_for_that() -> None:
    """Hundreds of partitions close at once. Each keeps a thread while its topics are looked at."""
    there = {"raw": Topic("raw", "id", 1)}

    class Slow(Surroundings):
        def topics(self, _: Collection[str]) -> dict[str, Topic]:
            time.sleep(0.01)
            return there

    async def close_all() -> None:
        threads, around = Threads(), [Slow() for _ in range(100)]
        inquiry = Inquiry(around[0], threads.looking)
        guard = TopicGuard(inquiry, there)
        context: Any = SimpleNamespace(
            threads=threads, cluster=None, end_watch=None, observation=Observation(topology()),
            topology=topology(), schemas=None, inquiry=inquiry,
        )  # fmt: skip
        clock, owners = PartitionClock(Clock(lambda: 1018, lambda: 1018), 0), list[Runner]()
        for given in around:
            restored = Restored(closing()[0], guard, lambda: None, "")
            made = Runner(PLACE, lambda *_, it=restored: it, given, context, clock)  # type: ignore
            made.take_over()
            owners.append(made)
        await asyncio.gather(*(one.handle(closing()[1]) for one in owners))
        assert all(given.done == ["close is written", "close"] for given in around)

    asyncio.run(asyncio.wait_for(close_all(), 10))


def test_a_transaction_does_not_wait_for_the_look_at_topics_until_the_broker_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner, "_CHECK_SECONDS", 0.05)
    around, (task, events) = Surroundings(slow=0.2), closing()
    with pytest.raises(KafkaException, match="could not be checked within"):
        run(task, around, 1018, events)
    assert "close" not in around.done


SEVERAL = [stream(f"visits-{number}") for number in range(3)]


@pytest.mark.parametrize(
    ("task", "events", "at_once"),
    [
        (counting(stream()), 256, True),
        (counting(*SEVERAL), 85, True),
        (counting(*SEVERAL), 86, False),
        (counting(stream(filter=(Condition("$value", "present"),))), 1, False),
        (counting(stream("plain"), stream(time='["/at","/time"]')), 1, False),
        (World(pan_private(time='["/at","/time"]')).worker, 1, False),
    ],
    ids=["one", "three", "three, too many", "filter", "one with a rule", "pan-private with a rule"],
)
def test_what_many_streams_look_at_or_rules_judge_one_by_one_is_not_observed_in_the_event_loop(
    task: Task, events: int, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = where(monkeypatch, type(task), "process")
    run(task, Surroundings(), 900, chunk([(0, event())] * events))
    assert threads == [at_once]


class Leader(Surroundings):
    """A leader in ``epoch``, whose log parted from what was read if ``where`` tells where."""

    def __init__(self, epoch: int, where: int | None) -> None:
        super().__init__()
        self.epoch, self.where = epoch, where

    def reached(self, place: TopicPartition) -> Reach:
        return Reach(self.epoch, 2)

    def parted(self, place: TopicPartition, reach: Reach, least: int) -> int | None:
        self.note(f"{reach.epoch}/{reach.offset} by {least}")
        return self.where


OLD, LATER = (replace(chunk([(1001, event())], start=one), epoch=3 + one) for one in range(2))


def test_a_chunk_of_a_later_epoch_is_counted_once_its_leader_has_what_was_read() -> None:
    task, around = counting(stream()), Leader(4, None)
    run(task, around, 900, OLD, LATER, replace(chunk([], start=2), next_offset=3, epoch=4))
    assert around.done == ["3/1 by 4"]
    assert (task.position, task.reach) == (3, Reach(4, 3))


def test_a_chunk_of_a_log_that_parted_from_what_was_read_is_not_counted() -> None:
    task, around = counting(stream()), Leader(4, 0)
    with pytest.raises(Unsettled, match="records that were read are gone; new ones have their offsets"):
        run(task, around, 900, OLD, LATER)
    # The topic may be another one; then that is what is wrong.
    assert around.done == ["3/1 by 4", "ground"]
    assert (task.position, task.reach) == (1, Reach(3, 1))


def test_nothing_is_closed_on_the_end_of_a_log_that_parted_from_what_was_read() -> None:
    """It ends where what was read ended, so no further record shows it."""
    both = replace(chunk([(1001, event())] * 2), epoch=3)
    task, around = counting(stream()), Leader(4, 0)
    with pytest.raises(Unsettled, match="records that were read are gone"):
        run(task, around, 1018, both)
    assert around.done == ["3/2 by 4", "ground"]
    task, around = counting(stream()), Leader(4, None)
    run(task, around, 1018, both)
    assert sorted(around.done) == ["3/2 by 4", "close", "close is written", "ground", "sinks"]
    # In the epoch of what was read last nobody is asked.
    task, around = counting(stream()), Leader(3, 0)
    run(task, around, 1018, both)
    assert sorted(around.done) == ["close", "close is written", "ground", "sinks"]


def test_users_are_forgotten_in_the_thread_however_few_records_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes as long as there are users: a second for a million."""
    monkeypatch.setattr(users, "_FREE", 4)
    forgets, observes = (
        where(monkeypatch, *one) for one in ((users.Users, "forget"), (Aggregation, "process"))
    )
    ten = [(0, event(user=name)) for name in "abcdefghij"]
    task = counting(stream())
    run(task, Surroundings(), 900, *(chunk(ten[:1] * 3, start=3 * number) for number in range(2)))
    assert (forgets, observes) == ([], [True, True])
    run(task, Surroundings(), 900, chunk(ten, start=6), chunk(ten, start=16), chunk(ten[:1], start=26))
    assert (forgets, observes[2:]) == ([False], [True, False, True])


def test_nothing_is_judged_or_drawn_while_records_have_no_append_time() -> None:
    """The first of them lies behind the one that shows the timestamp to be complete."""
    around = Surroundings()
    times = [1001, 1020, 1021, 1022, NO_APPEND_TIME]
    held = chunk([(time, event(time=1001)) for time in times])
    run(World(pan_private()).worker, around, 1017, held)
    assert set(around.done) <= {"append times"}
