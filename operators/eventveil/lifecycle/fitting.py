"""Whether the state in the changelogs is that of a topology: what a worker would refuse, without taking over.

Nothing is fenced, so running workers are not disturbed. What was published, and which offsets a state needs,
only the worker looks at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec
from confluent_kafka import KafkaException

from eventveil.kafka.cluster import Cluster, Topic
from eventveil.kafka.log import committed_ends, read_backwards, read_partition, read_table
from eventveil.kinds.placement import rekeying_places, value_places
from eventveil.kinds.registry import beside, plan_readings, plan_streams
from eventveil.lifecycle.manifest import ManifestRecord, check_cluster, check_neighbours
from eventveil.model.errors import StateRefused, Unsettled
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Kafka, Topology
from eventveil.tasks.repartition import fingerprint
from eventveil.topology.changes import remedy_for_topics, remedy_for_values

_DECIDED_SECONDS, _PAUSE_SECONDS = 2.0, 0.1
#: Offsets at the end of a partition that are looked at first: states may be large.
_FEW = 64


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
    twice. The broker that answers is believed. What is missing, cannot be read, or is not decided yet is left
    to the owners. Blocks.
    """
    places: dict[TopicPartition, list[_Genesis]] = {}
    with suppress(KafkaException, Unsettled):
        live = _live(topology, cluster)
        # The last place of a stream is that of its budget, whose genesis knows most.
        for one in {one.name: one for one in _wanted(topology, live)}.values():
            places.setdefault(one.place, []).append(one)
    for place, wanted in places.items():
        with suppress(KafkaException, Unsettled, msgspec.MsgspecError):
            found = _first(topology.kafka, place, wanted)
            known = {name: one.instance for name, one in found.items()}
            if not _all_fit(found, wanted, live) or known != _newest(cluster, place, known):
                _check_newest(cluster, place, wanted, live)


def _first(kafka: Kafka, place: TopicPartition, wanted: Sequence[_Genesis]) -> Mapping[str, ManifestRecord]:
    """The first genesis of each stream. They are near the beginning, so little is read."""
    keys = {ManifestRecord.key(one.name): one.name for one in wanted}
    found: dict[str, ManifestRecord] = {}
    with closing(read_partition(kafka, *place)) as records:
        for record in records:
            key, value = record.key(), record.value()
            if (name := keys.get(key or b"")) is not None and name not in found and value is not None:
                found[name] = ManifestRecord.decode(value, str(place))
                if len(found) == len(wanted):
                    break
    return found


def _all_fit(
    found: Mapping[str, ManifestRecord], wanted: Sequence[_Genesis], live: Mapping[str, Topic]
) -> bool:
    try:
        for one in wanted:
            if one.name in found:
                _check_one(one, found[one.name], live)
    except (StateRefused, Unsettled):
        return False
    return True


class _Instance(msgspec.Struct):
    """What every state says of the stream that it is of."""

    instance: str


_INSTANCE = msgspec.json.Decoder(_Instance)


def _newest(cluster: Cluster, place: TopicPartition, names: Collection[str]) -> Mapping[str, str]:
    """The instance in the newest state of each stream that has one: a migration gives another."""
    keys = {name.encode(): name for name in names}
    first, end = cluster.first_offsets([place])[place], cluster.end_offsets([place])[place]
    found: dict[str, str] = {}
    for _, block in read_backwards(cluster.kafka, *place, first, end, size=_FEW):
        for record in reversed(block):
            name = keys.get(record.key or b"")
            if name is not None and name not in found:
                # A reset deletes the state: no instance is that of a first genesis then.
                found[name] = "" if record.value is None else _INSTANCE.decode(record.value).instance
        if len(found) == len(keys):
            break
    return found


def _check_newest(
    cluster: Cluster, place: TopicPartition, wanted: Sequence[_Genesis], live: Mapping[str, Topic]
) -> None:
    """Raise StateRefused if a genesis does not fit: the one of the last migration counts."""
    if not _is_decided(cluster, place):
        return
    table = read_table(cluster.kafka, *place)
    for one in wanted:
        if ManifestRecord.key(one.name) in table:
            with suppress(Unsettled):
                _check(one, table, live)


def _is_decided(cluster: Cluster, place: TopicPartition) -> bool:
    """Whether all that a partition has now can be read: a migration that is committed takes a moment.

    A transaction that a worker left open when it was killed takes longer. Its successor ends it.
    """
    end, give_up = cluster.end_offsets([place])[place], time.monotonic() + _DECIDED_SECONDS
    while committed_ends(cluster.kafka, place.topic, [place.partition])[place.partition] < end:
        if time.monotonic() > give_up:
            return False
        time.sleep(_PAUSE_SECONDS)
    return True


def _check(one: _Genesis, table: Mapping[bytes, bytes], live: Mapping[str, Topic]) -> None:
    """Raise StateRefused or Unsettled if a genesis in a table is missing, or does not fit."""
    _check_one(one, ManifestRecord.find(table, one.name, str(one.place)), live)


def _check_one(one: _Genesis, manifest: ManifestRecord, live: Mapping[str, Topic]) -> None:
    topic, number = one.read
    manifest.check(one.fields, topic, live[topic].id, number, str(one.place), one.remedy)


def _live(topology: Topology, cluster: Cluster) -> dict[str, Topic]:
    """The topics that genesis records name. Raises Unsettled if one is missing, and KafkaException."""
    sinks = {stream.sink_topic for stream in topology.all_streams}
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
