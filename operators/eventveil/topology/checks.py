"""What no section of a stream can show: rules over topics, over streams, and over the sections around them.

Rules between the settings of a section are with its table (``RecordShape.check``).

Every rule looks only at what could be read, so that one mistake never hides another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from eventveil.describe import guarantee, sums
from eventveil.mechanisms import registry
from eventveil.model.spelling import suggestion
from eventveil.privacy.gaussian import LARGEST_DELTA, LEAST_DELTA
from eventveil.topology.build import (
    all_streams_of,
    local_streams_of,
    parts_of,
    streams_of,
    value_streams_of,
)
from eventveil.topology.clients import check_clients
from eventveil.topology.counts import SOURCE
from eventveil.topology.document import shorten
from eventveil.topology.fields import Section
from eventveil.topology.options import covered, option_of, options_of
from eventveil.topology.problems import Position, Problems
from eventveil.topology.registry import check_registry
from eventveil.topology.scalars import duration_text
from eventveil.topology.values import is_value_stream

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


def check(file: Section, problems: Problems) -> None:
    """Note every broken rule."""
    _check_topics_section(file, problems)
    _check_security(file, problems)
    check_registry(file, problems)
    for stream in all_streams_of(file).values():
        for section in stream.values.values():
            table = section.table if isinstance(section, Section) else None
            if table is not None and table.check is not None:
                table.check(file, stream, section, problems)
    _check_topic_names(file, problems)
    _check_shared_sources(file, problems)
    _check_lonely(file, problems)
    _check_budget(file, problems)
    _check_uncapped(file, problems)


def _check_topics_section(file: Section, problems: Problems) -> None:
    topics = file.get("topics")
    if topics is None:
        return
    replication, needed = topics.get("replication"), topics.get("min_insync")
    if replication is not None and needed is not None and needed > replication:
        key = "min_insync" if "min_insync" in topics.positions else "replication"
        problems.add(
            topics.at(key),
            f"topics.{key}: min_insync is {needed} and replication {replication},"
            " expected min_insync to be at most replication",
        )


def _check_security(file: Section, problems: Problems) -> None:
    kafka = file.get("kafka")
    security = kafka.get("security") if kafka is not None else None
    if kafka is not None:
        check_clients(kafka, problems)
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
        problems.add(security.position, f"kafka.security lacks mechanism; protocol {protocol} needs it")
    by_name = "password" in needed or not protocol.startswith("SASL")
    what = f"protocol {protocol}" if by_name else f"mechanism {mechanism}"
    # Of a mechanism that is not known nobody can tell what it needs.
    if mechanism is not None or not protocol.startswith("SASL") or "mechanism" not in security.positions:
        _check_credentials(security, what, needed, allowed, problems)
    _check_extensions(security, problems)
    if protocol == "SASL_PLAINTEXT" and mechanism in {"OAUTHBEARER", "AWS_MSK_IAM"}:
        problems.add(
            security.at("protocol"),
            f"kafka.security.protocol: {mechanism} sends a token that others can use; use SASL_SSL",
        )
    if not protocol.startswith("SASL") and "mechanism" in security.positions:
        problems.add(
            security.at("mechanism"),
            f"kafka.security.mechanism has no effect with protocol {protocol}; use SASL_SSL, or remove it",
        )
    for key in ("ca", "certificate", "key", "key_password"):
        if "SSL" not in protocol and key in security.positions:
            problems.add(
                security.at(key),
                f"kafka.security.{key} has no effect with protocol {protocol}; use SSL, or remove it",
            )
    for key, other in (("certificate", "key"), ("key", "certificate"), ("key_password", "key")):
        if key in security.positions and other not in security.positions:
            problems.add(
                security.at(key), f"kafka.security.{key} is set without {other}; give both or neither"
            )


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


def _check_credentials(
    security: Section, what: str, needed: Sequence[str], allowed: Sequence[str], problems: Problems
) -> None:
    for key in needed:
        if key not in security.positions:
            choice = " (or token_file)" if needed == _BY_PROVIDER else ""
            problems.add(security.position, f"kafka.security lacks {key}{choice}; {what} needs it")
    for key in _ALL_CREDENTIALS:
        if key in security.positions and key not in allowed:
            sasl = security.get("protocol").startswith("SASL")
            where = f"mechanism {security.get('mechanism')}" if sasl else what
            remedy = "remove it" if sasl else "use SASL_SSL, or remove it"
            problems.add(security.at(key), f"kafka.security.{key} has no effect with {where}; {remedy}")


def _check_extensions(security: Section, problems: Problems) -> None:
    """Note a name that is given twice: clients would tell brokers one of its values."""
    names = [one.split("=")[0] for one in (security.get("extensions") or "").split(",")]
    if twice := next((name for name in names if names.count(name) > 1), None):
        problems.add(
            security.at("extensions"), f"kafka.security.extensions has {twice} twice; give each name once"
        )


@dataclass(frozen=True)
class _Use:
    """One use of a topic: ``role`` completes "is already ..."; sinks belong to one stream alone."""

    topic: str
    role: str
    kind: str
    position: Position
    setting: str


def _uses(file: Section) -> Iterator[_Use]:
    for name, stream, source in parts_of(file, "source", all_streams_of):
        if source.get("topic") is not None:
            # One partition has one owner, who either counts it or reads its values.
            yield _Use(
                source.get("topic"),
                f"the source of stream {name}",
                "value source" if is_value_stream(stream) else _kind_of_source(source),
                source.at("topic"),
                source.name("topic"),
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


def _kind_of_source(source: Section) -> str:
    return "source" if source.get("counts") is None else "source of counts"


def _check_topic_names(file: Section, problems: Problems) -> None:
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
            problems.add(
                use.position,
                f"{use.setting}: {use.topic} and {other.topic} are one name to Kafka,"
                " which takes . for _; rename one",
            )
        elif use.kind != other.kind or use.kind == "sink":
            both = {use.kind, other.kind} == {"source", "value source"}
            remedy = (
                "one of values, one of counts: put one into another file, with another name"
                if both
                else "give each its own topic"
            )
            problems.add(use.position, f"{use.setting}: topic {use.topic} is already {other.role}; {remedy}")


def _check_shared_sources(file: Section, problems: Problems) -> None:
    first: dict[str, tuple[str, Section]] = {}
    for name, _, source in parts_of(file, "source", all_streams_of):
        if source.get("topic") is None:
            continue
        other_name, other = first.setdefault(source.get("topic"), (name, source))
        for key in SHARED:
            mine, theirs = source.get(key), other.get(key)
            if mine is not None and theirs is not None and mine != theirs:
                problems.add(
                    source.at(key),
                    f"{source.name(key)}: is {mine}, but {theirs} in stream {other_name} of the same topic;"
                    " one topic has one kind of user and one partitioner, make them equal",
                )


def _check_lonely(file: Section, problems: Problems) -> None:
    """Nobody else may count the events of a pan-private stream: it would do so without noise."""
    pan_private = {
        stream.get("source").get("topic"): name
        for name, stream, mechanism in parts_of(file, "mechanism")
        if mechanism.get("pan_private") is not None and stream.get("source") is not None
    }
    for name, _, source in parts_of(file, "source", all_streams_of):
        other = pan_private.get(source.get("topic"), name)
        if other != name:
            problems.add(
                source.at("topic"),
                f"{source.name('topic')}: stream {other} of the same topic has pan_private, and another one"
                " would count its events without noise; give it a topic of its own",
            )


def _check_budget(file: Section, problems: Problems) -> None:
    budget = file.get("budget")
    if budget is None or None in (budget.get("epsilon"), budget.get("span"), budget.get("users")):
        return
    span, cap = budget.get("span"), budget.get("epsilon")
    members = [
        (name, stream)
        for name, stream, source in parts_of(file, "source")
        if source.get("users") == budget.get("users") and name not in local_streams_of(file)
    ]
    costs = [(name, _cost(stream, span)) for name, stream in members]
    spent = [(name, cost) for name, cost in costs if cost is not None]
    _check_population(file, budget, problems)
    _check_delta(budget, [(name, _delta(stream, span)) for name, stream in members], problems)
    total = _sum([cost for _, cost in spent])
    if total > cap.value:
        parts = ", ".join(f"{name} {guarantee.number(_sum([cost]))}" for name, cost in spent)
        problems.add(
            budget.at("epsilon"),
            f"budget.epsilon: over any {duration_text(span)} the streams of {budget.get('users')} cost"
            f" {guarantee.number(total)} together ({parts}), expected at most {cap.text};"
            f"{_enough_windows(members, span, cap.value, total)} lower their epsilon, widen their windows,"
            " or raise the cap",
        )


def _enough_windows(members: Sequence[tuple[str, Section]], span: int, cap: Fraction, total: Fraction) -> str:
    """How many timestamps and windows a span meets, and with what window or span the cap holds."""
    for name, stream in members:
        timeline, mechanism = stream.get("timeline"), stream.get("mechanism")
        cost = _cost(stream, span)
        if timeline is None or mechanism is None or not isinstance(cost, Fraction) or not cost:
            continue
        epsilon, window, interval = (
            mechanism.get("epsilon").value,
            covered(mechanism),
            timeline.get("interval"),
        )
        windows = int((cap - (total - cost)) / epsilon)
        if registry.find(mechanism.get("kind")).level != "w-event" or window is None or windows < 1:
            continue
        met, longest = sums.timestamps_met(span, interval), (windows * window - 1) * interval
        meets = guarantee.count(sums.periods("w-event", met, window), "window")
        shorter = f" or span: {duration_text(longest)}" if longest > 0 else ""
        return (
            f" a span of {duration_text(span)} meets {met} timestamps of {name} if it begins within"
            f" one, and so {meets} of {window}; window:"
            f" {-(-met // windows)}{shorter} keeps the cap. Or"
        )
    return ""


def _check_delta(budget: Section, deltas: Sequence[tuple[str, Fraction]], problems: Problems) -> None:
    cap, total = budget.get("delta"), sum((delta for _, delta in deltas), Fraction(0))
    if cap is not None and cap.value > LARGEST_DELTA:
        problems.add(
            budget.at("delta"),
            f"budget.delta: found {cap.text}, expected at most {guarantee.number(LARGEST_DELTA)}; with that"
            " probability nothing is promised to a user, so take far less than one in the number of users",
        )
    elif cap is not None and total > cap.value:
        parts = ", ".join(f"{name} {float(delta):.3g}" for name, delta in deltas if delta)
        problems.add(
            budget.at("delta"),
            f"budget.delta: over any {duration_text(budget.get('span'))} the deltas of the streams of"
            f" {budget.get('users')} are {float(total):.3g} together ({parts}), expected at most {cap.text};"
            " lower them, or raise the cap",
        )


def _check_uncapped(file: Section, problems: Problems) -> None:
    """Nothing bounds how many values a user has, or reports, so no cap can hold for such a stream."""
    budget = file.get("budget")
    capped = budget.get("users") if budget is not None else None
    values, local = value_streams_of(file), local_streams_of(file)
    for name, stream in {**values, **local}.items():
        source, mechanism = stream.get("source"), stream.get("mechanism")
        if capped is not None and source is not None and source.get("users") == capped:
            problems.add(
                mechanism.at("kind"),
                f"{mechanism.name('kind')}: {mechanism.get('kind')} cannot be under a cap: a user with k"
                f" {'reports' if name in local else 'values'} pays k epsilon, and nothing bounds k; name"
                " another population in"
                f" {source.name('users')} (the cap is on {capped}), or remove the budget",
            )


def _check_population(file: Section, budget: Section, problems: Problems) -> None:
    """A cap on people whom no stream counts is a slip of the pen, and caps nothing."""
    sources = [stream.get("source") for stream in all_streams_of(file).values()]
    populations = [source.get("users") for source in sources if source is not None]
    capped = budget.get("users")
    if capped in populations or None in populations or len(populations) < len(sources) or not sources:
        return
    near = suggestion(capped, set(populations))
    problems.add(
        budget.at("users"),
        f"budget.users: found {shorten(capped)}, expected the users of a source, because the cap would"
        f" limit nothing; {near}",
    )


def _sum(costs: Sequence[Fraction | sums.Normal]) -> Fraction:
    pure = [cost for cost in costs if isinstance(cost, Fraction)]
    return sums.together(pure, [cost for cost in costs if isinstance(cost, sums.Normal)])


def _cost(stream: Section, span: int) -> Fraction | sums.Normal | None:
    """What a stream costs over a span, or None if one of the settings could not be read."""
    timeline, mechanism = stream.get("timeline"), stream.get("mechanism")
    if timeline is None or mechanism is None:
        return None
    kind, epsilon, window = mechanism.get("kind"), mechanism.get("epsilon"), covered(mechanism)
    interval = timeline.get("interval")
    if interval is None or kind is None or epsilon is None or window is None:
        return None
    level, renews = registry.find(kind).level, mechanism.get("on_horizon") == "renew"
    if mechanism.get("noise") == "gaussian":
        return _normal(mechanism, kind, sums.periods(level, sums.timestamps_met(span, interval), window))
    return sums.cost(epsilon.value, window, interval, span, level, renews=renews)


def _delta(stream: Section, span: int) -> Fraction:
    """The delta of a stream over a span, as ``sums.Cost`` has it; 0 where a setting could not be read."""
    timeline, mechanism, counts = (stream.get(name) for name in ("timeline", "mechanism", "counts"))
    if mechanism is None:
        return Fraction(0)
    if mechanism.get("noise") == "gaussian":
        delta = mechanism.get("delta")
        return Fraction(0) if delta is None else delta.value
    columns = counts.get("columns") if counts is not None else None
    interval: int | None = timeline.get("interval") if timeline is not None else None
    window, kind = covered(mechanism), mechanism.get("kind")
    if columns is None or columns.discover is None or interval is None or window is None or kind is None:
        return Fraction(0)
    windows = sums.periods(registry.find(kind).level, sums.timestamps_met(span, interval), window)
    return windows * Fraction(columns.discover.get("delta").value)


def _normal(mechanism: Section, kind: str, windows: int) -> sums.Normal | None:
    """What Gaussian noise costs; None if ``_check_noise`` or the mechanism says that there is none."""
    epsilon, delta = mechanism.get("epsilon"), mechanism.get("delta")
    if delta is None or not LEAST_DELTA <= delta.value <= LARGEST_DELTA:
        return None
    options = {name: option_of(name).value(mechanism.get(name)) for name in options_of(kind)}
    try:
        squares = registry.find(kind).squares(windows, options)
    except ValueError:
        return None
    return sums.Normal(epsilon.value, delta.value, squares)
