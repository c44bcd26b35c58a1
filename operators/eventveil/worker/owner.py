"""Owning a partition: one life from take-over to the first error or revocation.

An owner never repairs itself. Whatever goes wrong, it is closed, and a new one takes the partition over and
reads the truth from the log.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any

from eventveil.kafka.changelog import FencedTable, OwnerClosed
from eventveil.model.records import Chunk
from eventveil.tasks.task import StreamView
from eventveil.worker.threads import Threads

#: Runs a blocking call in a thread, see ``Threads``.
Blocking = Callable[..., Awaitable[Any]]
_tokens = count(1)
#: Chunks of one partition that may be on their way to its owner. After a large one the next is fetched while
#: that is worked on; after one with fewer records the next had better be larger.
_CREDIT, _CREDIT_IF_LARGE, _LARGE = 1, 2, 4096


class Owner(ABC):
    """The owner of one partition of a source topic or of the partials topic."""

    def __init__(self, table: FencedTable, threads: Threads) -> None:
        #: Distinguishes the chunks that were fetched for this owner from those of an earlier one.
        self.token = next(_tokens)
        self.table = table
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._blocking: Blocking = threads.waiting
        #: Where ``observe`` runs.
        self._observing: Blocking = threads.counting
        self._turn = asyncio.Lock()
        self._outstanding, self._credit = 0, _CREDIT

    @abstractmethod
    def take_over(self) -> int:
        """Fence, read the state, publish what was decided; the offset to resume from. Blocks.

        Raises StateRefused, TransactionFailed, KafkaException or OwnerClosed.
        """

    @property
    @abstractmethod
    def position(self) -> int:
        """The offset of the next record to be observed."""

    @abstractmethod
    def streams(self) -> Mapping[str, StreamView]:
        """What can be seen of each stream now, while another thread may be at work. Does not block."""

    @abstractmethod
    def observe(self, chunk: Chunk) -> None:
        """Take in a chunk that begins at the position or before, as much as one turn may take. Blocks."""

    @abstractmethod
    async def settle(self) -> None:
        """Commit whatever can be committed now."""

    async def handle(self, chunk: Chunk) -> bool:
        """Observe a chunk and settle; False if records before it are missing, so that nothing was done."""
        try:
            async with self._turn:
                self.check_open()
                if chunk.start > self.position:
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
        while chunk.start <= self.position:
            before = self.position
            await self.prepare()
            await self._observing(self.observe, chunk)
            await self._settle()
            if not max(before + 1, chunk.start) <= self.position < chunk.next_offset:
                return

    async def complete(self, chunk: Chunk) -> Chunk:
        """The chunk with the schemas that its values name. Nothing is observed before they are known.

        What is due may be settled meanwhile.
        """
        return chunk

    async def prepare(self) -> None:  # noqa: B027  # most need nothing
        """What has to be known before anything more is observed."""

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

    @property
    def due(self) -> int | None:
        """See ``Task.due``."""
        return None

    def rests(self, now: int) -> bool:
        """See ``Task.rests``."""
        return False

    @property
    def closed(self) -> int | None:
        """See ``Task.closed``."""
        return None

    @property
    def awaited(self) -> int | None:
        """See ``Task.awaited``."""
        return None

    @property
    def misplaced(self) -> bool:
        """Whether the consumer has to go to the position; not asked for again before that could be done."""
        return False

    @property
    def untimed(self) -> bool:
        """Whether it waits because records have no append time that should have one."""
        return False

    @property
    def unread(self) -> bool:
        """Whether it waits because the schemas of records cannot be asked for."""
        return False

    @property
    def busy(self) -> bool:
        """Whether a chunk or a tick is being worked on."""
        return self._turn.locked()

    @property
    def has_credit(self) -> bool:
        """Whether another chunk may be sent."""
        return self._outstanding < self._credit and not self.untimed

    def sent(self, records: int) -> None:
        """A chunk with this number of records is on its way."""
        self._outstanding += 1
        self._credit = _CREDIT_IF_LARGE if records >= _LARGE else _CREDIT

    def end(self, error: BaseException | None = None) -> None:
        """Close for good; ``error`` is what the supervisor will see, None for a quiet farewell."""
        self.table.close()
        if not self.ended.done():
            if error is None:
                self.ended.set_result(None)
            else:
                self.ended.set_exception(error)
