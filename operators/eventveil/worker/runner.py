"""Owning a partition and running its task over Kafka, from take-over to the first error or revocation.

It checks the topics that the task reads, and commits the task's transactions. Roles differ in how their task
is restored (``eventveil.worker.restore``), and in nothing here. An owner never repairs itself. Whatever goes
wrong, it is closed, and a new one takes the partition over and reads the truth from the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import count

from confluent_kafka import KafkaError, KafkaException

from eventveil.decoding.bulk import lengths_of
from eventveil.kafka.changelog import FencedTable, OwnerClosed
from eventveil.model.reach import Reach
from eventveil.model.records import Chunk, Schema, Schemas, TopicPartition
from eventveil.process.clock import PartitionClock
from eventveil.schema_registry.access import RegistryUnavailable
from eventveil.schema_registry.known import KnownSchemas, settled, settles_at
from eventveil.tasks.task import Publisher, Task, Transaction
from eventveil.worker.ends import EndSubscription
from eventveil.worker.offsets import Lineage, shortened
from eventveil.worker.restore.restored import Context, Restore, Restored
from eventveil.worker.threads import Blocking
from eventveil.worker.topic_guard import AppendTimes

log = logging.getLogger(__name__)

_tokens = count(1)
#: Chunks of one partition that may be on their way to its owner. After a large one the next is fetched while
#: that is worked on; after a small one, waiting makes the next one larger.
_CREDIT, _CREDIT_IF_LARGE, _LARGE = 1, 2, 4096

#: The bytes that a chunk of few records may have to be observed in the event loop: some tenths of a
#: millisecond, like the way to a thread and back, which wakes two threads and costs more than it takes.
_SMALL_BYTES = 32 * 1024
#: A seek is asked for again after this, should nothing have come of it.
_SEEK_SECONDS = 5.0
#: How long a transaction waits for a check of topics; the broker ends it some seconds later.
_CHECK_SECONDS = 15.0
#: The pause before a registry is asked again after an unusable answer.
_ASK_SECONDS = 0.5
_FORFEITED = (
    "stream %s: timestamp %d forfeited (a worker failed while releasing it, or after a look);"
    " the last release is repeated and the charge stands"
)


class Runner:
    """The owner of one partition of a source topic or of the partials topic: it runs the task of that."""

    def __init__(
        self,
        source: TopicPartition,
        restore: Restore,
        table: FencedTable,
        context: Context,
        clock: PartitionClock,
    ) -> None:
        #: Distinguishes the chunks that were fetched for this owner from those of an earlier one.
        self.token = next(_tokens)
        self.table = table
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turn = asyncio.Lock()
        self._outstanding, self._credit = 0, _CREDIT
        self._source, self._restore, self._context = source, restore, context
        self._cluster, self._observation, self._clock = context.cluster, context.observation, clock
        self._blocking: Blocking = context.threads.waiting
        self._counting: Blocking = context.threads.counting
        #: Where ``observe`` runs.
        self._observing: Blocking = self._counting
        self._append_times = AppendTimes(self._cluster, self._blocking, source.topic)
        self._subscription: EndSubscription | None = None
        self._lineage: Lineage | None = None
        self._astray, self._sought_at = False, 0.0
        #: Whether it waits because the schemas of records cannot be asked for.
        self.unread = False
        #: What is durable and was not told of yet; the event loop does that, which other owners write too.
        self._untold: deque[Transaction] = deque()
        self._restored: Restored | None = None

    def take_over(self) -> int:
        """Fence, read the state, publish what was decided; the offset to resume from. Blocks.

        Raises StateRefused, TransactionFailed, KafkaException or OwnerClosed.
        """
        self._restored = restored = self._restore(self._context, self.table)
        task = restored.task
        if self.ended.done():
            task.end()
        self._observing = self._counting if task.counts else self._blocking
        restored.check()
        if left := task.left():
            if restored.sinks is not None:
                restored.sinks.check()
            self._commit(left)
        task.begin()
        self._lineage = Lineage(
            self._blocking, self._cluster, self._source, task, restored.guard, restored.remedy
        )
        self._subscription = EndSubscription(
            self._context.end_watch, self._source, task, self._clock, self._lineage
        )
        if self.ended.done():
            self._subscription.leave()
        return task.position

    def end(self, error: BaseException | None = None) -> None:
        """Close for good; ``error`` is what the supervisor will see, None for a normal end.

        Nobody asks for its end any more, and nothing is left to be seen.
        """
        self.table.close()
        if not self.ended.done():
            if error is None:
                self.ended.set_result(None)
            else:
                self.ended.set_exception(error)
        if self._subscription is not None:
            self._subscription.leave()
        if self._restored is not None:
            self._restored.task.end()

    @property
    def _around(self) -> Restored:
        assert self._restored is not None, "nothing is done before the take-over"
        return self._restored

    @property
    def task(self) -> Task:
        """What the partition is owned for, after the take-over."""
        return self._around.task

    @property
    def misplaced(self) -> bool:
        """Whether the consumer has to go to the position; not asked for again before that could be done.

        After a release, what was passed over may have to be read again.
        """
        if not self._astray or time.monotonic() < self._sought_at + _SEEK_SECONDS:
            return False
        self._sought_at = time.monotonic()
        return True

    @property
    def unregistered(self) -> bool:
        """Whether nothing is released because a registry does not know the schema of a sink."""
        return self._around.waits()

    @property
    def behind(self) -> int:
        """By how many ms the clock of this machine is behind the broker's, if that is more than declared."""
        behind = self._clock.behind
        return behind if behind > self._clock.skew else 0

    @property
    def busy(self) -> bool:
        """Whether a chunk or a tick is being worked on."""
        return self._turn.locked()

    @property
    def has_credit(self) -> bool:
        """Whether another chunk may be sent."""
        return self._outstanding < self._credit and not self.task.untimed

    def sent(self, records: int) -> None:
        """A chunk with this number of records is on its way."""
        self._outstanding += 1
        self._credit = _CREDIT_IF_LARGE if records >= _LARGE else _CREDIT

    async def handle(self, chunk: Chunk) -> bool:
        """Observe a chunk and settle; False if records before it are missing, so that nothing was done."""
        try:
            async with self._turn:
                self.check_open()
                if chunk.start > self.task.position:
                    return False
                await self.take_in(chunk)
                return True
        finally:
            self._outstanding -= 1

    async def take_in(self, chunk: Chunk) -> None:
        """Observe a chunk that begins at the position or before, turn by turn, and settle in between.

        So a chunk that takes long does not keep others waiting who count in the same thread.
        """
        chunk = await self.complete(chunk)
        # What was settled meanwhile may have led back to an earlier position.
        while chunk.start <= self.task.position:
            before = self.task.position
            await self.prepare()
            assert self._lineage is not None
            await self._lineage.confirm(chunk.epoch)
            if self._is_quick(chunk):
                self.observe(chunk)
            else:
                await self._observing(self.observe, chunk)
            await self._settle()
            if not max(before + 1, chunk.start) <= self.task.position < chunk.next_offset:
                return

    async def complete(self, chunk: Chunk) -> Chunk:
        """The chunk with the schemas that its values name. Nothing is observed before they are known.

        An unreachable registry is waited for, however long it takes. Boundaries become known and durable all
        the same, so that they do not depend on it.
        """
        known = self._context.schemas
        if known is None or self._source.topic not in self._context.topology.by_schema:
            return chunk
        asked_at, since = self._clock.now(), 0.0
        while True:
            # An answer is as old as its question, and a round of many takes a while.
            now = self._clock.now()
            if not since and now >= settles_at(chunk.append_times, asked_at):
                since = time.monotonic()
            found = await self._ask(known, chunk, since)
            if found is not None and settled(found, chunk.append_times, asked_at, now):
                self.unread = False
                return replace(chunk, schemas=found)
            await asyncio.sleep(_ASK_SECONDS)
            await self.prepare()
            # As a tick would, which cannot come: a successor captures anew what is not durable. What closes
            # meanwhile was complete at the position, and nothing is read behind that.
            await self._settle()

    async def _ask(self, known: KnownSchemas, chunk: Chunk, since: float) -> Schemas | None:
        """None if the registry cannot be asked. Where all schemas are known, no request is waited for."""
        found: dict[int, Schema | None]
        found, missing = await self._blocking(known.recall, chunk.values, since)
        try:
            for number in missing:
                self.check_open()
                found[number] = await self._context.threads.asking(known.find, number)
        except RegistryUnavailable as error:
            if not self.unread:
                log.warning("%s paused, schema registry unavailable: %s", self._source, error)
            self.unread = True
            return None
        return found

    async def prepare(self) -> None:
        """Nothing is judged before the boundaries are known that were due by now.

        A chunk that was fetched before a timestamp was due lies below its boundary, whenever it is judged.
        """
        assert self._subscription is not None
        while not await self._subscription.hear(self.check_open):
            self.check_open()

    async def tick(self) -> None:
        """Let time pass: settle what has become due."""
        async with self._turn:
            await self._settle()

    async def _settle(self) -> None:
        self.check_open()
        await self.settle()

    def check_open(self) -> None:
        """Raise OwnerClosed if the partition was given up."""
        if self.ended.done():
            raise OwnerClosed(self.table.owner)

    def _is_quick(self, chunk: Chunk) -> bool:
        few = len(chunk.offsets) <= self.task.quick_records
        return few and int(lengths_of(chunk.values).sum()) <= _SMALL_BYTES

    def observe(self, chunk: Chunk) -> None:
        """Take in a chunk that begins at the position or before, as much as one turn may take. Blocks."""
        self._astray = False
        self.task.process(chunk)
        self.task.note(Reach(chunk.epoch, self.task.position))

    async def settle(self) -> None:
        """Commit whatever can be committed now."""
        self._tell()
        if self.task.untimed:
            # Nobody can tell whether these were late. Once the topic is as it was, they are dead letters.
            self.task.untimed = not await self._append_times.restored()
        if self.task.untimed:
            return
        await self._around.look()
        assert self._subscription is not None
        await self._subscription.hear(self.check_open)
        await self._ask_for_end()
        while (work := await self._next()) is not None:
            self.check_open()
            try:
                await self._do(work)
            finally:
                self._tell()
            self.check_open()

    async def _do(self, work: Transaction) -> None:
        if isinstance(self.task, Publisher):
            await self._publish(self.task, work)
            return
        if work.tentative and work.concludes:
            # Topics are looked at while it is being written, and it is committed after that.
            checked = asyncio.run_coroutine_threadsafe(self._check(), asyncio.get_running_loop())
            await self._blocking(self._commit, work, partial(_in_time, checked))
            return
        if work.concludes or work.releases:
            await self._check()
            self.check_open()
        await self._blocking(self._commit, work)

    async def _publish(self, task: Publisher, work: Transaction) -> None:
        """Of two transactions the first is private: topics are looked at, and the second is got ready,
        while it is being committed. Nothing of the second leaves before all of that is done."""
        beside = [self._check(), self._blocking(task.prepare)] if work.concludes else []
        await asyncio.gather(self._blocking(self._transact, work), *beside)
        self._committed(work)

    async def _next(self) -> Transaction | None:
        now = self._clock.now()
        if not self.task.has_work(now):
            return None
        if self.task.has_next:
            return self.task.next(now)
        # In a thread: catching up closes tens of thousands of timestamps at a time.
        run = self._counting if self.task.counts_to_decide else self._blocking
        found: Transaction | None = await run(self.task.next, now)
        return found

    async def _check(self) -> None:
        """Are the topics still those that this rests on, and those to be published in?"""
        checks: list[Awaitable[None]] = [self._around.guard.check()]
        if self._around.sinks is not None:
            checks.append(self._around.sinks.check_with(self._context.inquiry))
        await asyncio.gather(*checks)

    def _transact(self, work: Transaction, confirm: Callable[[], object] | None = None) -> None:
        self.table.transact(work.name, work.records, self._clock if work.by_clock else None, confirm)
        if work.releases:
            self._observation.counting.published(work.records)

    def _commit(self, work: Transaction, confirm: Callable[[], object] | None = None) -> None:
        self._transact(work, confirm)
        self._committed(work)

    def _committed(self, work: Transaction) -> None:
        before = self.task.position
        self._untold.append(work)
        self.task.committed(work)
        if self.task.position < before:
            self._around.check()
            self._astray, self._sought_at = True, 0.0

    def _tell(self) -> None:
        while self._untold:
            done = self._untold.popleft()
            self._observation.judged(done.outcomes, done.letters, self.task.partitions)
            self._observation.readings.update(done.readings)
            for one in done.releases:
                self._observation.released(one.stream, one.fresh, one.forfeited)
                if one.forfeited:
                    log.warning(_FORFEITED, one.stream, one.timestamp)

    async def _ask_for_end(self) -> None:
        now, task = self._clock.now(), self.task
        if task.wants_boundary(now) or not task.wants_end(now):
            return
        assert self._lineage is not None
        end = await self._lineage.end()
        try:
            task.capture_end(now, end)
        except ValueError:
            raise shortened(self._source, "it ends before a boundary that was captured in it") from None


def _in_time(checked: Future[None]) -> None:
    """Wait for a look at topics. Raises what it has raised, KafkaException if it takes too long."""
    try:
        checked.result(_CHECK_SECONDS)
    except TimeoutError:
        told = f"the topics could not be checked within {_CHECK_SECONDS:.0f} s"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, told)) from None
