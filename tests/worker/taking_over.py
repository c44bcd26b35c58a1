"""What a worker would say when it starts, without waiting for a consumer group: every take-over."""

from __future__ import annotations

import asyncio
from pathlib import Path

from confluent_kafka import KafkaException

from eventveil.audit.witness_file import WitnessFile
from eventveil.cli.run import check_surroundings
from eventveil.kafka.cluster import Cluster
from eventveil.model.errors import EventveilError
from eventveil.model.records import TopicPartition
from eventveil.topology.loading import load
from eventveil.worker.app import Worker

_ATTEMPTS = 80


def refusals(path: Path, witness: WitnessFile | None = None) -> list[str]:
    """What stops a worker of a topology file, partition by partition; nothing is released by it."""
    topology = load(str(path), {})
    mistakes = check_surroundings(topology)
    if mistakes is not None:
        return [str(mistakes.refusal)]
    return asyncio.run(_take_over_everything(path, witness))


async def _take_over_everything(path: Path, witness: WitnessFile | None) -> list[str]:
    topology = load(str(path), {})
    worker = Worker(topology, witness=witness)
    partials = {topology.partials} if topology.streams else set()
    read = {*topology.sources, *topology.rekeyed, *topology.value_sources} | partials
    topics = Cluster(topology.kafka).topics(read)
    places = [
        TopicPartition(topic.name, partition)
        for topic in topics.values()
        for partition in range(topic.partitions)
    ]
    tried = (_take_over(worker, tp) for tp in places if worker.owners.has_streams(tp))
    return [message for messages in await asyncio.gather(*tried) for message in messages]


async def _take_over(worker: Worker, tp: TopicPartition) -> list[str]:
    for _ in range(_ATTEMPTS):
        owner = worker.owners.make(tp)
        try:
            await asyncio.to_thread(owner.take_over)
        except KafkaException:
            # As in a worker: a transaction that somebody left open ends when its writer's partition is taken.
            await asyncio.sleep(0.25)
        except EventveilError as error:
            # A doubt in a cluster where nothing is cut off will stay.
            return [str(getattr(error, "refusal", None) or error)]
        else:
            return []
        finally:
            owner.table.dispose()
    raise TimeoutError(f"{tp.topic}, partition {tp.partition}, cannot be taken over")
