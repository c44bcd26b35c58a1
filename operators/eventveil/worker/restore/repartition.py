"""The re-keying role: one partition of a topic of events that is not keyed by user."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from eventveil.kafka.changelog import FencedTable
from eventveil.lifecycle.manifest import ManifestRecord
from eventveil.model.reach import Reach
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Stream
from eventveil.tasks.repartition import Rekeyer, fingerprint
from eventveil.topology.changes import MIGRATE_LOST, remedy_for_topics
from eventveil.worker.offsets import check_resume
from eventveil.worker.restore.restored import Context, Restored, check_cluster_id
from eventveil.worker.topic_guard import TopicGuard


def restore_repartition(
    streams: Sequence[Stream], place: TopicPartition, context: Context, table: FencedTable
) -> Restored:
    """See ``Restore``."""
    source, cluster, where = streams[0].source, context.cluster, str(table.place)
    found = cluster.existing({place.topic, source.topic, table.topic})
    live, target = found[place.topic], found[source.topic]
    guard = TopicGuard(context.inquiry, found)
    states = table.take_over(written=target.places)
    check_cluster_id(cluster, states, where)
    manifest = ManifestRecord.find(states, source.topic, where)
    fields = fingerprint(source, live.partitions, target.id, target.partitions)
    manifest.check(fields, place.topic, live.id, place.partition, where, partial(remedy_for_topics, "rekey"))
    state = manifest.rekeyer_state(states, where)
    task = Rekeyer(
        source, [one.timeline for one in streams], target.partitions, state, table.place,
        own_times=any(one.source.own_time for one in streams),
    )  # fmt: skip
    task.reach = Reach.latest([table.headers.get(source.topic.encode(), ())])

    def check() -> None:
        check_resume(cluster, place, task.position, task.known, remedy=MIGRATE_LOST, reach=task.reach)

    return Restored(task, guard, check, MIGRATE_LOST)
