"""The re-keying role: owner of one partition of a topic of events that is not keyed by user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from eventveil.kafka.changelog import FencedTable
from eventveil.kafka.cluster import Cluster
from eventveil.lifecycle.manifest import Genesis
from eventveil.model.records import Chunk, Outgoing, TopicPartition
from eventveil.model.topology import Stream
from eventveil.process.clock import OwnerClock
from eventveil.tasks.repartition import Rekeyer, fingerprint
from eventveil.topology.changes import MIGRATE_LOST, new_ground
from eventveil.worker.ends import EndWatch
from eventveil.worker.ground import AppendTimes, Ground, Inquiry
from eventveil.worker.hearing import Hearing
from eventveil.worker.home import check_home
from eventveil.worker.observe.observation import StreamView
from eventveil.worker.offsets import check_resume, end_behind
from eventveil.worker.owner import Owner
from eventveil.worker.threads import Threads


class RekeyOwner(Owner):
    """Passes the events of one partition on to the partitions of their users, each once."""

    def __init__(
        self,
        table: FencedTable,
        threads: Threads,
        streams: Iterable[Stream],
        source: TopicPartition,
        cluster: Cluster,
        end_watch: EndWatch,
        inquiry: Inquiry,
        clock: OwnerClock,
    ) -> None:
        super().__init__(table, threads)
        self._streams = list(streams)
        self._source = source
        self._cluster, self._inquiry = cluster, inquiry
        self._clock = clock
        self._ground = Ground(inquiry, {})
        self._append_times = AppendTimes(cluster, self._blocking, source[0])
        self._end_watch = end_watch
        self._hearing: Hearing | None = None
        self._rekeyer: Rekeyer

    def take_over(self) -> int:
        """See ``Owner.take_over``."""
        topic, partition = self._source
        source = self._streams[0].source
        found = self._cluster.existing({topic, source.topic, self.table.topic})
        live, target = found[topic], found[source.topic]
        self._ground = Ground(self._inquiry, found)
        states = self.table.take_over()
        place = str(self.table.place)
        check_home(self._cluster, states, place)
        genesis = Genesis.find(states, source.topic, place)
        fields = fingerprint(source, live.partitions, target.id, target.partitions)
        genesis.check(fields, topic, live.id, partition, place, partial(new_ground, "rekey"))
        state = genesis.rekeyer_state(states, place)
        timelines = [stream.timeline for stream in self._streams]
        self._rekeyer = Rekeyer(source, timelines, target.partitions, state)
        check_resume(self._cluster, self._source, state.position, state.known, remedy=MIGRATE_LOST)
        self._hearing = Hearing(self._end_watch, self._source, self._rekeyer, self._clock, self._ground)
        if self.ended.done():
            self._hearing.leave()
        return state.position

    def end(self, error: BaseException | None = None) -> None:
        """See ``Owner.end``; nobody asks for its end any more."""
        super().end(error)
        if self._hearing is not None:
            self._hearing.leave()

    @property
    def position(self) -> int:
        """See ``Owner.position``."""
        return self._rekeyer.position

    @property
    def resume(self) -> int:
        """The first offset that a successor needs."""
        return self._rekeyer.resume

    @property
    def untimed(self) -> bool:
        """See ``Owner.untimed``."""
        return self._rekeyer.untimed

    def streams(self) -> Mapping[str, StreamView]:
        """See ``Owner.streams``: it closes none."""
        return {}

    def observe(self, chunk: Chunk) -> None:
        """See ``Owner.observe``."""
        self._rekeyer.observe(chunk)

    async def prepare(self) -> None:
        """See ``Owner.prepare``: nothing is passed on before the ends that were due by now are known."""
        assert self._hearing is not None
        while not await self._hearing.hear(self.check_open):
            self.check_open()

    async def settle(self) -> None:
        """Pass on what was read, and the marks that have become true."""
        if self.untimed:
            self._rekeyer.untimed = not await self._append_times.restored()
        if self.untimed:
            return
        assert self._hearing is not None
        await self._hearing.hear(self.check_open)
        now, position = self._clock.now(), self._rekeyer.position
        if not self._hearing.needed and self._rekeyer.wants_end(now):
            end = await end_behind(self._blocking, self._cluster, self._source, position, self._ground)
            self._rekeyer.capture_end(now, end)
        if (batch := self._rekeyer.pass_on()) is not None:
            # A mark speaks for every event of this topic, and none may come from another one.
            await self._ground.check()
            records, state = batch
            self.check_open()
            key = self._streams[0].source.topic.encode()
            record = Outgoing(self.table.topic, state.encode(), key, self.table.partition)
            await self._blocking(self.table.transact, "pass-on", [*records, record], self._clock)
            self._rekeyer.committed(state)
