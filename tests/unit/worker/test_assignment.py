"""Partitions and their owners: take-over, trouble, giving up."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eventveil.kafka.changelog import OwnerClosed, TransactionFailed
from eventveil.model.errors import StateRefused, Unsettled
from eventveil.model.records import Chunk, TopicPartition
from eventveil.tasks.task import StreamView
from eventveil.worker import assignment
from eventveil.worker.assignment import Assignment
from eventveil.worker.observe.observation import Observation
from eventveil.worker.runner import Runner
from eventveil.worker.threads import Threads
from eventveil.worker.told import Told
from tests.unit.support import topology

PLACE = TopicPartition("raw", 0)
FENCED = TransactionFailed("app-aggregate-0", KafkaError(KafkaError._FENCED))
OVERDUE = TransactionFailed("app-aggregate-0", KafkaError(KafkaError._FENCED), lasted=20.5)
TIMED_OUT = TransactionFailed("app-aggregate-0", KafkaError(KafkaError._TIMED_OUT))
REFUSED = StateRefused("topic raw", "no broker knows it", "Create it")
DOUBT = Unsettled("topic raw", "it does not exist", REFUSED)
BROKER_AWAY = KafkaException(KafkaError(KafkaError._TRANSPORT))


class Table:
    """What an owner needs of its fenced table."""

    owner = "app-aggregate-0"

    def __init__(self) -> None:
        self.commits = 0

    def close(self) -> None: ...

    def dispose(self) -> None: ...


class AtOnce(Threads):
    """No threads: whatever is to run in one runs where it is asked for."""

    def __init__(self) -> None:
        async def at_once(call: Callable[..., Any], *arguments: Any) -> Any:
            return call(*arguments)

        super().__init__()
        self.waiting = self.counting = at_once


async def as_it_was(epoch: int) -> None:
    """What a leader says of a log that has lost nothing."""


class Scripted(Runner):
    """An owner whose take-over ends as told: an error is raised, a number is the offset to resume from."""

    def __init__(self, outcome: int | Exception, threads: Threads) -> None:
        context = SimpleNamespace(
            cluster=None, end_watch=None, observation=None, schemas=None, threads=threads
        )
        super().__init__(TopicPartition("raw", 0), None, Table(), context, None)  # type: ignore[arg-type]
        self._outcome = outcome
        self._lineage = SimpleNamespace(confirm=as_it_was)  # type: ignore[assignment]
        self.observed: list[int] = []
        self.settled = 0
        self.next_due: int | None = None
        self.last_closed: int | None = None
        self.next_release: int | None = None
        self.may_rest = False

    def take_over(self) -> int:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    @property
    def task(self) -> Any:
        return self

    @property
    def position(self) -> int:
        return 100

    def views(self) -> dict[str, StreamView]:
        return {}

    def _is_quick(self, chunk: Chunk) -> bool:
        return False

    def observe(self, chunk: Chunk) -> None:
        self.observed.append(chunk.start)

    @property
    def due(self) -> int | None:
        return self.next_due

    def rests(self, now: int) -> bool:
        return self.may_rest and self.next_due is not None and self.next_due > now

    @property
    def closed(self) -> int | None:
        return self.last_closed

    @property
    def awaited(self) -> int | None:
        return self.next_release

    @property
    def untimed(self) -> bool:
        return False

    async def prepare(self) -> None: ...

    async def settle(self) -> None:
        self.settled += 1


class Recorded(Told):
    """What would be logged of owners that ended."""

    def __init__(self) -> None:
        super().__init__(lambda: None, AtOnce().waiting, Observation(topology()))
        self.ends: list[tuple[TopicPartition, Exception]] = []

    def stopped(self, tp: TopicPartition, error: Exception) -> None:
        self.ends.append((tp, error))


class Surroundings:
    """An assignment of one partition, and what it did."""

    def __init__(
        self,
        outcomes: list[int | Exception],
        assigned: list[bool] | None = None,
        doubt_seconds: float = 60.0,
        rebalance_seconds: float = 0.0,
    ) -> None:
        self.outcomes = outcomes
        self.made: list[Scripted] = []
        self.went_to: list[int] = []
        self.failures: list[BaseException] = []
        #: After how many owners a new client was asked for.
        self.renewed: list[int] = []
        self.woken: list[TopicPartition | None] = []
        self.observation = Observation(topology())
        self.told = Recorded()
        self._assigned = assigned or []
        self.assignment = Assignment(
            self._make,
            self._go_to,
            AtOnce().waiting,
            self.failures.append,
            patience=rebalance_seconds,
            doubt_seconds=doubt_seconds,
            doubted=lambda: self.renewed.append(len(self.made)),
            observation=self.observation,
            told=self.told,
            wake=self.woken.append,
        )

    def _make(self, _: TopicPartition) -> Runner:
        if not self.outcomes:
            raise RuntimeError("the script has ended")
        self.made.append(Scripted(self.outcomes.pop(0), AtOnce()))
        return self.made[-1]

    async def _go_to(self, _: TopicPartition, offset: int) -> bool:
        self.went_to.append(offset)
        return self._assigned.pop(0) if self._assigned else True

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0)

    async def owned(self) -> Scripted:
        await self.until(lambda: PLACE in self.assignment.owners)
        return self.made[-1]

    async def both_owned(self, other: TopicPartition) -> tuple[Scripted, Scripted]:
        """The owners of PLACE and of another partition."""
        self.assignment.assign({PLACE, other})
        await self.until(lambda: len(self.assignment.owners) == 2)
        first, second = self.assignment.owners[PLACE], self.assignment.owners[other]
        assert isinstance(first, Scripted)
        assert isinstance(second, Scripted)
        return first, second


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were taken, none of which lasts."""
    taken: list[float] = []
    sleep = asyncio.sleep

    async def at_once(seconds: float) -> None:
        if seconds:
            taken.append(seconds)
        await sleep(0)

    monkeypatch.setattr(assignment.asyncio, "sleep", at_once)
    return taken


def chunk(token: int, start: int) -> Chunk:
    return Chunk("raw", 0, token, start, [], [], [], [], start + 1)


async def test_after_trouble_a_new_owner_takes_over_after_a_growing_pause(pauses: list[float]) -> None:
    one = Surroundings([BROKER_AWAY, TIMED_OUT, BROKER_AWAY, 7])
    one.assignment.assign({PLACE})
    await one.owned()
    assert one.went_to == [7]
    assert pauses == [0.5, 1.0, 2.0]
    assert not one.failures
    seen = one.observation
    assert (seen.failures["aggregate"], seen.fenced["aggregate"], seen.take_overs["aggregate"]) == (3, 0, 1)


async def test_an_owner_is_woken_when_it_becomes_due_and_not_again_for_the_same() -> None:
    one = Surroundings([7])
    one.assignment.assign({PLACE})
    owner = await one.owned()
    await one.until(lambda: owner.settled == 1)
    assert one.assignment.until_due(1000) == inf
    owner.next_due = 1250
    assert one.assignment.until_due(1000) == 250
    before = owner.settled
    for after, until, settled in ((1000, 1249, 0), (1249, 1250, 1), (1250, 1300, 1)):
        one.assignment.tick_due(after, until)
        for _ in range(5):
            await asyncio.sleep(0)
        assert owner.settled - before == settled
    assert one.assignment.until_due(1250) == inf


async def test_an_owner_at_rest_is_left_alone_until_it_is_due_or_something_comes() -> None:
    one = Surroundings([7])
    one.assignment.assign({PLACE})
    owner = await one.owned()
    await one.until(lambda: owner.settled == 1)  # what was there when it took over
    owner.next_due = 5_000

    async def ticks(now: int, count: int = 1) -> int:
        before = owner.settled
        for _ in range(count):
            one.assignment.tick(now)
            for _ in range(5):
                await asyncio.sleep(0)
        return owner.settled - before

    assert await ticks(1_000, 3) == 3
    owner.may_rest = True
    # Once in this many ticks it is looked after all the same.
    assert await ticks(1_000, assignment._TICKS_OF_REST - 4) == 0
    assert await ticks(1_000) == 1
    assert await ticks(1_000) == 0
    assert one.assignment.until_due(1_000) == 4_000
    one.assignment.handle(chunk(owner.token, 7))
    assert await ticks(1_000, 2) == 1  # the settling of the chunk
    one.assignment.tick_due(4_900, 5_000)
    # From then on at every tick, for what is due may not be complete.
    assert await ticks(5_001, 3) == 4


async def test_an_owner_at_rest_that_becomes_due_between_two_ticks_is_not_passed_over() -> None:
    one = Surroundings([7])
    one.assignment.assign({PLACE})
    owner = await one.owned()
    await one.until(lambda: owner.settled == 1)
    owner.next_due, owner.may_rest = 5_000, True
    one.assignment.tick(4_950)
    assert one.assignment.until_due(4_950) == 50
    one.assignment.tick(5_003)
    await one.until(lambda: owner.settled == 2)


async def test_who_becomes_due_wakes_nobody_else() -> None:
    one = Surroundings([7, 7])
    early, late = await one.both_owned(TopicPartition("raw", 1))
    await one.until(lambda: early.settled == late.settled == 1)
    early.next_due, late.next_due = 5_000, 6_000
    early.may_rest = late.may_rest = True
    one.assignment.tick(4_000)
    # This one would say so if it were asked.
    late.next_due = None
    for look in (one.assignment.tick_due, lambda _, now: one.assignment.tick(now)):
        assert one.assignment.quiet_until(4_000) == 5_000
        assert one.assignment.until_due(4_000) == 1_000
        look(4_990, 5_000)
        await one.until(lambda: early.settled > 1)
        assert late.settled == 1
        assert one.assignment.until_due(5_000) == 1_000
        # It has closed that, and rests again until the same time, for the sake of the test.
        early.settled = 1
        one.assignment.tick(4_000)
    late.next_due = 6_000
    one.assignment.tick_due(5_990, 6_000)
    await one.until(lambda: late.settled == 2)


async def test_an_owner_that_has_just_closed_is_not_at_rest_before_the_release_is_there() -> None:
    one, partials = Surroundings([7, 7]), TopicPartition("partials", 0)
    counting, releasing = await one.both_owned(partials)
    counting.may_rest, counting.next_due, counting.last_closed = True, 3_000, 2_000
    releasing.next_release = 2_000
    for _ in range(assignment._TICKS_OF_REST):
        one.assignment.tick(2_005)
    assert one.assignment.resting(2_005) == {PLACE}


async def test_a_release_wakes_the_consumer_for_those_that_rest() -> None:
    one = Surroundings([7])
    one.assignment.assign({PLACE})
    await one.until(lambda: bool(one.assignment.owners))
    owner = one.assignment.owners[PLACE]
    assert isinstance(owner, Scripted)
    await one.until(lambda: owner.settled == 1)
    owner.next_due, owner.next_release, one.woken[:] = 3_000, 2_000, []

    async def settle() -> None:
        owner.settled += 1
        owner.next_release = 1_000 * (owner.settled + 1)

    one.assignment.tick(2_000)
    await one.until(lambda: owner.settled == 2)
    assert one.woken == [], "nothing was released"
    owner.settle = settle  # type: ignore[method-assign]
    one.assignment.tick(2_000)
    await one.until(lambda: bool(one.woken))
    one.assignment.handle(chunk(owner.token, 100))
    await one.until(lambda: len(one.woken) == 2)
    assert one.woken == [None, None]
    assert one.assignment.rest_seconds(2_950) == 0.05, "the next is due by then"
    assert one.assignment.rest_seconds(2_000) == assignment._REST_LOOK_MS / 1000


async def test_who_has_closed_rests_until_the_release_is_there() -> None:
    one, partials = Surroundings([7, 7]), TopicPartition("partials", 0)
    counting, releasing = await one.both_owned(partials)
    for now, closed, due, awaited, resting in (
        (1999, 1000, 2000, 2000, False),  # nothing is due
        (2005, 1000, 2000, 2000, False),  # it has still to close
        (2005, 2000, 3000, 2000, True),
        (2249, 2000, 3000, 2000, True),
        (2250, 2000, 3000, 2000, False),  # a release that waits for others
        (2050, 2000, 3000, 3000, False),  # it is there
        (2100, 2000, 2100, 2000, False),  # the next is due
        (2100, 1000, 3000, 2000, False),  # it is not what this one has closed
        (2100, None, 3000, 2000, False),  # it closes nothing for others
        (2100, 2000, None, 2000, False),  # it knows no time
        (2100, 2000, 3000, None, False),  # what it has closed is released elsewhere
    ):
        counting.last_closed, counting.next_due, releasing.next_release = closed, due, awaited
        assert one.assignment.resting(now) == ({PLACE} if resting else set()), now


async def test_it_is_quiet_until_an_owner_closes_or_releases_and_never_where_each_record_counts() -> None:
    one = Surroundings([0])
    assert one.assignment.quiet_until(1_000) == -inf
    one.assignment.assign({PLACE})
    owner = await one.owned()
    for due, awaited, quiet in (
        (5_000, None, 5_000),
        (None, 4_000, 4_000),
        (5_000, 4_000, 4_000),
        (None, None, -inf),
    ):
        owner.next_due, owner.next_release = due, awaited
        assert one.assignment.quiet_until(1_000) == quiet
    # Of one at rest it is known too, without asking it again and again.
    owner.next_due, owner.next_release, owner.may_rest = 5_000, None, True
    for _ in range(2):
        one.assignment.tick(1_000)
    owner.next_due = None
    assert one.assignment.quiet_until(1_000) == 5_000
    one.assignment.handle(chunk(owner.token, 100))
    assert one.assignment.quiet_until(1_000) == -inf
    owner.next_due = 5_000
    one.assignment.doubt(PLACE, "is it there?")
    assert one.assignment.quiet_until(1_000) == -inf
    one.assignment.revoke()
    assert one.assignment.quiet_until(1_000) == -inf


async def test_as_long_as_some_are_to_be_taken_over_nobody_relies_on_quiet() -> None:
    one, other = Surroundings([7]), TopicPartition("raw", 1)
    one.assignment.assign({PLACE})
    owner = await one.owned()
    owner.next_due = 5_000
    one.assignment._supervisors[other] = asyncio.create_task(asyncio.Event().wait())  # type: ignore[assignment]
    assert one.assignment.quiet_until(1_000) == 1_300
    assert one.woken == [None]
    one.assignment.handle(chunk(owner.token, 100))
    await one.until(lambda: one.woken == [None, PLACE])
    one.assignment.revoke()


async def test_large_chunks_are_fetched_ahead_and_small_ones_are_left_to_grow() -> None:
    one = Surroundings([7])
    one.assignment.assign({PLACE})
    owner = await one.owned()
    for records, most in ((8192, 2), (4096, 2), (4095, 1), (1, 1)):
        sent = 0
        while one.assignment.wanted():
            owner.sent(records)
            sent += 1
        assert sent == most
        for start in range(sent):
            one.assignment.handle(chunk(owner.token, start))
        await one.until(lambda: bool(one.assignment.wanted()))
        while owner.busy:
            await asyncio.sleep(0)


async def test_a_partition_that_the_consumer_does_not_know_is_not_left_unowned() -> None:
    one = Surroundings([7, 7], assigned=[False, True])
    one.assignment.assign({PLACE})
    await one.owned()
    assert one.went_to == [7, 7]


async def test_fenced_twice_with_no_rebalance_to_explain_it_stops_the_worker() -> None:
    one = Surroundings([FENCED, FENCED, 7])
    one.assignment.assign({PLACE})
    await one.until(lambda: bool(one.failures))
    assert "Find the second application with this name" in str(one.failures[0])
    assert len(one.made) == 2
    assert one.observation.fenced == {"aggregate": 2}
    assert PLACE in one.observation.errors


async def test_transactions_that_outlived_their_timeout_are_no_sign_of_another_application(
    pauses: list[float],
) -> None:
    one = Surroundings([OVERDUE, OVERDUE, FENCED, OVERDUE, 7], rebalance_seconds=20.0)
    one.assignment.assign({PLACE})
    await one.owned()
    assert not one.failures
    assert one.observation.fenced == {"aggregate": 1}
    # A worker that was frozen for so long may have a successor: the rebalance is awaited each time.
    assert pauses == [20.0, 0.5, 20.0, 1.0, 20.0, 2.0, 20.0, 4.0]


async def test_a_healthy_life_clears_the_record(monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> None:
    monkeypatch.setattr(assignment, "_HEALTHY_SECONDS", -1.0)
    one = Surroundings([FENCED, FENCED, FENCED, BROKER_AWAY, 7])
    one.assignment.assign({PLACE})
    await one.owned()
    assert not one.failures
    assert pauses == [0.5] * 4


@pytest.mark.parametrize(
    "error", [StateRefused("raw", "it is foreign", "Restore it"), ValueError("unforeseen")]
)
async def test_a_refusal_and_an_unforeseen_error_stop_the_worker_at_once(error: Exception) -> None:
    one = Surroundings([error, 7])
    one.assignment.assign({PLACE})
    await one.until(lambda: bool(one.failures))
    assert one.failures == [error]
    assert len(one.made) == 1


async def test_a_doubt_is_logged_and_looked_at_again_and_the_worker_is_not_ready_meanwhile(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Surroundings([DOUBT, DOUBT, DOUBT, DOUBT, 7])
    one.observation.assigned = frozenset({PLACE})
    reasons: list[str] = []
    gave_up = one.observation.gave_up

    def watched(tp: TopicPartition, error: Exception, fenced: bool) -> None:
        gave_up(tp, error, fenced)
        reasons.extend(one.observation.obstacles(one.observation.beat))

    monkeypatch.setattr(one.observation, "gave_up", watched)
    one.assignment.assign({PLACE})
    await one.owned()
    told = "raw: 1 partition being taken over again after a failure (see the log)"
    assert reasons == [told] * 4
    assert one.renewed == [1, 2, 3, 4]
    assert not one.failures
    assert pauses == [0.5, 1.0, 2.0, 4.0]
    assert one.told.ends == [(PLACE, DOUBT)] * 4


async def test_a_doubt_that_stays_as_long_as_the_worker_is_patient_is_refused() -> None:
    one = Surroundings([DOUBT, DOUBT, DOUBT, 7], doubt_seconds=0.0)
    one.assignment.assign({PLACE})
    await one.until(lambda: bool(one.failures))
    assert one.failures == [REFUSED]
    assert len(one.made) == 3


async def test_a_doubt_that_refuses_nothing_and_one_that_changes_are_looked_at_without_end() -> None:
    endless, other = Unsettled("raw", "stale"), Unsettled("raw", "another id", REFUSED)
    one = Surroundings([*[endless] * 9, DOUBT, DOUBT, other, other, 7], doubt_seconds=0.0)
    one.assignment.assign({PLACE})
    await one.owned()
    assert not one.failures


async def test_a_take_over_settles_the_doubt_before_it() -> None:
    one = Surroundings([DOUBT, DOUBT, 7, DOUBT, DOUBT, 7], doubt_seconds=0.0)
    one.assignment.assign({PLACE})
    (await one.owned()).end(BROKER_AWAY)
    await one.until(lambda: len(one.made) == 6)
    await one.owned()
    assert not one.failures


async def dies(one: Surroundings, error: Exception, commits: int = 0) -> None:
    """The owner meets an error at its work, after this many commits."""
    owner, made = await one.owned(), len(one.made)
    owner.table.commits += commits
    owner.observe = lambda _: (_ for _ in ()).throw(error)  # type: ignore[method-assign]
    one.assignment.handle(chunk(owner.token, 100))
    await one.until(lambda: bool(one.failures) or len(one.made) > made)
    await one.until(lambda: one.assignment.owners.get(PLACE) is not owner)


async def test_a_doubt_that_every_life_meets_after_its_take_over_is_refused_too() -> None:
    """Such as a log that ends below a boundary: nothing but asking for its end shows that."""
    one = Surroundings([7] * 4, doubt_seconds=0.0)
    one.assignment.assign({PLACE})
    for _ in range(3):
        await dies(one, DOUBT)
    await one.until(lambda: bool(one.failures))
    assert one.failures == [REFUSED]
    assert len(one.made) == 3


async def test_an_owner_that_committed_something_settles_the_doubts_of_the_lives_before_it() -> None:
    one = Surroundings([7] * 5, doubt_seconds=0.0)
    one.assignment.assign({PLACE})
    for commits in (0, 0, 1, 0):
        await dies(one, DOUBT, commits)
    await one.until(lambda: len(one.made) == 5)
    assert not one.failures


async def test_so_does_one_that_lived_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Surroundings([7] * 5, doubt_seconds=0.0)
    one.assignment.assign({PLACE})
    for seconds in (120.0, 120.0, -1.0, 120.0):
        monkeypatch.setattr(assignment, "_HEALTHY_SECONDS", seconds)
        await dies(one, DOUBT)
    await one.until(lambda: len(one.made) == 5)
    assert not one.failures


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_an_owner_that_gave_up_leaves_nothing_behind() -> None:
    """It may hold megabytes, and the garbage collector does not come by for hours."""

    async def scenario() -> None:
        one = Surroundings([7, 7, 7, 7])
        one.assignment.assign({PLACE})
        gone = []
        for number in range(3):
            gone.append(weakref.ref(await one.owned()))
            try:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            except KafkaException as cause:
                error = TransactionFailed(f"attempt {number}", cause.args[0])
                error.__cause__ = cause
            await dies(one, error)
            del error
        await one.owned()
        one.made.clear()
        assert [owner() for owner in gone] == [None] * 3

    with without_garbage_collection():
        asyncio.run(scenario())


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.UNSUPPORTED_VERSION,
    ],
)
async def test_what_waiting_does_not_help_against_stops_the_worker(code: int) -> None:
    error = TransactionFailed("app-aggregate-0", KafkaError(code))
    one = Surroundings([error])
    one.assignment.assign({PLACE})
    await one.until(lambda: bool(one.failures))
    assert one.failures == [error]


async def test_an_owner_that_cannot_be_made_stops_the_worker() -> None:
    one = Surroundings([])
    one.assignment.assign({PLACE})
    await one.until(lambda: bool(one.failures))
    assert str(one.failures[0]) == "the script has ended"


async def test_a_gap_moves_the_consumer_back_to_the_owners_position() -> None:
    one = Surroundings([7])
    one.assignment.assign({PLACE})
    owner = await one.owned()
    one.assignment.handle(chunk(owner.token, 101))
    await one.until(lambda: len(one.went_to) == 2)
    assert one.went_to == [7, 100]
    assert owner.observed == []


async def test_a_closed_owner_neither_counts_nor_moves_the_consumer() -> None:
    one = Surroundings([7])
    one.assignment.assign({PLACE})
    owner = await one.owned()
    one.assignment.handle(chunk(owner.token, 100))
    one.assignment.handle(chunk(owner.token, 101))
    one.assignment.revoke()
    for _ in range(20):
        await asyncio.sleep(0)
    assert owner.observed == []
    assert one.went_to == [7]
    with pytest.raises(OwnerClosed):
        await owner.handle(chunk(owner.token, 100))


async def test_chunks_of_an_earlier_owner_are_dropped() -> None:
    one = Surroundings([7])
    one.assignment.assign({PLACE})
    owner = await one.owned()
    one.assignment.handle(chunk(owner.token - 1, 100))
    one.assignment.handle(chunk(owner.token, 100))
    await one.until(lambda: bool(owner.observed))
    assert owner.observed == [100]


async def test_an_error_while_counting_ends_the_owner_and_a_new_one_takes_over() -> None:
    one = Surroundings([7, 8])
    one.assignment.assign({PLACE})
    owner = await one.owned()
    owner.observe = lambda _: (_ for _ in ()).throw(TIMED_OUT)  # type: ignore[method-assign]
    one.assignment.handle(chunk(owner.token, 100))
    await one.until(lambda: len(one.made) == 2 and PLACE in one.assignment.owners)
    assert one.went_to == [7, 8]
    assert not one.failures
