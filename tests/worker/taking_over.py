"""What a worker would say when it starts, without waiting for a consumer group: every take-over."""

from __future__ import annotations

import asyncio
from pathlib import Path

from faust.types import TP

from operators.cli.run import check_surroundings
from operators.errors import EventveilError
from operators.kafka.cluster import Cluster
from operators.topology import load
from operators.worker.app import Worker


def refusals(path: Path) -> list[str]:
    """What stops a worker of a topology file, partition by partition; nothing is released by it."""
    topology = load(str(path), {})
    mistakes = check_surroundings(topology)
    if mistakes is not None:
        return [str(mistakes)]
    return asyncio.run(_take_over_everything(path))


async def _take_over_everything(path: Path) -> list[str]:
    topology = load(str(path), {})
    worker = Worker(topology)
    partials = {topology.partials} if topology.streams else set()
    read = {*topology.sources, *topology.value_sources} | partials
    topics = Cluster(topology.kafka).topics(read)
    places = [TP(topic.name, partition) for topic in topics.values() for partition in range(topic.partitions)]
    tried = (_take_over(worker, tp) for tp in places if worker._has_streams(tp))
    return [message for messages in await asyncio.gather(*tried) for message in messages]


async def _take_over(worker: Worker, tp: TP) -> list[str]:
    try:
        owner = worker._make_owner(tp)
        try:
            await asyncio.to_thread(owner.take_over)
        finally:
            owner.table.dispose()
    except EventveilError as error:
        return [str(error)]
    return []
