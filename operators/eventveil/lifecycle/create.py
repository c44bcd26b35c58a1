"""Checking and creating the topics of a topology, and writing the genesis of its streams."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from eventveil.kafka.barrier import Floors
from eventveil.kafka.changelog import FencedTable, TransactionFailed, write_once
from eventveil.kafka.cluster import Cluster, Topic
from eventveil.kafka.log import read_table
from eventveil.kinds.placement import ledger_partition, writer_of
from eventveil.kinds.registry import plan_readings, plan_streams
from eventveil.lifecycle.apply import read_histories
from eventveil.lifecycle.beginning import MissingManifest, check_first, check_stage, check_unpublished
from eventveil.lifecycle.cap import check_cap
from eventveil.lifecycle.manifest import ManifestRecord, check_cluster, check_known, check_neighbours
from eventveil.lifecycle.topics import TopicPlan, hints, plan_topics, short_of_replicas
from eventveil.model.errors import EventveilError
from eventveil.model.records import Outgoing, TopicPartition
from eventveil.model.spelling import meant
from eventveil.model.timeline import first_whole_timestamp, start_of
from eventveil.model.topology import Topology

_NO_ID = (
    "topics without an id: {}. If one was deleted and created again, nobody would notice. Apache Kafka gives"
    " topics ids from version 2.8 on: raise inter.broker.protocol.version on the brokers"
)


@dataclass(frozen=True, slots=True)
class Inspection:
    """What the cluster has of the topics of a topology: the plans, the topics missing, what is wrong.

    ``hints``: what may go wrong, which is no reason to refuse anything. ``meant``: of a missing source the
    topic whose name is nearest to its name, if one is near.
    """

    plans: list[TopicPlan]
    missing: list[TopicPlan]
    mistakes: list[str]
    hints: list[str]
    meant: dict[str, str]


def inspect_topics(topology: Topology, cluster: Cluster) -> Inspection:
    """Compare the topics of the cluster with those that the topology needs."""
    written = {stream.source.topic_of_events for stream in topology.all_streams}
    sources = cluster.topics({*written, *topology.rekeyed.values()})
    plans = plan_topics(topology, {name: topic.partitions for name, topic in sources.items()})
    found = cluster.topics({plan.name for plan in plans})
    settings = cluster.settings(found)
    mistakes = [
        mistake
        for plan in plans
        if plan.name in found
        for mistake in _mistakes(plan, cluster, found[plan.name], settings[plan.name])
    ]
    # The id that is none is all zeros.
    if without := sorted(topic.name for topic in found.values() if not topic.id.strip("A")):
        mistakes.append(_NO_ID.format(", ".join(without)))
    mistakes += short_of_replicas((plan, found[plan.name].replicas) for plan in plans if plan.name in found)
    told = [hint for plan in plans if plan.name in found for hint in hints(plan, settings[plan.name])]
    missing = [plan for plan in plans if plan.name not in found]
    return Inspection(plans, missing, mistakes, told, _meant(plans, missing, cluster))


def _meant(plans: Collection[TopicPlan], missing: Collection[TopicPlan], cluster: Cluster) -> dict[str, str]:
    absent = [plan.name for plan in missing if plan.is_source]
    known = cluster.names() - {plan.name for plan in plans} if absent else ()
    return {name: near for name in absent if (near := meant(name, known))}


def _mistakes(plan: TopicPlan, cluster: Cluster, found: Topic, settings: Mapping[str, str]) -> list[str]:
    asks = plan.exact_partitions and found.partitions != plan.partitions
    return plan.mistakes(found.partitions, settings, is_empty=asks and _is_empty(cluster, found))


def _is_empty(cluster: Cluster, topic: Topic) -> bool:
    """Whether it is known that nothing was ever written to a topic."""
    try:
        return not any(cluster.end_offsets(topic.places).values())
    except KafkaException:
        return False


def create_topics(topology: Topology, cluster: Cluster, plans: list[TopicPlan]) -> None:
    """Create topics with the replication of the topology. Raises EventveilError if brokers are too few."""
    try:
        cluster.create(
            NewTopic(
                plan.name,
                num_partitions=plan.partitions,
                replication_factor=topology.topics.replication,
                config=plan.settings,
            )
            for plan in plans
        )
    except KafkaException as error:
        if error.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
            raise
        existing, up = cluster.topics({plan.name for plan in plans}), cluster.brokers()
        missing = ", ".join(plan.name for plan in plans if plan.name not in existing)
        raise EventveilError(
            f"topics.replication is {topology.topics.replication}, and {up} broker{'s' * (up != 1)} "
            f"can be reached, too few to create {missing}. If a broker is down, start it and run this again, "
            "which keeps what there is; otherwise add brokers, or lower topics.replication and "
            "topics.min_insync (a spend that is on one broker only can be lost)"
        ) from None


def check_useful(topology: Topology, cluster: Cluster, inspection: Inspection, now: int) -> None:
    """Raise StateRefused if topics that are still missing would have no use: no stream could begin with them.

    What counts is kept where other topics were counted; events are re-keyed by another user; or a stream that
    has not begun would begin before ``now``, in epoch milliseconds, where that cannot be.
    """
    kept, staged = topology.counting_changelog, topology.rekeying_changelog
    live = cluster.topics({kept, staged, *topology.sources, *topology.rekeyed})
    sizes = {plan.name: plan.partitions for plan in inspection.plans}
    sizes |= {topic.name: topic.partitions for topic in live.values()}
    tables = {
        place: read_table(topology.kafka, *place)
        for name in {kept, staged} & live.keys()
        for place in live[name].places
    }
    for plan in plan_streams(topology):
        for place, (topic, partition) in plan.places(topology, sizes).items():
            if place in tables:
                check_neighbours(tables[place], topic, partition, str(place))
        if not any(ManifestRecord.key(plan.name) in table for table in tables.values()):
            check_first(plan.stream, first_whole_timestamp(plan.stream.timeline, now), now)
    for stream in topology.streams:
        for place, table in tables.items():
            if place.topic == staged and ManifestRecord.key(stream.source.topic) in table:
                check_stage(table, stream.source, str(place))


def check_sinks(topology: Topology, cluster: Cluster) -> None:
    """Raise StateRefused if a stream that has not begun has published, or its sink has other releases.

    It is looked at again when the genesis is written. Here it is before topics are created for nothing.
    """
    states = {topology.counting_changelog, topology.ledger_changelog, topology.state_changelog}
    live = cluster.topics({*states, topology.ledger, *(one.sink_topic for one in topology.all_streams)})
    tables = [
        read_table(topology.kafka, *place) for name in states & live.keys() for place in live[name].places
    ]
    places = set(live[topology.ledger].places) if topology.ledger in live else set()
    for stream in topology.all_streams:
        sink = live.get(stream.sink_topic)
        if sink and not any(ManifestRecord.key(stream.name) in table for table in tables):
            own = TopicPartition(topology.ledger, ledger_partition(stream.name, topology.topics.partials))
            check_unpublished(topology, cluster, stream.name, [*({own} & places)], sink, {})


@dataclass(frozen=True, slots=True)
class Provision:
    """What ``write_manifest`` wrote, and the changelog partitions that do not name their cluster yet."""

    written: list[ManifestRecord]
    unnamed: dict[TopicPartition, list[ManifestRecord]]


def write_manifest(topology: Topology, cluster: Cluster, clock: Callable[[], int]) -> Provision:
    """Write the genesis records that are missing, all in one transaction.

    A stream that has some records already, because an earlier attempt was cut short or a source is new,
    keeps its instance and first timestamp. Raises StateRefused if a stream without genesis has published
    before, for then its budget state is lost, or if one is of another cluster, and EventveilError if another
    process does the same. ``clock`` tells epoch milliseconds.
    """
    written: list[ManifestRecord] = []
    unnamed: dict[TopicPartition, list[ManifestRecord]] = {}

    def make(floors: Floors) -> list[Outgoing]:
        manifest = MissingManifest(topology, cluster, clock, floors)
        missing = [record for plan in plan_streams(topology) for record in manifest.missing(plan)]
        _check_budget(topology, cluster, [one for one, _ in missing], floors)
        missing += [record for plan in plan_readings(topology) for record in manifest.missing_values(plan)]
        written.extend(one for one, _ in missing)
        rekeying = [record for raw in topology.rekeyed for record in manifest.missing_rekeying(raw)]
        unnamed.update(manifest.unnamed)
        return [*(record for _, record in missing), *rekeying]

    # To conclude that there was no state before, all of it must have been seen.
    read = cluster.existing(_read_by_manifest(topology)).values()
    beside = [place for topic in read for place in topic.places]
    try:
        write_once(topology.kafka, f"{topology.name}-genesis", make, beside)
    except TransactionFailed as error:
        if not error.fenced:
            raise
        what = f"another command is creating the streams of {topology.name} at the same time"
        raise EventveilError(f"{what}. Run this command again when the other one has finished") from None
    return Provision(written, unnamed)


def _check_budget(
    topology: Topology, cluster: Cluster, missing: Collection[ManifestRecord], floors: Floors
) -> None:
    """Raise StateRefused if a new stream costs too much beside what earlier generations have released."""
    timelines = {stream.name: stream.timeline for stream in topology.streams}
    if missing:
        begins = min(start_of(timelines[one.stream], one.first) for one in missing)
        check_cap(topology, read_histories(topology, cluster, floors), begins)


def name_cluster(
    topology: Topology, cluster: Cluster, places: Mapping[TopicPartition, Collection[ManifestRecord]]
) -> None:
    """Let the genesis records of changelog partitions name the cluster, and the topic of the ledger.

    Each partition by its own writer, which shuts a running worker out: the caller makes sure that there is
    none. Raises StateRefused, also if nothing says that they were made here, TransactionFailed or
    KafkaException; running it again completes the rest.
    """
    unnamed = [one for found in places.values() for one in found]
    live = cluster.topics({name for one in unnamed for name in one.topics})
    check_known(unnamed, {name: topic.id for name, topic in live.items()})
    here, ledger = cluster.id(), cluster.topic(topology.ledger).id
    for place in places:
        table = FencedTable(topology.kafka, writer_of(topology, *place), *place)
        found = check_cluster(table.take_over(), here, str(place))
        if found:
            named = [one.replace(cluster=here, ledger_id=ledger).at(place) for one in found]
            table.transact("name-cluster", named)
        table.dispose()


def _read_by_manifest(topology: Topology) -> set[str]:
    """What is written by Eventveil only, and says whether a stream has begun before."""
    sinks = {stream.sink_topic for stream in topology.all_streams}
    counted = {topology.counting_changelog, topology.ledger_changelog, topology.partials}
    rekeyed = {topology.rekeying_changelog, *topology.rekeyed.values()}
    return {
        topology.ledger,
        *sinks,
        *(counted if topology.streams else ()),
        *(rekeyed if topology.rekeyed else ()),
        *([topology.state_changelog] if topology.value_sources else ()),
    }
