"""What a runner does around the transactions of a task: in which order, how often, and not at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from eventveil.counting import users
from eventveil.mechanisms.registry import of_stream
from eventveil.model.errors import Unsettled
from eventveil.model.records import NO_APPEND_TIME, Chunk, Outgoing, TopicPartition
from eventveil.model.topology import Condition, Stream
from eventveil.process.clock import Clock, PartitionClock
from eventveil.tasks.aggregate import Aggregation, Outputs
from eventveil.tasks.release import PartitionSanitizer, ReleaseState, StreamSanitizer, Topics
from eventveil.tasks.task import Task
from eventveil.worker.observe.observation import Observation
from eventveil.worker.restore.restored import Restored
from eventveil.worker.runner import Runner
from eventveil.worker.threads import Threads
from tests.unit.support import (
    INSTANCE,
    ZeroNoise,
    chunk,
    counter_state,
    event,
    partial,
    stream,
    topology,
)
from tests.unit.tasks.test_pan_private import World, pan_private

PLACE = TopicPartition("input", 0)


class Surroundings:
    """A table, topics and a cluster that note what they are asked; ``refuses`` is what fails."""

    owner, topic, partition = "app-0", "changelog", 0

    def __init__(self, refuses: str = "") -> None:
        self.refuses, self.done = refuses, list[str]()

    def note(self, what: str) -> None:
        self.done.append(what)
        if what == self.refuses:
            raise Unsettled("here", "it may be another topic")

    def transact(self, name: str, records: Iterable[Outgoing], clock: PartitionClock | None = None) -> None:
        assert [*records]
        self.note(name)

    def close(self) -> None: ...

    def check(self) -> None:
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
            given.note("ground")

    async def handle() -> None:
        restored = Restored(task, TopicGuard(), lambda: None, "", given)  # type: ignore[arg-type]
        context: Any = SimpleNamespace(
            threads=Threads(), cluster=given, end_watch=None, observation=seen, topology=topology(),
            schemas=None,
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
        ([event()] * 128, True),
        ([event()] * 129, False),
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


SEVERAL = [stream(f"visits-{number}") for number in range(3)]


@pytest.mark.parametrize(
    ("task", "events", "at_once"),
    [
        (counting(stream()), 128, True),
        (counting(*SEVERAL), 42, True),
        (counting(*SEVERAL), 43, False),
        (counting(stream(filter=(Condition("$headers/kind", "in", ("view",)),))), 1, False),
        (counting(stream("plain"), stream(time_unit="s")), 1, False),
        (World(pan_private(time_unit="s")).worker, 1, False),
    ],
    ids=["one", "three", "three, too many", "filter", "one with a rule", "pan-private with a rule"],
)
def test_what_many_streams_look_at_or_rules_judge_one_by_one_is_not_observed_in_the_event_loop(
    task: Task, events: int, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = where(monkeypatch, type(task), "process")
    run(task, Surroundings(), 900, chunk([(0, event())] * events))
    assert threads == [at_once]


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
