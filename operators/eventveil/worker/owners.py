"""The owners of a worker: which one a partition gets, and where its state is kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from eventveil.kafka.changelog import FencedTable
from eventveil.kinds.kind import Role
from eventveil.kinds.placement import StreamPlan, first_partitions, writer_of
from eventveil.kinds.registry import merged_streams, plan_readings, plan_streams
from eventveil.model.records import TopicPartition
from eventveil.process.clock import Clock, PartitionClock
from eventveil.process.faults import FaultHook
from eventveil.worker.offsets import grown
from eventveil.worker.restore.aggregate import restore_aggregate
from eventveil.worker.restore.pan_private import restore_pan_private
from eventveil.worker.restore.release import restore_release
from eventveil.worker.restore.repartition import restore_repartition
from eventveil.worker.restore.restored import Context, Restore
from eventveil.worker.restore.values import restore_values
from eventveil.worker.runner import Runner

#: Where the state of a partition is, as topic and partition; the clock; and how its task is restored.
_Kept = tuple[str, int, PartitionClock, Restore]


class Owners:
    """Makes owners. Raises Unsettled if a topic of events is not there, and KafkaException."""

    def __init__(self, context: Context, clock: Clock, fault: FaultHook) -> None:
        self._context, self._clock, self._fault = context, clock, fault
        self._topology = topology = context.topology
        self._plans, self._merged = plan_streams(topology), merged_streams(topology)
        self._kept: dict[Role, Callable[[TopicPartition], _Kept]] = {
            "sanitize": self._sanitize,
            "rekey": self._rekey,
            "perturb": self._perturb,
            "accumulate": self._accumulate,
            "aggregate": self._aggregate,
        }
        #: How many partitions the topics of events had when the worker started, which changelogs go by.
        self._sizes: dict[str, int] = {}
        self._first_partition = self._layout(topology.sources)
        self._first_rekeyed = self._layout(topology.rekeyed)
        self._first_of_values = self._layout(topology.value_sources)

    def _layout(self, sources: Collection[str]) -> dict[str, int]:
        """The first partition of a changelog that belongs to each of the topics that it is for."""
        sizes = {name: topic.partitions for name, topic in self._context.cluster.existing(sources).items()}
        self._sizes |= sizes
        return first_partitions(sources, sizes)

    def has_streams(self, tp: TopicPartition) -> bool:
        """Whether a partition has anything to own: one of the partials may have no stream."""
        return tp.topic != self._topology.partials or any(
            plan.partials_partition == tp.partition for plan in self._merged
        )

    def make(self, tp: TopicPartition) -> Runner:
        """The owner of a partition; raises StateRefused for one that was added."""
        role = self._context.observation.role(tp)
        if tp.partition >= self._sizes.get(tp.topic, tp.partition + 1):
            raise grown(tp.topic, self._sizes[tp.topic], role)
        topic, partition, clock, restore = self._kept[role](tp)
        owner = writer_of(self._topology, topic, partition)
        # Readings are due at no time.
        hear = None if role == "perturb" else clock.hear
        table = FencedTable(self._topology.kafka, owner, topic, partition, self._fault, hear)
        return Runner(tp, restore, table, self._context, clock)

    def _sanitize(self, place: TopicPartition) -> _Kept:
        plans = [plan for plan in self._merged if plan.partials_partition == place.partition]
        clock = self._clock_for(plans)
        restore = partial(restore_release, plans, clock)
        return self._topology.ledger_changelog, place.partition, clock, restore

    def _rekey(self, place: TopicPartition) -> _Kept:
        number = self._first_rekeyed[place.topic] + place.partition
        plans = [plan for plan in self._plans if plan.stream.source.raw == place.topic]
        restore = partial(restore_repartition, [plan.stream for plan in plans], place)
        return self._topology.rekeying_changelog, number, self._clock_for(plans), restore

    def _perturb(self, place: TopicPartition) -> _Kept:
        number = self._first_of_values[place.topic] + place.partition
        plans = [plan for plan in plan_readings(self._topology) if plan.stream.source.topic == place.topic]
        restore = partial(restore_values, plans, place)
        return self._topology.state_changelog, number, PartitionClock(self._clock, 0), restore

    def _accumulate(self, place: TopicPartition) -> _Kept:
        number, plans, clock = self._counted(place)
        return self._topology.counting_changelog, number, clock, partial(restore_pan_private, plans[0], clock)

    def _aggregate(self, place: TopicPartition) -> _Kept:
        number, plans, clock = self._counted(place)
        return self._topology.counting_changelog, number, clock, partial(restore_aggregate, plans, place)

    def _counted(self, place: TopicPartition) -> tuple[int, list[StreamPlan], PartitionClock]:
        """Where in the counting changelog the state of a partition is, the streams that count it, and the
        clock."""
        plans = [plan for plan in self._plans if plan.stream.source.topic == place.topic]
        return self._first_partition[place.topic] + place.partition, plans, self._clock_for(plans)

    def _clock_for(self, plans: Iterable[StreamPlan]) -> PartitionClock:
        """The clock of an owner: as good as the stream that asks most of it."""
        skews = [plan.stream.timeline.clock_skew for plan in plans]
        return PartitionClock(self._clock, min(skews, default=0))
