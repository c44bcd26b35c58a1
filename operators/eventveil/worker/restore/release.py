"""The sanitize role: the streams of one partition of the topic of partial counts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from eventveil import __version__
from eventveil.formats.release import control_record
from eventveil.formats.witness import Line
from eventveil.kafka.changelog import FencedTable
from eventveil.kafka.cluster import Topic
from eventveil.kinds.placement import StreamPlan
from eventveil.lifecycle.manifest import ManifestRecord
from eventveil.lifecycle.published import Public
from eventveil.mechanisms.registry import of_stream
from eventveil.mechanisms.sizes import least_state
from eventveil.model.errors import StateRefused
from eventveil.model.records import MAX_MESSAGE_BYTES, TopicPartition
from eventveil.model.topology import Stream
from eventveil.process.clock import PartitionClock
from eventveil.tasks.release import PartitionSanitizer, StreamSanitizer, Topics
from eventveil.topology.changes import MIGRATE_SINK, MIGRATE_TOPICS
from eventveil.worker.missing import LeaderWatch
from eventveil.worker.offsets import check_resume
from eventveil.worker.restore.restored import Context, Restored, check_cluster_id
from eventveil.worker.restore.sink_schemas import SinkSchemas
from eventveil.worker.sinks import Sinks
from eventveil.worker.topic_guard import TopicGuard

log = logging.getLogger(__name__)


def restore_release(
    plans: Sequence[StreamPlan], clock: PartitionClock, context: Context, table: FencedTable
) -> Restored:
    """See ``Restore``."""
    topology, cluster = context.topology, context.cluster
    names = {plan.stream.sink.topic for plan in plans}
    control = {topology.control for plan in plans if plan.asks is not None}
    live = cluster.existing(
        {table.topic, topology.ledger, topology.partials, *control, *names}
        | {plan.stream.source.topic for plan in plans}
    )
    sinks = Sinks(cluster, [live[name] for name in names], MIGRATE_SINK)
    known = {name: live[name] for name in (table.topic, topology.ledger, topology.partials)}
    guard = TopicGuard(context.inquiry, known)
    ledger = TopicPartition(topology.ledger, table.partition)
    beside = [ledger, *(TopicPartition(name, 0) for name in control)]
    states = table.take_over(beside + [place for name in names for place in live[name].places])
    check_cluster_id(cluster, states, str(table.place))
    public = Public(cluster, ledger, table.floors)
    streams = {plan.name: _restore(plan, states, live, context, table) for plan in plans}
    _check_published(public, streams, states, live, context, table)
    topics = Topics(topology.ledger, table.topic, table.partition, topology.control)
    task = PartitionSanitizer(topics, streams, _unasked(public, streams, topology.control))
    source = TopicPartition(topology.partials, table.partition)

    def check() -> None:
        # Partial counts can be made again.
        check_resume(cluster, source, task.resume, task.known, remedy=MIGRATE_TOPICS)

    async def look() -> None:
        _look(context.leaders, clock, task)

    schemas = SinkSchemas([*task.sanitizers.values()], context, look)
    return Restored(task, guard, check, MIGRATE_TOPICS, sinks, look=schemas.look, waits=schemas.waits)


def _restore(
    plan: StreamPlan,
    states: Mapping[bytes, bytes],
    live: Mapping[str, Topic],
    context: Context,
    table: FencedTable,
) -> StreamSanitizer:
    place, partials = str(table.place), context.topology.partials
    partitions = live[plan.stream.source.topic].partitions
    manifest = ManifestRecord.find(states, plan.name, place)
    fields = plan.budget_fields(partitions, live[plan.stream.sink.topic].id)
    manifest.check(fields, partials, live[partials].id, table.partition, place)
    state, noise = manifest.release_state(states, place), context.noise()
    stream = plan.stream.having(state.found)
    _check_size(stream, context.topology.topics.message_bytes, place)
    mechanism = of_stream(stream, noise)
    return StreamSanitizer(stream, partitions, mechanism, state, plan.asks, noise=noise, version=__version__)


def _check_size(stream: Stream, limit: int, place: str) -> None:
    """Raise StateRefused if the columns that were found take more than a message of ``limit`` bytes.

    The topology alone does not tell. A state that does not fit could not be written, so nothing released.
    ``forget`` may be set at any time, also where there is no more room: what it adds does not count here.
    """
    largest = least_state(stream)
    if largest > limit:
        raise StateRefused(
            f"{place}, stream {stream.name}",
            f"its state with the {len(stream.columns) - 1} columns that were found can grow to {largest}"
            f" bytes, and must stay a Kafka message of {limit}",
            "Restore the settings with which they were found: without `managed: true` in `topics` it may"
            f" have {MAX_MESSAGE_BYTES} bytes, which max.message.bytes of the changelog has to allow",
        )


def _check_published(
    public: Public,
    streams: Mapping[str, StreamSanitizer],
    states: Mapping[bytes, bytes],
    live: Mapping[str, Topic],
    context: Context,
    table: FencedTable,
) -> None:
    """What is public must be what the state says, and what a witness has seen."""
    ledger = live[context.topology.ledger]
    found = {name: one.state for name, one in streams.items()}
    starts = {
        name: ManifestRecord.find(states, name, str(table.place)).ledger_start(ledger.id) for name in streams
    }
    public.check_ledger(found, starts, table.topic)
    place = TopicPartition(ledger.name, table.partition)
    context.witnessed.check(place, [*map(Line, found)], table.floors)
    public.check_sinks(found, {name: live[one.stream.sink.topic] for name, one in streams.items()})


def _unasked(public: Public, streams: Mapping[str, StreamSanitizer], control: str) -> dict[str, bytes]:
    """What producers of local reports are to be asked for, where the control topic does not say it."""
    asked = {name: one.asked for name, one in streams.items() if one.asked is not None}
    first = {name: control_record(streams[name].stream, None) for name in asked}
    said = public.asked(control, first, asked) if asked else {}
    return {name: one for name, one in asked.items() if said.get(name) != one}


def _look(leaders: LeaderWatch, clock: PartitionClock, task: PartitionSanitizer) -> None:
    """What was seen of the leaders of partitions, for the streams that may go without one."""
    for name, one in task.sanitizers.items():
        if one.stream.timeline.grace is not None:
            now, outages = leaders.outages(one.stream.source.topic, clock)
            if gone := one.look(now, outages):
                log.warning("stream %s is released without partitions %s, which have no leader", name, gone)
