"""The sanitize role: owner of one partition of the partials topic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

import orjson

from eventveil.formats.release import control_record
from eventveil.formats.witness import Line
from eventveil.kafka.changelog import FencedTable
from eventveil.kafka.cluster import Cluster, Topic
from eventveil.kinds.placement import StreamPlan
from eventveil.lifecycle.manifest import Genesis
from eventveil.lifecycle.published import Public
from eventveil.mechanisms.registry import of_stream
from eventveil.model.records import Chunk, Outgoing, TopicPartition
from eventveil.model.topology import Kafka
from eventveil.privacy.noise import NoiseSource
from eventveil.process.clock import OwnerClock
from eventveil.process.memory import Held
from eventveil.tasks.release import PartitionSanitizer, StreamSanitizer, Topics
from eventveil.topology.changes import MIGRATE_GROUND, MIGRATE_SINK
from eventveil.worker.ground import Ground, Inquiry
from eventveil.worker.home import check_home
from eventveil.worker.missing import LeaderWatch
from eventveil.worker.observe.observation import Observation, StreamView
from eventveil.worker.offsets import check_resume
from eventveil.worker.owner import Owner
from eventveil.worker.sinks import Sinks
from eventveil.worker.threads import Threads
from eventveil.worker.witnessed import Witnessed

log = logging.getLogger(__name__)


class SanitizeOwner(Owner):
    """Releases the streams of one partition of the partials topic."""

    def __init__(
        self,
        table: FencedTable,
        threads: Threads,
        plans: Iterable[StreamPlan],
        partials: str,
        ledger: str,
        control: str,
        kafka: Kafka,
        cluster: Cluster,
        inquiry: Inquiry,
        noise: Callable[[], NoiseSource],
        observation: Observation,
        clock: OwnerClock,
        leaders: LeaderWatch,
        witnessed: Witnessed,
    ) -> None:
        super().__init__(table, threads)
        # A partial count does not wait for the events that are being counted for the next.
        self._observing = self._blocking
        self._plans = list(plans)
        self._partials = partials
        self._ledger, self._control = ledger, control
        self._kafka = kafka
        self._cluster = cluster
        self._noise = noise
        self._observation = observation
        self._sinks = Sinks(cluster, MIGRATE_SINK)
        self._inquiry, self._ground = inquiry, Ground(inquiry, {})
        self._ledger_starts: dict[str, int] = {}
        self._clock = clock
        self._leaders = leaders
        self._witnessed = witnessed
        self._sanitizer: PartitionSanitizer

    def take_over(self) -> int:
        """See ``Owner.take_over``; publishes what was decided and charged but not published."""
        place = TopicPartition(self._partials, self.table.partition)
        sources = {plan.stream.source.topic for plan in self._plans}
        sinks = {plan.stream.sink.topic for plan in self._plans}
        control = {self._control for plan in self._plans if plan.asks is not None}
        live = self._cluster.existing(
            {self.table.topic, self._ledger, self._partials, *control, *sources, *sinks}
        )
        self._sinks.remember(live, sinks)
        self._ground = Ground(
            self._inquiry, {name: live[name] for name in (self.table.topic, self._ledger, self._partials)}
        )
        beside = [TopicPartition(name, 0) for name in control] + [
            place for name in sinks for place in live[name].places
        ]
        states = self.table.take_over([TopicPartition(self._ledger, self.table.partition), *beside])
        check_home(self._cluster, states, str(self.table.place))
        topics = Topics(self._ledger, self.table.topic, self.table.partition, self._control)
        sanitizers = {plan.name: self._restore(plan, states, live) for plan in self._plans}
        self._sanitizer = PartitionSanitizer(topics, sanitizers)
        self._check_published(live)
        # Partial counts can be made again.
        check_resume(self._cluster, place, self._sanitizer.resume, remedy=MIGRATE_GROUND)
        pending = self._sanitizer.publish()
        pending += [one for one in self._unasked() if one not in pending]
        if pending:
            self._sinks.check()
            self.table.transact("publish", pending)
            self._observation.counting.published(pending)
            self._published(pending)
        return self._sanitizer.resume

    def _restore(
        self, plan: StreamPlan, states: Mapping[bytes, bytes], live: Mapping[str, Topic]
    ) -> StreamSanitizer:
        place = str(self.table.place)
        source, partials, sink = plan.stream.source.topic, self._partials, plan.stream.sink.topic
        partitions = live[source].partitions
        genesis = Genesis.find(states, plan.name, place)
        self._ledger_starts[plan.name] = genesis.ledger_start(live[self._ledger].id)
        fields = plan.budget_fields(partitions, live[sink].id)
        genesis.check(fields, partials, live[partials].id, self.table.partition, place)
        mechanism = of_stream(plan.stream, self._noise())
        state = genesis.release_state(states, place)
        return StreamSanitizer(plan.stream, partitions, mechanism, state, plan.asks)

    @property
    def _public(self) -> Public:
        ledger = TopicPartition(self._ledger, self.table.partition)
        return Public(self._kafka, self._cluster, ledger, self.table.floors)

    def _check_published(self, live: Mapping[str, Topic]) -> None:
        public = self._public
        streams = self._sanitizer.sanitizers
        states = {name: sanitizer.state for name, sanitizer in streams.items()}
        public.check_ledger(states, self._ledger_starts, self.table.topic)
        self._witnessed.check(
            TopicPartition(self._ledger, self.table.partition), [*map(Line, states)], self.table.floors
        )
        public.check_sinks(states, {name: live[one.stream.sink.topic] for name, one in streams.items()})

    def _unasked(self) -> list[Outgoing]:
        """What producers of local reports are to be asked for, where the control topic does not say it."""
        asked = {name: one.asked for name, one in self._sanitizer.sanitizers.items() if one.asked is not None}
        first = {name: control_record(self._sanitizer.sanitizers[name].stream, None) for name in asked}
        said = self._public.asked(self._control, first, asked) if asked else {}
        return [self._sanitizer.asking(name, one) for name, one in asked.items() if said.get(name) != one]

    @property
    def position(self) -> int:
        """See ``Owner.position``."""
        return self._sanitizer.position

    @property
    def resume(self) -> int:
        """The first offset that a successor needs."""
        return self._sanitizer.resume

    @property
    def awaited(self) -> int | None:
        """See ``Owner.awaited``."""
        return self._sanitizer.awaited

    def streams(self) -> Mapping[str, StreamView]:
        """See ``Owner.streams``."""
        return {
            name: StreamView(
                one.state.published + 1,
                Held(partials=one.merger.waiting),
                spent=one.spent,
                discarded=one.merger.discarded,
            )
            for name, one in self._sanitizer.sanitizers.items()
        }

    def observe(self, chunk: Chunk) -> None:
        """See ``Owner.observe``."""
        self._sanitizer.observe(chunk)

    def rests(self, now: int) -> bool:
        """See ``Owner.rests``: where nothing may be given up, releases wait for partial counts only."""
        return all(one.stream.timeline.grace is None for one in self._sanitizer.sanitizers.values())

    async def settle(self) -> None:
        """Release whatever is complete: decide and charge in one transaction, then publish in another."""
        self._look()
        while decided := await self._blocking(self._sanitizer.decide):
            self.check_open()
            # What is going to be published is made ready meanwhile; nothing of it leaves before A is durable.
            releases, *_ = await asyncio.gather(
                self._blocking(self._sanitizer.publish),
                self._blocking(self._sinks.check),
                self._ground.check(),
                self._blocking(self.table.transact, "decide", decided, self._deciding_clock),
            )
            self.check_open()
            if releases:
                await self._blocking(self.table.transact, "publish", releases)
                await self._blocking(self._observation.counting.published, releases)
            self._published(releases)

    def _look(self) -> None:
        """What was seen of the leaders of partitions, for the streams that may go without one."""
        for name, one in self._sanitizer.sanitizers.items():
            if one.stream.timeline.grace is not None:
                now, outages = self._leaders.outages(one.stream.source.topic, self._clock)
                if gone := one.look(now, outages):
                    log.warning(
                        "stream %s is released without partitions %s, which have no leader", name, gone
                    )

    @property
    def _deciding_clock(self) -> OwnerClock | None:
        """The clock, if it has decided that timestamps go without a partition."""
        by_clock = any(one.by_clock for one in self._sanitizer.sanitizers.values())
        return self._clock if by_clock else None

    def _published(self, records: Iterable[Outgoing]) -> None:
        self._sanitizer.published()
        for record in records:
            if record.topic == self._ledger:
                entry = orjson.loads(record.value or b"")
                self._observation.released(entry["stream"], entry["fresh"])
