"""Changing the life of a stream on the cluster: ``eventveil migrate`` and ``eventveil reset``.

With ``apply``, every writer of the stream's state is fenced before that state is read, behind the barrier
(``eventveil.kafka.barrier``), and everything is written in one transaction of the writer that owns the
stream's budget: all of it, or nothing. A worker that takes over meanwhile fences this writer, or finds the
new genesis.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

import orjson

from eventveil.audit.history import History
from eventveil.formats.change import ChangeLimit, Difference, Terms
from eventveil.kafka.barrier import Floors, least_end
from eventveil.kafka.changelog import FencedTable
from eventveil.kafka.cluster import Cluster, Topic
from eventveil.kafka.log import offset_of, read_latest, read_partition, read_table, values_of
from eventveil.kinds.placement import StreamPlan, counting_places, writer_of
from eventveil.kinds.registry import kind_of, plan_streams
from eventveil.lifecycle.beginning import earliest_append, first_events, judged_anew_from
from eventveil.lifecycle.layout import Layout
from eventveil.lifecycle.manifest import ManifestRecord, check_cluster, check_known
from eventveil.lifecycle.migration import (
    Checkpoint,
    MigrationTarget,
    change_of,
    check_judged_anew,
    check_reset,
    check_sound,
    goes_on,
    migration,
    reset,
)
from eventveil.lifecycle.published import Public, check_not_shared, newest_publishers, publishers
from eventveil.lifecycle.relocation import (
    LOST_FROM,
    LOST_UNTIL,
    InputTopics,
    Log,
    check_inputs,
    lost_span,
    relocate,
    settled,
)
from eventveil.lifecycle.rerouting import Rerouting
from eventveil.mechanisms.registry import of_stream
from eventveil.model.errors import StateRefused, Unsettled
from eventveil.model.reach import Reach
from eventveil.model.records import Headers, Outgoing, TopicPartition
from eventveil.model.topology import Topology
from eventveil.privacy.noise import SystemNoise
from eventveil.process.faults import FaultHook, no_fault
from eventveil.topology.changes import remedy_for_topics

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """What was done, or would be: the fields that change, the first timestamp after it, and the terms.

    ``limit`` is that of the windows across the change, of all changes since the last release together; None
    where there is none. ``pending`` are the ledger entries of what is decided and not published before it.
    """

    stream: str
    start: int
    differences: dict[str, Difference]
    before: Terms
    after: Terms
    limit: ChangeLimit | None = None
    pending: tuple[bytes, ...] = ()


def count_pending(history: History, stream: str, entries: Iterable[bytes]) -> None:
    """Let a history know of entries that were decided, and not published when the state was read.

    Beside a running worker the ledger, which is read later, may have them by now.
    """
    for number, entry in enumerate(entries):
        if orjson.loads(entry)["timestamp"] >= history.next:
            history.add(entry, f"pending release {number} of stream {stream}")


def read_history(topology: Topology, name: str, ledger: TopicPartition, floors: Floors) -> History:
    """What a partition of the ledger says of a stream. Raises StateRefused and KafkaException."""
    history = History(name)
    for message in read_partition(topology.kafka, *ledger, least=least_end(floors, ledger)):
        if message.key() == name.encode():
            history.add(message.value(), ledger.at(offset_of(message)))
    return history


def read_histories(topology: Topology, cluster: Cluster, floors: Floors) -> dict[str, History]:
    """What the ledger says of the streams that can have generations and a budget caps, by name.

    Without a budget it is nothing, and nothing is read. Raises StateRefused and KafkaException.
    """
    live = cluster.topics({topology.ledger}).get(topology.ledger)
    if topology.budget is None or live is None:
        return {}
    return {
        plan.name: read_history(topology, plan.name, place, floors)
        for plan in plan_streams(topology)
        if kind_of(plan.stream).no_second_run is None
        and plan.stream.source.population == topology.budget.population
        and (place := TopicPartition(topology.ledger, plan.partials_partition)) in live.places
    }


class Taken(NamedTuple):
    """A place that was taken over: the writer that it has now, and what it held then."""

    writer: FencedTable
    table: Mapping[bytes, bytes]


class StreamMigrator:
    """Reads and changes the state of one stream, on to other terms or topics. Its methods block.

    They raise StateRefused, Unsettled, TransactionFailed or KafkaException, and then nothing has changed; if
    the outcome of the transaction is unknown, running the command again finds out.
    """

    def __init__(
        self,
        topology: Topology,
        cluster: Cluster,
        plan: StreamPlan,
        fault: FaultHook = no_fault,
        layout: Layout | None = None,
    ) -> None:
        """``layout`` says where the counting state is while it is not where it should be."""
        self._topology, self._cluster, self._plan, self._fault = topology, cluster, plan, fault
        stream = plan.stream
        self._cluster_id = cluster.id()
        internal = {topology.partials, topology.counting_changelog, topology.ledger}
        self._topics = cluster.existing({*topology.sources, *internal, stream.sink.topic})
        self._source, self._sink = self._topics[stream.source.topic], self._topics[stream.sink.topic]
        self._partials = TopicPartition(topology.partials, plan.partials_partition)
        self._ledger = TopicPartition(topology.ledger, plan.partials_partition)
        self._budget = TopicPartition(topology.ledger_changelog, plan.partials_partition)
        self._writers: dict[TopicPartition, FencedTable] = {}
        self._fenced: dict[TopicPartition, Mapping[bytes, bytes]] = {}
        self._layout = layout
        #: The headers of what was read without fencing, by place.
        self._headers: dict[TopicPartition, Mapping[bytes, Headers]] = {}

    def take_over(self, taken: dict[TopicPartition, Taken] | None = None) -> None:
        """Fence the writers of the stream's state, and read what there is now.

        For what is written afterwards: without it, what is read may be older. ``taken`` has what others have
        taken over that write together with this one, and gets what this one does: a place that is fenced
        twice would shut out the first of them.
        """
        check_stopped(self._topology, self._cluster)
        taken = {} if taken is None else taken
        for place in self._places():
            beside = [self._ledger, *self._sink.places, self._partials] if place == self._budget else []
            if place in taken:
                taken[place].writer.mark(beside)
            else:
                writer = self._writer(place)
                taken[place] = Taken(writer, writer.take_over(beside))
            self._writers[place], self._fenced[place] = taken[place]

    def migrate(
        self,
        *,
        apply: bool,
        lost: bool = False,
        since: int | None = None,
        expected: MigrationStep | None = None,
    ) -> MigrationStep | None:
        """Bring the stream to the topology; None if it is there already. Without ``apply``, say how.

        ``lost``: also where events are lost. ``since`` is the first timestamp that is counted in more
        partitions of the source, by default the first that is not due yet. ``expected`` is what has to be
        done, by looks before this one. Raises Unsettled if it is something else by now; and without
        ``apply``, wherever another look may find something else.
        """
        if apply:
            self.take_over()
        checkpoint, target = self._checked() if apply else looked(self._read)
        differences = checkpoint.differences(target)
        inputs = relocate(self._plan.stream, checkpoint, self._inputs(checkpoint, lost=lost), since)
        if not differences and inputs is None:
            return None
        check_sound(checkpoint, differences)
        self._check_new_sink(differences)
        check_judged_anew(self._plan.stream, checkpoint, differences)
        if inputs is not None:
            differences = check_inputs(checkpoint, {**differences, **inputs.differences}, accepts_loss=lost)
        if expected is not None:
            settled(checkpoint.stream, expected.differences, differences)
        limit, pending = None, tuple(checkpoint.pending_entries)
        if inputs is None:
            history = self.history()
            limit = history.limit(change_of(checkpoint, target))
            if apply:
                count_pending(history, checkpoint.stream, pending)
                made = of_stream(self._plan.stream, SystemNoise())
                self.write(migration(checkpoint, target, history, made))
        elif apply:
            self.write(inputs.records(checkpoint, target))
        return MigrationStep(
            checkpoint.stream,
            checkpoint.state.next,
            differences,
            checkpoint.terms,
            target.terms,
            limit,
            pending,
        )

    def reset(self, start: int | None, now: int, *, apply: bool) -> MigrationStep:
        """Begin a new generation at timestamp ``start``, by default the stream's first.

        To be applied it needs ``take_over``.
        """
        checkpoint, target = self._checked() if apply else self._read()
        if (moved := relocate(self._plan.stream, checkpoint, self._inputs(checkpoint))) is not None:
            what = f"{', '.join(moved.differences)} changed"
            raise StateRefused(f"stream {checkpoint.stream}", what, "Migrate first")
        start = checkpoint.manifest.first if start is None else start
        differences = checkpoint.differences(target)
        check_reset(checkpoint, differences, start)
        self._check_sink_unused()
        events = first_events(self._cluster, self._plan, self._source, start, now, later="timestamp")
        if apply:
            resume = {
                place: events[TopicPartition(self._source.name, manifest.partition)]
                for place, (manifest, _) in checkpoint.counting.items()
            }
            self.write(reset(checkpoint, target, start, resume))
        return MigrationStep(checkpoint.stream, start, differences, checkpoint.terms, target.terms)

    def reroute(
        self, rerouting: Rerouting, *, apply: bool, lost: bool
    ) -> tuple[MigrationStep, list[Outgoing]]:
        """What is done, and the records of it, where the re-keying stage before the stream moves.

        They go into one transaction with those of the stage. Arguments and errors are as in ``migrate``; to
        be applied it needs ``take_over``.
        """
        checkpoint, target = self._checked() if apply else looked(self._read)
        differences = {**checkpoint.differences(target), **rerouting.differences}
        self._check_new_sink(differences)
        if rerouting.lost:
            now = time.time_ns() // 1_000_000
            first, last = lost_span(self._plan.stream.timeline, checkpoint.state.next, now)
            differences |= {LOST_FROM: Difference(None, first), LOST_UNTIL: Difference(None, last)}
        differences = check_inputs(checkpoint, differences, accepts_loss=lost)
        events = len(rerouting.stage)
        waiting = {
            place: (manifest, state.replace(passed=state.passed[:events]).waiting_for(events))
            for place, (manifest, state) in checkpoint.counting.items()
        }
        change = change_of(checkpoint, target, differences)
        step = MigrationStep(
            checkpoint.stream, checkpoint.state.next, differences, checkpoint.terms, target.terms
        )
        return step, goes_on(replace(checkpoint, counting=waiting), target, change)

    def _check_public(self, checkpoint: Checkpoint) -> None:
        """Raise StateRefused unless the state that was taken over is where ledger and former sink are.

        A change in the ledger says where the stream continues, and owners rely on it: written from a state
        that was rewound, it would hide that, and what was published since would be drawn again.
        """
        fields, name = checkpoint.manifest.fields, checkpoint.stream
        former = self._cluster.topics({fields["sink.topic"]}).get(fields["sink.topic"])
        sinks = {name: former} if former is not None and former.id == fields["sink.topic_id"] else {}
        if former is not None and former.name != self._sink.name:
            self._writers[self._budget].mark(former.places)
        public = Public(self._cluster, self._ledger, self._floors)
        start = checkpoint.manifest.ledger_start(self._topics[self._ledger[0]].id)
        public.check_ledger({name: checkpoint.state}, {name: start}, self._budget[0])
        public.check_sinks({name: checkpoint.state}, sinks)

    def history(self) -> History:
        """What the ledger says of the stream."""
        return read_history(self._topology, self._plan.name, self._ledger, self._floors)

    def decided_history(self) -> History:
        """What the ledger says of the stream, and what will be in it because it is decided."""
        history = self.history()
        checkpoint, _ = self._checked() if self._fenced else self._read()
        count_pending(history, checkpoint.stream, checkpoint.pending_entries)
        return history

    @property
    def _floors(self) -> Floors:
        return self._writers[self._budget].floors if self._fenced else {}

    def _places(self) -> list[TopicPartition]:
        return [*self._counting(), self._budget]

    def _counting(self) -> Mapping[TopicPartition, int]:
        partitions = {name: self._topics[name].partitions for name in self._topology.sources}
        return counting_places(self._topology, self._source.name, partitions)

    def _checked(self) -> tuple[Checkpoint, MigrationTarget]:
        """What ``_read`` gives, where ledger and former sink agree with it: what a change may rest on."""
        checkpoint, target = self._read()
        self._check_public(checkpoint)
        return checkpoint, target

    def _read(self) -> tuple[Checkpoint, MigrationTarget]:
        """The life of the stream, and the one that the topology asks for."""
        tables = self._fenced or {place: self._table(place) for place in self._places()}
        unnamed = [
            one for place in tables for one in check_cluster(tables[place], self._cluster_id, str(place))
        ]
        live = {name: topic.id for name, topic in self._topics.items()}
        check_known([one for one in unnamed if one.stream == self._plan.name], live)
        manifest = self._manifest(
            tables, self._budget, self._topics[self._topology.partials], self._budget[1]
        )
        counting = {}
        before = manifest.fields.get("source.partitions", 0)
        for place, partition in self._counting().items():
            if partition < before:
                counted = self._manifest(tables, place, self._source, partition)
                counting[place] = (counted, counted.counter_state(tables[place], str(place)))
        state = manifest.release_state(tables[self._budget], str(self._budget))
        return Checkpoint(self._plan.name, counting, self._budget, manifest, state), self._target()

    def _table(self, place: TopicPartition) -> dict[bytes, bytes]:
        """What a place holds, wherever that still is, without fencing its writer."""
        if self._layout and place != self._budget:
            latest = self._layout.latest(place)
        else:
            latest = read_latest(self._topology.kafka, place)
        self._headers[place] = {key: record.headers for key, record in latest.items()}
        return values_of(latest)

    def _reach(self, place: TopicPartition) -> Reach | None:
        """How far the source had been read by the state that a place holds."""
        headers = self._writers[place].headers if self._fenced else self._headers.get(place, {})
        return Reach.latest([headers.get(self._plan.name.encode(), ())])

    def _inputs(self, checkpoint: Checkpoint, *, lost: bool = False) -> InputTopics:
        """The topics that the life stands on, as they are now.

        ``lost``: also from where on events would be judged anew, some of which may be gone.
        """
        source, cluster, now = self._source, self._cluster, time.time_ns() // 1_000_000
        logs = source.places
        begins, ends = cluster.first_offsets(logs), cluster.end_offsets(logs)
        known = {manifest.topic_id for manifest, _ in checkpoint.counting.values()}
        reached = dict.fromkeys(logs, 0)
        for place, number in self._counting().items():
            # Of another topic it says nothing.
            if known == {source.id} and (reach := self._reach(place)) is not None:
                log = logs[number]
                reached[log], ends[log] = reach.offset, what_is_left(cluster, log, reach, ends[log])
        again = ends
        if not checkpoint.by_boundary:
            again = cluster.offsets_at(logs, earliest_append(self._plan, checkpoint.state.next))
        partials = self._partials
        return InputTopics(
            source_id=source.id,
            partials_id=self._topics[partials.topic].id,
            partials_begin=cluster.first_offsets([partials])[partials],
            partials_end=self._partials_end,
            now=now,
            logs={
                number: Log(
                    place,
                    begins[log],
                    ends[log],
                    again[log],
                    judged_anew_from(cluster, self._plan, log, *checkpoint.counting[place])
                    if lost and place in checkpoint.counting
                    else None,
                    reached[log],
                )
                for place, number in self._counting().items()
                for log in [logs[number]]
            },
        )

    def _manifest(
        self,
        tables: Mapping[TopicPartition, Mapping[bytes, bytes]],
        place: TopicPartition,
        topic: Topic,
        partition: int,
    ) -> ManifestRecord:
        if not self._fenced:
            check_begun(tables[place], self._plan.name, place)
        manifest = ManifestRecord.find(tables[place], self._plan.name, str(place))
        # Of the fields, the topology may differ, and the ids of the topics.
        manifest.check(manifest.fields, topic.name, manifest.topic_id, partition, str(place))
        return manifest

    def _target(self) -> MigrationTarget:
        plan, settings = self._plan, self._plan.stream.mechanism
        return MigrationTarget(
            instance=uuid.uuid4().hex,
            terms=Terms(
                settings.kind,
                settings.epsilon,
                settings.window,
                of_stream(self._plan.stream, SystemNoise()).units,
                settings.delta,
            ),
            fields=plan.fields(self._source.partitions),
            budget_fields=plan.budget_fields(self._source.partitions, self._sink.id),
            ledger=self._ledger,
            sink=self._sink.name,
            cluster=self._cluster_id,
            ledger_id=self._topics[self._topology.ledger].id,
            partials_end=self._partials_end,
        )

    @property
    def _partials_end(self) -> int:
        """Where the partial counts end: behind the nonce in them, whatever a broker says, if there is one."""
        partials = self._partials
        return least_end(self._floors, partials) or self._cluster.end_offsets([partials])[partials]

    def _writer(self, place: TopicPartition) -> FencedTable:
        owner = writer_of(self._topology, *place)
        return FencedTable(self._topology.kafka, owner, *place, self._fault)

    def _check_sink_unused(self) -> None:
        starts = self._cluster.first_offsets(self._sink.places)
        for place, start in starts.items():
            for publisher, offset in publishers(
                self._topology.kafka,
                place,
                self._plan.name,
                self._floors,
                start=start,
                isolation="read_uncommitted",
            ):
                if publisher == self._plan.name:
                    raise StateRefused(
                        place.at(offset),
                        f"it has a release of {self._plan.name}, and a timestamp must have one release only",
                        "Give the stream another sink.topic for the new generation",
                    )
        self._check_sink_not_shared()

    def _check_new_sink(self, differences: Mapping[str, Difference]) -> None:
        if "sink.topic_id" in differences:
            self._check_sink_not_shared()

    def _check_sink_not_shared(self) -> None:
        name = self._plan.name
        check_not_shared(name, newest_publishers(self._cluster, name, self._sink, self._floors))

    def write(self, records: Sequence[Outgoing]) -> None:
        """Write all records in one transaction of the budget's writer, unless a worker is running."""
        # Once more: a worker that joined meanwhile may have read the state that is about to be replaced.
        check_stopped(self._topology, self._cluster)
        self._writers[self._budget].transact("change", records)


def check_stopped(topology: Topology, cluster: Cluster) -> None:
    """Raise StateRefused if a worker of the application is running."""
    members = cluster.group_members(topology.name)
    if members:
        raise StateRefused(
            f"consumer group {topology.name}",
            f"it has {members} member{'s' * (members > 1)}, so a worker seems to be running",
            "Stop the workers. A worker that was killed stays a member until its session times out",
        )


def what_is_left(cluster: Cluster, log: TopicPartition, reach: Reach, end: int) -> int:
    """Where what was read of a log ends now, or ``end``, where the log does. Raises KafkaException."""
    parted = cluster.parted(log, reach)
    return end if parted is None else min(end, parted)


def looked(read: Callable[[], Found]) -> Found:
    """What is read without a barrier: what speaks against it may be old, so Unsettled is raised instead."""
    try:
        return read()
    except StateRefused as refusal:
        raise Unsettled(refusal.place, refusal.what, refusal) from None


def pan_private_manifest(
    topology: Topology, cluster: Cluster, plan: StreamPlan
) -> tuple[ManifestRecord, TopicPartition]:
    """The genesis of a pan-private stream, and where its state is; it has to be that of the topology.

    Raises StateRefused if it is not, for such a stream cannot be changed.
    """
    source, sink = plan.stream.source.topic, plan.stream.sink.topic
    beside = kind_of(plan.stream).beside(topology, plan.stream)
    topics = cluster.existing({*topology.sources, sink, *beside})
    partitions = {name: topics[name].partitions for name in topology.sources}
    (place, number), *_ = counting_places(topology, source, partitions).items()
    table = read_table(topology.kafka, *place)
    check_cluster(table, cluster.id(), str(place))
    check_begun(table, plan.name, place)
    manifest = ManifestRecord.find(table, plan.name, str(place))
    fields = plan.manifest_fields(topology, topics, place)
    manifest.check(
        fields, source, topics[source].id, number, str(place), partial(remedy_for_topics, "accumulate")
    )
    return manifest, place


def check_begun(table: Mapping[bytes, bytes], stream: str, place: TopicPartition) -> None:
    """Raise Unsettled if a table that was read without a barrier lacks the genesis of a stream."""
    if ManifestRecord.key(stream) not in table:
        what = (
            f"there is no genesis record of stream {stream}; `eventveil topics TOPOLOGY --create` writes one"
            " for a new stream"
        )
        raise Unsettled(str(place), what)
