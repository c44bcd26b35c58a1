"""The part of a topology file that is a value stream, one table per kind: keys, defaults and help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from eventveil.describe import guarantee
from eventveil.model.fields import VALUE
from eventveil.topology.counts import population
from eventveil.topology.document import Node, Scalar, Table
from eventveil.topology.fields import (
    INVALID,
    Field,
    Invalid,
    Kept,
    One,
    ReadingPass,
    RecordShape,
    Section,
    Shape,
)
from eventveil.topology.places import Place
from eventveil.topology.scalars import Choice, Exact, Or, Rational, Schema, Text, TopicName, Whole
from eventveil.values.stream import HELD_LIMIT, VALUE_LIMIT

#: No value of one unit of the grid needs more (``eventveil.values.stream.VALUE_LIMIT``).
LARGEST_VALUE = 10**12
_OFF = "off"


@dataclass(frozen=True)
class ByKind(Shape):
    """A stream: of values, or of local reports, if its mechanism is of such a kind, else of counts."""

    kind: Shape
    counts: RecordShape
    others: Mapping[str, RecordShape]

    def read(self, node: Node, name: str, reading: ReadingPass) -> Section | Invalid:
        """See ``RecordShape.read``. Without a shape, a kind that is none is the only mistake."""
        kind = _kind(node)
        record = self.others.get(kind.text if kind else "", self.counts)
        guessed = record is self.counts and isinstance(node, Table) and "counts" not in node.entries
        if guessed and kind and self.kind.read(kind, f"{name}.mechanism.kind", reading) is INVALID:
            return Section(name, node.position, reading.problems, table=self.counts)
        return record.read(node, name, reading)

    def schema(self) -> Schema:
        """The schema that the kind asks for."""
        schema = self.counts.schema()
        for kind, record in self.others.items():
            mechanism = {"type": "object", "properties": {"kind": {"const": kind}}, "required": ["kind"]}
            when = {"properties": {"mechanism": mechanism}, "required": ["mechanism"]}
            schema = {"if": when, "then": record.schema(), "else": schema}
        return schema


def _kind(node: Node) -> Scalar | None:
    mechanism = node.entries.get("mechanism") if isinstance(node, Table) else None
    kind = mechanism.entries.get("kind") if isinstance(mechanism, Table) else None
    return kind if isinstance(kind, Scalar) else None


def _check_grid(file: Section, stream: Section, values: Section) -> None:
    maximum, step = values.get("maximum"), values.get("step")
    if maximum is None or step is None:
        return
    steps = maximum.value / step.value
    if steps.denominator != 1 or steps > VALUE_LIMIT:
        values.wrong(
            "maximum",
            f"is {guarantee.number(steps)} steps of {step.text}, expected a whole number of them, at most"
            f" {VALUE_LIMIT}",
        )


def value_stream(kind: str) -> RecordShape:
    """The shape of a value stream of that kind."""
    values = RecordShape(
        (
            Field(
                "maximum",
                One(Rational(LARGEST_VALUE)),
                "the largest value (B), a multiple of the step; larger ones are cut off, negative ones are 0",
                True,
            ),
            Field(
                "step",
                One(Rational(LARGEST_VALUE)),
                "The public grid: values are rounded to multiples of this.",
                default="1",
            ),
        ),
        check=_check_grid,
    )
    sink = RecordShape(
        (Field("topic", One(TopicName()), "topic of sanitized readings, of this stream alone", True),),
        title="values-sink",
        later={
            "format": "readings are written as JSON only: there may be many a second, each a record, and a"
            " schema would add nothing; remove it"
        },
    )
    return RecordShape(
        (
            Field("source", SOURCE, "raw events: topic, value", True),
            Field("values", values, "the range of values and their grid: maximum, step", True),
            Field("mechanism", _mechanism(kind), "how values are protected: kind, epsilon", True),
            Field("sink", sink, "where sanitized readings go: topic", True),
        ),
        title=f"{kind}-stream",
    )


#: The state records it; value streams cannot be migrated.
_KEPT = Kept()
_VALUE_PLACE = Place((VALUE,), "place-of-value")
SOURCE = RecordShape(
    (
        Field("topic", One(TopicName()), "topic of raw events, each of which is one value", True, kept=_KEPT),
        Field(
            "format", One(Choice(("json", "json-schema", "avro", "protobuf"))),
            "Encoding of events: JSON, or JSON, Avro or Protobuf behind the prefix of a schema registry.",
            default="json", kept=_KEPT,
        ),
        Field(
            "value", One(_VALUE_PLACE), "JSON pointer to the value, a number, such as /minutes", True,
            kept=_KEPT,
        ),
        Field(
            "max_bytes", One(Whole(1, 2**30)), "Events that are longer have the value 0.",
            default="1048576", kept=_KEPT,
        ),
        Field(
            "users", One(Text("a name of at most 100 characters on one line", longest=100)),
            "Name of the population whose events these are; no budget can cap it.",
            derived="that of the budget, else users", derive=population,
        ),
    ),
    title="values-source",
    later={
        "filter": "a value stream gives every event a reading in its place, so none can be left out; put a"
        " stream processor before it (docs/topology.md), and remove filter",
    },
)  # fmt: skip


def _mechanism(kind: str) -> RecordShape:
    return RecordShape(
        (
            Field("kind", One(Choice((kind,))), f"mechanism, {kind}", True),
            Field("epsilon", One(Rational(1000)), "privacy budget of a single value, read exactly", True),
            *OPTIONS[kind],
        ),
        title=f"{kind}-mechanism",
    )


def _held(default: str) -> Field:
    return Field(
        "held",
        One(Whole(1, HELD_LIMIT)),
        "Values that a threshold is estimated from (m); they get no reading.",
        default=default,
    )


def _fanout(default: str) -> Field:
    return Field("fanout", One(Whole(2, 2**10)), "Children of a node (b).", default=default)


_CHUNK = Field(
    "chunk",
    One(Whole(2, 2**32)),
    "Values of one hierarchy (r): the longest range that is measured well.",
    default="1048576",
)
OPTIONS: Mapping[str, tuple[Field, ...]] = {
    "tops": (
        _held("4096"),
        _CHUNK,
        _fanout("16"),
        Field(
            "smoothed",
            One(Whole(0, 32)),
            "Lowest levels without noise of their own (s).",
            derived="what has the smallest error",
        ),
        Field(
            "smoother",
            One(Choice(("recent", "mean", "median", "moving-average", "exponential"))),
            "How values inside a node are estimated.",
            default="recent",
        ),
        Field("length", One(Whole(1, 1024)), "Nodes of a moving average.", default="8"),
        Field("alpha", One(Rational(1)), "Weight of the newest node, exponential.", default="0.5"),
        Field(
            "maximum_by",
            One(Choice(("laplace", "exponential"))),
            "Noise by which the threshold is chosen.",
            default="laplace",
        ),
        Field(
            "excess",
            One(Rational(LARGEST_VALUE)),
            "By how much a value above the threshold typically exceeds it, in steps of the grid (c).",
            default="60",
        ),
        Field(
            "drift",
            One(Or(_OFF, Rational(1_000_000))),
            "Choose a new threshold when the mean of a chunk has moved by this factor, above 1.",
            default=_OFF,
        ),
    ),
    "pak": (
        Field(
            "delta",
            One(Rational(1, Fraction(1, 10**15), 16)),
            "what is added to e^epsilon times the probability of any set of outputs, below 1",
            True,
        ),
        _held("65536"),
        _CHUNK,
        Field("quantile", One(Rational(1)), "The quantile of the held-back values that becomes the "
            "threshold.", default="0.99575"),
        Field("failure", One(Rational(1)), "The probability that it is too low.", default="0.006"),
        Field("clamp", One(Choice(("true", "false"))), "Cut the threshold at the maximum.", default="true"),
        _fanout("2"),
    ),
}  # fmt: skip


def options_of(mechanism: Section) -> dict[str, Any]:
    """The options for ``eventveil.values``, those left out without those that it derives."""
    names = (field.name for field in OPTIONS[mechanism.get("kind")])
    return {name: _plain(mechanism.get(name)) for name in names if mechanism.get(name) is not None}


def _plain(value: Any) -> Any:
    words = {_OFF: None, "true": True, "false": False}
    return value.value if isinstance(value, Exact) else words.get(value, value)
