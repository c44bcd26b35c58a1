"""Moving the re-keying stage of a topic of events to other ground, with all streams behind it.

All writers of the stage and of these streams are fenced before their states are read, behind the barrier, and
everything is written in one transaction: all of it, or nothing.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

from eventveil.kafka.changelog import FencedTable
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.log import read_table
from eventveil.kafka.lost import first_appended
from eventveil.kinds.placement import rekeying_places, writer_of
from eventveil.lifecycle.apply import Keeper, Step, check_begun, looked
from eventveil.lifecycle.layout import Layout
from eventveil.lifecycle.manifest import Genesis, check_cluster
from eventveil.lifecycle.regrounding import settled
from eventveil.lifecycle.rerouting import RawGround, RawLog, Rerouting, Stage, reroute
from eventveil.model.errors import StateRefused, doubt
from eventveil.model.records import Outgoing, TopicPartition
from eventveil.model.topology import Source, Topology
from eventveil.process.faults import FaultHook, no_fault
from eventveil.tasks.repartition import RekeyerState, fingerprint
from eventveil.topology.changes import REKEY_ANEW

#: What the fields of the stage say of its ground, which may change; of the others none may.
_GROUND = ("source.partitions", "repartition.partitions")


class StageKeeper:
    """Moves the stage that re-keys the topic of events of ``source``; its methods block.

    ``keepers`` are those of all streams behind it, ``layout`` says where its state is while that is not where
    it should be. They raise as ``Keeper`` does.
    """

    def __init__(
        self,
        topology: Topology,
        cluster: Cluster,
        source: Source,
        keepers: Sequence[Keeper],
        layout: Layout,
        fault: FaultHook = no_fault,
    ) -> None:
        self._topology, self._cluster, self._source = topology, cluster, source
        self._keepers, self._layout, self._fault = keepers, layout, fault
        self._home = cluster.id()
        self._topics = cluster.existing({*topology.rekeyed, source.topic})
        self._raw, self._target = self._topics[source.topic_of_events], self._topics[source.topic]
        self._writers: dict[TopicPartition, FencedTable] = {}
        self._fenced: dict[TopicPartition, Mapping[bytes, bytes]] = {}

    def migrate(self, *, apply: bool, lost: bool, expected: Collection[Step] = ()) -> list[Step]:
        """Let the streams go on behind the topic as it is; what is done of each, nothing if it is the same.

        Without ``apply``, say what would be. ``lost`` and ``expected`` are as in ``Keeper.migrate``.
        """
        if apply:
            for keeper in self._keepers:
                keeper.take_over()
            self._take_over()
        stage = self._stage() if apply else looked(self._stage)
        rerouting = reroute(self._source, stage, self._ground(stage))
        if rerouting is None:
            return []
        wanted = {step.stream: step for step in expected}
        found = [keeper.reroute(rerouting, apply=apply, lost=lost) for keeper in self._keepers]
        for step, _ in found:
            if step.stream in wanted:
                settled(step.stream, wanted[step.stream].differences, step.differences)
        if apply:
            changes = [record for _, records in found for record in records]
            self._keepers[0].write([*changes, *self._records(rerouting)])
        return [step for step, _ in found]

    def check_stopped(self) -> None:
        """See ``Keeper.check_stopped``."""
        self._keepers[0].check_stopped()

    def _places(self) -> Mapping[TopicPartition, int]:
        sizes = {name: self._topics[name].partitions for name in self._topology.rekeyed}
        return rekeying_places(self._topology, self._raw.name, sizes)

    def _take_over(self) -> None:
        for place in self._places():
            owner = writer_of(self._topology, *place)
            writer = FencedTable(self._topology.kafka, owner, *place, self._fault)
            self._writers[place], self._fenced[place] = writer, writer.take_over()

    def _stage(self) -> Stage:
        """Genesis and state of the partitions of events that the stage knows."""
        tables = {place: self._table(place) for place in self._places()}
        known = {place: table for place, table in tables.items() if Genesis.key(self._target.name) in table}
        if not known:
            check_begun({}, self._target.name, next(iter(tables)))
        found = {self._places()[place]: self._read(place, table) for place, table in known.items()}
        before = next(iter(found.values()))[0].fields.get("source.partitions")
        if sorted(found) != list(range(len(found))) or len(found) != before:
            what = f"the genesis of {self._target.name} is gone from some of its partitions"
            raise StateRefused(self._topology.rekeying_changelog, what, "Restore the topic from a backup")
        return found

    def _table(self, place: TopicPartition) -> Mapping[bytes, bytes]:
        if self._fenced:
            return self._fenced[place]
        now = self._layout.now(place)
        return {} if now is None else read_table(self._topology.kafka, *now)

    def _read(self, place: TopicPartition, table: Mapping[bytes, bytes]) -> tuple[Genesis, RekeyerState]:
        name, number = str(place), self._places()[place]
        check_cluster(table, self._home, name)
        genesis = Genesis.find(table, self._target.name, name)
        live = fingerprint(self._source, self._raw.partitions, self._target.id, self._target.partitions)
        # Of the fields, those of the ground may differ, and the id of the topic of events.
        expected = {one: what for one, what in live.items() if one not in _GROUND}
        expected |= {one: genesis.fields[one] for one in _GROUND if one in genesis.fields}
        genesis.check(expected, self._raw.name, genesis.topic_id, number, name)
        targets = genesis.fields.get("repartition.partitions", genesis.fields["source.partitions"])
        if targets != self._target.partitions:
            # Users would go to other partitions than before.
            what = f"it has {self._target.partitions} partitions, and had {targets}"
            raise doubt(f"topic {self._target.name}", what, REKEY_ANEW)
        return genesis, genesis.rekeyer_state(table, name)

    def _ground(self, stage: Stage) -> RawGround:
        """The topic of events as it is now."""
        replaced = {genesis.topic_id for genesis, _ in stage.values()} != {self._raw.id}
        raw, now = self._raw, time.time_ns() // 1_000_000
        begins, ends = self._cluster.first_offsets(raw.places), self._cluster.end_offsets(raw.places)
        return RawGround(
            topic_id=raw.id,
            target_id=self._target.id,
            target_partitions=self._target.partitions,
            now=now,
            logs={
                place.partition: RawLog(
                    begins[place],
                    ends[place],
                    first_appended(self._topology.kafka, place, now) if replaced or begins[place] else now,
                )
                for place in raw.places
            },
        )

    def _records(self, rerouting: Rerouting) -> list[Outgoing]:
        """Genesis and state of every partition of events."""
        records = []
        for (topic, partition), number in self._places().items():
            genesis, state = rerouting.stage[number]
            key = Genesis.key(genesis.stream)
            records.append(Outgoing(topic, genesis.encode(), key, partition))
            records.append(Outgoing(topic, state.encode(), genesis.stream.encode(), partition))
        return records
