"""Do the ledger, and sinks of values, still hold what a witness outside Kafka has seen in them?

State, ledger and sinks that were restored together agree with each other, so that
``eventveil.lifecycle.published`` finds nothing, and what was released since would be drawn again. So an owner
asks before it publishes anything.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from contextlib import closing

from confluent_kafka import Message

from eventveil.audit.witness_file import WitnessFile
from eventveil.formats.witness import Line, Sighting, Sightings, refusal
from eventveil.kafka.barrier import Floors, least_end
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.log import offset_of, read_partition
from eventveil.model.records import TopicPartition

log = logging.getLogger(__name__)


class Witnessed:
    """Holds the ledger and sinks of values against a witness, if there is one. Its methods block."""

    def __init__(self, file: WitnessFile | None, cluster: Cluster) -> None:
        self._file, self._cluster = file, cluster

    def begin(self) -> None:
        """Raise StateRefused or Unsettled if there is no witness of this topology on this cluster."""
        if self._file is not None:
            witness = self._file.read(self._cluster.id())
            told = "witness %s: written %s; what came later is not checked against it"
            log.info(told, self._file.path, witness.when)

    def check(self, place: TopicPartition, lines: Collection[Line], floors: Floors) -> None:
        """Raise StateRefused if a partition lacks what was seen of these lines in it.

        They are those of the caller, who has fenced every other writer of them; ``floors`` say how far the
        partition reaches (``FencedTable.take_over``). Unsettled, KafkaException: worth another try.
        """
        if self._file is None:
            return
        witness = self._file.read(self._cluster.id())
        seen = [witness.seen[line] for line in lines if line in witness.seen]
        if not seen or self._stand(place, seen, floors):
            return
        # Not where it was seen, but perhaps elsewhere: the topic may have been written back from a copy.
        sightings = Sightings(witness)
        for message in read_partition(self._cluster.kafka, *place, least=least_end(floors, place)):
            sightings.see(_sighting(message, place))
        for lost, newest in sightings.lost(one.line for one in seen):
            raise refusal(str(self._file.path), witness, lost, newest)

    def _stand(self, place: TopicPartition, seen: Collection[Sighting], floors: Floors) -> bool:
        """Whether all of these stand where they were seen, or did: a log that begins later has advanced."""
        first = self._cluster.first_offsets([place])[place]
        return all(
            one.place == place
            and (one.offset < first or (one.offset < floors[place] and self._stands(one, floors)))
            for one in seen
        )

    def _stands(self, seen: Sighting, floors: Floors) -> bool:
        least = least_end(floors, seen.place)
        reading = read_partition(self._cluster.kafka, *seen.place, start=seen.offset, least=least)
        with closing(reading) as messages:
            found = next(messages, None)
        return found is not None and _sighting(found, seen.place) == seen


def _sighting(message: Message, place: TopicPartition) -> Sighting | None:
    return Sighting.read(place, offset_of(message), message.value())
