"""The owners of a worker: which one a partition gets, and where its state is kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from faust.types import TP

from eventveil.kafka.changelog import FencedTable
from eventveil.kafka.cluster import Cluster
from eventveil.kinds.kind import Role
from eventveil.kinds.placement import StreamPlan, first_partitions, writer_of
from eventveil.kinds.registry import merged_streams, plan_readings, plan_streams
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Topology
from eventveil.privacy.noise import NoiseSource
from eventveil.process.clock import Clock, OwnerClock
from eventveil.process.faults import FaultHook
from eventveil.worker.accumulate import AccumulateOwner
from eventveil.worker.aggregate import AggregateOwner
from eventveil.worker.ends import EndWatch
from eventveil.worker.ground import Inquiry
from eventveil.worker.missing import LeaderWatch
from eventveil.worker.observe.observation import Observation
from eventveil.worker.offsets import grown
from eventveil.worker.owner import Owner
from eventveil.worker.perturb import PerturbOwner
from eventveil.worker.rekey import RekeyOwner
from eventveil.worker.sanitize import SanitizeOwner
from eventveil.worker.threads import Threads
from eventveil.worker.witnessed import Witnessed


class Owners:
    """Makes owners. Raises Unsettled if a topic of events is not there, and KafkaException."""

    def __init__(
        self,
        topology: Topology,
        cluster: Cluster,
        threads: Threads,
        end_watch: EndWatch,
        leaders: LeaderWatch,
        witnessed: Witnessed,
        observation: Observation,
        noise: Callable[[], NoiseSource],
        clock: Clock,
        fault: FaultHook,
    ) -> None:
        self._topology, self._cluster, self._threads = topology, cluster, threads
        self._end_watch, self._leaders, self._witnessed = end_watch, leaders, witnessed
        self._observation = observation
        self._noise, self._clock, self._fault = noise, clock, fault
        self._inquiry = Inquiry(cluster, threads.waiting)
        self._plans, self._merged = plan_streams(topology), merged_streams(topology)
        self._makers: dict[Role, Callable[[TP], Owner]] = {
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
        sizes = {name: topic.partitions for name, topic in self._cluster.existing(sources).items()}
        self._sizes |= sizes
        return first_partitions(sources, sizes)

    def has_streams(self, tp: TP) -> bool:
        """Whether a partition has anything to own: one of the partials may have no stream."""
        return tp.topic != self._topology.partials or any(
            plan.partials_partition == tp.partition for plan in self._merged
        )

    def make(self, tp: TP) -> Owner:
        """The owner of a partition; raises StateRefused for one that was added."""
        if tp.partition >= self._sizes.get(tp.topic, tp.partition + 1):
            raise grown(tp.topic, self._sizes[tp.topic], self._observation.role(tp))
        return self._makers[self._observation.role(tp)](tp)

    def _sanitize(self, tp: TP) -> Owner:
        topology = self._topology
        plans = [plan for plan in self._merged if plan.partials_partition == tp.partition]
        table = self._table(topology.ledger_changelog, tp.partition)
        return SanitizeOwner(
            table, self._threads, plans, topology.partials, topology.ledger, topology.control,
            topology.kafka, self._cluster, self._inquiry, self._noise, self._observation,
            self._clock_for(plans), self._leaders, self._witnessed,
        )  # fmt: skip

    def _rekey(self, tp: TP) -> Owner:
        number = self._first_rekeyed[tp.topic] + tp.partition
        plans = [plan for plan in self._plans if plan.stream.source.raw == tp.topic]
        return RekeyOwner(
            self._table(self._topology.rekeying_changelog, number),
            self._threads,
            [plan.stream for plan in plans],
            TopicPartition(tp.topic, tp.partition),
            self._cluster,
            self._end_watch,
            self._inquiry,
            self._clock_for(plans),
        )

    def _perturb(self, tp: TP) -> Owner:
        topology = self._topology
        table = self._table(topology.state_changelog, self._first_of_values[tp.topic] + tp.partition)
        plans = [plan for plan in plan_readings(topology) if plan.stream.source.topic == tp.topic]
        return PerturbOwner(
            table, self._threads, plans, TopicPartition(tp.topic, tp.partition), topology.ledger,
            topology.kafka, self._cluster, self._inquiry, self._noise, self._observation,
            self._witnessed,
        )  # fmt: skip

    def _counted(self, tp: TP) -> tuple[FencedTable, list[StreamPlan]]:
        """Where the counting state of a partition is, and the streams that count it."""
        number = self._first_partition[tp.topic] + tp.partition
        plans = [plan for plan in self._plans if plan.stream.source.topic == tp.topic]
        return self._table(self._topology.counting_changelog, number), plans

    def _accumulate(self, tp: TP) -> Owner:
        table, plans = self._counted(tp)
        return AccumulateOwner(
            table, self._threads, plans[0], self._topology, self._cluster, self._inquiry, self._noise,
            self._clock_for(plans), self._observation, self._witnessed,
        )  # fmt: skip

    def _aggregate(self, tp: TP) -> Owner:
        table, plans = self._counted(tp)
        return AggregateOwner(
            table,
            self._threads,
            plans,
            TopicPartition(tp.topic, tp.partition),
            self._topology.partials,
            self._cluster,
            self._end_watch,
            self._inquiry,
            self._clock_for(plans),
            self._observation,
        )

    def _table(self, topic: str, partition: int) -> FencedTable:
        owner = writer_of(self._topology, topic, partition)
        return FencedTable(self._topology.kafka, owner, topic, partition, self._fault)

    def _clock_for(self, plans: Iterable[StreamPlan]) -> OwnerClock:
        """The clock of an owner: as good as the stream that asks most of it."""
        skews = [plan.stream.timeline.clock_skew for plan in plans]
        return OwnerClock(self._clock, min(skews, default=0))
