"""The accumulate role: owner of the one partition of a pan-private stream's source."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial

import orjson

from eventveil.formats.announcement import Announcement
from eventveil.formats.witness import Line
from eventveil.kafka.changelog import FencedTable
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.log import offset_of, read_partition
from eventveil.kinds.placement import StreamPlan
from eventveil.kinds.registry import kind_of
from eventveil.lifecycle.manifest import Genesis, check_neighbours
from eventveil.lifecycle.published import Public
from eventveil.mechanisms.pan_private import PanPrivate
from eventveil.mechanisms.registry import of_stream
from eventveil.model.errors import StateRefused, doubt
from eventveil.model.records import Chunk, TopicPartition
from eventveil.model.topology import Topology
from eventveil.privacy.noise import NoiseSource
from eventveil.process.clock import OwnerClock
from eventveil.process.memory import Held
from eventveil.tasks.aggregate import Batch
from eventveil.tasks.pan_private import (
    Exposure,
    PanPrivateStream,
    Places,
    deciding,
    exposing,
    judging,
    publishing,
    release_key,
)
from eventveil.tasks.release import StreamSanitizer
from eventveil.topology.changes import RENAME, lost, new_ground
from eventveil.worker.ground import AppendTimes, Ground, Inquiry
from eventveil.worker.home import check_home
from eventveil.worker.observe.observation import Observation, StreamView
from eventveil.worker.offsets import check_resume, end_behind
from eventveil.worker.owner import Owner
from eventveil.worker.sinks import Sinks
from eventveil.worker.threads import Threads
from eventveil.worker.witnessed import Witnessed

log = logging.getLogger(__name__)

_LISTEN_SECONDS = 1.0
#: A seek is asked for again after this, should nothing have come of it.
_SEEK_SECONDS = 5.0
_LOST = lost("accumulate")
_GIVEN_UP = (
    "timestamp %d of %s was given up: a worker failed while releasing it, or after a look;"
    " it repeats the last release, and is charged"
)


class AccumulateOwner(Owner):
    """Counts and releases a pan-private stream, one timestamp at a time."""

    def __init__(
        self,
        table: FencedTable,
        threads: Threads,
        plan: StreamPlan,
        topology: Topology,
        cluster: Cluster,
        inquiry: Inquiry,
        noise: Callable[[], NoiseSource],
        clock: OwnerClock,
        observation: Observation,
        witnessed: Witnessed,
    ) -> None:
        super().__init__(table, threads)
        self._plan, self._topology = plan, topology
        self._source = TopicPartition(plan.stream.source.topic, 0)
        self._cluster, self._noise, self._clock = cluster, noise, clock
        self._inquiry, self._ground = inquiry, Ground(inquiry, {})
        self._append_times = AppendTimes(cluster, self._blocking, self._source[0])
        self._observation = observation
        self._witnessed = witnessed
        self._sinks = Sinks(cluster, RENAME)
        self._places = Places(TopicPartition(topology.ledger, plan.partials_partition), table.place)
        self._heard_in = kind_of(plan.stream).beside(topology, plan.stream)
        self._heard_at = self._sought_at = 0.0
        #: Below this offset is no announcement that is waited for and was not heard.
        self._searched = 0
        self._astray = False
        self._stream: PanPrivateStream | None = None

    def take_over(self) -> int:
        """See ``Owner.take_over``; publishes what was decided and charged but not published."""
        stream, place = self._plan.stream, str(self.table.place)
        topic, sink = stream.source.topic, stream.sink.topic
        heard_in = self._heard_in
        ledger = self._topology.ledger
        live = self._cluster.existing({self.table.topic, ledger, topic, sink, *heard_in})
        self._sinks.remember(live, {sink})
        self._ground = Ground(self._inquiry, {name: one for name, one in live.items() if name != sink})
        states = self.table.take_over([self._places.ledger, *live[sink].places])
        check_home(self._cluster, states, place)
        genesis = Genesis.find(states, stream.name, place)
        fields = self._plan.genesis_fields(self._topology, live, self.table.place)
        genesis.check(fields, topic, live[topic].id, 0, place, partial(new_ground, "accumulate"))
        check_neighbours(states, topic, 0, place)
        self._stream = restored = self._restore(genesis, states, place)
        state, counter = restored.sanitizer.state, restored.aggregator
        public = Public(self._topology.kafka, self._cluster, self._places.ledger, self.table.floors)
        start = genesis.ledger_start(live[ledger].id)
        public.check_ledger({stream.name: state}, {stream.name: start}, self.table.topic)
        self._witnessed.check(self._places.ledger, [Line(stream.name)], self.table.floors)
        public.check_sinks({stream.name: state}, {stream.name: live[sink]})
        check_resume(self._cluster, self._source, counter.resume, counter.judged, remedy=_LOST)
        if heard_in:
            self._announced_until()
        self._publish()
        restored.open()
        return counter.position

    def _restore(self, genesis: Genesis, states: Mapping[bytes, bytes], place: str) -> PanPrivateStream:
        stream = self._plan.stream
        counted = genesis.counter_state(states, place)
        released = genesis.release_state(states, place, release_key(stream.name))
        known = states.get(Exposure.key(stream.name))
        exposure = Exposure(genesis.instance) if known is None else Exposure.decode(known, place)
        if (counted.next, exposure.instance) != (released.next, genesis.instance) or (
            exposure.timestamp > counted.next
        ):
            raise StateRefused(
                f"{place}, stream {stream.name}",
                f"it counts timestamp {counted.next}, would release {released.next}, and has exposed "
                f"{exposure.timestamp} of {exposure.instance}: these are not of one state",
                f"Restore the newest state of this partition as a whole. {RENAME}",
            )
        mechanism = of_stream(stream, self._noise())
        assert isinstance(mechanism, PanPrivate)
        sanitizer = StreamSanitizer(stream, 1, mechanism, released, self._plan.asks)
        return PanPrivateStream(stream, mechanism, counted, sanitizer, exposure)

    @property
    def _counting(self) -> PanPrivateStream:
        assert self._stream is not None, "nothing is done before the take-over"
        return self._stream

    @property
    def position(self) -> int:
        """See ``Owner.position``."""
        return self._counting.aggregator.position

    @property
    def due(self) -> int | None:
        """See ``Owner.due``."""
        return self._counting.aggregator.due

    @property
    def untimed(self) -> bool:
        """See ``Owner.untimed``."""
        return self._stream is not None and self._stream.aggregator.untimed

    def streams(self) -> Mapping[str, StreamView]:
        """See ``Owner.streams``."""
        one = self._counting
        return {self._plan.name: StreamView(one.next, Held(1), spent=one.sanitizer.spent)}

    def observe(self, chunk: Chunk) -> None:
        """See ``Owner.observe``."""
        self._astray = False
        self._counting.observe(chunk)

    def end(self, error: BaseException | None = None) -> None:
        """See ``Owner.end``; the counters are wiped."""
        super().end(error)
        if self._stream is not None:
            self._stream.end()

    @property
    def misplaced(self) -> bool:
        """See ``Owner.misplaced``: after a release, what was passed over is read again."""
        if not self._astray or time.monotonic() < self._sought_at + _SEEK_SECONDS:
            return False
        self._sought_at = time.monotonic()
        return True

    async def settle(self) -> None:
        """Release what is due and complete, one after the other; read announcements, write dead letters."""
        counting = self._counting
        await self._blocking(counting.read_on)
        if self.untimed:
            counting.aggregator.untimed = not await self._append_times.restored()
        if self.untimed:
            return
        await self._listen()
        await self._ask_for_end()
        while counting.aggregator.can_close(self._clock.now()):
            await self._ground.check()
            await self._write_dead_letters()
            self.check_open()
            await self._blocking(self._release)
        await self._write_dead_letters()

    def _release(self) -> None:
        """Expose, decide, publish, and open the next timestamp. Blocks.

        The clock is checked with the first record, before anything is drawn.
        """
        counting, clock = self._counting, [self._clock]
        # Also before anything is drawn: what cannot be published should not be charged.
        self._sinks.check()
        if counting.draws:
            self._expose(counting.exposed(), clock.pop())
        batch = counting.decide()
        records = deciding(self._places, counting.sanitizer, batch)
        self.table.transact("decide", records, *clock)
        self._settled(batch)
        self._publish()
        before = self.position
        counting.open()
        if self.position < before:
            check_resume(self._cluster, self._source, self.position, counting.aggregator.judged, remedy=_LOST)
            self._astray, self._sought_at = True, 0.0

    def _expose(self, exposure: Exposure, clock: OwnerClock | None = None) -> None:
        record = exposing(self._places, self._plan.name, exposure)
        self.table.transact("expose", [record], clock)
        if exposure.heard != self._counting.exposure.heard:
            name, timestamp = self._plan.name, exposure.timestamp
            log.info("timestamp %d of %s will be looked at, and published", timestamp, name)
        self._counting.expose(exposure)

    def _publish(self) -> None:
        """Publish what is pending, if anything is."""
        sanitizer = self._counting.sanitizer
        if records := list(publishing(self._places, sanitizer)):
            self._sinks.check()
            self.table.transact("publish", records)
            sanitizer.published()
            self._observation.counting.published(records)
            for record in records:
                if record.topic == self._topology.ledger:
                    entry = orjson.loads(record.value or b"")
                    self._observation.released(entry["stream"], entry["fresh"], "forfeited" in entry)
                    if "forfeited" in entry:
                        log.warning(_GIVEN_UP, entry["timestamp"], entry["stream"])

    async def _write_dead_letters(self) -> None:
        if batch := self._counting.aggregator.dead_letter_batch():
            self.check_open()
            await self._blocking(self._judge, batch)

    def _judge(self, batch: Batch) -> None:
        self.table.transact("judge", judging(self._places, batch))
        self._settled(batch)

    def _settled(self, batch: Batch) -> None:
        self._counting.aggregator.committed(batch)
        self._observation.judged(batch.outcomes, batch.dead_letters)

    async def _ask_for_end(self) -> None:
        aggregator, now = self._counting.aggregator, self._clock.now()
        if aggregator.wants_end(now):
            read = max(aggregator.position, aggregator.judged)
            end = await end_behind(self._blocking, self._cluster, self._source, read, self._ground, _LOST)
            aggregator.capture_end(now, end)

    async def _listen(self) -> None:
        """Hear the next announcement, if there is one and this timestamp may be announced."""
        counting = self._counting
        if not self._heard_in or not counting.may_be_announced(self._clock.now()):
            return
        if time.monotonic() < self._heard_at + _LISTEN_SECONDS:
            return
        heard = await self._blocking(self._next_announcement)
        if heard is None:
            self._heard_at = time.monotonic()
            return
        self.check_open()
        await self._blocking(self._expose, counting.exposed(heard=heard))

    def _announced_until(self) -> int:
        """Where the announcements end. Raises Unsettled if that is before the last one that was heard."""
        place = TopicPartition(self._topology.announcements, 0)
        end = self._cluster.end_offsets([place])[place]
        if end < self._counting.exposure.heard:
            raise doubt(place.topic, "announcements that were heard are gone from it", RENAME)
        return end

    def _next_announcement(self) -> int | None:
        """The offset behind the first announcement that was not heard yet. Blocks.

        Whatever else is there is passed over, and what nobody waits for any more.
        """
        place, exposure = TopicPartition(self._topology.announcements, 0), self._counting.exposure
        first, end = self._cluster.first_offsets([place])[place], self._announced_until()
        if end > max(exposure.heard, self._searched):
            start = max(first, exposure.heard, self._searched)
            for message in read_partition(self._topology.kafka, *place, start=start):
                said = Announcement.read(message.value())
                if said is not None and said.concerns(self._plan.name, exposure.instance, self._clock.now()):
                    return offset_of(message) + 1
            self._searched = end
        return None
