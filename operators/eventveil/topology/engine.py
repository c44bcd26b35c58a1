"""The source of a stream whose counts an engine has made: ``source.counts`` tells it from one of events."""

from __future__ import annotations

from dataclasses import replace

from eventveil.topology.counts import SOURCE
from eventveil.topology.document import Node, Table
from eventveil.topology.fields import Field, Invalid, Kept, One, ReadingPass, RecordShape, Section, Shape
from eventveil.topology.options import TRUSTED
from eventveil.topology.places import PLACE
from eventveil.topology.scalars import Choice, Schema

_OF_EVENTS = {row.name: row for row in SOURCE.fields}
_REPLACED = "a count that was taken could be taken again, in another timestamp"
_ENGINE = "let the engine do it, which writes counts, and remove it"
#: What events have and counts have not.
_LATER = {
    "user": "counts have no users, the engine has counted them; remove it",
    "user_type": "counts have no users, the engine has counted them; remove it",
    "repartition": "a column's counts are in one partition; let the engine key by the column, and remove it",
    "append_time": "set message.timestamp.type=LogAppendTime on the topic, and remove it",
    "filter": _ENGINE,
    "maps": _ENGINE,
}


def _check(file: Section, stream: Section, source: Section) -> None:
    """What events allow and counts do not, in the other sections of the stream."""
    timeline, mechanism, counts = stream.get("timeline"), stream.get("mechanism"), stream.get("counts")
    if timeline is not None and timeline.get("on_missing") == "release":
        timeline.wrong(
            "on_missing",
            "with counts: trusted a partition has all counts of its columns, so none can be left out; use"
            " wait",
        )
    if mechanism is not None and mechanism.get("pan_private") is not None:
        mechanism.wrong(
            "pan_private", "the counters are the engine's, which knows nothing of noise; remove it"
        )
    columns = None if counts is None else counts.get("columns")
    if counts is not None and columns is not None and columns.parts > 1:
        counts.note(
            "columns",
            f"{counts.name('columns')}.product: the column of counts is one field; list the names that the"
            " engine writes",
        )
    if columns is not None and columns.discover is not None and source.get("counts") is not None:
        source.wrong(
            "counts",
            "not with columns that are found, because an engine bounds what a user adds to the columns that"
            " it knows; remove it",
        )
    if counts is not None and source.get("counts") is not None:
        _check_unknown(counts)


def _check_unknown(counts: Section) -> None:
    if counts.get("per_column") is None or counts.get("contributions") in (None, TRUSTED):
        return
    if counts.get("unknown") not in (None, "dead-letter", "ignore"):
        counts.wrong(
            "unknown",
            "an engine bounds what a user adds to each name, and the column takes the counts of many; with"
            " per_column use dead-letter or ignore",
        )


ENGINE_SOURCE = RecordShape(
    (
        replace(_OF_EVENTS["topic"], help="topic of an engine's counts, keyed by column"),
        Field(
            "counts", One(Choice(("trusted",))),
            "Records are counts, made by an engine that is trusted to bound what a user adds to them.", True,
            kept=Kept("events and counts cannot follow each other", value=lambda source: "trusted"),
        ),
        replace(_OF_EVENTS["format"], kept=Kept(_REPLACED)),
        replace(_OF_EVENTS["column"], shape=One(PLACE), help="JSON pointer to the column, such as /page"),
        replace(
            _OF_EVENTS["time"], shape=One(PLACE), help="JSON pointer to the start of the timestamp, exactly",
            kept=Kept(_REPLACED),
        ),
        *(replace(_OF_EVENTS[name], kept=replace(_OF_EVENTS[name].kept or Kept(), why=_REPLACED))
          for name in ("time_unit", "time_zone")),
        Field(
            "count", One(PLACE), "JSON pointer to the number, such as /users", True,
            kept=Kept("another number would be counted under the same name"),
        ),
        Field(
            "watermark", One(PLACE),
            "Where a record says until when its partition is complete; left out: the deadline decides.",
            kept=Kept("lateness would be decided differently than in the state", newer=True),
        ),
        replace(
            _OF_EVENTS["partitioner"],
            help="How the engine chooses the partition of a column: murmur2 (Java) or crc32 (librdkafka).",
            kept=Kept("a column's counts would belong to another partition"),
        ),
        _OF_EVENTS["max_bytes"],
        _OF_EVENTS["users"],
    ),
    title="engine-source",
    check=_check,
    later=_LATER,
)  # fmt: skip


class _ByCounts(RecordShape):
    """A source of events, or of counts if it has ``counts``."""

    def read(self, node: Node, name: str, reading: ReadingPass) -> Section | Invalid:
        """See ``RecordShape.read``."""
        if isinstance(node, Table) and "counts" in node.entries:
            return ENGINE_SOURCE.read(node, name, reading)
        return super().read(node, name, reading)

    def schema(self) -> Schema:
        """The schema of the one or of the other."""
        return {
            "type": "object",
            "if": {"required": ["counts"]},
            "then": ENGINE_SOURCE.schema(),
            "else": super().schema(),
        }


def or_counts(stream: RecordShape) -> RecordShape:
    """The shape of a stream over events, whose source may be one of counts instead."""
    rows = (replace(row, shape=_either(row.shape)) if row.name == "source" else row for row in stream.fields)
    return replace(stream, fields=tuple(rows))


def _either(source: Shape) -> Shape:
    assert isinstance(source, RecordShape)
    return _ByCounts(source.fields, source.rules, source.later, source.title, source.check)
