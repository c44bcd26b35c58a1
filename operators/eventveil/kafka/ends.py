"""Up to where an audit reads the ledger and the sinks, while workers may publish.

A transaction reaches the ledger and a sink one after the other, so a worker that publishes meanwhile could
look as if it had broken its promise. The ends up to which is read are therefore captured in this order:

1. the committed end of each sink: what lies before it is decided, so its entries are in the ledger's log;
2. the ledger's end, and a wait until every transaction before it is decided: now it holds the entries of
   all records before the first end, and the records of all its entries are in the sinks' logs;
3. each sink's end, and the same wait: now it holds the records of all entries.

Every sink record before the first end must have its entry, every entry must have its record before the last
end; a sink record between the two may be newer than the ledger that was read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from eventveil.kafka.changelog import FencedTable
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.log import committed_ends
from eventveil.model.errors import EventveilError
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Kafka, Topology

Offsets = Mapping[TopicPartition, int]

#: The broker ends a transaction after 20 seconds (``eventveil.kafka.changelog``), and looks every 10 seconds.
_UNDECIDED_SECONDS, _PAUSE_SECONDS = 60.0, 0.1


class Ends(NamedTuple):
    """``decided`` and ``sinks`` are the first and the last ends of the sinks, by partition."""

    decided: Offsets
    ledger: Offsets
    sinks: Offsets


def shown_ends(cluster: Cluster, ledger: Sequence[TopicPartition], sinks: Sequence[TopicPartition]) -> Ends:
    """The ends that brokers show, which may be those of a while ago if one of them is cut off.

    Raises EventveilError if a transaction stays open for longer than brokers let it, and KafkaException.
    """
    decided = _committed_ends(cluster.kafka, sinks)
    return Ends(decided, _settled_ends(cluster, ledger), _settled_ends(cluster, sinks))


def proven_ends(
    topology: Topology, ledger: Sequence[TopicPartition], sinks: Sequence[TopicPartition]
) -> Ends:
    """The ends that the true leaders acknowledge, by nonces that nobody reads (``eventveil.kafka.barrier``).

    The worker's rights are needed. What lies before an end is decided before the next is asked for: else the
    record of an entry could lie behind the last one. Raises EventveilError if a transaction stays open,
    TransactionFailed, one of a second audit with nonces included, and KafkaException.
    """
    table = FencedTable(topology.kafka, f"{topology.name}-audit", "", 0)
    table.fence()
    found = []
    for places in (sinks, ledger, sinks):
        table.mark(places)
        found.append({place: table.floors[place] for place in places})
        _wait_until_decided(topology.kafka, found[-1])
    table.dispose()
    return Ends(*found)


def _committed_ends(kafka: Kafka, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    partitions: dict[str, list[int]] = {}
    for topic, partition in places:
        partitions.setdefault(topic, []).append(partition)
    return {
        TopicPartition(topic, partition): end
        for topic, ones in partitions.items()
        for partition, end in committed_ends(kafka, topic, ones).items()
    }


def _settled_ends(cluster: Cluster, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """The ends that the logs have now, once every transaction before them is decided."""
    ends = cluster.end_offsets(places)
    _wait_until_decided(cluster.kafka, ends)
    return ends


def still_open(kafka: Kafka, ends: Offsets, seconds: float) -> list[TopicPartition]:
    """The partitions in which a transaction before these ends stays open for as long as this."""
    give_up, waiting = time.monotonic() + seconds, list(ends)
    while (waiting := _undecided(kafka, ends, waiting)) and time.monotonic() <= give_up:
        time.sleep(_PAUSE_SECONDS)
    return waiting


def _wait_until_decided(kafka: Kafka, ends: Offsets) -> None:
    if waiting := still_open(kafka, ends, _UNDECIDED_SECONDS):
        raise EventveilError(
            f"{waiting[0]}: a transaction before offset {ends[waiting[0]]} stays open. Do not abort it if"
            " its transactional.id begins with the name of the topology: it is a worker's, may already be"
            " committed, and its ledger entry or release would be lost. Restart the workers, which end it"
            " as it was decided, and run the audit again. Abort only transactions of other programs"
            " (kafka-transactions.sh)"
        )


def _undecided(kafka: Kafka, ends: Offsets, places: Iterable[TopicPartition]) -> list[TopicPartition]:
    committed = _committed_ends(kafka, places)
    return [place for place in places if committed[place] < ends[place]]
