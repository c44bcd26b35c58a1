"""What a role needs to restore its task, and what it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from eventveil.kafka.changelog import FencedTable
from eventveil.kafka.cluster import Cluster
from eventveil.model.topology import Topology
from eventveil.privacy.noise import NoiseSource
from eventveil.schema_registry.known import KnownSchemas
from eventveil.tasks.task import Task
from eventveil.worker.ends import EndWatch
from eventveil.worker.ground import Ground, Inquiry
from eventveil.worker.missing import LeaderWatch
from eventveil.worker.observe.observation import Observation
from eventveil.worker.sinks import Sinks
from eventveil.worker.threads import Threads
from eventveil.worker.witnessed import Witnessed


@dataclass(frozen=True, slots=True)
class Context:
    """What all owners of a worker share. ``noise`` makes the noise source of an owner; ``schemas`` is None
    where no source needs any."""

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


async def nothing() -> None:
    """Most tasks hear of nothing but their input."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A task from its durable state onwards, and what it stands on.

    ``check`` raises StateRefused or Unsettled if the input does not hold what the task needs any more;
    ``remedy`` is what to do if it lacks its newest records. ``sinks`` are the topics that are published in.
    ``look`` is awaited before anything is decided.
    """

    task: Task
    ground: Ground
    check: Callable[[], None]
    remedy: str
    sinks: Sinks | None = None
    look: Callable[[], Awaitable[None]] = nothing


#: Fences the former owner, reads the state, and makes the task of it. Blocks. Raises what
#: ``FencedTable.take_over`` raises, and StateRefused.
Restore = Callable[[Context, FencedTable], Restored]
