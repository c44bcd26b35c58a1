"""Running a task over Kafka: what it reads is asked about, and what it answers is committed.

Roles differ in how their task is restored (``eventveil.worker.restore``), and in nothing here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Mapping
from dataclasses import replace

from eventveil.kafka.changelog import FencedTable
from eventveil.model.records import Chunk, Schema, Schemas, TopicPartition
from eventveil.process.clock import OwnerClock
from eventveil.schema_registry.client import RegistryUnavailable
from eventveil.schema_registry.known import KnownSchemas, settled, settles_at
from eventveil.tasks.task import Publisher, StreamView, Task, Transaction
from eventveil.worker.ground import AppendTimes
from eventveil.worker.hearing import Hearing
from eventveil.worker.offsets import end_behind, shortened
from eventveil.worker.owner import Blocking, Owner
from eventveil.worker.restore.restored import Context, Restore, Restored

log = logging.getLogger(__name__)

#: A seek is asked for again after this, should nothing have come of it.
_SEEK_SECONDS = 5.0
#: How long after an answer that does not do a registry is asked again.
_ASK_SECONDS = 0.5
_GIVEN_UP = (
    "timestamp %d of %s was given up: a worker failed while releasing it, or after a look;"
    " it repeats the last release, and is charged"
)


class Runner(Owner):
    """Runs the task of one input partition."""

    def __init__(
        self,
        source: TopicPartition,
        restore: Restore,
        table: FencedTable,
        context: Context,
        clock: OwnerClock,
    ) -> None:
        super().__init__(table, context.threads)
        self._source, self._restore, self._context = source, restore, context
        self._cluster, self._end_watch, self._observation = (
            context.cluster, context.end_watch, context.observation,
        )  # fmt: skip
        self._clock = clock
        self._counting: Blocking = context.threads.counting
        self._append_times = AppendTimes(self._cluster, self._blocking, source.topic)
        self._hearing: Hearing | None = None
        self._astray, self._sought_at = False, 0.0
        self._unread = False
        #: What is durable and was not told of yet; the event loop does that, which other owners write too.
        self._untold: deque[Transaction] = deque()
        self._restored: Restored | None = None

    def take_over(self) -> int:
        """See ``Owner.take_over``."""
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
        self._hearing = Hearing(self._end_watch, self._source, task, self._clock, restored.ground)
        if self.ended.done():
            self._hearing.leave()
        return task.position

    def end(self, error: BaseException | None = None) -> None:
        """See ``Owner.end``; nobody asks for its end any more, and nothing is left to be seen."""
        super().end(error)
        if self._hearing is not None:
            self._hearing.leave()
        if self._restored is not None:
            self._restored.task.end()

    @property
    def _around(self) -> Restored:
        assert self._restored is not None, "nothing is done before the take-over"
        return self._restored

    @property
    def _task(self) -> Task:
        return self._around.task

    @property
    def position(self) -> int:
        """See ``Owner.position``."""
        return self._task.position

    @property
    def due(self) -> int | None:
        """See ``Owner.due``."""
        return self._task.due

    def rests(self, now: int) -> bool:
        """See ``Owner.rests``."""
        return self._task.rests(now)

    @property
    def closed(self) -> int | None:
        """See ``Owner.closed``."""
        return self._task.closed

    @property
    def awaited(self) -> int | None:
        """See ``Owner.awaited``."""
        return self._task.awaited

    @property
    def untimed(self) -> bool:
        """See ``Owner.untimed``."""
        return self._task.untimed

    @property
    def misplaced(self) -> bool:
        """See ``Owner.misplaced``: after a release, what was passed over may have to be read again."""
        if not self._astray or time.monotonic() < self._sought_at + _SEEK_SECONDS:
            return False
        self._sought_at = time.monotonic()
        return True

    def streams(self) -> Mapping[str, StreamView]:
        """See ``Owner.streams``."""
        return self._task.views()

    @property
    def unread(self) -> bool:
        """See ``Owner.unread``."""
        return self._unread

    async def complete(self, chunk: Chunk) -> Chunk:
        """See ``Owner.complete``: an unreachable registry is waited for, however long it takes.

        Boundaries become known and durable all the same, so that they do not depend on it.
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
                self._unread = False
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
            if not self._unread:
                log.warning("%s waits: %s", self._source, error)
            self._unread = True
            return None
        return found

    async def prepare(self) -> None:
        """See ``Owner.prepare``: nothing is judged before the boundaries are known that were due by now.

        A chunk that was fetched before a timestamp was due lies below its boundary, whenever it is judged.
        """
        assert self._hearing is not None
        while not await self._hearing.hear(self.check_open):
            self.check_open()

    def observe(self, chunk: Chunk) -> None:
        """See ``Owner.observe``."""
        self._astray = False
        self._task.process(chunk)

    async def settle(self) -> None:
        """See ``Owner.settle``."""
        self._tell()
        if self._task.untimed:
            # Nobody can tell whether these were late. Once the topic is as it was, they are dead letters.
            self._task.untimed = not await self._append_times.restored()
        if self._task.untimed:
            return
        await self._around.look()
        assert self._hearing is not None
        await self._hearing.hear(self.check_open)
        await self._ask_for_end()
        while (work := await self._next()) is not None:
            self.check_open()
            try:
                await self._do(work)
            finally:
                self._tell()
            self.check_open()

    async def _do(self, work: Transaction) -> None:
        if isinstance(self._task, Publisher):
            await self._publish(self._task, work)
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
        if work.releases:
            await self._blocking(self._observation.counting.published, work.records)

    async def _next(self) -> Transaction | None:
        now = self._clock.now()
        if not self._task.has_work(now):
            return None
        # In a thread: catching up closes tens of thousands of timestamps at a time.
        run = self._counting if self._task.counts_to_decide else self._blocking
        found: Transaction | None = await run(self._task.next, now)
        return found

    async def _check(self) -> None:
        """Are the topics still those that this rests on, and those to be published in?"""
        checks: list[Awaitable[None]] = [self._around.ground.check()]
        if self._around.sinks is not None:
            checks.append(self._blocking(self._around.sinks.check))
        await asyncio.gather(*checks)

    def _transact(self, work: Transaction) -> None:
        self.table.transact(work.name, work.records, self._clock if work.by_clock else None)

    def _commit(self, work: Transaction) -> None:
        self._transact(work)
        self._committed(work)
        if work.releases:
            self._observation.counting.published(work.records)

    def _committed(self, work: Transaction) -> None:
        before = self._task.position
        self._untold.append(work)
        self._task.committed(work)
        if self._task.position < before:
            self._around.check()
            self._astray, self._sought_at = True, 0.0

    def _tell(self) -> None:
        while self._untold:
            done = self._untold.popleft()
            self._observation.judged(done.outcomes, done.letters, self._task.partitions)
            self._observation.readings.update(done.readings)
            for one in done.releases:
                self._observation.released(one.stream, one.fresh, one.forfeited)
                if one.forfeited:
                    log.warning(_GIVEN_UP, one.timestamp, one.stream)

    async def _ask_for_end(self) -> None:
        now, task = self._clock.now(), self._task
        if task.wants_boundary(now) or not task.wants_end(now):
            return
        around = self._around
        end = await end_behind(
            self._blocking, self._cluster, self._source, task.known, around.ground, around.remedy
        )
        try:
            task.capture_end(now, end)
        except ValueError:
            raise shortened(self._source, "it ends before a boundary that was captured in it") from None
