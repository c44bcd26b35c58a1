"""The aggregate role: owner of one partition of a source topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from eventveil.kafka.changelog import FencedTable
from eventveil.kafka.cluster import Cluster
from eventveil.kinds.placement import StreamPlan
from eventveil.lifecycle.manifest import Genesis, check_neighbours
from eventveil.model.records import Chunk, Outgoing, TopicPartition
from eventveil.process.clock import OwnerClock
from eventveil.tasks.aggregate import Batch, PartitionAggregator
from eventveil.topology.changes import MIGRATE_LOST
from eventveil.worker.ends import EndWatch
from eventveil.worker.ground import AppendTimes, Ground, Inquiry
from eventveil.worker.hearing import Hearing
from eventveil.worker.home import check_home
from eventveil.worker.observe.observation import Observation, StreamView
from eventveil.worker.offsets import check_resume, end_behind, shortened
from eventveil.worker.owner import Owner
from eventveil.worker.threads import Threads


class AggregateOwner(Owner):
    """Counts the streams over one source partition and closes their timestamps."""

    def __init__(
        self,
        table: FencedTable,
        threads: Threads,
        plans: Iterable[StreamPlan],
        source: TopicPartition,
        partials: str,
        cluster: Cluster,
        end_watch: EndWatch,
        inquiry: Inquiry,
        clock: OwnerClock,
        observation: Observation,
    ) -> None:
        super().__init__(table, threads)
        self._end_watch = end_watch
        self._hearing: Hearing | None = None
        self._plans = list(plans)
        self._source = source
        self._partials = partials
        self._cluster, self._inquiry = cluster, inquiry
        self._clock = clock
        self._observation = observation
        self._ground = Ground(inquiry, {})
        self._append_times = AppendTimes(cluster, self._blocking, source[0])
        self._aggregator: PartitionAggregator
        self._partitions = 1

    def take_over(self) -> int:
        """See ``Owner.take_over``."""
        topic, partition = self._source
        found = self._cluster.existing({topic, self.table.topic, self._partials})
        live = found[topic]
        raw = self._plans[0].stream.source.raw
        events = 0 if raw is None else self._cluster.existing({raw})[raw].partitions
        self._ground = Ground(self._inquiry, found)
        states = self.table.take_over()
        place = str(self.table.place)
        check_home(self._cluster, states, place)
        streams, grown = {}, {}
        for plan in self._plans:
            genesis = Genesis.find(states, plan.name, place)
            genesis.check(plan.fields(live.partitions), topic, live.id, partition, place)
            streams[plan.name] = (plan.stream, genesis.counter_state(states, place).waiting_for(events))
            grown[plan.name] = genesis.grown
        check_neighbours(states, topic, partition, place)
        self._partitions = live.partitions
        self._aggregator = PartitionAggregator(live.partitions, streams, grown=grown)
        counters = self._aggregator.counters.items()
        open_ = {name: (one.stream.timeline, one.next) for name, one in counters}
        resume, known = self._aggregator.resume, self._aggregator.known
        check_resume(self._cluster, self._source, resume, known, remedy=MIGRATE_LOST, open_=open_)
        self._hearing = Hearing(self._end_watch, self._source, self._aggregator, self._clock, self._ground)
        if self.ended.done():
            self._hearing.leave()
        return self._aggregator.resume

    def end(self, error: BaseException | None = None) -> None:
        """See ``Owner.end``; nobody asks for its end any more."""
        super().end(error)
        if self._hearing is not None:
            self._hearing.leave()

    @property
    def position(self) -> int:
        """See ``Owner.position``."""
        return self._aggregator.position

    @property
    def resume(self) -> int:
        """The first offset that a successor needs."""
        return self._aggregator.resume

    @property
    def due(self) -> int | None:
        """See ``Owner.due``."""
        return self._aggregator.due

    def rests(self, now: int) -> bool:
        """See ``Owner.rests``: what is not due is neither closed nor waited for."""
        return self._aggregator.due > now

    @property
    def closed(self) -> int | None:
        """See ``Owner.closed``."""
        return self._aggregator.closed

    @property
    def untimed(self) -> bool:
        """See ``Owner.untimed``."""
        return self._aggregator.untimed

    def streams(self) -> Mapping[str, StreamView]:
        """See ``Owner.streams``."""
        return {
            name: StreamView(counter.next, counter.held)
            for name, counter in self._aggregator.counters.items()
        }

    def observe(self, chunk: Chunk) -> None:
        """See ``Owner.observe``."""
        self._aggregator.observe(chunk)

    async def prepare(self) -> None:
        """See ``Owner.prepare``: nothing is judged before the boundaries are known that were due by now.

        A chunk that was fetched before a timestamp was due lies below its boundary, whenever it is judged.
        """
        assert self._hearing is not None
        while not await self._hearing.hear(self.check_open):
            self.check_open()

    async def settle(self) -> None:
        """Close what is due and complete; write the dead letters."""
        if self.untimed:
            # Nobody can tell whether these were late. Once the topic is as it was, they are dead letters.
            self._aggregator.untimed = not await self._append_times.restored()
        if self.untimed:
            return
        assert self._hearing is not None
        await self._hearing.hear(self.check_open)
        await self._ask_for_end()
        # In a thread: catching up closes tens of thousands of timestamps at a time.
        while self._aggregator.can_close(now := self._clock.now()):
            # What is closed rests on all that was read and asked: of this topic, with no other partition.
            await self._ground.check()
            await self._commit("close", await self._blocking(self._aggregator.close, now))
        if batch := self._aggregator.dead_letter_batch():
            if self._hearing.needed:
                # Boundaries become durable with it.
                await self._ground.check()
            await self._commit("judge", batch)

    async def _ask_for_end(self) -> None:
        now, position = self._clock.now(), self._aggregator.position
        if self._aggregator.wants_boundary(now) or not self._aggregator.wants_end(now):
            return
        end = await end_behind(self._blocking, self._cluster, self._source, position, self._ground)
        try:
            self._aggregator.capture_end(now, end)
        except ValueError:
            raise shortened(self._source, "it ends before a boundary that was captured in it") from None

    async def _commit(self, name: str, batch: Batch) -> None:
        self.check_open()
        await self._blocking(self._write, name, batch)
        self._aggregator.committed(batch)
        self._observation.judged(batch.outcomes, batch.dead_letters, self._partitions)

    def _write(self, name: str, batch: Batch) -> None:
        self.table.transact(name, self._records(batch), self._clock)

    def _records(self, batch: Batch) -> Iterator[Outgoing]:
        partition = {plan.name: plan.partials_partition for plan in self._plans}
        yield from batch.dead_letters
        for partial in batch.partials:
            name = partial.stream
            yield Outgoing(self._partials, partial.encode(), name.encode(), partition[name])
        for name, state in batch.states.items():
            yield Outgoing(self.table.topic, state.encode(), name.encode(), self.table.partition)
