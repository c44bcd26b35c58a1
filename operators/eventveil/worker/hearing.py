"""How the owner of a partition hears of the ends that were asked for when timestamps became due."""

from __future__ import annotations

import time
from collections.abc import Callable

from eventveil.model.records import TopicPartition
from eventveil.process.clock import OwnerClock
from eventveil.tasks.task import Task
from eventveil.worker.ends import End, Ends, EndWatch
from eventveil.worker.ground import Ground
from eventveil.worker.offsets import shortened

#: For so long a tick waits for a boundary that is due; the broker mostly tells it within milliseconds.
_PATIENCE_SECONDS, _AT_ONCE_SECONDS = 1.0, 0.1


class Hearing:
    """How the owner of a partition hears of its ends; nothing is asked where there are no boundaries."""

    def __init__(
        self,
        watch: EndWatch,
        place: TopicPartition,
        task: Task,
        clock: OwnerClock,
        ground: Ground,
    ) -> None:
        self._watch, self._place, self._task = watch, place, task
        self._clock, self._ground = clock, ground
        self._ends: Ends | None = None
        if boundaries := task.boundaries():
            # Without a reference to the owner, which refers to it.
            self._ends = watch.follow(Ends(place, boundaries, clock, lambda: task.position))

    def leave(self) -> None:
        """Ask no more; from any thread."""
        if self._ends is not None:
            self._watch.leave(self._ends)

    async def hear(self, check_open: Callable[[], None], seconds: float = _PATIENCE_SECONDS) -> bool:
        """Take in what was asked for; whether no boundary is missing, after so long at most.

        Raises Unsettled for a log that got shorter, and what ``check_open`` does.
        """
        if self._ends is None:
            return True
        give_up = time.monotonic() + seconds
        while True:
            for end in self._ends.take():
                await self._capture(end)
            if not self._task.wants_boundary(self._clock.now()):
                return True
            if time.monotonic() >= give_up:
                return False
            await self._ends.wait(_AT_ONCE_SECONDS)
            check_open()

    async def _capture(self, end: End) -> None:
        if end.end < end.position:
            await self._ground.check()
            raise shortened(self._place, "it ends before the last record that was read")
        try:
            self._task.capture_boundary(end.asked_at, end.end)
        except ValueError:
            raise shortened(self._place, "it ends before a boundary that was captured in it") from None
