"""The perturb role: owner of one partition of a topic of values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from eventveil.formats.witness import Line
from eventveil.kafka.changelog import FencedTable
from eventveil.kafka.cluster import Cluster, Topic
from eventveil.kinds.placement import ReadingPlan
from eventveil.lifecycle.manifest import Genesis, check_neighbours
from eventveil.lifecycle.published import Public
from eventveil.model.records import Chunk, TopicPartition
from eventveil.model.topology import Kafka
from eventveil.privacy.noise import NoiseSource
from eventveil.tasks.values import PartitionPerturber, StreamPerturber, Topics
from eventveil.topology.changes import MIGRATE_LOST_VALUES, lost, remedy_for_values
from eventveil.values.kinds import build
from eventveil.worker.ground import Ground, Inquiry
from eventveil.worker.home import check_home
from eventveil.worker.observe.observation import Observation, StreamView
from eventveil.worker.offsets import check_resume
from eventveil.worker.owner import Owner
from eventveil.worker.sinks import Sinks
from eventveil.worker.threads import Threads
from eventveil.worker.witnessed import Witnessed


class PerturbOwner(Owner):
    """Gives each value of one source partition its reading, in every value stream over it."""

    def __init__(
        self,
        table: FencedTable,
        threads: Threads,
        plans: Iterable[ReadingPlan],
        source: TopicPartition,
        ledger: str,
        kafka: Kafka,
        cluster: Cluster,
        inquiry: Inquiry,
        noise: Callable[[], NoiseSource],
        observation: Observation,
        witnessed: Witnessed,
    ) -> None:
        super().__init__(table, threads)
        self._plans = list(plans)
        self._source = source
        self._ledger = ledger
        self._kafka = kafka
        self._cluster, self._inquiry = cluster, inquiry
        self._noise = noise
        self._observation = observation
        self._witnessed = witnessed
        self._sinks = Sinks(cluster, remedy_for_values("sink.topic_id"))
        #: By stream; the event loop adds it to the observation, which other owners of the stream write too.
        self._published: Counter[str] = Counter()
        self._ground = Ground(inquiry, {})
        self._perturber: PartitionPerturber

    def take_over(self) -> int:
        """See ``Owner.take_over``; publishes what was decided and charged but not published."""
        topic, partition = self._source
        sinks = {plan.stream.sink for plan in self._plans}
        live = self._cluster.existing({self.table.topic, self._ledger, topic, *sinks})
        self._sinks.remember(live, sinks)
        # Each partition is a stream of values by itself: others do not concern it.
        known = {name: one for name, one in live.items() if name not in sinks}
        self._ground = Ground(self._inquiry, known, growing=[topic])
        ledgers = {TopicPartition(self._ledger, plan.ledger_partition) for plan in self._plans}
        states = self.table.take_over(
            [*sorted(ledgers), *(TopicPartition(sink, partition) for sink in sorted(sinks))]
        )
        check_home(self._cluster, states, self._place)
        check_neighbours(states, topic, partition, self._place)
        streams = {plan.name: self._restore(plan, states, live) for plan in self._plans}
        partitions = {plan.name: plan.ledger_partition for plan in self._plans}
        topics = Topics(self._ledger, partitions, self.table.topic, self.table.partition)
        self._perturber = PartitionPerturber(topics, streams)
        read = max(one.state.resume for one in streams.values())
        check_resume(
            self._cluster,
            self._source,
            self._perturber.resume,
            read,
            remedy=MIGRATE_LOST_VALUES,
            if_cut=lost("perturb"),
        )
        self._publish()
        return self._perturber.resume

    @property
    def _place(self) -> str:
        return str(self.table.place)

    def _restore(
        self, plan: ReadingPlan, states: Mapping[bytes, bytes], live: Mapping[str, Topic]
    ) -> StreamPerturber:
        topic, partition = self._source
        stream = plan.stream
        genesis = Genesis.find(states, plan.name, self._place)
        partitions = live[topic].partitions
        if genesis.topic_id != live[topic].id:
            # That it is another topic is what matters, not how many partitions that one has.
            partitions = int(genesis.fields["source.partitions"])
        fields = plan.fields(partitions, live[stream.sink].id)
        genesis.check(fields, topic, live[topic].id, partition, self._place, remedy_for_values)
        state = genesis.perturber_state(states, self._place)
        perturber = StreamPerturber(stream, build(stream, self._noise()), state)
        ledger, start = (
            TopicPartition(self._ledger, plan.ledger_partition),
            genesis.ledger_start(live[self._ledger].id),
        )
        public = Public(self._kafka, self._cluster, ledger, self.table.floors)
        public.check_spans(plan.name, state, start, self.table.topic)
        lines, floors = [Line(plan.name, partition)], self.table.floors
        self._witnessed.check(TopicPartition(stream.sink, partition), lines, floors)
        public.check_readings(
            plan.name, state, TopicPartition(stream.sink, partition), frozenset(perturber.records())
        )
        return perturber

    @property
    def position(self) -> int:
        """See ``Owner.position``."""
        return self._perturber.position

    @property
    def resume(self) -> int:
        """The first offset that a successor needs."""
        return self._perturber.resume

    def streams(self) -> Mapping[str, StreamView]:
        """See ``Owner.streams``: it closes none."""
        return {}

    def observe(self, chunk: Chunk) -> None:
        """See ``Owner.observe``."""
        self._perturber.observe(chunk)

    async def settle(self) -> None:
        """Decide and charge in one transaction, then publish in another."""
        if decided := await self._observing(self._perturber.decide):
            await self._ground.check()
            self.check_open()
            await self._blocking(self.table.transact, "decide", decided)
            self.check_open()
            outcomes = self._perturber.outcomes
            await self._blocking(self._publish)
            self._observation.judged(outcomes)
        self._observation.readings.update(self._published)
        self._published.clear()

    def _publish(self) -> None:
        """Publish what is pending, if anything is. Blocks."""
        if records := self._perturber.publish():
            self._sinks.check()
            self.table.transact("publish", records)
        self._published.update(self._perturber.published())
