"""Which genesis records a topology lacks, and from where in its topics on the streams begin."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing

from eventveil.counting.counter import CounterState
from eventveil.kafka.barrier import Floors, is_nonce, least_end
from eventveil.kafka.cluster import Cluster, Topic
from eventveil.kafka.log import read_partition, read_table
from eventveil.kinds.placement import ReadingPlan, StreamPlan, rekeying_places, value_places
from eventveil.kinds.registry import beside, plan_streams
from eventveil.lifecycle.manifest import ManifestRecord, all_in, check_cluster, check_neighbours
from eventveil.lifecycle.published import check_not_shared, newest_publishers, publishers
from eventveil.model.errors import StateRefused, doubt
from eventveil.model.records import Outgoing, TopicPartition
from eventveil.model.timeline import first_whole_timestamp, format_rfc3339, latest_times, start_of
from eventveil.model.topology import Source, Stream, Topology
from eventveil.tasks.repartition import fingerprint
from eventveil.topology.changes import ELSEWHERE, changed, remedy


class MissingManifest:
    """Finds out which genesis records a topology lacks."""

    def __init__(
        self, topology: Topology, cluster: Cluster, clock: Callable[[], int], floors: Floors
    ) -> None:
        self._topology, self._cluster, self._floors = topology, cluster, floors
        sinks = {stream.sink_topic for stream in topology.all_streams}
        read = [*topology.sources, *topology.value_sources]
        announced = beside(topology) & {topology.announcements}
        partials = [topology.partials] if topology.streams else []
        self._topics = cluster.existing(
            {*read, *topology.rekeyed, topology.ledger, *sinks, *announced, *partials}
        )
        self._cluster_id, self._ledger_id = cluster.id(), self._topics[topology.ledger].id
        #: The genesis records that were read and do not name their cluster, by place.
        self.unnamed: dict[TopicPartition, list[ManifestRecord]] = {}
        # The ends before the clock: the events of a timestamp that begins later lie behind them.
        begun = [*read, *topology.rekeyed]
        self._ends = cluster.end_offsets(place for name in begun for place in self._topics[name].places)
        for name in partials:
            self._ends |= {place: least_end(floors, place) for place in self._topics[name].places}
        self._now = clock()
        self._tables: dict[TopicPartition, dict[bytes, bytes]] = {}

    def missing(self, plan: StreamPlan) -> list[tuple[ManifestRecord, Outgoing]]:
        """The genesis records that the changelogs lack for a stream, and how to write them."""
        places = self._places(plan)
        for place, (topic, partition) in places.items():
            check_neighbours(self._table(*place), topic, partition, str(place))
        existing = {
            place: ManifestRecord.find(table, plan.name, str(place))
            for place in places
            if ManifestRecord.key(plan.name) in (table := self._table(*place))
        }
        if len(existing) == len(places):
            return []
        if not plan.has_budget(self._topology, existing):
            self._check_unpublished(plan.name, plan.stream.sink.topic, plan.partials_partition)
        if existing:
            known = next(iter(existing.values()))
            self._check_not_grown(f"stream {plan.name}", known, plan.stream.source.topic)
            instance, first = known.instance, known.first
        else:
            instance = uuid.uuid4().hex
            first = self._first(plan)
        resume = self._resume(plan, first)
        ledger = self._ledger_end(plan.partials_partition) if not existing else known.ledger
        records = []
        for place, (topic, partition) in places.items():
            if place not in existing:
                record = ManifestRecord(
                    stream=plan.name,
                    instance=instance,
                    fields=plan.manifest_fields(self._topology, self._topics, place),
                    topic=topic,
                    topic_id=self._topics[topic].id,
                    partition=partition,
                    first=first,
                    resume=resume[TopicPartition(topic, partition)],
                    ledger=ledger,
                    cluster=self._cluster_id,
                    ledger_id=self._ledger_id,
                )
                records.append((record, record.at(place)))
        return records

    def _check_not_grown(self, place: str, known: ManifestRecord, name: str) -> None:
        """Raise StateRefused if a source has got partitions since: their genesis is a migration's."""
        before = known.fields.get("source.partitions")
        if before != self._topics[name].partitions:
            raise StateRefused(
                place,
                f"its source {name} had {before} partitions when it began and has "
                f"{self._topics[name].partitions} now",
                remedy("source.partitions"),
            )

    def missing_values(self, plan: ReadingPlan) -> list[tuple[ManifestRecord, Outgoing]]:
        """The same for a value stream, which begins with what is appended from now on."""
        topology, source = self._topology, self._topics[plan.stream.source.topic]
        sizes = {name: self._topics[name].partitions for name in topology.value_sources}
        places = value_places(topology, source.name, sizes)
        for place, one in places.items():
            check_neighbours(self._table(*place), source.name, one, str(place))
        missing = {
            place: one
            for place, one in places.items()
            if ManifestRecord.key(plan.name) not in self._table(*place)
        }
        if not missing:
            return []
        known = [
            ManifestRecord.find(self._table(*place), plan.name, str(place))
            for place in places.keys() - missing
        ]
        if known:
            self._check_not_grown(f"stream {plan.name}", known[0], source.name)
            # They are written together, so some were lost.
            raise StateRefused(
                ", ".join(map(str, missing)),
                f"the genesis of stream {plan.name} is gone from there, but not from other partitions",
                "Restore the changelog from a backup, or give the stream a new name and a new sink",
            )
        self._check_unpublished(plan.name, plan.stream.sink, plan.ledger_partition)
        fields = plan.fields(source.partitions, self._topics[plan.stream.sink].id)
        instance, ledger = uuid.uuid4().hex, self._ledger_end(plan.ledger_partition)
        cluster_id = (self._cluster_id, self._ledger_id)
        records = []
        for place, one in missing.items():
            resume = self._unread(place, TopicPartition(source.name, one), source.id)
            record = ManifestRecord(
                plan.name, instance, fields, source.name, source.id, one, 1, resume, ledger, *cluster_id
            )
            records.append((record, record.at(place)))
        return records

    def _unread(self, place: TopicPartition, log: TopicPartition, topic_id: str) -> int:
        """Where a partition of values ends; raises Unsettled if other streams have read further.

        A value that one has read would get a second reading.
        """
        table, name = self._table(*place), str(place)
        others = (one for one in all_in(table, name) if one.topic_id == topic_id)
        if self._ends[log] < max((one.perturber_state(table, name).resume for one in others), default=0):
            raise doubt(
                str(log),
                "it ends before the last value that another stream has read",
                "Run this again once all brokers are up. If its end is lost, create the topic again",
            )
        return self._ends[log]

    def missing_rekeying(self, raw: str) -> list[Outgoing]:
        """The genesis records that the changelog of the re-keying stage lacks for a topic of events."""
        topology, topic = self._topology, self._topics[raw]
        plans = [plan for plan in plan_streams(topology) if plan.stream.source.raw == raw]
        source = plans[0].stream.source
        key = ManifestRecord.key(source.topic)
        sizes = {name: self._topics[name].partitions for name in topology.rekeyed}
        places = rekeying_places(topology, raw, sizes)
        for place, one in places.items():
            check_neighbours(self._table(*place), raw, one, str(place))
        missing = {place: one for place, one in places.items() if key not in self._table(*place)}
        for place in places.keys() - missing.keys():
            name = str(place)
            check_stage(self._table(*place), source, name)
            if missing:
                self._check_not_grown(name, ManifestRecord.find(self._table(*place), source.topic, name), raw)
        if not missing:
            return []
        self._check_unfilled(source.topic, plans)
        neediest = min(plans, key=lambda plan: earliest_append(plan, self._first(plan)))
        if source.append_time == "boundary":
            offsets: Mapping[TopicPartition, int] = self._ends
        else:
            offsets = first_events(
                self._cluster, neediest, topic, self._first(neediest), self._now, later="timeline.start"
            )
        target = self._topics[source.topic]
        fields = fingerprint(source, topic.partitions, target.id, target.partitions)
        instance = uuid.uuid4().hex
        records = []
        for place, one in missing.items():
            resume = offsets[TopicPartition(raw, one)]
            # It releases nothing, so the ledger says nothing of it.
            cluster_id = (self._cluster_id, self._ledger_id)
            record = ManifestRecord(
                source.topic, instance, fields, raw, topic.id, one, 1, resume, 0, *cluster_id
            )
            records.append(record.at(place))
        return records

    def _check_unfilled(self, topic: str, plans: Collection[StreamPlan]) -> None:
        """Raise StateRefused if a topic of re-keyed events has some: a second time they would count twice.

        So would those that retention has removed, if a stream that counts them has begun. If none has, there
        was nothing but the nonces of earlier attempts: all genesis records are written together.
        """
        begun = any(
            ManifestRecord.key(plan.name) in self._table(*place)
            for plan in plans
            for place in self._places(plan)
        )
        for place in self._topics[topic].places:
            had_some = begun and self._cluster.first_offsets([place])[place] > 0
            if had_some or self._has_records(place):
                raise StateRefused(
                    str(place),
                    "it has re-keyed events, but the state of the re-keying stage is gone",
                    "Restore the changelog from a backup, or give the application a new name",
                )

    def _has_records(self, place: TopicPartition) -> bool:
        """Whether a partition has records, those of aborted transactions included, beside nonces."""
        reading = read_partition(
            self._topology.kafka, *place, isolation="read_uncommitted", least=least_end(self._floors, place)
        )
        with closing(reading) as messages:
            return any(not is_nonce(message.key()) for message in messages)

    def _first(self, plan: StreamPlan) -> int:
        return first_whole_timestamp(plan.stream.timeline, self._now)

    def _places(self, plan: StreamPlan) -> dict[TopicPartition, TopicPartition]:
        """Where state of a stream is kept, and what each place reads."""
        partitions = {name: self._topics[name].partitions for name in self._topology.sources}
        return plan.places(self._topology, partitions)

    def _table(self, topic: str, partition: int) -> dict[bytes, bytes]:
        place = TopicPartition(topic, partition)
        if place not in self._tables:
            table = read_table(self._topology.kafka, topic, partition, least=least_end(self._floors, place))
            if unnamed := check_cluster(table, self._cluster_id, str(place)):
                self.unnamed[place] = unnamed
            self._tables[place] = table
        return self._tables[place]

    def _resume(self, plan: StreamPlan, first: int) -> Mapping[TopicPartition, int]:
        """Where to begin; without append times here and now, and the first timestamp is still to come."""
        if plan.stream.source.append_time == "boundary":
            check_first(plan.stream, first, self._now)
            return self._ends
        source = self._topics[plan.stream.source.topic]
        offsets = first_events(self._cluster, plan, source, first, self._now, later="timeline.start")
        return {**self._ends, **offsets}

    def _ledger_end(self, partition: int) -> int:
        return least_end(self._floors, TopicPartition(self._topology.ledger, partition))

    def _check_unpublished(self, stream: str, sink_name: str, ledger_partition: int) -> None:
        topology, sink = self._topology, self._cluster.topic(sink_name)
        places = [TopicPartition(topology.ledger, ledger_partition)]
        check_unpublished(topology, self._cluster, stream, places, sink, self._floors)


def check_unpublished(
    topology: Topology,
    cluster: Cluster,
    stream: str,
    ledger: Sequence[TopicPartition],
    sink: Topic,
    floors: Floors,
) -> None:
    """Raise StateRefused if a stream that is to begin has published, or its sink has releases of another.

    ``ledger`` are the partitions of the ledger that may have entries of it.
    """
    for place, start in cluster.first_offsets(ledger).items():
        if stream in (name for name, _ in publishers(topology.kafka, place, stream, floors, start=start)):
            raise StateRefused(str(place), *_published(stream, topology, place))
    found = [*newest_publishers(cluster, stream, sink, floors)]
    for place, publisher in found:
        if publisher == stream:
            raise StateRefused(str(place), *_published(stream, topology, place))
    check_not_shared(stream, found)


def _published(stream: str, topology: Topology, place: TopicPartition) -> tuple[str, str]:
    """What is wrong, and what to do, where a stream without state has published there."""
    if place.topic == topology.ledger:
        return (
            f"stream {stream} has published before, but its budget state is gone",
            "Give the stream a new name and a new sink (whose epsilon adds up); a backup of the "
            "changelogs would do only if nothing was published after it was made",
        )
    return (
        f"stream {stream} has published before, but {topology.name} has neither a ledger nor state of it",
        "If it was published by a topology of another name, restore that name, or give the stream a"
        " sink of its own. If ledger and state are lost, give it a new name and a new sink, whose epsilon"
        " adds up",
    )


def first_events(
    cluster: Cluster, plan: StreamPlan, topic: Topic, first: int, now: int, later: str
) -> dict[TopicPartition, int]:
    """The offsets of a topic from which a stream's events of timestamp ``first`` can be found.

    Raises StateRefused if retention has removed some; ``later`` says where a later timestamp can be chosen.
    """
    places = topic.places
    earliest = earliest_append(plan, first)
    offsets = cluster.offsets_at(places, earliest)
    log_starts = cluster.first_offsets(places)
    for place in places:
        if 0 < log_starts[place] == offsets[place] and earliest < now:
            raise StateRefused(
                str(place),
                f"retention has removed records that the first timestamps of {plan.name} may need",
                f"Choose a later {later}",
            )
    return offsets


def earliest_append(plan: StreamPlan, first: int) -> int:
    """The time before which no event of timestamp ``first`` is appended, in epoch milliseconds."""
    rules = plan.stream.timeline
    return start_of(rules, first) - rules.max_ahead - rules.clock_skew


def judged_anew_from(
    cluster: Cluster, plan: StreamPlan, place: TopicPartition, manifest: ManifestRecord, state: CounterState
) -> int:
    """The offset of a source partition below which no record can belong to a timestamp that is not closed.

    It follows from clocks and from the file, and from no event (``eventveil.lifecycle.migration``). It lies
    below the first offset that is left where some of the records may be gone: which ones retention removes
    depends on how large others are. What is below ``manifest.resume`` was never the stream's or was given up.
    A state of version 0.2.0 may lack boundaries: then it is the earliest offset that a boundary has.
    """
    stream, rules = plan.stream, plan.stream.timeline
    if stream.source.has_boundaries:
        known = manifest.begin_by_boundaries(rules, state)
        earliest_known = state.boundaries[0].offset if state.boundaries else state.resume
        return max(earliest_known if known is None else known, manifest.resume)
    earliest = earliest_append(plan, state.next)
    if stream.source.append_time == "boundary":
        # Re-keyed events bring along the boundary that admitted them: see ``latest_times``.
        if start_of(rules, state.next) <= latest_times(stream, state.first, 0):
            return manifest.resume
        earliest -= rules.interval
    begin = max(cluster.offsets_at([place], earliest)[place], manifest.resume)
    # Asked for afterwards, so that it is not below what the answer before has left out.
    start = cluster.first_offsets([place])[place]
    if begin <= start and manifest.resume < start and not _keeps(cluster, place.topic, earliest):
        return start - 1
    return begin


def _keeps(cluster: Cluster, topic: str, time_ms: int) -> bool:
    """Whether retention has certainly removed nothing that was appended after a time, by its settings now."""
    settings = cluster.settings([topic])[topic]
    kept, size = (int(settings.get(f"retention.{unit}", "0")) for unit in ("ms", "bytes"))
    return size < 0 and (kept < 0 or time.time_ns() // 1_000_000 - time_ms < kept)


def check_first(stream: Stream, first: int, now: int) -> None:
    """Raise StateRefused if a stream cannot begin with timestamp ``first`` at ``now`` (epoch ms)."""
    begins = start_of(stream.timeline, first)
    if stream.source.append_time == "boundary" and begins < now:
        raise StateRefused(
            f"stream {stream.name}",
            f"its first timestamp begins at {format_rfc3339(begins)}, in the past; with append_time: "
            "boundary it cannot be known what was appended in time",
            "Choose a later timeline.start or leave it out, or give the stream a new name",
        )


def check_stage(table: Mapping[bytes, bytes], source: Source, place: str) -> None:
    """Raise StateRefused if the events of a topic are re-keyed already, in another way than ``source`` says.

    A stage sends each event to the partition of one user, for all streams over the topic.
    """
    known = ManifestRecord.find(table, source.topic, place)
    for name, now in (("source.user", source.user), ("source.user_type", source.user_type)):
        if (before := known.fields.get(name)) != now:
            raise StateRefused(f"{place}, {source.topic}", changed(name, before, now), ELSEWHERE)
