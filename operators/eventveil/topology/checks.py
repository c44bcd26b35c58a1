"""What no section of a stream can show: rules over topics, over streams, and over the sections around them.

Rules between the settings of a section are with its table (``RecordShape.check``).

Every rule looks only at what could be read, so that one mistake never hides another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eventveil.topology.budget import check_budget, check_uncapped
from eventveil.topology.build import all_streams_of, parts_of, streams_of, written_kind
from eventveil.topology.clients import check_clients
from eventveil.topology.counts import SOURCE, repartitioned
from eventveil.topology.fields import Section
from eventveil.topology.problems import Position
from eventveil.topology.registry import check_registry

# What follows the name of the topology in topics of Eventveil itself; eventveil.model.topology names them.
INTERNAL_TOPICS = (
    "repartition-changelog",
    "counting-changelog",
    "partials",
    "ledger-changelog",
    "ledger",
    "state-changelog",
    "control",
    "announcements",
)
# Two streams that read one topic must see the same users in the same partitions, by the same clock.
SHARED = tuple(row.name for row in SOURCE.fields if row.shared)


def check(file: Section) -> None:
    """Note every broken rule."""
    _check_topics_section(file)
    _check_security(file)
    check_registry(file)
    for stream in all_streams_of(file).values():
        for section in stream.values.values():
            table = section.table if isinstance(section, Section) else None
            if table is not None and table.check is not None:
                table.check(file, stream, section)
    _check_topic_names(file)
    _check_shared_sources(file)
    _check_lonely(file)
    check_budget(file)
    check_uncapped(file)


def _check_topics_section(file: Section) -> None:
    topics = file.get("topics")
    if topics is None:
        return
    replication, needed = topics.get("replication"), topics.get("min_insync")
    if replication is not None and needed is not None and needed > replication:
        key = "min_insync" if "min_insync" in topics.positions else "replication"
        topics.note(
            key,
            f"topics.{key}: min_insync is {needed} and replication {replication}, expected min_insync to be"
            " at most replication",
        )


def _check_security(file: Section) -> None:
    kafka = file.get("kafka")
    security = kafka.get("security") if kafka is not None else None
    if kafka is not None:
        check_clients(kafka)
    if security is None or security.get("protocol") is None:
        return
    protocol = security.get("protocol")
    mechanism = security.get("mechanism")
    needed = _CREDENTIALS.get(mechanism, ()) if protocol.startswith("SASL") else ()
    allowed = needed
    if mechanism == "OAUTHBEARER" and protocol.startswith("SASL"):
        allowed = (*_BY_FILE, *_BY_PROVIDER, "scope", "token_ca", "extensions")
        needed = _BY_FILE if "token_file" in security.positions else _BY_PROVIDER
        if needed == _BY_FILE:
            allowed = (*_BY_FILE, "extensions")
    if protocol.startswith("SASL") and "mechanism" not in security.positions:
        security.note("mechanism", f"kafka.security lacks mechanism; protocol {protocol} needs it")
    by_name = "password" in needed or not protocol.startswith("SASL")
    what = f"protocol {protocol}" if by_name else f"mechanism {mechanism}"
    # Of a mechanism that is not known nobody can tell what it needs.
    if mechanism is not None or not protocol.startswith("SASL") or "mechanism" not in security.positions:
        _check_credentials(security, what, needed, allowed)
    _check_extensions(security)
    if protocol == "SASL_PLAINTEXT" and mechanism in {"OAUTHBEARER", "AWS_MSK_IAM"}:
        security.note(
            "protocol",
            f"kafka.security.protocol: {mechanism} sends a token that others can use; use SASL_SSL",
        )
    if not protocol.startswith("SASL") and "mechanism" in security.positions:
        security.note(
            "mechanism",
            f"kafka.security.mechanism has no effect with protocol {protocol}; use SASL_SSL, or remove it",
        )
    for key in ("ca", "certificate", "key", "key_password"):
        if "SSL" not in protocol and key in security.positions:
            security.note(
                key, f"kafka.security.{key} has no effect with protocol {protocol}; use SSL, or remove it"
            )
    for key, other in (("certificate", "key"), ("key", "certificate"), ("key_password", "key")):
        if key in security.positions and other not in security.positions:
            security.note(key, f"kafka.security.{key} is set without {other}; give both or neither")


_BY_FILE, _BY_PROVIDER = ("token_file",), ("token_url", "client_id", "client_secret")
#: What a SASL mechanism needs; OAUTHBEARER has a choice.
_CREDENTIALS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), ("username", "password")),
    "AWS_MSK_IAM": ("region",),
    "GSSAPI": ("service_name",),
}
_ALL_CREDENTIALS = (
    "username", "password", *_BY_PROVIDER, "scope", "token_ca", *_BY_FILE, "extensions", "region",
    "service_name",
)  # fmt: skip


def _check_credentials(security: Section, what: str, needed: Sequence[str], allowed: Sequence[str]) -> None:
    for key in needed:
        if key not in security.positions:
            choice = " (or token_file)" if needed == _BY_PROVIDER else ""
            security.note(key, f"kafka.security lacks {key}{choice}; {what} needs it")
    for key in _ALL_CREDENTIALS:
        if key in security.positions and key not in allowed:
            sasl = security.get("protocol").startswith("SASL")
            where = f"mechanism {security.get('mechanism')}" if sasl else what
            remedy = "remove it" if sasl else "use SASL_SSL, or remove it"
            security.note(key, f"kafka.security.{key} has no effect with {where}; {remedy}")


def _check_extensions(security: Section) -> None:
    """Note a name that is given twice: clients would tell brokers one of its values."""
    names = [one.split("=")[0] for one in (security.get("extensions") or "").split(",")]
    if twice := next((name for name in names if names.count(name) > 1), None):
        security.note("extensions", f"kafka.security.extensions has {twice} twice; give each name once")


@dataclass(frozen=True)
class _Use:
    """One use of a topic: ``role`` completes "is already ..."; sinks belong to one stream alone."""

    topic: str
    role: str
    kind: str
    position: Position
    setting: str
    #: The topic whose re-keyed events are in it.
    raw: str | None = None

    @property
    def named(self) -> str:
        """The topic, with why there is one that the file does not name."""
        return self.topic if self.raw is None else f"{self.topic} for the re-keyed events of {self.raw}"


def _uses(file: Section) -> Iterator[_Use]:
    for name, stream, source in parts_of(file, "source", all_streams_of):
        if source.get("topic") is not None:
            # One partition has one owner, and what it is has to be the same for all who read it.
            kind = written_kind(stream)
            yield _Use(
                source.get("topic"),
                f"the source of stream {name}",
                "source" if kind in ("counts", "local") else f"source of {kind}",
                source.at("topic"),
                source.name("topic"),
            )
        if None not in (file.get("name"), source.get("topic")) and source.get("repartition") == "true":
            yield _Use(
                repartitioned(file.get("name"), source.get("topic")),
                f"the topic of re-keyed events of stream {name}",
                "re-keyed events",
                source.at("topic"),
                source.name("topic"),
                source.get("topic"),
            )
    for name, _, sink in parts_of(file, "sink", all_streams_of):
        if sink.get("topic") is not None:
            yield _Use(
                sink.get("topic"), f"the sink of stream {name}", "sink", sink.at("topic"), sink.name("topic")
            )
    for name, stream in streams_of(file).items():
        if stream.get("dead_letter") is not None:
            role = f"the dead-letter topic of stream {name}"
            place, setting = stream.at("dead_letter"), stream.name("dead_letter")
            yield _Use(stream.get("dead_letter"), role, "dead letter", place, setting)


def _check_topic_names(file: Section) -> None:
    """No topic serves two purposes; only sources and dead letters may be shared, each among themselves.

    Kafka takes a.b and a_b for the same name in its metrics and refuses to create the second.
    """
    first: dict[str, _Use] = {}
    name = file.get("name")
    for suffix in INTERNAL_TOPICS if name is not None else ():
        topic = f"{name}-{suffix}"
        first[topic.replace(".", "_")] = _Use(
            topic, "internal to Eventveil", "internal", file.at("name"), "name"
        )
    for use in sorted(_uses(file), key=lambda use: use.position):
        key = use.topic.replace(".", "_")
        other = first.setdefault(key, use)
        if other is use:
            continue
        if use.topic != other.topic:
            if None not in (use.raw, other.raw):
                # It is told of the topics that are re-keyed.
                continue
            file.problems.add(
                use.position,
                f"{use.setting}: {use.named} and {other.named} cannot both exist:"
                " Kafka treats . and _ alike in names of topics; rename one",
            )
        elif use.kind != other.kind or use.kind == "sink":
            both = {use.kind, other.kind} == {"source", "source of values"}
            remedy = "give each its own topic"
            if both:
                remedy = "one of values, one of counts: put one into another file, with another name"
            elif use.raw is not None and other.kind == "internal":
                remedy = f"no topic named {use.raw} can be re-keyed"
            file.problems.add(
                use.position, f"{use.setting}: topic {use.named} is already {other.role}; {remedy}"
            )


def _check_shared_sources(file: Section) -> None:
    first: dict[str, tuple[str, Section]] = {}
    for name, _, source in parts_of(file, "source", all_streams_of):
        if source.get("topic") is None:
            continue
        other_name, other = first.setdefault(source.get("topic"), (name, source))
        for key in SHARED:
            mine, theirs = source.get(key), other.get(key)
            if mine is not None and theirs is not None and mine != theirs:
                source.wrong(
                    key,
                    f"is {mine}, but {theirs} in stream {other_name} of the same topic; one topic has one"
                    " kind of user and one partitioner, make them equal",
                )


def _check_lonely(file: Section) -> None:
    """Nobody else may count the events of a pan-private stream: it would do so without noise."""
    pan_private = {
        stream.get("source").get("topic"): name
        for name, stream, mechanism in parts_of(file, "mechanism")
        if mechanism.get("pan_private") is not None and stream.get("source") is not None
    }
    for name, _, source in parts_of(file, "source", all_streams_of):
        other = pan_private.get(source.get("topic"), name)
        if other != name:
            source.wrong(
                "topic",
                f"stream {other} of the same topic has pan_private, and another one would count its events"
                " without noise; give it a topic of its own",
            )
