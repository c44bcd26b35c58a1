"""Where the state of each source partition is kept, and moving it when a source gets partitions.

The sources lie one after the other in the counting changelog, those that are re-keyed in the changelog of
that stage, and those of values in the state changelog. One that grows needs the places behind its last one,
where those of the next source are; these move on, records as they are, the last one first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from eventveil.kafka.changelog import FencedTable
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.log import read_latest, read_table
from eventveil.kafka.reader import StoredRecord
from eventveil.kinds.placement import counting_places, rekeying_places, value_places, writer_of
from eventveil.lifecycle.manifest import all_in
from eventveil.model.errors import Unsettled, doubt, missing
from eventveil.model.records import Outgoing, TopicPartition
from eventveil.model.topology import Topology
from eventveil.process.faults import FaultHook, no_fault

Table = Mapping[bytes, bytes]
Places = Callable[[Topology, str, Mapping[str, int]], dict[TopicPartition, int]]


Reader = Literal["counting", "rekeying", "values"]


def _laid_out(topology: Topology, reader: Reader) -> tuple[str, Sequence[str], Places]:
    """The changelog of what reads sources, these sources, and the places of each."""
    if reader == "rekeying":
        return topology.rekeying_changelog, tuple(topology.rekeyed), rekeying_places
    if reader == "values":
        return topology.state_changelog, topology.value_sources, value_places
    return topology.counting_changelog, topology.sources, counting_places


class Layout:
    """The places of a changelog, by default of the counting one; its methods block.

    Raises Unsettled if a place has the state of a topic that is not a source of the topology, or a topic is
    missing: what is read here may be old.
    """

    def __init__(
        self,
        topology: Topology,
        cluster: Cluster,
        fault: FaultHook = no_fault,
        *,
        reader: Reader = "counting",
    ) -> None:
        self._topology, self._cluster, self._fault = topology, cluster, fault
        self._changelog, sources, places = _laid_out(topology, reader)
        topics = cluster.topics({*sources, self._changelog})
        if absent := {*sources, self._changelog} - topics.keys():
            raise missing(min(absent))
        #: The number of partitions of each source.
        self.sizes = sizes = {name: topics[name].partitions for name in sources}
        #: Topic and partition of what is counted in each place.
        self._wanted = {
            place: (name, number)
            for name in sources
            for place, number in places(topology, name, sizes).items()
        }
        self._size = topics[self._changelog].partitions
        #: The same of what each place holds now.
        self._found: dict[TopicPartition, TopicPartition] = {}
        for place in topics[self._changelog].places if len(sizes) > 1 else ():
            if (source := _source_of(read_table(topology.kafka, *place), place)) is not None:
                self._found[place] = source
        for place, counted in self._found.items():
            if counted.topic not in sources:
                raise doubt(
                    str(place),
                    f"it contains the state of {counted}, which is not a source in this file",
                    "Restore the source, or give the application a new name",
                )

    @property
    def is_due(self) -> bool:
        """Whether state has to move, or the changelog to grow."""
        return bool(self._moves) or self._size < len(self._wanted)

    @property
    def _moves(self) -> dict[TopicPartition, TopicPartition]:
        """Where the state goes of each place that is not where it should be."""
        target = {source: place for place, source in self._wanted.items()}
        return {place: target[one] for place, one in self._found.items() if target[one] != place}

    def now(self, place: TopicPartition) -> TopicPartition | None:
        """Where the state is now that has to be at a place; None if there is none yet."""
        source = self._wanted[place]
        if self._found:
            return next((one for one, held in self._found.items() if held == source), None)
        return place if place.partition < self._size else None

    def latest(self, place: TopicPartition) -> dict[bytes, StoredRecord]:
        """What has to be at a place, by key, wherever that still is, without fencing its writer."""
        now = self.now(place)
        return {} if now is None else read_latest(self._topology.kafka, now)

    def arrange(self, check_stopped: Callable[[], None]) -> list[TopicPartition]:
        """Give every source partition a place, and move what is in another; what was moved.

        The writers of all places are fenced before they are read, and each place is left in a transaction of
        its own writer: a worker that has taken it over meanwhile makes that fail. Raises Unsettled if the
        places do not hold what they held when this object was made, TransactionFailed or KafkaException;
        then, and if it is killed, each state is where it was, or where it should be.
        """
        self._cluster.grow(self._changelog, len(self._wanted))
        moves = self._moves
        if not moves:
            return []
        places = {*moves, *moves.values()}
        writers = {place: self._writer(place) for place in sorted(places)}
        tables = {place: writer.take_over() for place, writer in writers.items()}
        for place in places:
            # The plan was made before the barrier, and another command may have moved state since.
            if _source_of(tables[place], place) != self._found.get(place):
                raise Unsettled(str(place), "its state has been moved meanwhile")
        for group in one_by_one(moves):
            check_stopped()
            writers[min(group)].transact("arrange", relocated(tables, group))
        for one in writers.values():
            one.dispose()
        return sorted(self._found[place] for place in moves)

    def _writer(self, place: TopicPartition) -> FencedTable:
        return FencedTable(self._topology.kafka, writer_of(self._topology, *place), *place, fault=self._fault)


def one_by_one(moves: Mapping[TopicPartition, TopicPartition]) -> list[dict[TopicPartition, TopicPartition]]:
    """The moves in an order in which each goes to a place that is free, and those in a circle together."""
    left, groups = dict(moves), []
    while free := [place for place, target in left.items() if target not in left]:
        groups += [{place: left.pop(place)} for place in free]
    return [*groups, *([left] if left else [])]


def relocated(
    tables: Mapping[TopicPartition, Table], moves: Mapping[TopicPartition, TopicPartition]
) -> list[Outgoing]:
    """The records that bring the tables of places to others: deletions, then what comes there.

    Of a place that nothing comes to everything is deleted.
    """
    deleted = [place.record(key, None) for place in sorted(moves) for key in sorted(tables[place])]
    moved = [
        target.record(key, value)
        for place, target in sorted(moves.items())
        for key, value in sorted(tables[place].items())
    ]
    return [*deleted, *moved]


def _source_of(table: Table, place: TopicPartition) -> TopicPartition | None:
    return next((TopicPartition(one.topic, one.partition) for one in all_in(table, str(place))), None)
