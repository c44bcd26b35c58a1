"""Moving the re-keying stage of a topic of events to other topics, with all streams behind it.

All writers of the stage and of these streams are fenced before their states are read, behind the barrier, and
everything is written in one transaction: all of it, or nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from eventveil.kafka.changelog import FencedTable
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.log import values_of
from eventveil.kinds.placement import rekeying_places, writer_of
from eventveil.lifecycle.apply import MigrationStep, StreamMigrator, Taken, check_begun, looked, what_is_left
from eventveil.lifecycle.layout import Layout
from eventveil.lifecycle.manifest import ManifestRecord, check_cluster
from eventveil.lifecycle.relocation import settled
from eventveil.lifecycle.rerouting import RawLog, RawTopic, Rerouting, Stage, reroute
from eventveil.model.errors import StateRefused, doubt
from eventveil.model.reach import Reach
from eventveil.model.records import Headers, Outgoing, TopicPartition
from eventveil.model.topology import Source, Topology
from eventveil.process.faults import FaultHook, no_fault
from eventveil.tasks.repartition import RekeyerState, fingerprint
from eventveil.topology.changes import REKEY_ANEW

#: What the fields of the stage say of its topics, which may change; of the others none may.
_TOPICS = ("source.partitions", "repartition.partitions")


class StageMigrator:
    """Moves the stage that re-keys the topic of events of ``source``; its methods block.

    ``migrators`` are those of all streams behind it, ``layout`` says where its state is while that is not
    where it should be. They raise as ``StreamMigrator`` does.
    """

    def __init__(
        self,
        topology: Topology,
        cluster: Cluster,
        source: Source,
        migrators: Sequence[StreamMigrator],
        layout: Layout,
        fault: FaultHook = no_fault,
    ) -> None:
        self._topology, self._cluster, self._source = topology, cluster, source
        self._migrators, self._layout, self._fault = migrators, layout, fault
        self._cluster_id = cluster.id()
        self._topics = cluster.existing({*topology.rekeyed, source.topic})
        self._raw, self._target = self._topics[source.topic_of_events], self._topics[source.topic]
        self._writers: dict[TopicPartition, FencedTable] = {}
        self._fenced: dict[TopicPartition, Mapping[bytes, bytes]] = {}
        #: The headers of what was read without fencing, by place.
        self._headers: dict[TopicPartition, Mapping[bytes, Headers]] = {}

    def migrate(
        self, *, apply: bool, lost: bool, expected: Collection[MigrationStep] = ()
    ) -> list[MigrationStep]:
        """Continue the streams behind the topic as it is; what is done with each, nothing if it is the same.

        Without ``apply``, say what would be. ``lost`` and ``expected`` are as in ``StreamMigrator.migrate``.
        """
        if apply:
            taken: dict[TopicPartition, Taken] = {}
            for migrator in self._migrators:
                migrator.take_over(taken)
            self._take_over()
        stage = self._stage() if apply else looked(self._stage)
        rerouting = reroute(self._source, stage, self._inputs(stage))
        if rerouting is None:
            return []
        wanted = {step.stream: step for step in expected}
        found = [migrator.reroute(rerouting, apply=apply, lost=lost) for migrator in self._migrators]
        for step, _ in found:
            if step.stream in wanted:
                settled(step.stream, wanted[step.stream].differences, step.differences)
        if apply:
            changes = [record for _, records in found for record in records]
            self._migrators[0].write([*changes, *self._records(rerouting)])
        return [step for step, _ in found]

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
        known = {
            place: table for place, table in tables.items() if ManifestRecord.key(self._target.name) in table
        }
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
        latest = self._layout.latest(place)
        self._headers[place] = {key: record.headers for key, record in latest.items()}
        return values_of(latest)

    def _reaches(self) -> Iterator[tuple[TopicPartition, Reach]]:
        """How far the partitions of events had been read, by the states of those that tell."""
        for place, number in self._places().items():
            headers = self._writers[place].headers if self._fenced else self._headers.get(place, {})
            if (reach := Reach.latest([headers.get(self._target.name.encode(), ())])) is not None:
                yield self._raw.places[number], reach

    def _read(
        self, place: TopicPartition, table: Mapping[bytes, bytes]
    ) -> tuple[ManifestRecord, RekeyerState]:
        name, number = str(place), self._places()[place]
        check_cluster(table, self._cluster_id, name)
        manifest = ManifestRecord.find(table, self._target.name, name)
        live = fingerprint(self._source, self._raw.partitions, self._target.id, self._target.partitions)
        # Of the fields, those of the topics may differ, and the id of the topic of events.
        expected = {one: what for one, what in live.items() if one not in _TOPICS}
        expected |= {one: manifest.fields[one] for one in _TOPICS if one in manifest.fields}
        manifest.check(expected, self._raw.name, manifest.topic_id, number, name)
        targets = manifest.fields.get("repartition.partitions", manifest.fields["source.partitions"])
        if targets != self._target.partitions:
            # Users would go to other partitions than before.
            what = f"it has {self._target.partitions} partitions, and had {targets}"
            raise doubt(f"topic {self._target.name}", what, REKEY_ANEW)
        return manifest, manifest.rekeyer_state(table, name)

    def _inputs(self, stage: Stage) -> RawTopic:
        """The topic of events as it is now."""
        replaced = {manifest.topic_id for manifest, _ in stage.values()} != {self._raw.id}
        raw = self._raw
        begins, ends = self._cluster.first_offsets(raw.places), self._cluster.end_offsets(raw.places)
        reached = dict.fromkeys(raw.places, 0)
        for log, reach in () if replaced else self._reaches():
            reached[log], ends[log] = reach.offset, what_is_left(self._cluster, log, reach, ends[log])
        return RawTopic(
            topic_id=raw.id,
            target_id=self._target.id,
            target_partitions=self._target.partitions,
            logs={
                place.partition: RawLog(begins[place], ends[place], reached[place]) for place in raw.places
            },
        )

    def _records(self, rerouting: Rerouting) -> list[Outgoing]:
        """Genesis and state of every partition of events."""
        records = []
        for place, number in self._places().items():
            manifest, state = rerouting.stage[number]
            records.append(manifest.at(place))
            records.append(place.record(manifest.stream.encode(), state.encode()))
        return records
