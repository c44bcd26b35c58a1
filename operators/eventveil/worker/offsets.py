"""Does a log still hold what a state relies on? One that lost records stops the worker.

No offset is named in a refusal: differences between two are exact counts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType

from eventveil.kafka.cluster import Cluster
from eventveil.lifecycle.relocation import lost_span
from eventveil.model.errors import StateRefused, Unsettled, doubt
from eventveil.model.reach import Reach
from eventveil.model.records import NO_EPOCH, TopicPartition
from eventveil.model.topology import Timeline
from eventveil.tasks.task import Task
from eventveil.topology import changes
from eventveil.topology.changes import MIGRATE_LOST
from eventveil.worker.threads import Blocking
from eventveil.worker.topic_guard import TopicGuard

#: By name of a stream: its timeline and its next timestamp.
Open = Mapping[str, tuple[Timeline, int]]
NONE: Open = MappingProxyType({})


def check_resume(
    cluster: Cluster,
    place: TopicPartition,
    resume: int,
    known: int | None = None,
    *,
    remedy: str,
    if_cut: str | None = None,
    open_: Open = NONE,
    reach: Reach | None = None,
) -> None:
    """Raise StateRefused if a partition no longer holds the offset to resume from, Unsettled if not yet.

    ``known`` is the offset behind the last record that the state refers to, if that is another, and ``reach``
    how far the log had been read in which leader epoch. ``open_`` are the streams that count its events,
    ``remedy`` is what to do about lost ones, and ``if_cut`` about lost ones at the end, if that is something
    else.
    """
    first, end = cluster.first_offsets([place])[place], cluster.end_offsets([place])[place]
    if resume < first:
        what = "it begins after the first record that the state needs"
        raise StateRefused(str(place), f"{what}{_lacking(open_)}", remedy)
    if max(resume, known or 0) > end:
        raise shortened(place, "it ends before the last record that the state refers to", if_cut or remedy)
    if reach is not None and cluster.parted(place, reach) is not None:
        raise parted(place, if_cut or remedy)


def _lacking(open_: Open) -> str:
    """Which timestamps of which streams may lack events."""
    if not open_:
        return ""
    now = time.time_ns() // 1_000_000
    spans = {name: lost_span(rules, following, now) for name, (rules, following) in sorted(open_.items())}
    told = ", ".join(f"timestamps {first} to {last} of {name}" for name, (first, last) in spans.items())
    return f"; {told} may lack events"


class Lineage:
    """Whether the log of a partition continues what its owner has read, under every leader.

    A log that has lost its end and has grown beyond it again shows that by its epochs only: what is read next
    has a later one than what was read last, and so has its leader. Then the leader is asked where the epoch
    of what was read last ended, once for each new epoch, and before anything is concluded. ``remedy`` is what
    to do about a log that has lost its newest records.
    """

    def __init__(
        self,
        blocking: Blocking,
        cluster: Cluster,
        place: TopicPartition,
        task: Task,
        guard: TopicGuard,
        remedy: str = MIGRATE_LOST,
    ) -> None:
        self._blocking, self._cluster, self._place, self._task = blocking, cluster, place, task
        self._guard, self._remedy = guard, remedy
        #: A leader of this epoch, or of a later one, has all that had been read when it was asked.
        self._confirmed = NO_EPOCH

    async def confirm(self, epoch: int) -> None:
        """A record or a leader of this epoch was met. Raises Unsettled if what was read is gone."""
        reach = self._task.reach
        if reach is None or epoch <= max(reach.epoch, self._confirmed):
            return
        if await self._blocking(self._cluster.parted, self._place, reach, epoch) is not None:
            await self._guard.check()
            raise parted(self._place, self._remedy)
        self._confirmed = epoch

    async def end(self) -> int:
        """Where the partition ends now. Raises Unsettled if that is before what was read, and as above."""
        known = self._task.known
        told: Reach = await self._blocking(self._cluster.reached, self._place)
        await self.check_end(told, known)
        return told.offset

    async def check_end(self, told: Reach, position: int) -> None:
        """The same for an end that was ``told`` when ``position`` was known."""
        if told.offset < position:
            await self._guard.check()
            raise shortened(self._place, "it ends before the last record that was read", self._remedy)
        await self.confirm(told.epoch)


def shortened(place: TopicPartition, what: str, remedy: str = MIGRATE_LOST) -> Unsettled:
    """The doubt about a log that seems to have lost its newest records.

    A broker that is cut off shows less than there is; the next owner looks again.
    """
    return doubt(str(place), what, remedy)


def parted(place: TopicPartition, remedy: str = MIGRATE_LOST) -> Unsettled:
    """The doubt about a log that seems to have lost its newest records, and has got others since."""
    return shortened(place, "records that were read are gone; new ones have their offsets", remedy)


def grown(topic: str, partitions: int, role: str) -> StateRefused:
    """The refusal of a topic of events that has more than the ``partitions`` that its state is of."""
    field = "source.partitions"
    return StateRefused(
        f"topic {topic}",
        f"it has more partitions than the {partitions} that "
        + ("are read" if role == "perturb" else "its streams are counted in, so nothing more is closed"),
        changes.remedy(field) if role == "aggregate" else changes.remedy_for_topics(role, field),
    )
