"""The perturb role: the value streams over one partition of a topic of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eventveil import __version__
from eventveil.formats.witness import Line
from eventveil.kafka.changelog import FencedTable
from eventveil.kafka.cluster import Topic
from eventveil.kinds.placement import ReadingPlan
from eventveil.lifecycle.manifest import ManifestRecord, check_neighbours
from eventveil.lifecycle.published import Public
from eventveil.model.reach import Reach
from eventveil.model.records import TopicPartition
from eventveil.tasks.values import PartitionPerturber, StreamPerturber
from eventveil.topology.changes import MIGRATE_LOST_VALUES, lost, remedy_for_values
from eventveil.values.kinds import build
from eventveil.worker.offsets import check_resume
from eventveil.worker.restore.restored import Context, Restored, check_cluster_id
from eventveil.worker.sinks import Sinks
from eventveil.worker.topic_guard import TopicGuard


def restore_values(
    plans: Sequence[ReadingPlan], source: TopicPartition, context: Context, table: FencedTable
) -> Restored:
    """See ``Restore``."""
    cluster, ledger = context.cluster, context.topology.ledger
    names = {plan.stream.sink for plan in plans}
    live = cluster.existing({table.topic, ledger, source.topic, *names})
    sinks = Sinks(cluster, [live[name] for name in names], remedy_for_values("sink.topic_id"))
    # Each partition is a stream of values by itself: others do not concern it.
    known = {name: one for name, one in live.items() if name not in names}
    guard = TopicGuard(context.inquiry, known, growing=[source.topic])
    ledgers = {plan.name: TopicPartition(ledger, plan.ledger_partition) for plan in plans}
    beside = {*ledgers.values(), *(TopicPartition(name, source.partition) for name in names)}
    states, place = table.take_over(sorted(beside)), str(table.place)
    check_cluster_id(cluster, states, place)
    check_neighbours(states, source.topic, source.partition, place)
    streams = {plan.name: _restore(plan, source, states, live, context, table) for plan in plans}
    task = PartitionPerturber(ledgers, table.place, streams)
    task.reach = Reach.latest(table.headers.get(plan.name.encode(), ()) for plan in plans)

    def check() -> None:
        check_resume(
            cluster, source, task.resume, task.known, remedy=MIGRATE_LOST_VALUES, if_cut=lost("perturb"),
            reach=task.reach,
        )  # fmt: skip

    return Restored(task, guard, check, MIGRATE_LOST_VALUES, sinks)


def _restore(
    plan: ReadingPlan,
    source: TopicPartition,
    states: Mapping[bytes, bytes],
    live: Mapping[str, Topic],
    context: Context,
    table: FencedTable,
) -> StreamPerturber:
    stream, place = plan.stream, str(table.place)
    manifest = ManifestRecord.find(states, plan.name, place)
    partitions = live[source.topic].partitions
    if manifest.topic_id != live[source.topic].id:
        # That it is another topic is what matters, not how many partitions that one has.
        partitions = int(manifest.fields["source.partitions"])
    fields = plan.fields(partitions, live[stream.sink].id)
    manifest.check(fields, source.topic, live[source.topic].id, source.partition, place, remedy_for_values)
    state = manifest.perturber_state(states, place)
    perturber = StreamPerturber(stream, build(stream, context.noise()), state, version=__version__)
    topology = context.topology
    ledger = TopicPartition(topology.ledger, plan.ledger_partition)
    sink = TopicPartition(stream.sink, source.partition)
    public = Public(context.cluster, ledger, table.floors)
    public.check_spans(plan.name, state, manifest.ledger_start(live[topology.ledger].id), table.topic)
    context.witnessed.check(sink, [Line(plan.name, source.partition)], table.floors)
    public.check_readings(plan.name, state, sink, frozenset(perturber.records()))
    return perturber
