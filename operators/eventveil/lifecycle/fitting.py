"""Whether the state in the changelogs is that of a topology: what a worker would refuse, without taking over.

Nothing is fenced, so running workers are not disturbed. What was published, and which offsets a state needs,
only the worker looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import KafkaException

from eventveil.kafka.cluster import Cluster, Topic
from eventveil.kafka.log import read_partition, read_table
from eventveil.kinds.placement import rekeying_places, value_places
from eventveil.kinds.registry import beside, kind_of, plan_readings, plan_streams
from eventveil.lifecycle.manifest import ManifestRecord, check_cluster, check_neighbours
from eventveil.model.errors import StateRefused, Unsettled
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Kafka, Topology
from eventveil.tasks.repartition import fingerprint
from eventveil.topology.changes import remedy_for_topics, remedy_for_values


class _Genesis(NamedTuple):
    """One genesis record as a worker wants it: in ``place``, of ``read``.

    ``remedy`` is as in ``ManifestRecord.check``.
    """

    name: str
    place: TopicPartition
    read: TopicPartition
    fields: Mapping[str, Any]
    remedy: Callable[[str], str] | None = None


def refusals(topology: Topology, cluster: Cluster) -> list[str]:
    """Why a worker would not start each stream whose state does not fit; all topics exist.

    One reason for each stream. Raises KafkaException.
    """
    found: dict[str, str] = {}
    tables: dict[TopicPartition, dict[bytes, bytes]] = {}
    live, here = _live(topology, cluster), cluster.id()
    for one in _wanted(topology, live):
        if one.name in found:
            continue
        try:
            if one.place not in tables:
                tables[one.place] = read_table(topology.kafka, *one.place)
            table, where = tables[one.place], str(one.place)
            check_cluster(table, here, where)
            _check(one, table, live)
            check_neighbours(table, *one.read, where)
        except StateRefused as error:
            found[one.name] = str(error)
        except Unsettled as error:
            found[one.name] = str(error.refusal or error)
    return [*found.values()]


def check_file(topology: Topology, cluster: Cluster) -> None:
    """Raise StateRefused if the state of a stream was made for other settings than those of the file.

    Each owner compares more, with what it reads past the barrier. But a worker has owners only once it has
    joined its group: if it stops then, all other workers have given up their partitions, and take them over
    twice. What is missing or cannot be read is left to the owners. Blocks.
    """
    with suppress(KafkaException, Unsettled):
        live = _live(topology, cluster)
        places: dict[TopicPartition, list[_Genesis]] = {}
        # The last place of a stream is that of its budget, whose genesis knows most.
        for one in {one.name: one for one in _wanted(topology, live)}.values():
            places.setdefault(one.place, []).append(one)
        for place, wanted in places.items():
            if not _fit_at_first(topology.kafka, place, wanted, live):
                _check_newest(topology.kafka, cluster, place, wanted, live)


def _fit_at_first(
    kafka: Kafka, place: TopicPartition, wanted: Sequence[_Genesis], live: Mapping[str, Topic]
) -> bool:
    """Whether the first genesis of each stream fits. They are near the beginning, so little is read."""
    missing = {ManifestRecord.key(one.name): one for one in wanted}
    with closing(read_partition(kafka, *place)) as records:
        for record in records:
            key, value = record.key(), record.value()
            if key in missing and value is not None:
                try:
                    _check(missing.pop(key), {key: value}, live)
                except StateRefused:
                    return False
                if not missing:
                    return True
    return True


def _check_newest(
    kafka: Kafka,
    cluster: Cluster,
    place: TopicPartition,
    wanted: Sequence[_Genesis],
    live: Mapping[str, Topic],
) -> None:
    """Raise StateRefused if a genesis does not fit: the one of the last migration counts.

    Its transaction may be committed and not readable yet, so what is undecided now is waited for.
    """
    table = read_table(kafka, *place, least=cluster.end_offsets([place])[place])
    for one in wanted:
        if ManifestRecord.key(one.name) in table:
            _check(one, table, live)


def _check(one: _Genesis, table: Mapping[bytes, bytes], live: Mapping[str, Topic]) -> None:
    """Raise StateRefused or Unsettled if a genesis in a table is missing, or does not fit."""
    where, (topic, number) = str(one.place), one.read
    manifest = ManifestRecord.find(table, one.name, where)
    manifest.check(one.fields, topic, live[topic].id, number, where, one.remedy)


def _live(topology: Topology, cluster: Cluster) -> dict[str, Topic]:
    """The topics that genesis records name. Raises Unsettled if one is missing, and KafkaException."""
    sinks = {kind_of(stream).sink(stream) for stream in topology.all_streams}
    partials = {topology.partials} if topology.streams else set()
    announced = beside(topology) & {topology.announcements}
    read = {*topology.sources, *topology.value_sources, *topology.rekeyed}
    return cluster.existing({*read, *sinks, *partials, *announced})


def _wanted(topology: Topology, live: Mapping[str, Topic]) -> Iterator[_Genesis]:
    def sizes(names: Iterable[str]) -> dict[str, int]:
        return {name: live[name].partitions for name in names}

    for plan in plan_streams(topology):
        for place, log in plan.places(topology, sizes(topology.sources)).items():
            fields = plan.manifest_fields(topology, live, place)
            yield _Genesis(plan.name, place, log, fields)
    for reading in plan_readings(topology):
        source, sink = live[reading.stream.source.topic], live[reading.stream.sink]
        values = reading.fields(source.partitions, sink.id)
        for place, one in value_places(topology, source.name, sizes(topology.value_sources)).items():
            log = TopicPartition(source.name, one)
            yield _Genesis(reading.name, place, log, values, remedy_for_values)
    for raw, name in topology.rekeyed.items():
        stream = next(stream for stream in topology.streams if stream.source.raw == raw)
        fields = fingerprint(stream.source, live[raw].partitions, live[name].id, live[name].partitions)
        for place, one in rekeying_places(topology, raw, sizes(topology.rekeyed)).items():
            log = TopicPartition(raw, one)
            yield _Genesis(name, place, log, fields, partial(remedy_for_topics, "rekey"))
