"""How ``eventveil migrate`` continues value streams whose source was given partitions or lost values.

Each partition is a stream of values by itself. An added one begins at its first record, with its own noise;
one that retention has overtaken continues with the first record that is left. No value gets a second reading:
positions, charges and pending readings stay as they are, and no partition is read from further back. Owners
compare states with ledger and sink afterwards as before (``eventveil.worker.restore.values``), and so they
notice state that was rewound.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from eventveil.formats.change import Difference
from eventveil.kafka.changelog import FencedTable
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.log import values_of
from eventveil.kinds.placement import ReadingPlan, value_places, writer_of
from eventveil.kinds.registry import plan_readings
from eventveil.lifecycle.apply import check_stopped, looked
from eventveil.lifecycle.layout import Layout, Table
from eventveil.lifecycle.manifest import ManifestRecord, check_cluster, check_neighbours
from eventveil.lifecycle.relocation import settled
from eventveil.model.errors import Unsettled, doubt, missing
from eventveil.model.records import Outgoing, TopicPartition
from eventveil.model.topology import Topology
from eventveil.process.faults import FaultHook, no_fault
from eventveil.tasks.values import PerturberState
from eventveil.topology.changes import remedy_for_values

_PARTITIONS = "source.partitions"
Known = list[tuple[ManifestRecord, PerturberState]]


@dataclass(frozen=True, slots=True)
class Moved:
    """What was done with a stream, or would be; ``lost`` are partitions that lost unread values."""

    stream: str
    differences: Mapping[str, Difference]
    lost: tuple[TopicPartition, ...]


class ValuesMigrator:
    """Continues the value streams over one topic with all partitions that it has now; its methods block.

    ``layout`` says where their state is while it is not where it should be. They raise as ``StreamMigrator``
    does.
    """

    def __init__(
        self, topology: Topology, cluster: Cluster, source: str, layout: Layout, fault: FaultHook = no_fault
    ) -> None:
        self._topology, self._cluster, self._layout, self._fault = topology, cluster, layout, fault
        self._plans = [plan for plan in plan_readings(topology) if plan.stream.source.topic == source]
        self._cluster_id, topics = cluster.id(), cluster.existing(topology.value_sources)
        # A stream that has not begun need not have one.
        self._sinks = cluster.topics({plan.stream.sink for plan in self._plans})
        self._source = topics[source]
        for name, partitions in layout.sizes.items():
            if topics[name].partitions != partitions:
                raise Unsettled(f"topic {name}", "its number of partitions is changing")
        self._tables: dict[TopicPartition, Table] = {}
        #: The streams that have a genesis, by the last look.
        self.begun: list[str] = []

    def migrate(self, *, apply: bool, lost: bool, expected: Collection[Moved] = ()) -> list[Moved]:
        """Continue the streams; what is done with each that cannot continue as it is.

        Without ``apply``, say what would be. ``lost``: also where values were lost before they were read.
        ``expected`` is as in ``StreamMigrator.migrate``.
        """
        writers = self._take_over() if apply else []
        find = self._known if apply else self._looked
        known = {plan.name: find(plan) for plan in self._plans}
        self.begun = [name for name, found in known.items() if found]
        begins = self._cluster.first_offsets(self._source.places)
        steps = [one for plan in self._plans if (one := self._moved(plan.name, known[plan.name], begins))]
        if not lost:
            _check_whole(steps)
        wanted = {step.stream: step for step in expected}
        for step in steps:
            if step.stream in wanted:
                settled(step.stream, wanted[step.stream].differences, step.differences)
        if apply and steps:
            moved = {step.stream for step in steps}
            plans = [plan for plan in self._plans if plan.name in moved]
            for plan in plans:
                self._cluster.grow(plan.stream.sink, self._source.partitions)
            check_stopped(self._topology, self._cluster)
            writers[0].transact(
                "change", [one for plan in plans for one in self._records(plan, known[plan.name], begins)]
            )
        return steps

    def _places(self) -> Mapping[TopicPartition, int]:
        return value_places(self._topology, self._source.name, self._layout.sizes)

    def _take_over(self) -> list[FencedTable]:
        """Fence the writers of all places, and read what there is now."""
        check_stopped(self._topology, self._cluster)
        writers = []
        for place in self._places():
            owner = writer_of(self._topology, *place)
            writers.append(FencedTable(self._topology.kafka, owner, *place, self._fault))
            self._tables[place] = writers[-1].take_over()
        return writers

    def _table(self, place: TopicPartition) -> Table:
        """What a place holds: all streams over the topic have their state there, so it is read once."""
        if place not in self._tables:
            self._tables[place] = values_of(self._layout.latest(place))
        return self._tables[place]

    def _looked(self, plan: ReadingPlan) -> Known:
        return looked(partial(self._known, plan))

    def _moved(self, stream: str, known: Known, begins: Mapping[TopicPartition, int]) -> Moved | None:
        """What has to be done with a stream; None if it has not begun, or can continue as it is."""
        if not known:
            return None
        places = self._source.places
        grown = {_PARTITIONS: Difference(len(known), len(places))} if len(known) < len(places) else {}
        read = [state.resume for _, state in known] + [0] * (len(places) - len(known))
        lost = tuple(place for place, resume in zip(places, read, strict=True) if resume < begins[place])
        return Moved(stream, grown, lost) if grown or lost else None

    def _known(self, plan: ReadingPlan) -> Known:
        """Genesis and state of a stream, by partition; none if it has not begun."""
        found = []
        for place, number in self._places().items():
            table, name = self._table(place), str(place)
            check_cluster(table, self._cluster_id, name)
            check_neighbours(table, self._source.name, number, name)
            if ManifestRecord.key(plan.name) not in table:
                continue
            manifest = ManifestRecord.find(table, plan.name, name)
            # The number of partitions may differ.
            expected = {**self._live(plan), _PARTITIONS: manifest.fields.get(_PARTITIONS)}
            topic = self._source
            manifest.check(expected, topic.name, topic.id, number, name, remedy_for_values)
            found.append((manifest, manifest.perturber_state(table, name)))
        before = {manifest.fields.get(_PARTITIONS) for manifest, _ in found}
        if found and (before != {len(found)} or found[-1][0].partition != len(found) - 1):
            had = ", ".join(str(one) for one in sorted(before, key=str))
            what = f"stream {plan.name} has its genesis in {len(found)} partitions, and it had {had}"
            raise doubt(self._topology.state_changelog, what, "Restore the changelog from a backup")
        return found

    def _live(self, plan: ReadingPlan) -> dict[str, Any]:
        """What the genesis of a stream has to say now."""
        if plan.stream.sink not in self._sinks:
            raise missing(plan.stream.sink)
        return plan.fields(self._source.partitions, self._sinks[plan.stream.sink].id)

    def _records(
        self, plan: ReadingPlan, known: Known, begins: Mapping[TopicPartition, int]
    ) -> Iterator[Outgoing]:
        """Genesis records of all partitions of a stream, and states of those that were overtaken."""
        source, (first, _) = self._source, known[0]
        fields = self._live(plan)
        for place, number in self._places().items():
            begin, key = begins[source.places[number]], ManifestRecord.key(plan.name)
            if number >= len(known):
                added = first.replace(fields=fields, partition=number, resume=begin)
                yield place.record(key, added.encode())
                continue
            manifest, state = known[number]
            yield place.record(key, manifest.replace(fields=fields).encode())
            if state.resume < begin:
                later = state.replace(resume=begin)
                yield place.record(plan.name.encode(), later.encode())


def _check_whole(steps: Collection[Moved]) -> None:
    """Raise Unsettled if values were lost before they were read, as the brokers say."""
    for place in (place for step in steps for place in step.lost):
        raise doubt(
            str(place),
            "values are gone from its beginning that were never read",
            "`eventveil migrate TOPOLOGY --lost --apply` continues without them; nothing is charged twice",
        )
