"""The end of a partition is asked for when a timestamp is due, whatever anybody else does."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eventveil.model.records import NO_APPEND_TIME, TopicPartition
from eventveil.process.clock import Clock, PartitionClock, wall_clock
from eventveil.tasks.aggregate import Aggregation, Outputs
from eventveil.worker import ends
from eventveil.worker.ends import End, EndSubscription, EndWatch, PartitionEnds
from eventveil.worker.observe.observation import Observation
from eventveil.worker.restore.restored import Context, Restored
from eventveil.worker.runner import Runner
from eventveil.worker.threads import Threads
from eventveil.worker.topic_guard import Inquiry, TopicGuard
from tests.unit.support import chunk, counter_state, event, stream, topology
from tests.worker.waiting import until

PLACE = TopicPartition("raw", 0)
#: Timestamp 1 is due at 1018, 2 at 1028.
RULES = stream(append_time="boundary").timeline
DENIED = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
AWAY = KafkaException(KafkaError(KafkaError._TRANSPORT))


class Broker:
    """Answers when the test tells it to."""

    def __init__(self) -> None:
        self.questions: list[Future[Any]] = []
        self.clients = 1

    def ask_end(self, place: tuple[str, int], seconds: float) -> Future[Any]:
        assert place == PLACE
        self.questions.append(Future())
        return self.questions[-1]

    def renew(self) -> None:
        self.clients += 1

    def answer(self, answer: int | Exception) -> None:
        if isinstance(answer, Exception):
            self.questions[-1].set_exception(answer)
        else:
            self.questions[-1].set_result(SimpleNamespace(offset=answer, leader_epoch=None))


class Story:
    """A partition whose owner has read up to offset 5, and nothing has a boundary."""

    def __init__(self) -> None:
        self.now, self.woken = 1000, 0
        self.broker = Broker()
        clock = PartitionClock(Clock(lambda: self.now, lambda: self.now), 0)
        self.ends = PartitionEnds(PLACE, [(RULES, 0)], clock, lambda: 5)

    def look(self, now: int) -> float:
        self.now = now
        return self.ends.look(self.broker, self.wake)

    def wake(self) -> None:
        self.woken += 1

    def follow(self, ends: PartitionEnds) -> PartitionEnds:
        """As a watch does, whose ``look`` is that of the story."""
        self.ends = ends
        return ends


def test_nothing_is_asked_before_a_timestamp_is_due() -> None:
    story = Story()
    assert story.look(1017) == 0.001
    assert story.broker.questions == []


def test_each_timestamp_is_asked_for_once_with_the_time_of_the_question() -> None:
    story = Story()
    story.look(1018)
    story.now = 1027
    story.broker.answer(7)
    assert story.ends.take() == [End(1018, 7, 5)]
    assert story.look(1027) == 0.001
    assert len(story.broker.questions) == 1
    story.look(1049)
    story.broker.answer(9)
    assert story.ends.take() == [End(1049, 9, 5)]
    assert story.look(1050) == 0.008


def test_no_second_question_is_asked_while_the_first_is_open() -> None:
    story = Story()
    story.look(1018)
    story.look(1100)
    assert len(story.broker.questions) == 1


@pytest.mark.parametrize("failure", [AWAY, -1001])
def test_a_question_that_failed_is_asked_again_later(
    failure: int | Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story()
    seconds = 100.0
    monkeypatch.setattr(ends.time, "monotonic", lambda: seconds)
    story.look(1018)
    story.broker.answer(failure)
    assert story.woken == 1
    assert story.ends.unanswered
    assert 0.1 < story.look(1019) < 0.3
    assert len(story.broker.questions) == 1
    seconds += 0.3
    story.look(1300)
    story.broker.answer(8)
    assert story.ends.take() == [End(1300, 8, 5)]
    assert not story.ends.unanswered


def test_a_question_that_is_never_answered_is_asked_again_and_its_answer_comes_too_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client that is renewed drops what it was asked: neither an answer comes nor an error."""
    passed = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: passed[0])
    story = Story()
    story.look(1018)
    passed[0] = 9.9
    story.look(1018)
    assert len(story.broker.questions) == 1
    assert not story.ends.unanswered
    passed[0] = 10.0
    story.look(1018)
    assert story.ends.unanswered
    story.broker.questions[0].set_result(SimpleNamespace(offset=6, leader_epoch=None))
    assert story.ends.take() == []
    passed[0] = 10.2
    story.look(1020)
    assert len(story.broker.questions) == 2
    story.broker.answer(7)
    assert story.ends.take() == [End(1020, 7, 5)]
    assert not story.ends.unanswered


def test_a_right_that_is_missing_ends_the_owner() -> None:
    story = Story()
    story.look(1018)
    story.broker.answer(DENIED)
    with pytest.raises(KafkaException):
        story.ends.take()


def test_who_waits_hears_at_once() -> None:
    async def wait(told: Callable[[], None]) -> float:
        threading.Timer(0.05, told).start()
        began = time.monotonic()
        await story.ends.wait(30)
        return time.monotonic() - began

    story = Story()
    story.look(1018)
    assert asyncio.run(wait(lambda: story.broker.answer(7))) < 10
    assert asyncio.run(wait(lambda: None)) < 0.05, "the answer is there already"


class Telling(Broker):
    """Answers at once, and notes when it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def ask_end(self, place: tuple[str, int], seconds: float) -> Future[Any]:
        self.asked.append(wall_clock())
        question = super().ask_end(place, seconds)
        self.answer(9)
        return question


def test_the_watch_asks_on_the_clock_while_everybody_else_is_at_work() -> None:
    """Threads that compute without a pause stand for the chunks that are being counted."""
    origin = wall_clock()
    rules = stream(append_time="boundary", interval=200, origin=origin, lateness=0, clock_skew=0).timeline
    broker, failures = Telling(), list[BaseException]()
    watch = EndWatch(broker, failures.append)
    followed = PartitionEnds(PLACE, [(rules, 0)], PartitionClock(Clock(), 0), lambda: 0)
    working = True

    def work() -> None:
        while working:
            sum(range(10_000))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    watch.start()
    watch.follow(followed)
    until(lambda: len(broker.asked) >= 8)
    watch.leave(followed)
    asked = len(broker.asked)
    time.sleep(0.3)
    watch.stop()
    working = False
    for thread in threads:
        thread.join()
    assert not failures
    assert len(broker.asked) == asked, "asked although nobody follows"
    dues = [origin + 200 * (1 + (at - origin) // 200 - 1) for at in broker.asked]
    late = sorted(at - due for at, due in zip(broker.asked, dues, strict=True))
    # Not the median: the machine may be busy with something else for some of them.
    assert late[len(late) // 4] < 100
    assert len(followed.take()) == asked


def test_a_watch_that_fails_tells_the_worker() -> None:
    class Broken(Broker):
        def ask_end(self, place: tuple[str, int], seconds: float) -> Future[Any]:
            raise RuntimeError("broken")

    failures: list[BaseException] = []
    watch = EndWatch(Broken(), failures.append)
    watch.start()
    watch.follow(PartitionEnds(PLACE, [(RULES, 0)], PartitionClock(Clock(), 0), lambda: 0))
    give_up = time.monotonic() + 120
    while not failures and time.monotonic() < give_up:
        time.sleep(0.01)
    assert "broken" in str(failures[0])


class Table:
    """What an owner needs of its fenced table: transactions that succeed."""

    owner, topic, partition = "app-aggregate-0", "changelog", 0

    def transact(self, name: str, records: Any, clock: Any = None, confirm: Any = None) -> None:
        list(records)

    def close(self) -> None: ...


class AtOnce(Threads):
    """No threads: whatever is to run in one runs where it is asked for."""

    async def waiting(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return call(*arguments)

    counting = waiting


def test_what_is_fetched_after_a_timestamp_was_due_is_judged_once_its_boundary_is_known() -> None:
    """The broker is slow; the second event of timestamp 1 lies behind its boundary, wherever the owner is."""

    async def run() -> None:
        story.now = 1017
        clock = PartitionClock(Clock(lambda: story.now, lambda: story.now), 0)
        owner = Runner(PLACE, lambda *_: restored, Table(), context, clock)  # type: ignore[arg-type]
        # It would ask for ends in a thread of its own; here the test says when.
        owner.take_over()
        owner._subscription = EndSubscription(story, PLACE, counting, clock, owner._lineage)  # type: ignore[arg-type]
        owner.sent(1)
        assert await owner.handle(chunk([(NO_APPEND_TIME, event("before"))]))
        story.look(1018)
        owner.sent(1)
        late = asyncio.create_task(owner.handle(chunk([(NO_APPEND_TIME, event("behind"))], start=1)))
        await asyncio.sleep(0.2)
        assert counting.position == 1, "it was judged before its boundary was known"
        story.broker.answer(1)
        assert await late
        assert owner.task.position == 2

    story, errors = Story(), list[BaseException]()
    threads: Any = AtOnce()
    inquiry, watch = Inquiry(None, threads.waiting), EndWatch(story.broker, errors.append)  # type: ignore[arg-type]
    missing: Any = None
    context = Context(
        topology(), missing, inquiry, threads, watch, missing, missing, Observation(topology()), missing
    )
    outputs = Outputs("partials", {"visits": 0}, TopicPartition("changelog", 0))
    counting = Aggregation(outputs, 1, {"visits": (stream(append_time="boundary"), counter_state())})
    restored = Restored(counting, TopicGuard(inquiry, {}), lambda: None, "")
    asyncio.run(run())
    assert counting.counters["visits"].outcomes == {"counted": 1, "late": 1}
    assert counting.counters["visits"].next == 2
