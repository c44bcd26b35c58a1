"""The whole topology file, version 1, as one table: keys, kinds, defaults and help.

Everything that a reader or an editor needs to know about a key is said here, and only here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from operators import mechanisms
from operators.errors import PluginRefused
from operators.mechanisms import plugins
from operators.topology.columns import COLUMN_LIMIT, Columns
from operators.topology.document import Node, Scalar, Table
from operators.topology.local import local_stream
from operators.topology.model import Level, Option
from operators.topology.problems import START
from operators.topology.scalars import (
    Choice,
    Duration,
    Exact,
    Label,
    Plain,
    Pointer,
    Rational,
    RationalOr,
    Schema,
    Servers,
    Text,
    Time,
    Topic,
    UnavailableError,
    Whole,
    is_text,
    one_of,
)
from operators.topology.shapes import Field, Invalid, Named, One, Reading, Record, Section
from operators.topology.values import ByKind, value_stream
from operators.values.kinds import VALUE_KINDS

NAME = r"[a-z0-9][a-z0-9._-]{0,99}"
NAME_EXPECTED = (
    "1 to 100 lower-case letters, digits, dots, dashes and underscores, the first a letter or digit"
)
# Budget state holds one spend per timestamp of the window and must stay a Kafka message.
LONGEST_WINDOW = 1_000_000
# Sums over a span must stay exact, and a release with its history a Kafka message.
LONGEST_SPAN = 4096
# The limits of operators.mechanisms.groups.
MOST_GROUPS = 1000
LONGEST_PERIOD = 2**20
PLANNED_OPTIONS = ("pan_private", "noise")
# The key that says how many timestamps epsilon covers; at event level it is always one.
EXTENT: Mapping[Level, str] = {"w-event": "window", "user": "horizon"}
EXTENT_HELP = {
    "window": "timestamps that are protected together (w)",
    "horizon": "timestamps for which a user is protected, and in which the budget is spent",
}


@dataclass(frozen=True)
class MechanismOption:
    """An option of some kinds; operators.mechanisms says which, and what ``derived`` values come to.

    A setting equal to ``off`` means what leaving it out means, also to the fingerprint.
    """

    shape: One
    help: str
    default: str | None = None
    derived: str = ""
    off: Option | None = None

    @property
    def text(self) -> str:
        """What it is when left out."""
        return self.default or self.derived

    def value(self, given: Any) -> Option | None:
        """The value for a mechanism, of what was read (None: left out); None where it derives its own."""
        if given is None and self.default is not None:
            given = self.shape.kind.parse(Scalar(START, self.default))
        value: Option | None = given.value if isinstance(given, Exact) else given
        return None if value == self.off else value


OPTIONS: dict[str, MechanismOption] = {
    "factor": MechanismOption(
        One(Rational(1_000_000)),
        "Counts are published anew when they changed by more than this many times the noise.",
        "1",
    ),
    "span": MechanismOption(
        One(Whole(1, LONGEST_SPAN)), "Timestamps in the sliding window of each release.", "1"
    ),
    "share": MechanismOption(
        One(Rational(1)), "Part of epsilon for watching whether counts have changed.", "0.1"
    ),
    "sampling": MechanismOption(
        One(RationalOr("best", 1)),
        "Rate at which events are sampled for watching, in whole percents; the best is always 1.",
        "best",
    ),
    "on_horizon": MechanismOption(
        One(Choice(("repeat", "renew"))),
        "After the horizon: repeat the last release for ever, or renew and spend epsilon again.",
        "repeat",
    ),
    "samples": MechanismOption(
        One(Rational(1)), "Part of the timestamps of a horizon that may be published.", "0.4"
    ),
    "parts": MechanismOption(
        One(Whole(1, LONGEST_SPAN)),
        "Groups in which each window is offered, at most.",
        derived="a tenth of the span, at least 1",
    ),
    "delta": MechanismOption(
        One(Rational(1_000_000)),
        "How much costlier a group may be than the best one; more is faster.",
        derived="1 / (2 parts)",
    ),
    "shift": MechanismOption(
        One(Choice(("true", "false"))),
        "Spend less on the test and more on publications when there are many columns.",
        derived="false",
        off="false",
    ),
    "groups": MechanismOption(
        One(Whole(1, MOST_GROUPS)),
        "Groups of columns that are published apart, by how much their releases move.",
        derived="1",
        off=1,
    ),
    "regroup": MechanismOption(
        One(Whole(1, LONGEST_PERIOD)),
        "Timestamps after which the groups are formed anew.",
        derived="the window",
    ),
    "max_samples": MechanismOption(
        One(Whole(1, LONGEST_WINDOW)),
        "The most samples in a block of as many timestamps as the window.",
        derived="a quarter of the window, at least 1",
    ),
    "drift": MechanismOption(
        One(Rational(1_000_000)),
        "How much a count is expected to change in a timestamp (standard deviation).",
        "10",
    ),
}
_PLUGIN_OPTION = MechanismOption(One(Plain()), "an option of a plug-in", derived="what the plug-in decides")


def option_of(name: str) -> MechanismOption:
    """An option by its name; those that OPTIONS does not know belong to plug-ins."""
    return OPTIONS.get(name, _PLUGIN_OPTION)


def options_of(kind: str) -> frozenset[str]:
    """The options that a kind of mechanism takes."""
    return frozenset(mechanisms.find(kind).options)


def extent_of(kind: str) -> str | None:
    """The key that says how many timestamps epsilon covers; None at event level."""
    return EXTENT.get(mechanisms.find(kind).level)


@functools.cache
def layout() -> Record:
    """The shape of a topology file."""
    return Record(
        (
            Field(
                "version",
                One(Whole(1, 1)),
                "Version of the file format; this Eventveil reads version 1.",
                True,
            ),
            Field(
                "name",
                One(Text(NAME_EXPECTED, NAME)),
                "Application: prefix of group, transactions and topics.",
                True,
            ),
            Field("kafka", _kafka(), "The brokers and how to reach them."),
            Field("topics", _topics(), "Settings of the topics that Eventveil creates."),
            Field(
                "streams",
                Named(_streams(), "stream", NAME, NAME_EXPECTED),
                "Sanitized streams by name.",
                True,
            ),
            Field(
                "budget",
                _budget(),
                "A cap on what the streams of a population cost together; left out: no cap.",
            ),
        )
    )


def _kafka() -> Record:
    path = One(Text("the path of a file, relative to the topology"))
    security = Record(
        (
            Field(
                "protocol",
                One(Choice(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"))),
                "Encryption and authentication.",
                default="PLAINTEXT",
            ),
            Field("mechanism", One(Choice(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"))), "SASL mechanism."),
            Field("username", One(Text("a name on one line")), "SASL user name."),
            Field("password", One(Text("a password on one line")), "SASL password, best as ${file:/path}."),
            Field("ca", path, "PEM file of the certificate authority; left out: those of the system."),
            Field("certificate", path, "PEM file of the client certificate."),
            Field("key", path, "PEM file of the client key."),
        )
    )
    return Record(
        (
            Field(
                "bootstrap",
                One(Servers()),
                "First brokers, host:port, separated by commas.",
                default="localhost:9092",
            ),
            Field("security", security, "Encryption and authentication of the connection."),
        )
    )


def _topics() -> Record:
    return Record(
        (
            Field("replication", One(Whole(1, 100)), "Copies of each partition.", default="3"),
            Field(
                "min_insync",
                One(Whole(1, 100)),
                "Copies that must hold a write (min.insync.replicas).",
                default="2",
            ),
            Field(
                "partitions",
                One(Whole(1, 100_000)),
                "Partitions of sources it is told to create.",
                default="12",
            ),
            Field(
                "partials",
                One(Whole(1, 10_000)),
                "Partitions of partial counts and of the ledger.",
                default="4",
            ),
        )
    )


def _streams() -> ByKind:
    counts = _stream()
    local = {kind: local_stream(kind, counts) for kind in mechanisms.LOCAL_KINDS}
    return ByKind(counts, {kind: value_stream(kind) for kind in VALUE_KINDS} | local)


def _stream() -> Record:
    sink = Record(
        (
            Field("topic", One(Topic()), "topic of sanitized counts, of this stream alone", True),
            Field("counts", One(Choice(("object", "array"))), "Form of the counts.", default="object"),
        )
    )
    return Record(
        (
            Field("source", _source(), "raw events: topic, user, column, time", True),
            Field("timeline", _timeline(), "how time is cut: interval, origin", True),
            Field("counts", _counts(), "what is counted: columns", True),
            Field("mechanism", _mechanism(), "how counts are protected: kind, epsilon, window", True),
            Field("sink", sink, "where sanitized counts go: topic", True),
            Field(
                "dead_letter",
                One(Topic()),
                "Topic of events that do not count, raw and private.",
                derived="the name of the topology followed by .dead",
            ),
        )
    )


def _source() -> Record:
    return Record(
        (
            Field("topic", One(Topic()), "topic of raw events, keyed by user", True),
            Field("format", One(Choice(("json",))), "Encoding of events.", default="json"),
            Field("user", One(Pointer()), "JSON pointer to the user, such as /user", True),
            Field(
                "user_type", One(Choice(("string", "integer"))), "JSON type of the user.", default="string"
            ),
            Field("column", One(Pointer()), "JSON pointer to what is counted, such as /place", True),
            Field(
                "time",
                One(Pointer()),
                "JSON pointer to the event's time, epoch milliseconds or RFC 3339",
                True,
            ),
            Field(
                "partitioner",
                One(Choice(("murmur2", "crc32"))),
                "How producers choose the partition: murmur2 (Java, aiokafka) or crc32 (librdkafka).",
                default="murmur2",
            ),
            Field(
                "max_bytes",
                One(Whole(1, 2**30)),
                "Events with a longer value do not count.",
                default="1048576",
            ),
            Field(
                "users",
                One(Text("a name of at most 100 characters on one line", longest=100)),
                "Name of the population whose events these are; budgets add up within one.",
                derived="that of the budget, else users",
            ),
            Field(
                "repartition",
                One(Choice(("false", "true"))),
                "Re-key events by user first, for topics that are keyed otherwise.",
                default="false",
            ),
            Field(
                "append_time",
                One(Choice(("broker", "boundary"))),
                "What decides who is late: the broker's append times, or where the log ends when it is due.",
                default="broker",
            ),
        )
    )


def _timeline() -> Record:
    return Record(
        (
            Field("interval", One(Duration(1)), "length of a timestamp, such as 1h", True),
            Field("origin", One(Time()), "start of timestamp 1, such as 2013-01-01T00:00:00Z", True),
            Field(
                "lateness", One(Duration()), "How long after its end a timestamp takes events.", default="0s"
            ),
            Field(
                "max_ahead",
                One(Duration()),
                "How far an event's time may be ahead: of the broker's, or of the next boundary.",
                derived="the interval, or 7d with append_time: boundary",
            ),
            Field(
                "clock_skew",
                One(Duration(1)),
                "Largest difference between the clocks of workers and brokers. An answer of a broker must not"
                " take longer either, or nothing closes.",
                default="1s",
            ),
            Field("start", One(Time(now=True)), "First instant that is counted.", default="now"),
            Field(
                "on_missing",
                One(Choice(("wait", "release"))),
                "What to do while a partition of the source has no leader: wait, or release without it.",
                default="wait",
            ),
            Field(
                "grace",
                One(Duration()),
                "How long to wait for such a partition before that.",
                derived="5m, with on_missing: release",
            ),
        )
    )


def _counts() -> Record:
    trusted = "contributions: trusted is not available in this version; give the bound as a whole number"
    return Record(
        (
            Field(
                "columns", Columns(), "public columns: a list, {file: columns.txt} or {range: [0, 99]}", True
            ),
            Field(
                "contributions",
                One(Whole(1, COLUMN_LIMIT, {"trusted": trusted})),
                "Events of one user that count per timestamp.",
                default="1",
            ),
            Field(
                "unknown",
                One(Label()),
                "Fate of events with another column: dead-letter, ignore, or the column that takes them.",
                default="dead-letter",
            ),
        )
    )


def _mechanism() -> Record:
    kinds = tuple(sorted(mechanisms.KINDS))
    every = (*kinds, *VALUE_KINDS, *mechanisms.LOCAL_KINDS)
    later_option = "{} is not available in this version; remove it"
    return RecordOfMechanism(
        (
            Field(
                "kind",
                One(KindOfMechanism(every)),
                f"mechanism, {one_of(every)}; or a plug-in, module:Class",
                True,
            ),
            Field(
                "epsilon", One(Rational(1000)), "privacy budget of a window, read exactly, such as 1.0", True
            ),
            Field("window", One(Whole(1, LONGEST_WINDOW)), EXTENT_HELP["window"]),
            Field("horizon", One(Whole(1, LONGEST_WINDOW)), EXTENT_HELP["horizon"]),
            *(
                Field(name, option.shape, option.help, derived=f"{option.text}, for kinds that have it")
                for name, option in OPTIONS.items()
            ),
            Field(
                "adjacency",
                One(Choice(("add-remove", "substitute"))),
                "What may differ in a protected timestamp: all of a user's events, or also their columns.",
                default="add-remove",
            ),
        ),
        rules=_option_rules(kinds),
        later={name: later_option.format(name) for name in PLANNED_OPTIONS if name not in OPTIONS},
    )


class KindOfMechanism(Choice):
    """A kind of mechanism: one of Eventveil, or a plug-in, which is imported."""

    def parse(self, scalar: Scalar) -> str:
        """The kind's name."""
        plugin = ":" in scalar.text or scalar.text in plugins.installed()
        if not is_text(scalar) or not plugin or scalar.text in self.words:
            return super().parse(scalar)
        try:
            mechanisms.find(scalar.text)
        except PluginRefused as refused:
            raise UnavailableError(str(refused)) from None
        return scalar.text

    def strict_schema(self) -> Schema:
        """An enumeration, with the plug-ins that are installed here, or any module:Class."""
        names = [name for name in plugins.installed() if name not in self.words]
        target = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"}
        return {"anyOf": [{"enum": [*self.words, *names]}, target]}


class RecordOfMechanism(Record):
    """The keys of every mechanism of Eventveil, and the options that a plug-in declares for itself."""

    def read(self, node: Node, name: str, reading: Reading) -> Section | Invalid:
        """See ``Record.read``."""
        own = tuple(Field(option, One(Plain()), "an option of a plug-in") for option in self._own(node))
        return Record((*self.fields, *own), self.rules, self.later).read(node, name, reading)

    def _own(self, node: Node) -> Iterable[str]:
        """The options that only the plug-in knows; all keys if it was refused: one mistake is enough."""
        kind = node.entries.get("kind") if isinstance(node, Table) else None
        if not isinstance(kind, Scalar) or not isinstance(node, Table) or kind.text in mechanisms.KINDS:
            return ()
        known = {field.name for field in self.fields}
        try:
            return sorted(options_of(kind.text) - known)
        except PluginRefused:
            return [key for key in node.entries if key not in known] if ":" in kind.text else ()

    def schema(self) -> Schema:
        """As for every record, but that beside a kind which is not of Eventveil other keys may stand."""
        schema = super().schema()
        kinds = {"properties": {"kind": {"enum": sorted(mechanisms.KINDS)}}, "required": ["kind"]}
        names = {"propertyNames": {"enum": [field.name for field in self.fields]}}
        schema["additionalProperties"] = {"type": ["string", "number", "boolean"]}
        return {**schema, "allOf": [{"if": kinds, "then": names}, *schema["allOf"]]}


def _option_rules(kinds: tuple[str, ...]) -> dict[str, Any]:
    """The schema's rule that a key stands only beside a kind that takes it, and where it must stand."""

    def when(some: list[str], then: dict[str, Any]) -> dict[str, Any]:
        return {"if": {"properties": {"kind": {"enum": some}}, "required": ["kind"]}, "then": then}

    rules = []
    for key in EXTENT.values():
        rules.append(when([kind for kind in kinds if extent_of(kind) == key], {"required": [key]}))
    for key in (*EXTENT.values(), *OPTIONS):
        without = [kind for kind in kinds if key != extent_of(kind) and key not in options_of(kind)]
        rules.append(when(without, {"properties": {key: False}}))
    return {"allOf": rules}


def _budget() -> Record:
    return Record(
        (
            Field("epsilon", One(Rational(1_000_000)), "cap on the sum, such as 5", True),
            Field("span", One(Duration(1)), "length of time over which streams add up, such as 5d", True),
            Field(
                "users",
                One(Text("a name of at most 100 characters on one line", longest=100)),
                "The population that is capped, and that of sources without users.",
                default="users",
            ),
        )
    )
