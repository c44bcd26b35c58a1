"""Whether the state in the changelogs is that of a topology: what a worker would refuse, without taking over.

Nothing is fenced, so a running worker goes on. What was published, and which offsets a state needs, only the
worker looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from eventveil.kafka.cluster import Cluster, Topic
from eventveil.kafka.log import read_table
from eventveil.kinds.placement import rekeying_places, value_places
from eventveil.kinds.registry import beside, kind_of, plan_readings, plan_streams
from eventveil.lifecycle.manifest import ManifestRecord, check_cluster, check_neighbours
from eventveil.model.errors import StateRefused, Unsettled
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Topology
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
    sinks = {kind_of(stream).sink(stream) for stream in topology.all_streams}
    partials = {topology.partials} if topology.streams else set()
    announced = beside(topology) & {topology.announcements}
    read = {*topology.sources, *topology.value_sources, *topology.rekeyed}
    live, here = cluster.existing({*read, *sinks, *partials, *announced}), cluster.id()
    for one in _wanted(topology, live):
        if one.name in found:
            continue
        try:
            if one.place not in tables:
                tables[one.place] = read_table(topology.kafka, *one.place)
            table, where = tables[one.place], str(one.place)
            check_cluster(table, here, where)
            manifest = ManifestRecord.find(table, one.name, where)
            topic, number = one.read
            manifest.check(one.fields, topic, live[topic].id, number, where, one.remedy)
            check_neighbours(table, topic, number, where)
        except StateRefused as error:
            found[one.name] = str(error)
        except Unsettled as error:
            found[one.name] = str(error.refusal or error)
    return [*found.values()]


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
