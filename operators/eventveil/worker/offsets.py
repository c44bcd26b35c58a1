"""Does a log still hold what a state relies on? One that lost records stops the worker.

No offset is named in a refusal: differences between two are exact counts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType

from eventveil.kafka.cluster import Cluster
from eventveil.kafka.log import first_appended
from eventveil.lifecycle.relocation import lost_span
from eventveil.model.errors import StateRefused, Unsettled, doubt
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Timeline
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
) -> None:
    """Raise StateRefused if a partition no longer holds the offset to resume from, Unsettled if not yet.

    ``known`` is the offset behind the last record that the state refers to, if that is another; ``open_`` are
    the streams that count its events, ``remedy`` is what to do about lost ones, and ``if_cut`` about lost
    ones at the end, if that is something else.
    """
    first, end = cluster.first_offsets([place])[place], cluster.end_offsets([place])[place]
    if resume < first:
        what = "it begins after the first record that the state needs"
        raise StateRefused(str(place), f"{what}{_lacking(cluster, place, open_)}", remedy)
    if max(resume, known or 0) > end:
        raise shortened(place, "it ends before the last record that the state refers to", if_cut or remedy)


def _lacking(cluster: Cluster, place: TopicPartition, open_: Open) -> str:
    """Which timestamps of which streams may lack events."""
    if not open_:
        return ""
    gone = first_appended(cluster.kafka, place, time.time_ns() // 1_000_000)
    spans = {name: lost_span(rules, following, gone) for name, (rules, following) in sorted(open_.items())}
    told = ", ".join(f"timestamps {first} to {last} of {name}" for name, (first, last) in spans.items())
    return f"; {told} may lack events"


async def end_behind(
    blocking: Blocking,
    cluster: Cluster,
    place: TopicPartition,
    position: int,
    guard: TopicGuard,
    remedy: str = MIGRATE_LOST,
) -> int:
    """Where a partition ends now. Raises Unsettled if that is before ``position``: then see ``remedy``."""
    end: int = (await blocking(cluster.end_offsets, [place]))[place]
    if end < position:
        await guard.check()
        raise shortened(place, "it ends before the last record that was read", remedy)
    return end


def shortened(place: TopicPartition, what: str, remedy: str = MIGRATE_LOST) -> Unsettled:
    """The doubt about a log that seems to have lost its newest records.

    A broker that is cut off shows less than there is; the next owner looks again.
    """
    return doubt(str(place), what, remedy)


def grown(topic: str, partitions: int, role: str) -> StateRefused:
    """The refusal of a topic of events that has more than the ``partitions`` that its state is of."""
    field = "source.partitions"
    return StateRefused(
        f"topic {topic}",
        f"it has more partitions than the {partitions} that "
        + ("are read" if role == "perturb" else "its streams are counted in, so nothing more is closed"),
        changes.remedy(field) if role == "aggregate" else changes.remedy_for_topics(role, field),
    )
