"""Where partitions end when timestamps become due: asked for by the public clock, and by nothing else.

With ``append_time: boundary`` the end of a partition at the moment at which a timestamp is due decides which
of its events are late. So it is asked for in a thread of its own: no chunk that is being counted, no
transaction and no other partition can put the question off. The owner of the partition hears the answer
before it judges anything that was fetched after that moment (``eventveil.worker.runner``).
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from confluent_kafka import KafkaError, KafkaException

from eventveil.kafka.rights import is_denied
from eventveil.model import timeline
from eventveil.model.reach import Reach
from eventveil.model.records import NO_EPOCH, TopicPartition
from eventveil.model.topology import Timeline
from eventveil.process.clock import PartitionClock
from eventveil.tasks.task import Task
from eventveil.worker.offsets import Lineage, shortened
from eventveil.worker.watching import Watch

log = logging.getLogger(__name__)


#: The pause before a failed question is asked again, and after how long the client gives one up.
_PAUSE_SECONDS, _PATIENCE_SECONDS = 0.2, 5.0
#: A question without any result for this long is lost: a client that was renewed meanwhile
#: neither answers nor fails.
_LOST_SECONDS = 2 * _PATIENCE_SECONDS
#: The wall clock may be set meanwhile, so it is looked at after this at the latest.
_LOOK_SECONDS = 0.1
#: A broker that does not answer is logged after this many failures in a row, and then again.
_TOLD_AFTER = 25
#: How long a tick waits for a due boundary; brokers mostly answer within milliseconds.
_HEAR_SECONDS, _AT_ONCE_SECONDS = 1.0, 0.1


class End(NamedTuple):
    """A partition ended at offset ``end`` at wall clock time ``asked_at``, or a little later.

    ``position`` is how far its owner had read when the question was asked, ``epoch`` that of the leader.
    """

    asked_at: int
    end: int
    position: int
    epoch: int = NO_EPOCH


class EndsOfCluster(Protocol):
    """What is asked of the cluster (``eventveil.kafka.cluster.Cluster``)."""

    def ask_end(self, place: TopicPartition, seconds: float) -> Future[Any]:
        """Ask where a partition ends, without waiting; the result has ``offset``, below 0 for no answer,
        and ``leader_epoch``, None if nobody tells it."""

    def renew(self) -> None:
        """Let the next question go through a new client."""


@dataclass(slots=True)
class _Rules:
    """A timeline, and the last timestamp whose boundary has been asked for."""

    rules: Timeline
    last: int


class PartitionEnds:
    """The ends of one partition as its owner hears of them, each asked for when a timestamp became due.

    ``boundaries`` are the timelines of its streams with the last timestamps that have a boundary.
    """

    def __init__(
        self,
        place: TopicPartition,
        boundaries: Iterable[tuple[Timeline, int]],
        clock: PartitionClock,
        position: Callable[[], int],
    ) -> None:
        self.place = place
        self._rules = [_Rules(rules, last) for rules, last in boundaries]
        self._clock, self._position = clock, position
        self._answers: deque[End | KafkaException] = deque()
        self._heard = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asking, self._ask_again, self._failures = False, 0.0, 0
        #: The question that is waited for, and until when. Answers to others come too late.
        self._question, self._lost_at = 0, 0.0
        self._lock = threading.Lock()

    # In the event loop of the owner

    def take(self) -> list[End]:
        """What was heard since the last call, in the order in which it was asked.

        Raises KafkaException if the right to ask is missing.
        """
        self._heard.clear()
        taken: list[End] = []
        while self._answers:
            answer = self._answers.popleft()
            if isinstance(answer, KafkaException):
                raise answer
            taken.append(answer)
        return taken

    async def wait(self, seconds: float) -> None:
        """Until something is heard, or the time is up."""
        self._loop = asyncio.get_running_loop()
        # An answer may have come before anybody could be told of it.
        if self._answers:
            return
        try:
            await asyncio.wait_for(self._heard.wait(), seconds)
        except TimeoutError:
            return

    # In the thread of the watch

    def look(self, cluster: EndsOfCluster, wake: Callable[[], None]) -> float:
        """Ask if a timestamp is due; after how many seconds to look again."""
        with self._lock:
            now = self._clock.now()
            if self._asking and time.monotonic() >= self._lost_at:
                self._asking = False
                self._failed(None)
            until_due = min(timeline.due_of(one.rules, one.last + 1) for one in self._rules) - now
            pause = self._ask_again - time.monotonic()
            if self._asking or max(until_due / 1000, pause) > 0:
                return _LOOK_SECONDS if self._asking else max(until_due / 1000, pause)
            self._asking, self._lost_at = True, time.monotonic() + _LOST_SECONDS
            self._question += 1
            question = self._question
        position = self._position()
        answer = cluster.ask_end(self.place, _PATIENCE_SECONDS)
        answer.add_done_callback(partial(self._told, question, now, position, wake))
        return _LOOK_SECONDS

    # In whatever thread the client answers

    def _told(
        self, question: int, asked_at: int, position: int, wake: Callable[[], None], answer: Future[Any]
    ) -> None:
        error, end, epoch = answer.exception(), -1, None
        if error is None:
            end, epoch = answer.result().offset, answer.result().leader_epoch
        with self._lock:
            if not self._asking or question != self._question:
                return
            self._asking = False
            if error is None and end >= 0:
                self._failures = 0
                for one in self._rules:
                    one.last = max(one.last, timeline.last_due(one.rules, asked_at))
                self._answers.append(End(asked_at, end, position, NO_EPOCH if epoch is None else epoch))
            else:
                self._failed(error)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._heard.set)
        wake()

    def _failed(self, error: BaseException | None) -> None:
        self._ask_again = time.monotonic() + _PAUSE_SECONDS
        cause = error.args[0] if isinstance(error, KafkaException) else None
        if isinstance(error, KafkaException) and isinstance(cause, KafkaError) and is_denied(cause):
            self._answers.append(error)
        self._failures += 1
        if self._failures % _TOLD_AFTER == 0:
            topic, partition = self.place
            log.warning(
                "%s, partition %d: cannot fetch the end offset, counting paused: %s",
                topic, partition, error or "no answer",
            )  # fmt: skip

    @property
    def unanswered(self) -> bool:
        """Whether the last question failed."""
        return self._failures > 0


class EndWatch:
    """Asks for the ends of the partitions that this worker owns, as their timestamps become due."""

    def __init__(self, cluster: EndsOfCluster, failed: Callable[[BaseException], None]) -> None:
        self._cluster = cluster
        self._followed: frozenset[PartitionEnds] = frozenset()
        self._lock = threading.Lock()
        self._watch = Watch("ends", self._look, failed)
        self._renew_at = 0.0

    def start(self) -> None:
        """Begin to ask."""
        self._watch.start()

    def stop(self) -> None:
        """Ask no more."""
        self._watch.stop()

    def follow(self, ends: PartitionEnds) -> PartitionEnds:
        """Ask for these, at once for what is due already; from any thread."""
        with self._lock:
            self._followed |= {ends}
        self._watch.wake()
        return ends

    def leave(self, ends: PartitionEnds) -> None:
        """Ask for these no more; from any thread."""
        with self._lock:
            self._followed -= {ends}

    def _look(self) -> float:
        followed = self._followed
        if time.monotonic() >= self._renew_at and any(one.unanswered for one in followed):
            # A client that does not get through may keep looking for a broker that is gone.
            self._cluster.renew()
            self._renew_at = time.monotonic() + 2 * _PATIENCE_SECONDS
        waits = [one.look(self._cluster, self._watch.wake) for one in followed]
        return min(_LOOK_SECONDS, min(waits)) if waits else 3600.0


class EndSubscription:
    """How the owner of a partition hears of its ends; nothing is asked where there are no boundaries."""

    def __init__(
        self, watch: EndWatch, place: TopicPartition, task: Task, clock: PartitionClock, lineage: Lineage
    ) -> None:
        self._watch, self._place, self._task = watch, place, task
        self._clock, self._lineage = clock, lineage
        self._ends: PartitionEnds | None = None
        if boundaries := task.boundaries():
            # Without a reference to the owner, which refers to it.
            self._ends = watch.follow(PartitionEnds(place, boundaries, clock, lambda: task.position))

    def leave(self) -> None:
        """Ask no more; from any thread."""
        if self._ends is not None:
            self._watch.leave(self._ends)

    async def hear(self, check_open: Callable[[], None], seconds: float = _HEAR_SECONDS) -> bool:
        """Take in what was asked for; whether no boundary is missing, within that time.

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
        told = Reach(end.epoch, end.end)
        await self._lineage.check_end(told, end.position)
        try:
            self._task.capture_boundary(end.asked_at, end.end)
        except ValueError:
            raise shortened(self._place, "it ends before a boundary that was captured in it") from None
        # Verdicts rest on the boundary, so it is not to be gone either.
        self._task.note(told)
