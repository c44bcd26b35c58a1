"""What a role needs to restore its task, and what it answers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from eventveil.kafka.changelog import FencedTable
from eventveil.kafka.cluster import Cluster
from eventveil.lifecycle.manifest import check_cluster
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Stream, Topology
from eventveil.privacy.noise import NoiseSource
from eventveil.schema_registry.known import KnownSchemas
from eventveil.schema_registry.subjects import Subjects
from eventveil.tasks.task import Task
from eventveil.worker.ends import EndWatch
from eventveil.worker.missing import LeaderWatch
from eventveil.worker.observe.observation import Observation
from eventveil.worker.sinks import Sinks
from eventveil.worker.threads import Threads
from eventveil.worker.topic_guard import Inquiry, TopicGuard
from eventveil.worker.witnessed import Witnessed

log = logging.getLogger(__name__)

_UNNAMED = (
    "%s: the genesis of %s has no cluster id because an earlier version wrote it; a copy on another cluster"
    " can be detected by topic ids only. Stop the workers and run `eventveil topics TOPOLOGY --create`,"
    " which adds the name"
)


@dataclass(frozen=True, slots=True)
class Context:
    """What all owners of a worker share. ``noise`` makes the noise source of an owner; ``schemas`` is None
    where no source needs any, ``subjects`` where no sink does."""

    topology: Topology
    cluster: Cluster
    inquiry: Inquiry
    threads: Threads
    end_watch: EndWatch
    leaders: LeaderWatch
    witnessed: Witnessed
    observation: Observation
    noise: Callable[[], NoiseSource]
    schemas: KnownSchemas | None = None
    subjects: Subjects | None = None


async def nothing() -> None:
    """Most tasks hear of nothing but their input."""


def never() -> bool:
    """Most tasks wait for nobody's schema."""
    return False


@dataclass(frozen=True, slots=True)
class Restored:
    """A task from its durable state onwards, and what it stands on.

    ``check`` raises StateRefused or Unsettled if the input does not hold what the task needs any more;
    ``remedy`` is what to do if it lacks its newest records. ``sinks`` are the topics that are published in.
    ``look`` is awaited before anything is decided. ``waits`` tells whether nothing is decided because the
    schema of a sink is not known.
    """

    task: Task
    guard: TopicGuard
    check: Callable[[], None]
    remedy: str
    sinks: Sinks | None = None
    look: Callable[[], Awaitable[None]] = nothing
    waits: Callable[[], bool] = never


#: Fences the former owner, reads the state, and makes the task of it. Blocks. Raises what
#: ``FencedTable.take_over`` raises, and StateRefused.
Restore = Callable[[Context, FencedTable], Restored]


def letter_places(cluster: Cluster, streams: Iterable[Stream]) -> list[TopicPartition]:
    """The partitions that dead letters of these streams go to, of topics that exist. Blocks.

    Raises KafkaException.
    """
    found = cluster.topics({one.dead_letter for one in streams})
    return [place for topic in found.values() for place in topic.places]


def check_cluster_id(cluster: Cluster, states: Mapping[bytes, bytes], place: str) -> None:
    """Raise StateRefused if a changelog partition, read as ``states``, was made on another cluster.

    A copy of the cluster on which it was made knows nothing of what was released since.
    Blocks. Raises KafkaException if the cluster does not report its id.
    """
    if unnamed := check_cluster(states, cluster.id(), place):
        log.warning(_UNNAMED, place, ", ".join(sorted(one.stream for one in unnamed)))
