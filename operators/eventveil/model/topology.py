"""The topology as the rest of the program sees it: validated, typed, frozen.

Times are integers in milliseconds since the Unix epoch, durations integers in milliseconds, epsilon an
exact rational. Nothing here reads a file; see ``eventveil.topology.loading.load``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

from eventveil.model import fields
from eventveil.model.records import MANAGED_MESSAGE_BYTES, MAX_MESSAGE_BYTES

Format = Literal["json", "json-schema", "avro", "protobuf"]
"""How values are written: JSON, or behind the prefix of a schema registry JSON, Avro or Protobuf."""
SinkFormat = Literal["json", "json-schema", "avro"]
"""How releases are written: as JSON, or behind the prefix of a schema registry as JSON or Avro."""
#: The formats in which a value cannot be read without the schema that it names.
BY_SCHEMA: frozenset[Format] = frozenset({"avro", "protobuf"})
TimeUnit = Literal["ms", "s", "us", "ns"]
Adjacency = Literal["add-remove", "substitute"]
Partitioner = Literal["murmur2", "crc32"]
Option = Fraction | int | str
Level = Literal["w-event", "event", "user", "local"]
"""What epsilon covers of a user: any ``window`` consecutive timestamps, any one, or a horizon of them.

``local``: any one report, which was made private before it was sent (``eventveil.local``).
"""
KindOfStream = Literal["counts", "pan-private", "local", "engine", "values"]
"""What ``eventveil.kinds`` goes by: all that differs from kind to kind is found there."""


Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"]
"""How a client says who it is; AWS_MSK_IAM is OAUTHBEARER to the brokers, GSSAPI is Kerberos."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """How a client comes in: with name and password, a certificate, or a token, or several of these.

    Tokens are in ``token_file``, or come from ``token_url`` by client credentials. Files are paths.
    """

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    token_url: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None
    token_ca: str | None = None
    token_file: str | None = None


@dataclass(frozen=True, slots=True)
class Security(Login):
    """Connection security, written once and translated for librdkafka and for aiokafka.

    With AWS_MSK_IAM tokens are signed for ``region`` with the credentials of the environment. With GSSAPI
    brokers of ``service_name`` see tickets of the environment. ``extensions`` are what brokers of OAUTHBEARER
    are told beside the token: name=value, separated by commas.
    """

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    mechanism: Mechanism | None = None
    extensions: str | None = None
    region: str | None = None
    service_name: str | None = None

    @property
    def extension_values(self) -> dict[str, str]:
        """``extensions`` by name."""
        return dict(one.split("=", 1) for one in (self.extensions or "").split(",") if one)


@dataclass(frozen=True, slots=True)
class Clients:
    """What is handed to every client as it is: its name, TLS 1.2 ciphers, and idle time in milliseconds."""

    client_id: str | None = None
    ciphers: str | None = None
    idle: int | None = None


@dataclass(frozen=True, slots=True)
class Kafka:
    """Where the brokers are: ``bootstrap`` is a comma separated list of host:port."""

    bootstrap: str
    security: Security = Security()
    clients: Clients = Clients()


@dataclass(frozen=True, slots=True)
class Registry(Login):
    """A schema registry with Confluent's interface: ``url`` may be several, separated by commas.

    Requests carry name and password, or a token, or neither; ``token`` is one that never changes.
    ``logical_cluster`` and ``identity_pool`` are what Confluent Cloud wants beside a token.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    logical_cluster: str | None = None
    identity_pool: str | None = None

    @property
    def bearer(self) -> bool:
        """Whether requests carry a token."""
        return any(one is not None for one in (self.token, self.token_file, self.token_url))


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings of the topics that Eventveil creates.

    ``partitions`` is for sources it is told to create; ``partials`` is the number of partitions of the
    partials topic, the ledger and the ledger changelog. ``managed``: the cluster is a managed service, which
    limits what can be set.
    """

    replication: int = 3
    min_insync: int = 2
    partitions: int = 12
    partials: int = 4
    managed: Literal["true", "false"] = "false"

    @property
    def message_bytes(self) -> int:
        """The largest message that its topics have to take."""
        return MANAGED_MESSAGE_BYTES if self.managed == "true" else MAX_MESSAGE_BYTES


#: More events than a timestamp can have.
UNBOUNDED = 2**40
#: As lateness: nothing is ever late, also behind a watermark. Files have neither append times nor order.
ENDLESS = 2**62


@dataclass(frozen=True, slots=True)
class Condition:
    """What a filter asks of one field (``eventveil.model.fields``): that it is there, or what it is.

    ``in`` and ``not-in`` compare with ``values``, of which 7, "7" and true are three.
    """

    field: str
    test: Literal["in", "not-in", "present", "absent"]
    values: tuple[str | int | bool, ...] = ()


@dataclass(frozen=True, slots=True)
class NameMap:
    """The names that the contents of one field get: of a whole text, else of the longest prefix that fits.

    ``otherwise`` is the name of every other text; None: it stays as it is.
    """

    field: str
    values: tuple[tuple[str, str], ...] = ()
    prefixes: tuple[tuple[str, str], ...] = ()
    otherwise: str | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A raw topic and where its events hold user, column and time (``eventveil.model.fields``).

    Several fields of a user or time stand for the first that is there, several of a column for a combination.
    An event counts only if every condition of ``filter`` holds. ``maps`` name what fields of the column hold.
    Numbers as times are epoch times in ``time_unit``; texts without a zone are local times in ``time_zone``.
    ``population`` names the people whose events these are: the budget adds up over streams that share it.
    ``append_time`` says what decides whether an event is late: the broker's time of its record, or boundaries
    (``eventveil.counting.boundaries``). ``raw`` is the topic that is re-keyed by user into ``topic``
    (``eventveil.tasks.repartition``), None where producers key their events by user.

    ``count`` is where records that are counts of an engine hold the number, None where records are events.
    Of such records the column takes the place of the user: it says which partition they belong to.
    ``watermark`` is where some of them say what is complete (``eventveil.counting.engine``).

    ``own_time``: the time of events is, or may be, the timestamp that their records carry. That is what
    ``$time`` means where boundaries decide what is late; elsewhere it is the append time.
    """

    topic: str
    user: str
    column: str
    time: str
    format: Format = "json"
    user_type: Literal["string", "integer", "either"] = "string"
    partitioner: Partitioner = "murmur2"
    max_bytes: int = 1_048_576
    population: str = "users"
    append_time: Literal["broker", "boundary"] = "broker"
    raw: str | None = None
    filter: tuple[Condition, ...] = ()
    maps: tuple[NameMap, ...] = ()
    time_unit: TimeUnit = "ms"
    time_zone: str | None = None
    count: str | None = None
    watermark: str | None = None
    own_time: bool = False

    @property
    def looked_at(self) -> frozenset[str]:
        """Every field that a verdict looks at."""
        return frozenset(
            (
                *fields.listed(self.user),
                *fields.listed(self.column),
                *fields.listed(self.time),
                *(condition.field for condition in self.filter),
                *(field for field in (self.count, self.watermark) if field is not None),
            )
        )

    @property
    def pointers(self) -> frozenset[str]:
        """Those of them that are in the value."""
        return frozenset(field for field in self.looked_at if fields.is_pointer(field))

    @property
    def first_user(self) -> str:
        """Where the user is, or is looked for first."""
        return fields.listed(self.user)[0]

    @property
    def has_names(self) -> bool:
        """Whether several fields or a map name its columns: an integer is as good as its digits then."""
        return len(fields.listed(self.column)) > 1 or self.column in {one.field for one in self.maps}

    @property
    def keyed_by(self) -> Literal["user", "column"]:
        """Which of these says what partition a record belongs to."""
        return "user" if self.count is None else "column"

    @property
    def verdicts_may_change(self) -> bool:
        """Whether a record may be judged in another way when it is read again, under the same file.

        A schema that its registry did not know may be known by then, and time zones follow a database.
        """
        return self.format in BY_SCHEMA or self.time_zone is not None

    @property
    def writers(self) -> str:
        """Who chooses that partition, in words."""
        return "producers" if self.count is None else "the engine"

    def in_bulk(self, counts: Counts) -> bool:
        """Whether its events are judged many at once: user and time are at one field each.

        Of several for the user the first is looked at. What is around a value is text; a value that nothing
        is read of need not be readable. A ``time_zone`` only bears on times without a zone. Names of columns
        that are found are of single fields and of events that pass, as a map has them: with a filter or a map
        they are judged one by one.
        """
        user, columns, time = self.first_user, fields.listed(self.column), self.time
        inside = [one[:1] not in ("$", "[") for one in (user, *columns, time)]
        around = [
            fields.is_text(user) and self.user_type != "integer",
            *(fields.is_text(one) and counts.column_type == "string" for one in columns),
            time == fields.TIME,
        ]
        ruled = bool(self.filter) or self.has_names
        return (
            any(inside)
            and all(one or other for one, other in zip(inside, around, strict=True))
            and fields.VALUE not in (one.field for one in self.filter)
            and not (ruled and counts.discover)
        )

    @property
    def has_boundaries(self) -> bool:
        """Whether boundaries of ``topic`` decide what is late. Re-keyed events carry what decides it."""
        return self.append_time == "boundary" and self.raw is None

    @property
    def topic_of_events(self) -> str:
        """The topic that producers write to."""
        return self.raw or self.topic


@dataclass(frozen=True, slots=True)
class Timeline:
    """Timestamp t >= 1 covers [origin + (t-1) interval, origin + t interval).

    Its deadline is its end plus ``lateness``. ``start`` is the requested first instant; None means the
    moment at which the topics are created. ``grace`` is how long after it is due a timestamp waits for a
    partition without a leader; None means until it is back.
    """

    interval: int
    origin: int
    lateness: int = 0
    max_ahead: int = 0
    clock_skew: int = 1000
    start: int | None = None
    grace: int | None = None


@dataclass(frozen=True, slots=True)
class Discover:
    """Columns are found in the data (``eventveil.privacy.discovery``), at ``epsilon`` and ``delta`` a window.

    ``share`` is the part of the stream's epsilon that this is; the mechanism has the rest. At most ``most``
    columns are found, none of whose names is longer than ``longest`` characters, and not more than a state of
    ``message_bytes`` holds. ``forget``: after that many quiet blocks in a row a
    column is forgotten; None: never.
    """

    epsilon: Fraction
    delta: Fraction
    share: Fraction
    most: int
    longest: int
    message_bytes: int = MAX_MESSAGE_BYTES
    forget: int | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """The public columns and the contribution bound per user and timestamp.

    ``labels`` are the column names in order. ``column_type`` is the JSON type of the column field.
    ``unknown`` says what becomes of an event whose column is not listed: ``"dead-letter"``, ``"ignore"``,
    or ``"column"`` with ``unknown_column`` the index of the column that takes it. ``released`` are the
    columns of a release where those are not what is counted: each local report is a column. ``expected`` is
    about how many events a timestamp counts on average, by public knowledge; only a warning rests on it.
    ``per_column``: how many of a user's ``contributions`` count in one column
    (``eventveil.counting.bounding_by_column``), at least 1 and fewer than all; None: all may be in one.
    With ``discover`` the first label is the column of all events whose own is not found, and the others are
    those that are: none in a topology.
    """

    labels: tuple[str, ...]
    column_type: Literal["string", "integer"] = "string"
    contributions: int = 1
    unknown: Literal["dead-letter", "ignore", "column"] = "dead-letter"
    unknown_column: int | None = None
    released: tuple[str, ...] = ()
    expected: int | None = None
    discover: Discover | None = None
    per_column: int | None = None


@dataclass(frozen=True, slots=True)
class MechanismSettings:
    """What kind of mechanism, its epsilon (exact; ``epsilon_text`` as written), window and options.

    ``window`` is the number of timestamps that epsilon covers: the kind's window, 1 at event level, the
    horizon at user level.

    An option that is absent means what the kind did before it had the option. ``per_column`` is that of the
    counts which the mechanism is for (``Counts``); Gaussian noise goes by it.
    """

    kind: str
    epsilon: Fraction
    epsilon_text: str
    window: int
    adjacency: Adjacency = "add-remove"
    options: Mapping[str, Option] = field(default_factory=dict)
    per_column: int | None = None

    @property
    def delta(self) -> Fraction | None:
        """That of Gaussian noise, 0 if it is not given; None: the noise is Laplace, and epsilon pure."""
        gaussian = self.options.get("noise") == "gaussian"
        return Fraction(self.options.get("delta", 0)) if gaussian else None


@dataclass(frozen=True, slots=True)
class Sink:
    """The topic of sanitized counts; ``counts`` chooses a name-to-count object or a plain array.

    Counts below ``minimum`` are released as it is; None: as they are drawn. ``format`` is that of the values.
    """

    topic: str
    counts: Literal["object", "array"] = "object"
    minimum: int | None = None
    format: SinkFormat = "json"


@dataclass(frozen=True, slots=True)
class Stream:
    """One stream of sanitized counts. ``dead_letter`` is a topic name."""

    name: str
    source: Source
    timeline: Timeline
    counts: Counts
    mechanism: MechanismSettings
    sink: Sink
    dead_letter: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a release, in order."""
        return self.counts.released or self.counts.labels

    @property
    def most_columns(self) -> int:
        """How many columns a release can have."""
        discover = self.counts.discover
        return len(self.columns) if discover is None else 1 + discover.most

    def having(self, found: Sequence[str]) -> Stream:
        """The same stream once these columns, and no others, are found; itself if it lists its columns."""
        if self.counts.discover is None:
            return self
        labels = (*self.counts.labels[:1], *found)
        return replace(self, counts=replace(self.counts, labels=labels))

    @property
    def is_read_in_bulk(self) -> bool:
        """Whether its events are judged many at once (``Source.in_bulk``)."""
        return self.source.in_bulk(self.counts)

    @property
    def epsilon(self) -> Fraction:
        """What a window costs in all: the mechanism's, and that of finding columns."""
        discover = self.counts.discover
        return self.mechanism.epsilon + (discover.epsilon if discover is not None else 0)

    @property
    def sink_topic(self) -> str:
        """Where what is released goes."""
        return self.sink.topic

    @property
    def kind(self) -> KindOfStream:
        """Local reports each are a column; the counters of a pan-private stream start with noise; those of an
        engine come with their number."""
        if self.counts.released:
            return "local"
        if self.source.count is not None:
            return "engine"
        return "pan-private" if "pan_private" in self.mechanism.options else "counts"

    @property
    def bound(self) -> int:
        """How many events of one user count per timestamp; all of them where producers are trusted."""
        return UNBOUNDED if self.kind == "pan-private" else self.counts.contributions

    @property
    def sensitivity(self) -> int:
        """L1 change of one timestamp's counts between neighbours: contributions, doubled for substitute."""
        return self.counts.contributions * (2 if self.mechanism.adjacency == "substitute" else 1)


@dataclass(frozen=True, slots=True)
class ValueSource:
    """A raw topic each of whose events has one value, at the JSON pointer ``value``; see ``Source``."""

    topic: str
    value: str
    format: Format = "json"
    max_bytes: int = 1_048_576
    population: str = "users"

    @property
    def own_time(self) -> bool:
        """See ``Source``: nobody asks when a value came."""
        return False

    @property
    def topic_of_events(self) -> str:
        """See ``Source``."""
        return self.topic


@dataclass(frozen=True, slots=True)
class ValueMechanism:
    """What kind of mechanism for values, the epsilon of one (exact; ``epsilon_text`` as written), options.

    ``options`` are keyword arguments of the kind's settings in ``eventveil.values``.
    """

    kind: str
    epsilon: Fraction
    epsilon_text: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadingStream:
    """One stream of sanitized readings, one per value (``eventveil.values``); ``sink`` is a topic.

    Values are rounded to multiples of ``step`` (``step_text`` as written) up to ``maximum`` of them.
    """

    name: str
    source: ValueSource
    maximum: int
    step: Fraction
    step_text: str
    mechanism: ValueMechanism
    sink: str

    @property
    def sink_topic(self) -> str:
        """See ``Stream.sink_topic``."""
        return self.sink

    @property
    def kind(self) -> KindOfStream:
        """See ``Stream.kind``."""
        return "values"


AnyStream = Stream | ReadingStream


@dataclass(frozen=True, slots=True)
class Budget:
    """A cap: over any ``span`` (ms) the streams of ``population`` cost at most ``epsilon`` together.

    ``delta`` caps the sum of their deltas, at which that epsilon is; None: nothing does.
    """

    epsilon: Fraction
    span: int
    population: str = "users"
    delta: Fraction | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """A whole topology file; ``streams`` of counts and ``readings`` of values in the order of the file."""

    path: str
    version: int
    name: str
    kafka: Kafka
    topics: TopicSettings
    streams: tuple[Stream, ...]
    budget: Budget | None = None
    readings: tuple[ReadingStream, ...] = ()
    registry: Registry | None = None

    @property
    def all_streams(self) -> tuple[AnyStream, ...]:
        """Of every kind."""
        return (*self.streams, *self.readings)

    @property
    def sources(self) -> tuple[str, ...]:
        """The topics that are counted, each once, in the order of the file."""
        return tuple(dict.fromkeys(stream.source.topic for stream in self.streams))

    @property
    def topics_of_events(self) -> tuple[str, ...]:
        """The topics that producers write to, of values too, each once, in the order of the file."""
        counted = (stream.source.topic_of_events for stream in self.streams)
        return tuple(dict.fromkeys((*counted, *self.value_sources)))

    @property
    def by_schema(self) -> frozenset[str]:
        """The topics whose values name the schemas that they can be read by, re-keyed ones included."""
        named = {one.source.topic for one in self.all_streams if one.source.format in BY_SCHEMA}
        raw = {one.source.raw for one in self.streams if one.source.format in BY_SCHEMA and one.source.raw}
        return frozenset(named | raw)

    @property
    def own_timed(self) -> frozenset[str]:
        """The topics that producers write to of whose records the own times are asked for."""
        return frozenset(one.source.topic_of_events for one in self.streams if one.source.own_time)

    @property
    def has_protobuf(self) -> bool:
        """Whether the values of any source are in Protobuf."""
        return any(one.source.format == "protobuf" for one in self.all_streams)

    @property
    def with_schemas(self) -> tuple[Stream, ...]:
        """The streams whose releases are written by a schema that a registry has to know."""
        return tuple(stream for stream in self.streams if stream.sink.format != "json")

    @property
    def rekeyed(self) -> dict[str, str]:
        """The topics of events that are re-keyed first, in the order of the file, and where to."""
        return {stream.source.raw: stream.source.topic for stream in self.streams if stream.source.raw}

    @property
    def rekeying_changelog(self) -> str:
        """Compacted; one partition per partition of the topics in ``rekeyed``."""
        return f"{self.name}-repartition-changelog"

    @property
    def value_sources(self) -> tuple[str, ...]:
        """The topics whose values are sanitized, each once, in the order of the file."""
        return tuple(dict.fromkeys(stream.source.topic for stream in self.readings))

    @property
    def state_changelog(self) -> str:
        """Compacted, raw; one partition per (topic, partition) of ``value_sources``, in their order."""
        return f"{self.name}-state-changelog"

    @property
    def counting_changelog(self) -> str:
        """Compacted; one partition per (source topic, partition), sources in the order of ``sources``."""
        return f"{self.name}-counting-changelog"

    @property
    def partials(self) -> str:
        """Partial counts per (stream, timestamp, source partition)."""
        return f"{self.name}-partials"

    @property
    def ledger_changelog(self) -> str:
        """Compacted; budget state and undelivered releases per stream."""
        return f"{self.name}-ledger-changelog"

    @property
    def control(self) -> str:
        """Compacted, public; what each stream of local reports asks its producers for."""
        return f"{self.name}-control"

    @property
    def announcements(self) -> str:
        """Append-only, never deleted: looks at the counters of pan-private streams, announced beforehand."""
        return f"{self.name}-announcements"

    @property
    def ledger(self) -> str:
        """Append-only, never deleted: one entry per release."""
        return f"{self.name}-ledger"
