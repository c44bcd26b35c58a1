"""The part of a topology file that is a stream of counts, one table per section.

A row says all of a setting: how it is read and checked, its default, its help, whether the state records it,
and why a migration may change it or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

from eventveil.model.spelling import suggestion
from eventveil.model.topology import Counts, SinkFormat
from eventveil.topology.columns import COLUMN_LIMIT, ColumnsShape, columns_digest
from eventveil.topology.discovery import check_discovery
from eventveil.topology.document import shorten
from eventveil.topology.events import check_names, check_source
from eventveil.topology.fields import Field, Kept, One, RecordShape, Section
from eventveil.topology.mechanism import MECHANISM
from eventveil.topology.options import TRUSTED, covered, extent_of
from eventveil.topology.places import PLACE, TIME_PLACE, FilterShape, Maps, PlacesShape, Zone, told
from eventveil.topology.scalars import (
    END_OF_TIME,
    Choice,
    Duration,
    Label,
    Or,
    Text,
    Time,
    TopicName,
    Whole,
    duration_text,
)

#: Three days: what max_ahead is, left out, where it bounds the outage that loses no event (ms).
LONGEST_OUTAGE = 3 * 86_400_000
#: Five minutes (ms).
GRACE = 300_000
#: A longer value is not carried through the re-keying stage.
LARGEST_REKEYED = 8_000_000
#: As Kafka has it.
LONGEST_TOPIC = 249
_OTHER_STREAM = "it makes another stream, charged in full beside the old one"
_OTHER_USER = Kept("somebody else would be protected, and windows across the change would protect neither")
_TWICE = Kept("an event that was counted could count again, in another timestamp")
#: Why a migration may change where releases go, also to a topic that was created anew under the same name.
SINK_MOVED = "the releases stay the same; the audit matches those from the change on with the new topic"


#: What clients call theirs.
_PARTITIONERS_OF_CLIENTS = {
    "consistent_random": "librdkafka's consistent_random is called crc32 here",
    "consistent": "librdkafka's consistent is called crc32 here",
    "murmur2_random": "librdkafka's murmur2_random is called murmur2 here",
    "fnv1a": "fnv1a, Sarama's default, cannot be named; set repartition: true and leave the partitioner out",
    "java": "the default of Java's client is called murmur2 here",
    "librdkafka": "the default of librdkafka is called crc32 here",
    "default": "the default of Java's client is called murmur2 here, that of librdkafka crc32",
}


def _from_now_on(what: str, value: Callable[[Any], Any] | None = None) -> Kept:
    return Kept(f"{what}; each event still counts once, in the same timestamp", sound=True, value=value)


def _newer(what: str, value: Callable[[Any], Any]) -> Kept:
    sound = _from_now_on(what)
    return replace(sound, value=told(value), newer=True)


def population(file: Section, stream: Section, source: Section) -> tuple[str, str]:
    """The people that the budget caps; see ``fields.Derive``."""
    budget = file.get("budget")
    users = (budget.get("users") if budget is not None else None) or "users"
    return users, users


def _max_ahead(file: Section, stream: Section, timeline: Section) -> tuple[int, str] | None:
    source, interval = stream.get("source"), timeline.get("interval")
    boundary = source is not None and source.get("append_time") == "boundary"
    ahead = LONGEST_OUTAGE if boundary else interval
    return None if ahead is None else (ahead, duration_text(ahead))


def _not_expected(file: Section, stream: Section, counts: Section) -> tuple[None, str]:
    return None, "none, so nothing warns if most events stop counting"


def _grace(file: Section, stream: Section, timeline: Section) -> tuple[int, str] | None:
    return (GRACE, duration_text(GRACE)) if timeline.get("on_missing") == "release" else None


def _dead_letter(file: Section, stream: Section, section: Section) -> tuple[str, str] | None:
    topic = f"{file.get('name')}.dead"
    return None if file.get("name") is None else (topic, topic)


def repartitioned(application: str, topic: str) -> str:
    """The internal topic that holds the events of ``topic`` keyed by user."""
    return f"{application}-repartition-{topic}"


def _check_repartition(file: Section, stream: Section, source: Section) -> None:
    timeline, application = stream.get("timeline"), file.get("name")
    if source.get("repartition") != "true":
        return
    if "partitioner" in source.positions:
        source.note(
            "partitioner",
            f"{source.name('partitioner')} has no effect with repartition: true; remove one of them",
        )
    if (source.get("max_bytes") or 0) > LARGEST_REKEYED:
        source.wrong("max_bytes", f"with repartition: true at most {LARGEST_REKEYED}; lower it")
    if timeline is not None and timeline.get("on_missing") == "release":
        timeline.wrong(
            "on_missing",
            "with repartition: true each partition of the topic holds events of every user, so none can be"
            " left out; use wait",
        )
    topic = source.get("topic")
    if None not in (application, topic) and len(repartitioned(application or "", topic)) > LONGEST_TOPIC:
        source.wrong(
            "topic",
            f"{repartitioned(application or '', topic)} would be longer than {LONGEST_TOPIC} characters,"
            " which Kafka allows; choose a shorter name for the application",
        )


def _check_timeline(file: Section, stream: Section, timeline: Section) -> None:
    mechanism = stream.get("mechanism")
    origin, start, interval = timeline.get("origin"), timeline.get("start"), timeline.get("interval")
    if origin is not None and start is not None and start < origin:
        timeline.wrong("start", "lies before the origin, expected the origin or later")
    if "grace" in timeline.positions and timeline.get("on_missing") == "wait":
        timeline.note(
            "grace",
            f"{timeline.name('grace')} has no effect with on_missing: wait; use release, or remove it",
        )
    window = covered(mechanism) if mechanism is not None else None
    if mechanism is None or origin is None or interval is None or window is None:
        return
    if origin + interval * window > END_OF_TIME:
        kind = mechanism.get("kind")
        key = (extent_of(kind) if kind else "window") or "kind"
        mechanism.wrong(
            key,
            f"the first window of {window} timestamps of {duration_text(interval)} ends after the year 9999,"
            " expected a smaller window or interval",
        )
    elif start is not None and start + interval * (window + 1) > END_OF_TIME:
        timeline.wrong(
            "start",
            f"the first window of {window} timestamps of {duration_text(interval)} ends after the year 9999,"
            " expected an earlier start",
        )


def _check_source(file: Section, stream: Section, source: Section) -> None:
    check_source(file, stream, source)
    _check_repartition(file, stream, source)


def _check_counts(file: Section, stream: Section, counts: Section) -> None:
    columns = counts.get("columns")
    _check_per_column(counts)
    if columns is not None and columns.discover is not None:
        check_discovery(stream, counts)
        return
    check_names(stream, counts)
    _check_unknown(file, stream, counts)


def _check_per_column(counts: Section) -> None:
    most, bound, columns = (counts.get(key) for key in ("per_column", "contributions", "columns"))
    if most is None or bound is None:
        return
    if bound == TRUSTED:
        wrong = "contributions: trusted bounds nothing here, and one event is in one column; remove it"
        counts.wrong("per_column", wrong)
        return
    if most > bound:
        counts.wrong(
            "per_column", f"found {most}, expected at most contributions, {bound}; lower it, or leave it out"
        )
    elif columns is not None and columns.discover is None and bound > most * len(columns.labels):
        largest = most * len(columns.labels)
        counts.wrong(
            "contributions",
            f"found {bound}, but with per_column: {most} at most {largest} events of a user count in"
            f" {len(columns.labels)} columns; lower it to {largest}, or raise per_column",
        )


def _check_unknown(file: Section, stream: Section, counts: Section) -> None:
    unknown, columns = counts.get("unknown"), counts.get("columns")
    if unknown is None or columns is None:
        return
    if unknown in ("dead-letter", "ignore"):
        if "unknown" in counts.positions and unknown in columns.labels:
            counts.wrong(
                "unknown",
                f"{unknown} is also the name of a column, and could mean either; give the column another"
                " name",
            )
    elif unknown not in set(columns.labels):
        words = (
            ["dead-letter", "ignore", *columns.labels]
            if len(columns.labels) <= 1000
            else ["dead-letter", "ignore"]
        )
        near = suggestion(unknown, words)
        hint = near if near.startswith("did") else "add it to the columns"
        counts.wrong(
            "unknown", f"found {shorten(unknown)}, expected dead-letter, ignore or one of the columns; {hint}"
        )


SOURCE = RecordShape(
    (
        Field(
            "topic", One(TopicName()), "topic of raw events, keyed by user", True,
            kept=Kept(
                f"offsets of one topic mean nothing in another; {_OTHER_STREAM}",
                value=lambda source: source.topic_of_events,
            ),
        ),
        Field(
            "format", One(Choice(("json", "json-schema", "avro", "protobuf"))),
            "Encoding of events: JSON, or JSON, Avro or Protobuf behind the prefix of a schema registry.",
            default="json", kept=_TWICE, shared=True,
        ),
        Field(
            "user", PlacesShape(PLACE),
            "JSON pointer to the user, such as /user; or $key, $headers/NAME; of a list, the first present",
            True,
            kept=_OTHER_USER, shared=True,
        ),
        Field(
            "user_type", One(Choice(("string", "integer", "either"))),
            "JSON type of the user; either: 7 and the text 7 are one user.",
            default="string", kept=_OTHER_USER, shared=True,
        ),
        Field(
            "column", PlacesShape(PLACE),
            "JSON pointer to what is counted, such as /place; of a list, the combination, as news|DE", True,
            kept=_from_now_on("it says where an event names its column"),
        ),
        Field(
            "time", PlacesShape(TIME_PLACE),
            "JSON pointer to the event's time, epoch milliseconds or RFC 3339; $time: that of the record",
            True,
            kept=_TWICE,
        ),
        Field(
            "time_unit", One(Choice(("ms", "s", "us", "ns"))),
            "Unit of times that are numbers; left out: milliseconds.",
            kept=Kept(
                _TWICE.why, newer=True,
                value=lambda source: None if source.time_unit == "ms" else source.time_unit,
            ),
        ),
        Field(
            "time_zone", One(Zone()),
            "Zone of times without one, such as Europe/Berlin; left out: they cannot be read.",
            kept=Kept(_TWICE.why, newer=True),
        ),
        Field(
            "filter", FilterShape(),
            "Conditions that an event must all meet to count, such as {/type: [viewed, bought]}.",
            kept=_newer("it says which events count from the change on", lambda source: source.filter),
        ),
        Field(
            "maps", Maps(), "By field of the column: the names that its contents get, whole or by prefix.",
            kept=_newer("it says where an event names its column", lambda source: source.maps),
        ),
        Field(
            "partitioner", One(Choice(("murmur2", "crc32"), _PARTITIONERS_OF_CLIENTS)),
            "How producers choose the partition: murmur2 (Java, aiokafka) or crc32 (librdkafka).",
            default="murmur2",
            kept=Kept("a user's events would be bounded in another partition, where they could count twice"),
            shared=True,
        ),
        Field(
            "max_bytes", One(Whole(1, 2**30)), "Events with a longer value do not count.", default="1048576",
            kept=_from_now_on("it says which events count from the change on"),
        ),
        Field(
            "users", One(Text("a name of at most 100 characters on one line", longest=100)),
            "Name of the population whose events these are; budgets add up within one.",
            derived="that of the budget, else users", derive=population, shared=True,
        ),
        Field(
            "repartition", One(Choice(("false", "true"))),
            "Re-key events by user first, for topics that are keyed otherwise.", default="false",
            kept=Kept(
                f"it moves users to other partitions; {_OTHER_STREAM}",
                newer=True, value=lambda source: "true" if source.raw else "false",
            ),
            shared=True,
        ),
        Field(
            "append_time", One(Choice(("broker", "boundary"))),
            "What decides what is late: the broker's append times, or the end of the log when it is due.",
            default="broker",
            kept=Kept(
                "lateness would be decided in another way, which the state has no record of", newer=True
            ),
            shared=True,
        ),
    ),
    title="counts-source",
    check=_check_source,
)  # fmt: skip

TIMELINE = RecordShape(
    (
        Field(
            "interval", One(Duration(1)), "length of a timestamp, such as 1h", True,
            kept=Kept(f"releases of timestamps of another length cannot be followed; {_OTHER_STREAM}"),
        ),
        Field(
            "origin", One(Time()), "start of timestamp 1, such as 2013-01-01T00:00:00Z", True,
            kept=Kept(f"releases of timestamps that begin elsewhere cannot be followed; {_OTHER_STREAM}"),
        ),
        Field(
            "lateness", One(Duration()), "How long after its end a timestamp accepts events.", default="0s",
            kept=_from_now_on("it says which events are late from the change on"),
        ),
        Field(
            "max_ahead", One(Duration()),
            "How far an event's time may be ahead: of the broker's, or of the next boundary.",
            derived="the interval, or 3d with append_time: boundary", derive=_max_ahead,
            kept=_from_now_on("it says which events are early from the change on"),
        ),
        Field(
            "clock_skew", One(Duration(1)),
            "Largest difference between the clocks of workers and brokers. Brokers must also answer within"
            " it, or nothing closes.",
            default="1s",
        ),
        Field("start", One(Time(now=True)), "First instant that is counted.", default="now"),
        Field(
            "on_missing", One(Choice(("wait", "release"))),
            "What to do while a partition of the source has no leader: wait, or release without it.",
            default="wait",
        ),
        Field(
            "grace", One(Duration()), "How long to wait for such a partition before that.",
            derived="5m, with on_missing: release", derive=_grace,
        ),
    ),
    check=_check_timeline,
)  # fmt: skip


def _discovering(counts: Counts) -> dict[str, str | int]:
    """How columns are found, by the names of the settings; nothing of streams that list them."""
    how = counts.discover
    if how is None:
        return {}
    return {
        "columns.delta": str(how.delta),
        "columns.share": str(how.share),
        "columns.most": how.most,
        "columns.longest": how.longest,
    }


_BOUND_CHANGES = Kept("the bound and the noise that goes with it change between two timestamps", sound=True)


def _unknown(counts: Counts) -> str:
    return counts.unknown if counts.unknown_column is None else f"column {counts.unknown_column}"


COUNTS = RecordShape(
    (
        Field(
            "columns", ColumnsShape(),
            "public columns: a list, {file: columns.txt}, {range: [0, 99]} or {product: [[a, b], [c, d]]}",
            True,
            kept=Kept(
                "the last release, which may have to be repeated, does not fit other columns",
                value=lambda counts: len(counts.labels),
                parts={
                    "digest": lambda counts: columns_digest(counts.labels),
                    "type": lambda counts: counts.column_type,
                },
                more=_discovering,
            ),
        ),
        Field(
            "contributions", One(Or(TRUSTED, Whole(1, COLUMN_LIMIT), "with pan_private only")),
            "Events of one user that count per timestamp; trusted, with pan_private: producers send one.",
            default="1",
            kept=_BOUND_CHANGES,
        ),
        Field(
            "per_column", One(Whole(1, COLUMN_LIMIT)),
            "How many of these may be in one column; left out: all. Gaussian noise is less with fewer.",
            kept=replace(_BOUND_CHANGES, newer=True),
        ),
        Field(
            "unknown", One(Label()),
            "What happens to events with another column: dead-letter, ignore, or the column that takes them.",
            default="dead-letter",
            kept=_from_now_on("it says which events count from the change on", _unknown),
        ),
        Field(
            "expected", One(Whole(1, 2**40)),
            "About how many events a timestamp counts on average, by public knowledge and not from the data."
            " If releases show that less than half of it counts, the worker warns.",
            derived="none; then no release can show that many events do not count", derive=_not_expected,
        ),
    ),
    check=_check_counts,
)  # fmt: skip

SINK_FORMAT = Field(
    "format", One(Choice(get_args(SinkFormat))),
    "How releases are written: as JSON, or behind the prefix of a schema registry as JSON or Avro.",
    default="json",
    kept=Kept(
        "the releases stay the same, and those in a new format go to a new topic", sound=True, newer=True
    ),
)  # fmt: skip

SINK = RecordShape(
    (
        Field(
            "topic", One(TopicName()), "topic of sanitized counts, of this stream alone", True,
            kept=Kept(SINK_MOVED, sound=True),
        ),
        Field("counts", One(Choice(("object", "array"))), "Form of the counts.", default="object"),
        Field(
            "minimum", One(Whole(0, 0)),
            "0: negative counts are released as 0. It costs no budget, and biases sums upwards.",
        ),
        SINK_FORMAT,
    ),
    title="counts-sink",
)  # fmt: skip

DEAD_LETTER = Field(
    "dead_letter", One(TopicName()), "Topic of events that do not count, raw and private.",
    derived="the name of the topology followed by .dead", derive=_dead_letter,
)  # fmt: skip

STREAM = RecordShape(
    (
        Field("source", SOURCE, "raw events: topic, user, column, time", True),
        Field("timeline", TIMELINE, "how time is cut: interval, origin", True),
        Field("counts", COUNTS, "what is counted: columns", True),
        Field("mechanism", MECHANISM, "how counts are protected: kind, epsilon, window", True),
        Field("sink", SINK, "where sanitized counts go: topic", True),
        DEAD_LETTER,
    ),
    title="counts-stream",
)

#: The sections of which the state records something.
KEPT = {"source": SOURCE, "timeline": TIMELINE, "counts": COUNTS, "mechanism": MECHANISM, "sink": SINK}


def facts(section: str, of: Any, table: RecordShape | None = None) -> dict[str, Any]:
    """What the state records of a section, by the names of its settings; ``of`` is the section of the model.

    ``table`` is that of the section in another kind of stream.
    """
    fields = (table or KEPT[section]).fields
    return {f"{section}.{name}": value for field in fields for name, value in field.facts(of)}
