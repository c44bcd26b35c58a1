"""Reading the newest records of a source: of a topic's partitions alike, or the last lines of a file."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from itertools import takewhile

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, KafkaException, Message

from eventveil.describe.guarantee import count
from eventveil.doctor.framing import framing_of
from eventveil.doctor.sample import SampledRecord, SourceSample
from eventveil.kafka.barrier import is_nonce
from eventveil.kafka.cluster import Cluster, Topic
from eventveil.kafka.log import committed_ends, headers_of, offset_of, read_partition
from eventveil.kafka.rights import is_denied
from eventveil.lifecycle.topics import plan_topics
from eventveil.model.errors import EventveilError, Unsettled
from eventveil.model.records import NO_APPEND_TIME, NO_OWN_TIME, NO_SCHEMAS, Schemas, TopicPartition
from eventveil.model.spelling import meant
from eventveil.model.topology import AnyStream, Kafka, Topology
from eventveil.replay.inputs import FileInput
from eventveil.schema_registry.client import Client
from eventveil.schema_registry.known import KnownSchemas


def newest_of_topic(
    topology: Topology, cluster: Cluster, topic: str, limit: int, known: KnownSchemas | None = None
) -> SourceSample:
    """The newest ``limit`` committed records of a topic, as many of each partition where there are as many.

    ``known`` is asked for the schemas that they name. Where the file says that they name none and they do,
    its registry is asked too, if it has one. Raises EventveilError if the topic does not exist or a registry
    cannot be asked that the file needs, and KafkaException.
    """
    found = _existing(cluster, topic)
    records, held = newest(cluster, found, limit)
    settings, mistakes, notes = _settings(topology, cluster, topic, found.partitions)
    if lacking := sum(one.lacks_headers for one in records):
        notes.append(
            f"{lacking} of the {len(records)} records have a header whose name is not UTF-8. A worker reads"
            " their headers, with such bytes replaced; this command judges these records as if they had none"
        )
    sample = SourceSample(topic, found.partitions, records, held, settings, mistakes, notes)
    records = _since_stamped(sample, notes)
    values = [one.value for one in records]
    if topic in topology.by_schema:
        schemas = NO_SCHEMAS if known is None else known.of(values)
    else:
        schemas, more = schemas_of(topology, values)
        notes = [*notes, *more]
    return replace(sample, records=records, notes=notes, schemas=schemas)


def _existing(cluster: Cluster, name: str) -> Topic:
    """Raises EventveilError, with the name that may be meant, if there is no such topic."""
    try:
        return cluster.topic(name)
    except Unsettled as error:
        near = meant(name, cluster.names())
        if near is None:
            raise
        raise EventveilError(f"{error.place}: {error.what}. Did you mean {near}?") from None


def _since_stamped(sample: SourceSample, notes: list[str]) -> list[SampledRecord]:
    """The records that the broker has stamped, if it stamps them by now; else all."""
    stamped = [one for one in sample.records if one.appended]
    earlier = len(sample.records) - len(stamped)
    if not (sample.stamps and stamped and earlier):
        return [*sample.records]
    notes.append(
        f"{count(earlier, 'record')} of these are from before the topic had"
        " message.timestamp.type=LogAppendTime, and are left out here"
    )
    return stamped


def schemas_of(topology: Topology, values: list[bytes | None]) -> tuple[Schemas, list[str]]:
    """The schemas of values that have none by the file, as far as its registry knows them; and notes.

    It is asked only if most values name schemas and are no JSON.
    """
    if topology.registry is None or not framing_of(values).is_unknown:
        return NO_SCHEMAS, []
    try:
        return KnownSchemas(Client(topology.registry, topology.has_protobuf).schema).of(values), []
    except EventveilError as error:
        return NO_SCHEMAS, [f"what schemas the values name is not known: {error}"]


def newest(cluster: Cluster, topic: Topic, limit: int) -> tuple[list[SampledRecord], int]:
    """The newest ``limit`` committed records of a topic, and how many it holds as far as offsets tell.

    Raises KafkaException.
    """
    ends = committed_ends(cluster.kafka, topic.name, range(topic.partitions))
    lows = {place.partition: first for place, first in cluster.first_offsets(topic.places).items()}
    sizes = {partition: max(0, end - lows[partition]) for partition, end in ends.items()}
    records = [
        record
        for partition, share in shares(sizes, limit).items()
        for record in _newest(cluster.kafka, TopicPartition(topic.name, partition), ends[partition], share)
    ]
    return records, sum(sizes.values())


def shares(sizes: Mapping[int, int], limit: int) -> dict[int, int]:
    """How many of each partition make up ``limit`` records: alike, or more where others have less."""
    left, found = limit, {}
    for number, partition in enumerate(sorted(sizes, key=lambda one: (sizes[one], one))):
        found[partition] = min(sizes[partition], -(-left // (len(sizes) - number)))
        left -= found[partition]
    return found


def _newest(kafka: Kafka, place: TopicPartition, end: int, share: int) -> list[SampledRecord]:
    if not share:
        return []
    with closing(read_partition(kafka, *place, start=end - share)) as messages:
        found = takewhile(lambda message: offset_of(message) < end, messages)
        return [_record(place.partition, message) for message in found if not is_nonce(message.key())]


def _record(partition: int, message: Message) -> SampledRecord:
    kind, time = message.timestamp()
    headers = headers_of(message)
    return SampledRecord(
        partition,
        offset_of(message),
        message.value(),
        message.key(),
        headers or (),
        time if time >= 0 else NO_APPEND_TIME,
        kind == TIMESTAMP_LOG_APPEND_TIME,
        NO_OWN_TIME if kind == TIMESTAMP_NOT_AVAILABLE else time,
        headers is None,
    )


def _settings(
    topology: Topology, cluster: Cluster, topic: str, partitions: int
) -> tuple[Mapping[str, str] | None, list[str], list[str]]:
    try:
        settings = cluster.settings([topic])[topic]
    except KafkaException as error:
        if not is_denied(error.args[0]):
            raise
        return None, [], ["no right to ask for the settings of the topic (DescribeConfigs)"]
    plans = plan_topics(topology, {topic: partitions})
    mistakes = [
        mistake
        for plan in plans
        if plan.name == topic and plan.is_source
        for mistake in plan.mistakes(partitions, settings)
    ]
    return settings, mistakes, []


def newest_of_file(file: FileInput, path: str, streams: list[AnyStream], limit: int) -> SourceSample:
    """The last ``limit`` events of a file. Raises OSError."""
    file.begin(0, max(stream.source.max_bytes for stream in streams))
    kept: list[SampledRecord] = []
    held = 0
    for one in file.chunks():
        held += len(one.offsets)
        places = range(max(0, len(one.offsets) - limit), len(one.offsets))
        kept += [SampledRecord(0, one.offsets[at], one.values[at], time=0, appended=True) for at in places]
        del kept[:-limit]
    return SourceSample(
        path, 1, kept, held, notes=file.warnings, rules=lambda stream: file.rules(stream, None)
    )


def topics_of(topology: Topology) -> dict[str, list[AnyStream]]:
    """The topics that producers write to, in the order of the file, and the streams over each."""
    found: dict[str, list[AnyStream]] = {}
    for stream in topology.all_streams:
        found.setdefault(stream.source.topic_of_events, []).append(stream)
    return found
