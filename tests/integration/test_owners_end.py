"""What is left of an owner that gave up: nothing, without any help of the garbage collector.

That comes by after hours, and an owner may hold megabytes.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from pathlib import Path

from eventveil.kafka.admin import Admin
from eventveil.kafka.changelog import FencedTable
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.writer import Writer
from eventveil.model.errors import Unsettled
from eventveil.model.records import TopicPartition
from eventveil.topology.loading import load
from eventveil.worker.app import Worker
from eventveil.worker.observe.observation import ROLES
from eventveil.worker.runner import Runner
from tests.chaos.streams import ChaosApplication


class Bounded(ChaosApplication):
    """One of its streams has boundaries, for which another thread asks in the name of the owner."""

    def write(self) -> None:
        if silent := self.document["streams"].get("silent"):
            silent["source"]["append_time"] = "boundary"
        super().write()


async def _give_up(worker: Worker, tp: TopicPartition) -> weakref.ref[Runner]:
    owner = worker.owners.make(tp)
    await worker._threads.taking_over(owner.take_over)
    owner.end(Unsettled("topic", "it may be stale"))
    assert isinstance(owner.ended.exception(), Unsettled)
    owner.table.dispose()
    return weakref.ref(owner)


async def _until(condition: Callable[[], bool]) -> None:
    """Threads let go of what they have done a moment after they have told its result."""
    async with asyncio.timeout(180):
        while not condition():
            await asyncio.sleep(0.01)


def _living() -> dict[str, int]:
    kinds = (FencedTable, Writer, Cluster, Admin)
    objects = gc.get_objects()
    return {kind.__name__: sum(type(one) is kind for one in objects) for kind in kinds}


def test_owners_of_every_role_leave_no_object_and_no_client_behind(kafka: str, tmp_path: Path) -> None:
    application = Bounded(kafka, tmp_path)

    async def scenario() -> None:
        worker = Worker(load(str(application.path), {"KAFKA_BOOTSTRAP": kafka}))
        topology = worker._topology
        read = [*topology.sources, *topology.rekeyed, *topology.value_sources, topology.partials]
        places = {
            worker.observation.role(tp): tp
            for name in read
            if worker.owners.has_streams(tp := TopicPartition(name, 0))
        }
        bounded = TopicPartition(f"{application.name}.silent", 0)
        assert sorted(places) == sorted(ROLES)
        for tp in (*places.values(), bounded):
            await _give_up(worker, tp)
        before = _living()
        for tp in (*places.values(), bounded):
            worker._cluster.renew()
            ended = await _give_up(worker, tp)
            await _until(lambda: ended() is None)  # noqa: B023  # asked before the next one
        # Clients of the library end in threads of their own, so some may still be there for a while.
        await _until(lambda: all(number - before[kind] < 2 for kind, number in _living().items()))

    gc.collect()
    gc.disable()
    try:
        asyncio.run(scenario())
    finally:
        gc.enable()
