"""What to do about events that do not count, by reason: for the doctor and for the worker's log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from eventveil.decoding.rules import Reason
from eventveil.model.topology import AnyStream, Stream


class Remedy(NamedTuple):
    """``settings`` of a stream that the reason may be due to, the likeliest first; ``text`` in words."""

    settings: tuple[str, ...]
    text: str


REMEDIES: Mapping[Reason, Remedy] = {
    Reason.TOMBSTONE: Remedy(("source.topic",), "a topic of events has no records without a value"),
    Reason.TOO_LARGE: Remedy(("source.max_bytes",), "raise max_bytes, or send less"),
    Reason.NO_APPEND_TIME: Remedy(
        ("source.append_time",),
        "set message.timestamp.type=LogAppendTime on the topic, or append_time: boundary for a new stream",
    ),
    Reason.NOT_JSON: Remedy(
        ("source.format", "source.topic"),
        "send a JSON document in each value, or set the format: json for plain JSON; json-schema, avro or"
        " protobuf behind the prefix of a schema registry",
    ),
    Reason.UNKNOWN_SCHEMA: Remedy(
        ("source.format", "source.topic"),
        "name the registry that the producer's serializer uses in registry.url, and register a schema before"
        " the first record with it is sent",
    ),
    Reason.NOT_OF_SCHEMA: Remedy(
        ("source.format", "source.topic"), "send what a serializer of the registry makes in this format"
    ),
    Reason.MISSING_FIELD: Remedy(
        ("source.user", "source.column", "source.time"), "correct the pointer, or the producer"
    ),
    Reason.WRONG_TYPE: Remedy(
        ("source.user_type", "source.user", "counts.columns", "source.time"),
        "correct the declared type, or the producer",
    ),
    Reason.EMPTY_USER: Remedy(("source.user",), "send a user, or point to a field that has one"),
    Reason.WRONG_PARTITION: Remedy(
        ("source.partitioner", "source.repartition"),
        "name the partitioner that the keys were written with, or set repartition: true",
    ),
    Reason.UNKNOWN_COLUMN: Remedy(
        ("counts.columns", "counts.unknown"),
        "before the stream begins, list it if it is public knowledge; afterwards columns cannot change, but"
        " `unknown` can be a column that counts it, or ignore",
    ),
    Reason.TIME_UNREADABLE: Remedy(
        ("source.time", "source.time_zone", "source.time_unit"),
        "send RFC 3339 with a zone, or give time_zone for times without one, or time_unit for numbers",
    ),
    Reason.BEFORE_ORIGIN: Remedy(
        ("timeline.origin", "source.time_unit"),
        "give time_unit: s if these are epoch seconds; choose an earlier origin for a new stream",
    ),
    Reason.BEFORE_START: Remedy(
        ("timeline.start",),
        "do nothing: the event is older than the stream. A new stream can begin earlier, unless its"
        " append_time is boundary",
    ),
    Reason.TOO_FAR_AHEAD: Remedy(("timeline.max_ahead",), "correct the producer's clock, or raise max_ahead"),
    Reason.LATE: Remedy(
        ("timeline.lateness",),
        "do nothing if brokers or producers were away; if events are often this late, raise lateness, for"
        " which releases wait",
    ),
    Reason.AFTER_CLOSE: Remedy(
        ("timeline.clock_skew",), "raise clock_skew, and check the clocks of brokers and workers"
    ),
    Reason.MISALIGNED: Remedy(
        ("source.time", "timeline.interval", "timeline.origin"),
        "have the engine write the start of its window, and align its windows with the topology's timeline",
    ),
    Reason.BAD_COUNT: Remedy(("source.count",), "correct the engine: counts are 0 or more"),
}
FOUND_COLUMNS = Remedy(
    ("source.column", "counts.columns"),
    "map such texts to names by source.maps, or, if too long, raise `longest` in a new stream",
)
"""Of Reason.UNKNOWN_COLUMN where columns are found: no list lacks it."""
LONG_OUTAGE = Remedy(
    ("timeline.max_ahead",),
    "if workers were away for longer than max_ahead, these events were appended meanwhile and are lost: give"
    " max_ahead (default 3d) before a stream begins; else correct the producer's clock",
)
"""Of Reason.TOO_FAR_AHEAD where boundaries say what is late."""


def remedy(reason: Reason, stream: AnyStream | None) -> Remedy:
    """What to do about a reason in a stream; of one that is not known, what mostly helps."""
    if isinstance(stream, Stream):
        if reason is Reason.UNKNOWN_COLUMN and stream.counts.discover is not None:
            return FOUND_COLUMNS
        if reason is Reason.TOO_FAR_AHEAD and stream.source.append_time == "boundary":
            return LONG_OUTAGE
    return REMEDIES[reason]
