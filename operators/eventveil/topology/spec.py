"""The whole topology file, version 1, as one table: keys, kinds, defaults and help.

Everything that a reader or an editor needs to know about a key is said here, and only here; of the options of
mechanisms in ``eventveil.topology.options``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from eventveil.mechanisms import plugins, registry
from eventveil.model.errors import PluginRefused
from eventveil.topology.columns import COLUMN_LIMIT, Columns
from eventveil.topology.document import Node, Scalar, Table
from eventveil.topology.fields import Field, Invalid, Named, One, Reading, Record, Section
from eventveil.topology.local import local_stream
from eventveil.topology.options import (
    EXTENT_HELP,
    LONGEST_WINDOW,
    OPTIONS,
    TRUSTED,
    extent_of,
    options_of,
)
from eventveil.topology.scalars import (
    NAME_OF,
    Choice,
    Duration,
    Label,
    Or,
    Plain,
    Pointer,
    Rational,
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
from eventveil.topology.values import ByKind, value_stream
from eventveil.values.kinds import VALUE_KINDS

NAME = r"[a-z0-9][a-z0-9._-]{0,99}"
NAME_EXPECTED = (
    "1 to 100 lower-case letters, digits, dots, dashes and underscores, the first a letter or digit"
)
PLANNED_OPTIONS = ("noise",)


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
    local = {kind: local_stream(kind, counts) for kind in registry.LOCAL_KINDS}
    return ByKind(_kind(), counts, {kind: value_stream(kind) for kind in VALUE_KINDS} | local)


def _stream() -> Record:
    sink = Record(
        (
            Field("topic", One(Topic()), "topic of sanitized counts, of this stream alone", True),
            Field("counts", One(Choice(("object", "array"))), "Form of the counts.", default="object"),
            Field(
                "minimum",
                One(Whole(0, 0)),
                "0: negative counts are released as 0. It costs no budget, and biases sums upwards.",
            ),
        ),
        title="counts-sink",
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
        ),
        title="counts-stream",
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
        ),
        title="counts-source",
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
    return Record(
        (
            Field(
                "columns", Columns(), "public columns: a list, {file: columns.txt} or {range: [0, 99]}", True
            ),
            Field(
                "contributions",
                One(Or(TRUSTED, Whole(1, COLUMN_LIMIT))),
                "Events of one user that count per timestamp; trusted, with pan_private: producers send one.",
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


def _every_kind() -> tuple[str, ...]:
    return (*sorted(registry.KINDS), *VALUE_KINDS, *registry.LOCAL_KINDS)


def _kind() -> One:
    return One(KindOfMechanism(_every_kind()))


def _mechanism() -> Record:
    kinds = tuple(sorted(registry.KINDS))
    later_option = "{} is not available in this version; remove it"
    return RecordOfMechanism(
        (
            Field("kind", _kind(), f"mechanism, {one_of(_every_kind())}; or a plug-in, module:Class", True),
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
                "What may differ at a protected timestamp: whether users are there, or also what they do.",
                default="add-remove",
            ),
        ),
        rules=_option_rules(kinds, ("kind", "epsilon", "adjacency")),
        later={name: later_option.format(name) for name in PLANNED_OPTIONS if name not in OPTIONS},
        title="counts-mechanism",
    )


class KindOfMechanism(Choice):
    """A kind of mechanism: one of Eventveil, or a plug-in, which is imported."""

    def parse(self, scalar: Scalar) -> str:
        """The kind's name."""
        plugin = ":" in scalar.text or scalar.text in plugins.installed()
        if not is_text(scalar) or not plugin or scalar.text in self.words:
            return super().parse(scalar)
        try:
            registry.find(scalar.text)
        except PluginRefused as refused:
            raise UnavailableError(str(refused)) from None
        return scalar.text

    def strict_schema(self) -> Schema:
        """An enumeration, with the plug-ins that are installed here, or any module:Class."""
        names = [name for name in plugins.installed() if name not in self.words]
        target = {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$"}
        return {NAME_OF: "kind", "anyOf": [{"enum": [*self.words, *names]}, target]}


class RecordOfMechanism(Record):
    """The keys of every mechanism of Eventveil, and the options that a plug-in declares for itself."""

    def read(self, node: Node, name: str, reading: Reading) -> Section | Invalid:
        """See ``Record.read``."""
        own = tuple(Field(option, One(Plain()), "an option of a plug-in") for option in self._own(node))
        return Record((*self.fields, *own), self.rules, self.later).read(node, name, reading)

    def _own(self, node: Node) -> Iterable[str]:
        """The options that only the plug-in knows; all keys if it was refused: one mistake is enough."""
        kind = node.entries.get("kind") if isinstance(node, Table) else None
        if not isinstance(kind, Scalar) or not isinstance(node, Table) or kind.text in registry.KINDS:
            return ()
        known = {field.name for field in self.fields}
        try:
            return sorted(options_of(kind.text) - known)
        except PluginRefused:
            return [key for key in node.entries if key not in known] if ":" in kind.text else ()

    def schema(self) -> Schema:
        """As for every record, but that beside a kind which is not of Eventveil other keys may stand."""
        return {**super().schema(), "additionalProperties": {"type": ["string", "number", "boolean"]}}


def _option_rules(kinds: tuple[str, ...], always: tuple[str, ...]) -> Schema:
    """The schema's rule that each kind has its own keys, beside those of every kind, and which it needs."""
    alike: dict[tuple[str | None, frozenset[str]], list[str]] = {}
    for kind in kinds:
        alike.setdefault((extent_of(kind), options_of(kind)), []).append(kind)

    def rule(extents: list[str], options: frozenset[str], kinds: list[str]) -> Schema:
        return {
            "if": {"properties": {"kind": {"enum": kinds}}, "required": ["kind"]},
            "then": {"required": extents, "propertyNames": {"enum": [*always, *extents, *sorted(options)]}},
        }

    return {"allOf": [rule([key] if key else [], options, some) for (key, options), some in alike.items()]}


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
