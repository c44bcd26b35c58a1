"""The accumulate role: the one partition of a pan-private stream's source."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from functools import partial

from eventveil import __version__
from eventveil.formats.announcement import Announcement
from eventveil.formats.witness import Line
from eventveil.kafka.changelog import FencedTable
from eventveil.kafka.log import offset_of, read_partition
from eventveil.kinds.placement import StreamPlan
from eventveil.kinds.registry import kind_of
from eventveil.lifecycle.manifest import ManifestRecord, check_neighbours
from eventveil.lifecycle.published import Public
from eventveil.mechanisms.pan_private import PanPrivate
from eventveil.mechanisms.registry import of_stream
from eventveil.model.errors import StateRefused, doubt
from eventveil.model.reach import Reach
from eventveil.model.records import TopicPartition
from eventveil.process.clock import PartitionClock
from eventveil.tasks.pan_private import Exposure, PanPrivateStream, PanPrivateTopics, release_key
from eventveil.tasks.release import StreamSanitizer
from eventveil.topology.changes import RENAME, lost, remedy_for_topics
from eventveil.worker.offsets import check_resume
from eventveil.worker.restore.restored import Context, Restored, check_cluster_id, letter_places, nothing
from eventveil.worker.restore.sink_schemas import SinkSchemas
from eventveil.worker.sinks import Sinks
from eventveil.worker.topic_guard import TopicGuard

log = logging.getLogger(__name__)

_LISTEN_SECONDS = 1.0
_LOST = lost("accumulate")


def restore_pan_private(
    plan: StreamPlan, clock: PartitionClock, context: Context, table: FencedTable
) -> Restored:
    """See ``Restore``."""
    topology, cluster, stream = context.topology, context.cluster, plan.stream
    source, sink, place = TopicPartition(stream.source.topic, 0), stream.sink.topic, str(table.place)
    heard_in = kind_of(stream).beside(topology, stream)
    live = cluster.existing({table.topic, topology.ledger, source.topic, sink, *heard_in})
    sinks = Sinks(cluster, [live[sink]], RENAME)
    guard = TopicGuard(context.inquiry, {name: one for name, one in live.items() if name != sink})
    places = PanPrivateTopics(TopicPartition(topology.ledger, plan.partials_partition), table.place)
    states = table.take_over([places.ledger, *live[sink].places], letter_places(cluster, [stream]))
    check_cluster_id(cluster, states, place)
    manifest = ManifestRecord.find(states, stream.name, place)
    fields = plan.manifest_fields(topology, live, table.place)
    manifest.check(
        fields, source.topic, live[source.topic].id, 0, place, partial(remedy_for_topics, "accumulate")
    )
    check_neighbours(states, source.topic, 0, place)
    task = _restore(plan, manifest, states, places, context)
    task.reach = Reach.latest([table.headers.get(stream.name.encode(), ())])
    public = Public(cluster, places.ledger, table.floors)
    state = {stream.name: task.sanitizer.state}
    public.check_ledger(state, {stream.name: manifest.ledger_start(live[topology.ledger].id)}, table.topic)
    context.witnessed.check(places.ledger, [Line(stream.name)], table.floors)
    public.check_sinks(state, {stream.name: live[sink]})
    look = nothing
    if heard_in:
        announcements = _Announcements(task, clock, context)
        announcements.end()
        look = announcements.listen
    schemas = SinkSchemas([task.sanitizer], context, look)

    def check() -> None:
        check_resume(cluster, source, task.resume, task.known, remedy=_LOST, reach=task.reach)

    return Restored(task, guard, check, _LOST, sinks, look=schemas.look, waits=schemas.waits)


def _restore(
    plan: StreamPlan,
    manifest: ManifestRecord,
    states: Mapping[bytes, bytes],
    places: PanPrivateTopics,
    context: Context,
) -> PanPrivateStream:
    stream, place = plan.stream, str(places.changelog)
    counted = manifest.counter_state(states, place)
    released = manifest.release_state(states, place, release_key(stream.name))
    known = states.get(Exposure.key(stream.name))
    exposure = Exposure(manifest.instance) if known is None else Exposure.decode(known, place)
    if (counted.next, exposure.instance) != (released.next, manifest.instance) or (
        exposure.timestamp > counted.next
    ):
        raise StateRefused(
            f"{place}, stream {stream.name}",
            f"it counts timestamp {counted.next}, would release {released.next}, and has exposed "
            f"{exposure.timestamp} of {exposure.instance}: these are not of one state",
            f"Restore the newest state of this partition as a whole. {RENAME}",
        )
    mechanism = of_stream(stream, context.noise())
    assert isinstance(mechanism, PanPrivate)
    sanitizer = StreamSanitizer(stream, 1, mechanism, released, plan.asks, version=__version__)
    return PanPrivateStream(stream, mechanism, counted, sanitizer, exposure, places)


class _Announcements:
    """Those who tell that they will look at what is in memory (``eventveil announce``)."""

    def __init__(self, task: PanPrivateStream, clock: PartitionClock, context: Context) -> None:
        self._task, self._clock = task, clock
        self._cluster, self._kafka = context.cluster, context.topology.kafka
        self._place = TopicPartition(context.topology.announcements, 0)
        self._blocking = context.threads.waiting
        self._heard_at = 0.0
        self._told = task.exposure.heard
        #: Below this offset is no announcement that is waited for and was not heard.
        self._searched = 0

    def end(self) -> int:
        """Where they end. Blocks. Raises Unsettled if that is before the last one that was heard."""
        end = self._cluster.end_offsets([self._place])[self._place]
        if end < self._task.exposure.heard:
            raise doubt(self._place.topic, "announcements that were read are gone from it", RENAME)
        return end

    async def listen(self) -> None:
        """Hear the next one, if there is one and this timestamp may be announced; tell of the one before."""
        task = self._task
        if task.exposure.heard != self._told:
            self._told, timestamp = task.exposure.heard, task.exposure.announced
            log.info(
                "stream %s: look announced for timestamp %d; it will be published",
                task.stream.name,
                timestamp,
            )
        if not task.may_be_announced(self._clock.now()):
            return
        if time.monotonic() < self._heard_at + _LISTEN_SECONDS:
            return
        heard = await self._blocking(self._next)
        if heard is None:
            self._heard_at = time.monotonic()
            return
        task.hear(heard)

    def _next(self) -> int | None:
        """The offset behind the first announcement that was not heard yet. Blocks.

        Whatever else is there is passed over, and what nobody waits for any more.
        """
        exposure, name = self._task.exposure, self._task.stream.name
        first, end = self._cluster.first_offsets([self._place])[self._place], self.end()
        if end > max(exposure.heard, self._searched):
            start = max(first, exposure.heard, self._searched)
            for message in read_partition(self._kafka, *self._place, start=start):
                said = Announcement.read(message.value())
                if said is not None and said.concerns(name, exposure.instance, self._clock.now()):
                    return offset_of(message) + 1
            self._searched = end
        return None
