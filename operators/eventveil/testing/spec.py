"""The keys of a test file: one table drives reading, help, messages and the JSON Schema."""

from __future__ import annotations

from functools import cache
from typing import get_args

from eventveil.decoding.rules import Reason
from eventveil.local.control import Phase
from eventveil.tasks.values import READ, VALUE_OUTCOMES
from eventveil.testing.fields import AnyJson, EpsilonPart, ListOf, MaybeWhole, RawText, TableOf, WrittenValue
from eventveil.testing.playing import LEFT_OUT
from eventveil.topology.fields import Field, RecordShape, Shape
from eventveil.topology.scalars import Choice, Label, Schema, Text, Time, Whole
from eventveil.topology.schema import as_text, document
from eventveil.topology.spec import NAME

MOST_REPEATS = 1_000_000
_MOST_EVENTS = 10**6
_COUNT = Whole(-(2**40), 2**40)
_TRUTH = Choice(("true", "false"))
_EVENT_NUMBER = Whole(1, _MOST_EVENTS)
_NUMBER_KEY: Schema = {"pattern": "^[1-9][0-9]*$"}
_TEXT = Text("text, in quotes if YAML would take it for something else")
_WORDS = {"type": "string"}


def _by_time(value: Shape, what: str) -> TableOf:
    return TableOf(Time(), value, f"the beginnings of timestamps, such as 2026-01-01T00:00:00Z, to {what}")


def _fates(key: str, words: tuple[str, ...], help: str) -> ListOf:
    one = RecordShape(
        (
            Field("event", WrittenValue(_EVENT_NUMBER), "number of the event, from 1", True),
            Field(key, WrittenValue(Choice(words)), help, True),
            Field(
                "times",
                WrittenValue(Whole(1, MOST_REPEATS)),
                "How many of a repeated event.",
                derived="all of them",
            ),
        )
    )
    return ListOf(one, f"mappings with event and {key}")


_COLUMNS = TableOf(Label(), WrittenValue(_COUNT), "columns to counts", _WORDS)
_RELEASED = RecordShape(
    (
        Field("counts", _COLUMNS, "Released counts with the noise off; columns left out are 0."),
        Field("fresh", WrittenValue(_TRUTH), "Whether it is drawn now, and not repeated or predicted."),
        Field("exhausted", WrittenValue(_TRUTH), "Whether the horizon has passed."),
        Field("phase", WrittenValue(Choice(get_args(Phase))), "Of local reports: what they were for."),
        Field("threshold", WrittenValue(_COUNT), "Of local reports: what the next ones are to be made for."),
    )
)
EXPECT = RecordShape(
    (
        Field("partial", WrittenValue(_TRUTH), "Compare only what is listed.", default="false"),
        Field(
            "counts",
            _by_time(_COLUMNS, "counts"),
            "True counts, which are released with noise. What is left out is 0.",
        ),
        Field(
            "dead_letters",
            _fates("reason", tuple(Reason), "why it is a dead letter"),
            "Dead letters. Left out: none is expected.",
        ),
        Field(
            "left_out",
            _fates("why", LEFT_OUT, "what left it out"),
            "Events that neither count nor become dead letters.",
        ),
        Field(
            "closed",
            _by_time(WrittenValue(Whole(0, _MOST_EVENTS)), "the last event that was read before"),
            "Timestamps that are closed, each with the number of the last event before, 0 if there was none.",
        ),
        Field(
            "released",
            _by_time(_RELEASED, "what is released"),
            "What the mechanism makes of the counts with the noise off.",
        ),
        Field(
            "spent", _by_time(WrittenValue(EpsilonPart()), "budget"), "The epsilon that each timestamp spent."
        ),
        Field("most_spent", WrittenValue(EpsilonPart()), "The largest epsilon that any window spent."),
        Field(
            "readings",
            TableOf(
                _EVENT_NUMBER,
                ListOf(WrittenValue(MaybeWhole()), "readings", alone=True),
                "events to readings",
                _NUMBER_KEY,
            ),
            "Of a value stream: readings of each event, in steps of the grid, null where it is held back.",
        ),
        Field(
            "unreadable",
            _fates("reason", tuple(str(one) for one in VALUE_OUTCOMES if one != READ), "why it has no value"),
            "Of a value stream: events without a value, which is 0. Left out: none is expected.",
        ),
    )
)
_EVENT = RecordShape(
    (
        Field("value", AnyJson(), "The event, as it is in JSON."),
        Field("raw", RawText(), "Instead: the bytes of the record, or null for a record without a value."),
        Field("key", WrittenValue(_TEXT), "Key of the record."),
        Field("headers", TableOf(_TEXT, WrittenValue(_TEXT), "names to texts"), "Headers of the record."),
        Field(
            "partition", WrittenValue(Whole(0, 9999)), "Where it is appended.",
            derived="that of its user, else the first",
        ),
        Field(
            "appended", WrittenValue(Time()), "When it is appended, by the broker's clock.",
            derived="its own time, or that of the event before it if that is later",
        ),
        Field(
            "created",
            WrittenValue(Time()),
            "The time that its record carries: $time with append_time: boundary.",
            derived="when it is appended",
        ),
        Field(
            "repeat", WrittenValue(Whole(1, MOST_REPEATS)),
            "How often, in a row; in it, {n} stands for 1, 2, ... .", default="1",
        ),
    ),
    {"oneOf": [{"required": ["value"]}, {"required": ["raw"]}]},
)  # fmt: skip
_TEST = RecordShape(
    (
        Field("name", WrittenValue(Text("what the test shows, on one line")), "what the test shows", True),
        Field(
            "stream", WrittenValue(Text("the name of a stream", NAME)), "The stream that reads the events.",
            derived="the only one",
        ),
        Field("partitions", WrittenValue(Whole(1, 10_000)), "Partitions of the source.", default="1"),
        Field(
            "from", WrittenValue(Time()), "Beginning of the first timestamp.",
            derived="timeline.start, else timeline.origin",
        ),
        Field(
            "until", WrittenValue(Time()), "The time at the end of the test: what is due by then is closed.",
            derived="when every timestamp that has counted an event is closed",
        ),
        Field("events", ListOf(_EVENT, "events"), "what is appended, in order", True),
        Field("expect", EXPECT, "the expected result", True),
    )
)  # fmt: skip


@cache
def layout() -> RecordShape:
    """The shape of a whole test file."""
    environment = TableOf(
        Text("the name of a variable", "[A-Za-z_][A-Za-z0-9_]*"),
        WrittenValue(Text("text", "[^\r\n]*")),
        "names to texts",
    )
    path = Text("the path of a topology file")
    return RecordShape(
        (
            Field(
                "topology", WrittenValue(path), "The topology, relative to this file.",
                derived="the file beside this one without _test in its name",
            ),
            Field("environment", environment, "Variables for ${...} in the topology, before the real ones."),
            Field("tests", ListOf(_TEST, "tests"), "the tests", True),
        )
    )  # fmt: skip


def json_schema_text() -> str:
    """The schema as it is kept in ``schemas/topology-test.schema.json``."""
    return as_text(document("Eventveil tests of a topology", layout().schema()))
