"""Which partitions this worker owns: each taken over by a task of its own, and again after an error.

A partition that cannot be taken over delays itself only. An error of the surroundings (broker away, too few
replicas, transaction timed out), or a doubt that a later look may settle (Unsettled), closes the owner; after
a pause a new one takes over and reads what really happened. A doubt that stays becomes a refusal. Being
fenced means that somebody else took over: the rebalance that follows is awaited, and only if none comes is
the partition taken back once, then the worker stops. A transaction that outlived its timeout ends with the
same answer; then the rebalance is awaited too, as a worker frozen that long may have a successor, and
if none comes the partition is taken over again as after any error. A refusal to guarantee (StateRefused), a
missing right, brokers that do not fit, or an error nobody foresaw stops the worker at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from math import inf
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException

from eventveil.kafka.changelog import OwnerClosed, TransactionFailed
from eventveil.kafka.rights import is_lasting
from eventveil.model.errors import EventveilError, StateRefused, Unsettled
from eventveil.model.records import Chunk, TopicPartition
from eventveil.process.clock import ClockAhead
from eventveil.process.patience import Doubts
from eventveil.tasks.task import Task
from eventveil.worker.observe.observation import Observation
from eventveil.worker.runner import Runner
from eventveil.worker.threads import Blocking
from eventveil.worker.told import Told

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_FENCED_LIMIT = 2
#: How long a due release takes precedence over counting.
_REST_MS = 250
#: How often to check whether that has ended, if no release of this worker ends it.
_REST_LOOK_MS = 100
#: An owner that is at rest needs one tick in this many.
_TICKS_OF_REST = 20
#: While some partitions are not yet taken over, nothing counts as due within this time.
_UNKNOWN_MS = 300
#: The failures of an owner that lived longer than this are forgotten.
_HEALTHY_SECONDS = 120.0


class _NotAssigned(EventveilError):
    """The consumer does not know the partition (yet, or any more)."""

    def __init__(self, tp: TopicPartition) -> None:
        super().__init__(f"{tp} is not assigned to the consumer")


class _Rest(NamedTuple):
    """Until when an owner has nothing to do, and when it next closes or releases something, in epoch
    milliseconds; infinity: never."""

    due: float
    moment: float


class Assignment:
    """The owners of the assigned partitions.

    ``make`` creates the owner of a partition, ``go_to`` moves the consumer (False: no longer assigned),
    ``taking_over`` runs a take-over in a thread, and ``failed`` is told of an error after which the worker
    must stop. ``patience`` is how long, in seconds, a fenced owner waits for the rebalance that explains it,
    ``doubt_seconds`` how long the same doubt may stand; ``doubted`` is told before it is looked at again.
    ``observation`` notes what becomes of owners, and ``told`` logs it. ``wake`` is told of a partition that
    may be wanted again, and (None) that another is owned, whose times are to be kept, or that a release ends
    the rest of others.
    """

    def __init__(
        self,
        make: Callable[[TopicPartition], Runner],
        go_to: Callable[[TopicPartition, int], Awaitable[bool]],
        taking_over: Blocking,
        failed: Callable[[BaseException], None],
        patience: float,
        doubt_seconds: float,
        doubted: Callable[[], None],
        observation: Observation,
        told: Told,
        wake: Callable[[TopicPartition | None], None],
    ) -> None:
        self._make = make
        self._go_to = go_to
        self._taking_over = taking_over
        self._failed = failed
        self._patience, self._doubt_seconds, self._doubted = patience, doubt_seconds, doubted
        self._observation, self._told, self._wake = observation, told, wake
        self._supervisors: dict[TopicPartition, asyncio.Task[None]] = {}
        #: The owners that have taken over.
        self.owners: dict[TopicPartition, Runner] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticks = 0
        #: Whose owner may have something to do before it is due, and the others.
        self._lively: set[TopicPartition] = set()
        self._at_rest: dict[TopicPartition, _Rest] = {}
        # One take-over of a partition at a time: a cancelled one that is still running in its thread would
        # otherwise fence its successor.
        self._turn: defaultdict[TopicPartition, asyncio.Lock] = defaultdict(asyncio.Lock)

    def assign(self, partitions: set[TopicPartition]) -> None:
        """Own these partitions, and no others; returns at once."""
        self.revoke()
        self._supervisors = {tp: asyncio.create_task(self._supervise(tp)) for tp in partitions}

    def revoke(self) -> None:
        """Own nothing; returns at once."""
        for task in self._supervisors.values():
            task.cancel()
        for owner in self.owners.values():
            owner.end()
        self._supervisors.clear()
        self.owners.clear()
        self._lively.clear()
        self._at_rest.clear()

    def doubt(self, tp: TopicPartition, what: str) -> None:
        """End the owner of a partition, if there is one: the next owner finds out what is the matter."""
        owner = self.owners.pop(tp, None)
        if owner is not None:
            owner.end(Unsettled(str(tp), what))

    def wanted(self) -> dict[TopicPartition, int]:
        """The partitions to fetch from now, and their owners' tokens; from any thread."""
        return {tp: owner.token for tp, owner in self.owners.copy().items() if owner.has_credit}

    def handle(self, chunk: Chunk) -> None:
        """Give a chunk to the owner it was fetched for, if that still owns the partition; returns at once.

        One partition never waits for another. The chunks of a partition are handled in order: its owner
        serves them first come, first served.
        """
        tp = TopicPartition(chunk.topic, chunk.partition)
        owner = self.owners.get(tp)
        if owner is not None and owner.token == chunk.generation:
            self._rouse([tp])
            self._spawn(tp, owner, self._observe(tp, owner, chunk))

    async def _observe(self, tp: TopicPartition, owner: Runner, chunk: Chunk) -> None:
        awaited = owner.task.awaited
        # A chunk before this one may have been dropped on its way, during a rebalance.
        if not await owner.handle(chunk) or owner.misplaced:
            await self._go_to(tp, owner.task.position)
        self._wake(None if owner.task.awaited != awaited else tp)

    def tick(self, now: int) -> None:
        """Let time pass, at ``now`` in epoch milliseconds, for owners that have nothing else to do.

        For those that are at rest only now and then: of hundreds of partitions, and of few that keep up, that
        would be most of what a worker does. Returns at once.
        """
        self._ticks += 1
        everyone = self._ticks % _TICKS_OF_REST == 0
        self._rouse(self.owners if everyone else self._rested(now))
        for tp, owner in self._those(self._lively):
            task = owner.task
            if everyone or owner.busy or not _rests(task, now):
                self._tick(tp, owner)
            else:
                self._lively.discard(tp)
                self._at_rest[tp] = _Rest(inf if task.due is None else task.due, _moment(task))

    def _rouse(self, partitions: Iterable[TopicPartition]) -> None:
        """Look after these again."""
        for tp in partitions:
            self._lively.add(tp)
            self._at_rest.pop(tp, None)

    def _rested(self, now: int) -> list[TopicPartition]:
        """Those at rest that have become due. Of hundreds of streams mostly one: the others rest on."""
        return [tp for tp, rest in self._at_rest.items() if rest.due <= now]

    def tick_due(self, after: int, until: int) -> None:
        """The same for those that became due between two times, in epoch milliseconds."""
        self._rouse(self._rested(until))
        for tp, owner in self._those(self._lively):
            due = owner.task.due
            if due is not None and after < due <= until:
                self._tick(tp, owner)

    def _those(self, partitions: Iterable[TopicPartition]) -> list[tuple[TopicPartition, Runner]]:
        """Which of them are owned, and by whom."""
        return [(tp, self.owners[tp]) for tp in partitions if tp in self.owners]

    def _tick(self, tp: TopicPartition, owner: Runner) -> None:
        if not owner.busy:
            self._spawn(tp, owner, self._pass_time(tp, owner))

    async def _pass_time(self, tp: TopicPartition, owner: Runner) -> None:
        awaited = owner.task.awaited
        await owner.tick()
        if owner.misplaced:
            await self._go_to(tp, owner.task.position)
        if owner.task.awaited != awaited:
            self._wake(None)

    def until_due(self, now: int) -> float:
        """Milliseconds until the next owner becomes due, infinity if none does."""
        dues = (owner.task.due for _, owner in self._those(self._lively))
        later = (rest.due for rest in self._at_rest.values())
        return min((due - now for due in (*dues, *later) if due is not None and due > now), default=inf)

    def quiet_until(self, now: int) -> float:
        """When an owner next closes or releases something, or should have, in epoch milliseconds.

        Minus infinity where one works at every record, or none has taken over. Before all have, nobody knows
        what those will have to do, nor should they wait for what others fetch.
        """
        lively = (_moment(owner.task) for _, owner in self._those(self._lively))
        resting = (rest.moment for rest in self._at_rest.values())
        known = inf if len(self.owners) == len(self._supervisors) else now + _UNKNOWN_MS
        return min((*lively, *resting, known)) if self.owners else -inf

    def resting(self, now: int) -> set[TopicPartition]:
        """The partitions that have closed what is being released, at ``now`` in epoch milliseconds.

        To count what comes after it would only take the processor from the release. Not for long, for that
        may wait for partitions of other workers; and not once something else is due.
        """
        since = now - _REST_MS
        lively = ((tp, owner.task) for tp, owner in self._those(self._lively))
        closed = {
            tp
            for tp, task in lively
            if task.closed is not None and task.closed > since and task.due is not None and task.due > now
        }
        awaits = (owner.task.awaited for owner in self.owners.values()) if closed else ()
        return closed if any(one is not None and since < one <= now for one in awaits) else set()

    def rest_seconds(self, now: int) -> float:
        """For how long those that rest may be left alone: until something is due, or their time is over.

        A release that ends a rest wakes the consumer.
        """
        return min(self.until_due(now), _REST_LOOK_MS) / 1000

    def _spawn(self, tp: TopicPartition, owner: Runner, work: Awaitable[None]) -> None:
        task = asyncio.create_task(self._guarded(tp, owner, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, tp: TopicPartition, owner: Runner, work: Awaitable[None]) -> None:
        try:
            await work
        except OwnerClosed:
            pass
        except Exception as error:
            if self.owners.get(tp) is owner:
                del self.owners[tp]
            owner.end(error)

    async def _supervise(self, tp: TopicPartition) -> None:
        pause, fenced = _FIRST_PAUSE, 0
        doubts = Doubts(self._doubt_seconds)
        while True:
            began = time.monotonic()
            try:
                await self._live(tp, doubts)
                return
            except (OwnerClosed, asyncio.CancelledError):
                return
            except (TransactionFailed, ClockAhead, KafkaException, Unsettled, _NotAssigned) as error:
                refusal = doubts.refusal(error) if isinstance(error, Unsettled) else None
                if refusal is not None or _is_lasting(error):
                    self._failed(refusal or error)
                    return
                self._told.stopped(tp, error)
                if time.monotonic() - began > _HEALTHY_SECONDS:
                    pause, fenced = _FIRST_PAUSE, 0
                by_another = isinstance(error, TransactionFailed) and error.fenced
                self._observation.gave_up(tp, error, by_another)
                if isinstance(error, Unsettled):
                    self._doubted()
                if isinstance(error, TransactionFailed) and error.shut_out:
                    await asyncio.sleep(self._patience)
                fenced += by_another
                if fenced == _FENCED_LIMIT:
                    self._failed(_fenced_for_good(tp, error))
                    return
                _let_go(error)
            except Exception as error:
                self._failed(error)
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _live(self, tp: TopicPartition, doubts: Doubts) -> None:
        """Make an owner; from its take-over to its end. Raises what ended it."""
        doubts.begin()
        owner = self._make(tp)
        try:
            resume = await self._take_over(tp, owner)
            if not await self._go_to(tp, resume):
                # The rebalance that explains it cancels this task; if none comes, nobody else will own it.
                raise _NotAssigned(tp)
            self.owners[tp] = owner
            self._rouse([tp])
            self._tick(tp, owner)
            self._wake(None)
            self._observation.taken_over(tp)
            self._told.taken_over()
            # No offset of a raw topic in the log: differences between two are exact counts.
            log.info("%s owns %s", owner.table.owner, tp)
            doubts.taken_over()
            began, commits = time.monotonic(), owner.table.commits
            try:
                await owner.ended
            finally:
                if owner.table.commits > commits or time.monotonic() - began > _HEALTHY_SECONDS:
                    doubts.healthy()
        finally:
            owner.end()
            asyncio.get_running_loop().run_in_executor(None, owner.table.dispose)

    async def _take_over(self, tp: TopicPartition, owner: Runner) -> int:
        async def in_turn() -> int:
            async with self._turn[tp]:
                owner.check_open()
                resume: int = await self._taking_over(owner.take_over)
                return resume

        taking = asyncio.ensure_future(in_turn())
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            # The thread cannot be stopped; closing the table makes it end at its next step.
            owner.end()
            taking.add_done_callback(lambda task: task.cancelled() or task.exception())
            raise


def _fenced_for_good(tp: TopicPartition, error: Exception) -> StateRefused:
    return StateRefused(
        str(tp),
        f"another application is writing its state, and no rebalance explains that ({error})",
        "Find the second application with this name and stop it",
    )


def _let_go(error: BaseException | None) -> None:
    """Let go of what an error was raised in.

    An owner has the error that ended it, and the frames of the error have the owner. The garbage collector
    would find that out after hours, and an owner may hold megabytes.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _moment(task: Task) -> float:
    """When an owner next closes or releases something; minus infinity if that is not by the clock."""
    return min((one for one in (task.due, task.awaited) if one is not None), default=-inf)


def _rests(task: Task, now: int) -> bool:
    """Whether an owner has nothing to do before it is due, nor is anybody's release waited for with it."""
    return task.rests(now) and (task.closed is None or task.closed <= now - _REST_MS)


def _is_lasting(error: Exception) -> bool:
    cause = error.error if isinstance(error, TransactionFailed) else error.args[0]
    return isinstance(cause, KafkaError) and is_lasting(cause)
