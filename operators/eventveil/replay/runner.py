"""Running a task where nothing is fetched and nobody else writes: what a worker's runner does, without Kafka.

``eventveil.worker.runner`` has the same steps, each after a question to the cluster or a wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from eventveil.model.records import Chunk
from eventveil.tasks.task import Task, Transaction


class LogRunner:
    """``commit`` makes a transaction durable; ``clock`` tells the time in epoch milliseconds.

    ``end`` is asked for the end offset of the input; None where nobody knows how long it was at that time.
    """

    def __init__(
        self,
        task: Task,
        commit: Callable[[Transaction], object],
        clock: Callable[[], int],
        end: Callable[[], int] | None = None,
    ) -> None:
        self._task, self._commit, self._clock, self._end = task, commit, clock, end

    def begin(self) -> None:
        """Commit what a predecessor has left, and continue."""
        if left := self._task.left():
            self._done(left)
        self._task.begin()

    def take_in(self, chunk: Chunk) -> Iterator[Transaction]:
        """Process a chunk, turn by turn, and settle after each: the transactions, once they are durable."""
        while chunk.next_offset > self._task.position:
            self._task.process(chunk)
            yield from self.settle()

    def settle(self) -> Iterator[Transaction]:
        """Commit what can be committed now: the transactions, once they are durable."""
        now = self._clock()
        if self._end is not None and self._task.wants_end(now):
            self._task.capture_end(now, self._end())
        while (work := self._task.next(self._clock())) is not None:
            self._done(work)
            yield work

    def _done(self, work: Transaction) -> None:
        self._commit(work)
        self._task.committed(work)
