"""The part of a topology file that is a stream of local reports: keys, defaults and help."""

from __future__ import annotations

from collections.abc import Mapping

from eventveil.local.control import COLUMNS, LARGEST, LONGEST, reports
from eventveil.local.sampling import EPSILON_LIMIT, LEAST_EPSILON
from eventveil.model.topology import Counts, MechanismSettings
from eventveil.topology.counts import DEAD_LETTER, SINK_FORMAT, SOURCE, STREAM
from eventveil.topology.fields import Field, One, RecordShape, Section
from eventveil.topology.scalars import Choice, Pointer, Rational, TopicName, Whole

_REPORT = Field(
    "report", One(Pointer()), "JSON pointer to what `eventveil.local` made of a value, such as /report", True
)

OPTIONS: Mapping[str, tuple[Field, ...]] = {
    "topl": (
        Field(
            "estimate_after",
            One(Whole(1, LONGEST)),
            "Reports from which the distribution of values, and so the threshold, is estimated.",
            default="65536",
        ),
        Field(
            "range",
            One(Whole(1, LONGEST)),
            "Reports of the longest sum that is to be accurate (r).",
            default="1048576",
        ),
    )
}


def local_stream(kind: str) -> RecordShape:
    """The shape of a stream of local reports, which has the timeline and the users of one of counts."""
    given = {field.name: field for field in STREAM.fields}
    fields = tuple(
        _REPORT if field.name == "column" else field for field in SOURCE.fields if field.name != "maps"
    )
    sink = RecordShape(
        (Field("topic", One(TopicName()), "topic of sums, of this stream alone", True), SINK_FORMAT),
        title="reports-sink",
    )
    return RecordShape(
        (
            Field(
                "source",
                RecordShape(
                    fields,
                    title="reports-source",
                    check=SOURCE.check,
                    later={"maps": "every report is a column of its own and needs no other name; remove it"},
                ),
                "local reports: topic, user, report, time",
                True,
            ),
            given["timeline"],
            Field("values", _values(), "the range of values: maximum", True),
            Field("mechanism", _mechanism(kind), "how they were made private: kind, epsilon", True),
            Field("sink", sink, "where sums go: topic", True),
            DEAD_LETTER,
        ),
        title=f"{kind}-stream",
    )


def _values() -> RecordShape:
    return RecordShape(
        (
            Field(
                "maximum",
                One(Whole(1, LARGEST)),
                "the largest value, a whole number; larger ones are cut off, negative ones are 0",
                True,
            ),
            Field(
                "contributions",
                One(Whole(1, LARGEST)),
                "Reports of one user that count per timestamp; it does not bound what a user pays.",
                default="1",
            ),
        ),
        title="reports-values",
    )


def _mechanism(kind: str) -> RecordShape:
    return RecordShape(
        (
            Field("kind", One(Choice((kind,))), f"mechanism, {kind}", True),
            Field(
                "epsilon",
                One(Rational(EPSILON_LIMIT, LEAST_EPSILON)),
                "privacy budget of a single report, read exactly",
                True,
            ),
            *OPTIONS[kind],
        ),
        title=f"{kind}-mechanism",
    )


def counts_of(values: Section, mechanism: Section) -> Counts:
    """Every report is a column, so each is counted by itself."""
    labels = tuple(reports(mechanism.get("epsilon").value, values.get("maximum")))
    return Counts(labels, contributions=values.get("contributions"), released=COLUMNS)


def mechanism_of(values: Section, mechanism: Section) -> MechanismSettings:
    """The settings of the worker's side."""
    epsilon = mechanism.get("epsilon")
    options = {field.name: mechanism.get(field.name) for field in OPTIONS[mechanism.get("kind")]}
    options |= {"maximum": values.get("maximum")}
    return MechanismSettings(mechanism.get("kind"), epsilon.value, epsilon.text, 1, options=options)
