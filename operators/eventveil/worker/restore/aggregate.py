"""The aggregate role: the streams over one partition of a topic of events."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from eventveil import __version__
from eventveil.kafka.changelog import FencedTable
from eventveil.kinds.placement import StreamPlan
from eventveil.lifecycle.beginning import judged_anew_from
from eventveil.lifecycle.manifest import ManifestRecord, check_neighbours
from eventveil.model.reach import Reach
from eventveil.model.records import TopicPartition
from eventveil.tasks.aggregate import VERSION, Aggregation, Outputs
from eventveil.topology.changes import MIGRATE_LOST
from eventveil.worker.offsets import check_resume
from eventveil.worker.restore.restored import Context, Restored, check_cluster_id, letter_places
from eventveil.worker.topic_guard import TopicGuard

#: What decides how an event is judged, beside the file.
JUDGE = f"{__version__} orjson/{orjson.__version__}"


def restore_aggregate(
    plans: Sequence[StreamPlan], source: TopicPartition, context: Context, table: FencedTable
) -> Restored:
    """See ``Restore``."""
    topology, cluster = context.topology, context.cluster
    found = cluster.existing({source.topic, table.topic, topology.partials})
    live = found[source.topic]
    raw = plans[0].stream.source.raw
    events = 0 if raw is None else cluster.existing({raw})[raw].partitions
    guard = TopicGuard(context.inquiry, found)
    written = {TopicPartition(topology.partials, plan.partials_partition) for plan in plans}
    written |= {*letter_places(cluster, [plan.stream for plan in plans])}
    states, place = table.take_over(written=sorted(written)), str(table.place)
    check_cluster_id(cluster, states, place)
    streams, grown = {}, {}
    for plan in plans:
        manifest, key = ManifestRecord.find(states, plan.name, place), plan.name.encode()
        manifest.check(plan.fields(live.partitions), source.topic, live.id, source.partition, place)
        state = manifest.counter_state(states, place).waiting_for(events)
        judged_so = (VERSION, JUDGE.encode()) in table.headers.get(key, ())
        if key in states and (not judged_so or plan.stream.source.verdicts_may_change):
            begin = judged_anew_from(cluster, plan, source, manifest, state)
            state = state.judging_from(begin, keeps_marks=raw is not None)
        streams[plan.name] = (plan.stream, state)
        grown[plan.name] = manifest.grown
    check_neighbours(states, source.topic, source.partition, place)
    targets = {plan.name: plan.partials_partition for plan in plans}
    outputs = Outputs(topology.partials, targets, table.place, JUDGE)
    task = Aggregation(outputs, live.partitions, streams, grown)
    task.reach = Reach.latest(table.headers.get(plan.name.encode(), ()) for plan in plans)

    def check() -> None:
        open_ = {name: (one.stream.timeline, one.next) for name, one in task.counters.items()}
        check_resume(
            cluster, source, task.resume, task.known, remedy=MIGRATE_LOST, open_=open_, reach=task.reach
        )

    return Restored(task, guard, check, MIGRATE_LOST)
