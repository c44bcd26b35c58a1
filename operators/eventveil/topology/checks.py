"""What no single setting can show: rules over several settings, over topics, and over streams.

Every rule looks only at what could be read, so that one mistake never hides another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from eventveil.describe import guarantee, sums
from eventveil.mechanisms import registry
from eventveil.model.spelling import suggestion
from eventveil.topology.build import (
    all_streams_of,
    covered,
    local_streams_of,
    parts_of,
    repartitioned,
    streams_of,
    value_streams_of,
)
from eventveil.topology.counts import SOURCE
from eventveil.topology.document import shorten
from eventveil.topology.fields import Section
from eventveil.topology.options import EXTENT, EXTENT_HELP, OPTIONS, TRUSTED, extent_of, options_of
from eventveil.topology.problems import Position, Problems
from eventveil.topology.scalars import duration_text, one_of
from eventveil.topology.values import is_value_stream
from eventveil.values.stream import VALUE_LIMIT

# The last millisecond that RFC 3339 can write: 9999-12-31T23:59:59.999Z.
END_OF_TIME = 253_402_300_799_999
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
LONGEST_TOPIC = 249
# Half of it is for the worker to hear of a look (ms), half for the look.
LEAST_ROOM = 2000
# A longer value is not carried through the re-keying stage.
LARGEST_REKEYED = 8_000_000
# Two streams that read one topic must see the same users in the same partitions, by the same clock.
SHARED = tuple(row.name for row in SOURCE.fields if row.shared)


def check(file: Section, problems: Problems) -> None:
    """Note every broken rule."""
    _check_topics_section(file, problems)
    _check_security(file, problems)
    for _, stream, source in parts_of(file, "source"):
        _check_repartition(source, stream.get("timeline"), file.get("name"), problems)
    for _, stream, timeline in parts_of(file, "timeline"):
        _check_timeline(timeline, stream.get("mechanism"), problems)
    for _, _, counts in parts_of(file, "counts"):
        _check_unknown(counts, problems)
    for _, _, mechanism in parts_of(file, "mechanism"):
        _check_extent(mechanism, problems)
        _check_options(mechanism, problems)
    for _, stream, mechanism in parts_of(file, "mechanism"):
        _check_pan_private(stream, mechanism, problems)
    for _, _, values in parts_of(file, "values", value_streams_of):
        _check_grid(values, problems)
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
    if security is None or security.get("protocol") is None:
        return
    protocol = security.get("protocol")
    for key in ("mechanism", "username", "password"):
        if protocol.startswith("SASL") and key not in security.positions:
            problems.add(security.position, f"kafka.security lacks {key}; protocol {protocol} needs it")
        if not protocol.startswith("SASL") and key in security.positions:
            problems.add(
                security.at(key),
                f"kafka.security.{key} has no effect with protocol {protocol}; use SASL_SSL, or remove it",
            )
    for key in ("ca", "certificate", "key"):
        if "SSL" not in protocol and key in security.positions:
            problems.add(
                security.at(key),
                f"kafka.security.{key} has no effect with protocol {protocol}; use SSL, or remove it",
            )
    for key, other in (("certificate", "key"), ("key", "certificate")):
        if key in security.positions and other not in security.positions:
            problems.add(
                security.at(key), f"kafka.security.{key} stands without {other}; give both or neither"
            )


def _check_timeline(timeline: Section, mechanism: Section | None, problems: Problems) -> None:
    origin, start, interval = timeline.get("origin"), timeline.get("start"), timeline.get("interval")
    if origin is not None and start is not None and start < origin:
        problems.add(
            timeline.at("start"),
            f"{timeline.name('start')}: lies before the origin, expected the origin or later",
        )
    if "grace" in timeline.positions and timeline.get("on_missing") == "wait":
        problems.add(
            timeline.at("grace"),
            f"{timeline.name('grace')} has no effect with on_missing: wait; use release, or remove it",
        )
    window = covered(mechanism) if mechanism is not None else None
    if mechanism is None or origin is None or interval is None or window is None:
        return
    if origin + interval * window > END_OF_TIME:
        kind = mechanism.get("kind")
        key = (extent_of(kind) if kind else "window") or "kind"
        problems.add(
            mechanism.at(key),
            f"{mechanism.name(key)}: the first window of {window} timestamps of"
            f" {duration_text(interval)} ends after the year 9999, expected a smaller window or interval",
        )
    elif start is not None and start + interval * (window + 1) > END_OF_TIME:
        problems.add(
            timeline.at("start"),
            f"{timeline.name('start')}: the first window of {window} timestamps of {duration_text(interval)}"
            " ends after the year 9999, expected an earlier start",
        )


def _check_repartition(
    source: Section, timeline: Section | None, application: str | None, problems: Problems
) -> None:
    if source.get("repartition") != "true":
        return
    if "partitioner" in source.positions:
        problems.add(
            source.at("partitioner"),
            f"{source.name('partitioner')} has no effect with repartition: true; remove one of them",
        )
    if source.get("append_time") == "boundary":
        problems.add(
            source.at("repartition"),
            f"{source.name('repartition')}: needs the broker's append times; set"
            " message.timestamp.type=LogAppendTime on the topic and remove append_time: boundary",
        )
    if (source.get("max_bytes") or 0) > LARGEST_REKEYED:
        problems.add(
            source.at("max_bytes"),
            f"{source.name('max_bytes')}: with repartition: true at most {LARGEST_REKEYED}; lower it",
        )
    if timeline is not None and timeline.get("on_missing") == "release":
        problems.add(
            timeline.at("on_missing"),
            f"{timeline.name('on_missing')}: with repartition: true each partition of the topic holds events"
            " of every user, so none can be left out; use wait",
        )
    topic = source.get("topic")
    if None not in (application, topic) and len(repartitioned(application or "", topic)) > LONGEST_TOPIC:
        problems.add(
            source.at("topic"),
            f"{source.name('topic')}: {repartitioned(application or '', topic)} would be longer than"
            f" {LONGEST_TOPIC} characters, which Kafka allows; choose a shorter name for the application",
        )


def _check_unknown(counts: Section, problems: Problems) -> None:
    unknown, columns = counts.get("unknown"), counts.get("columns")
    if unknown is None or columns is None:
        return
    if unknown in ("dead-letter", "ignore"):
        if "unknown" in counts.positions and unknown in columns.labels:
            problems.add(
                counts.at("unknown"),
                f"{counts.name('unknown')}: {unknown} is also the name of a column, and could mean either;"
                " give the column another name",
            )
    elif unknown not in set(columns.labels):
        words = (
            ["dead-letter", "ignore", *columns.labels]
            if len(columns.labels) <= 1000
            else ["dead-letter", "ignore"]
        )
        near = suggestion(unknown, words)
        hint = near if near.startswith("did") else "add it to the columns"
        problems.add(
            counts.at("unknown"),
            f"{counts.name('unknown')}: found {shorten(unknown)},"
            f" expected dead-letter, ignore or one of the columns; {hint}",
        )


def _check_extent(mechanism: Section, problems: Problems) -> None:
    """A kind has the one key that says how many timestamps its epsilon covers, and no other."""
    kind = mechanism.get("kind")
    if kind is None:
        return
    needed = extent_of(kind)
    if needed and needed not in mechanism.positions:
        problems.add(
            mechanism.position,
            f"{mechanism.path} lacks {needed}; add {needed}: {EXTENT_HELP[needed]}",
        )
    for key in EXTENT.values():
        if key != needed and key in mechanism.positions:
            instead = f"its epsilon covers a {needed}" if needed else "its epsilon covers single timestamps"
            problems.add(
                mechanism.at(key), f"{mechanism.name(key)}: {kind} has no {key}, {instead}; remove it"
            )


def _check_options(mechanism: Section, problems: Problems) -> None:
    kind = mechanism.get("kind")
    if kind is None:
        return
    for option in OPTIONS:
        if option in mechanism.positions and option not in options_of(kind):
            kinds = tuple(sorted(other for other in registry.KINDS if option in options_of(other)))
            problems.add(
                mechanism.at(option),
                f"{mechanism.name(option)}: {kind} has no option {option}; remove it, or use {one_of(kinds)}",
            )


def _check_pan_private(stream: Section, mechanism: Section, problems: Problems) -> None:
    """What pan-privacy needs of the other settings (docs/decisions/0011-pan-private.md)."""
    counts = stream.get("counts")
    trusted = counts is not None and counts.get("contributions") == TRUSTED
    if mechanism.get("pan_private") is None:
        if counts is not None and trusted and "pan_private" not in mechanism.positions:
            problems.add(
                counts.at("contributions"),
                f"{counts.name('contributions')}: trusted is for streams with pan_private, where nobody can"
                " check it; give the bound as a whole number",
            )
        return
    needs = (
        (counts, "contributions", TRUSTED, "bounding takes a set of users, which is raw data"),
        (mechanism, "adjacency", "substitute", "a look at the worker shows that events happened"),
        (stream.get("source"), "repartition", "false", "a topic of re-keyed events is a copy of them"),
        (stream.get("source"), "append_time", "broker", "boundaries are for partitions of raw counts"),
        (stream.get("timeline"), "on_missing", "wait", "its one partition cannot be left out"),
    )
    _check_room(stream.get("timeline"), mechanism, problems)
    for section, key, needed, why in needs:
        if section is not None and section.get(key) not in (needed, None):
            problems.add(
                section.at(key), f"{section.name(key)}: pan_private needs {key}: {needed}, because {why}"
            )


def _check_room(timeline: Section | None, mechanism: Section, problems: Problems) -> None:
    """A look is announced in the first half of the time between two releases, and a worker needs a while."""
    if timeline is None or mechanism.get("pan_private") != "announced":
        return
    interval, skew = timeline.get("interval"), timeline.get("clock_skew")
    if interval is not None and skew is not None and interval < skew + LEAST_ROOM:
        problems.add(
            timeline.at("interval"),
            f"{timeline.name('interval')}: is {duration_text(interval)}; for announced looks it has to exceed"
            f" clock_skew by {duration_text(LEAST_ROOM)}: lengthen it, or use pan_private: single",
        )


def _check_grid(values: Section, problems: Problems) -> None:
    maximum, step = values.get("maximum"), values.get("step")
    if maximum is None or step is None:
        return
    steps = maximum.value / step.value
    if steps.denominator != 1 or steps > VALUE_LIMIT:
        problems.add(
            values.at("maximum"),
            f"{values.name('maximum')}: is {guarantee.number(steps)} steps of {step.text},"
            f" expected a whole number of them, at most {VALUE_LIMIT}",
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
                "value source" if is_value_stream(stream) else "source",
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
    spent: list[tuple[str, Fraction]] = []
    for name, stream, source in parts_of(file, "source"):
        cost = _cost(stream, span) if name not in local_streams_of(file) else None
        if source.get("users") == budget.get("users") and cost is not None:
            spent.append((name, cost))
    _check_population(file, budget, problems)
    total = sum((cost for _, cost in spent), Fraction(0))
    if total > cap.value:
        parts = ", ".join(f"{name} {guarantee.number(cost)}" for name, cost in spent)
        problems.add(
            budget.at("epsilon"),
            f"budget.epsilon: over any {duration_text(span)} the streams of {budget.get('users')} cost"
            f" {guarantee.number(total)} together ({parts}), expected at most {cap.text};"
            " lower their epsilon, widen their windows, or raise the cap",
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
        f"budget.users: found {shorten(capped)}, expected the users of a source, for the cap would limit"
        f" nothing; {near}",
    )


def _cost(stream: Section, span: int) -> Fraction | None:
    """What a stream costs over a span, or None if one of the settings could not be read."""
    timeline, mechanism = stream.get("timeline"), stream.get("mechanism")
    if timeline is None or mechanism is None:
        return None
    kind, epsilon, window = mechanism.get("kind"), mechanism.get("epsilon"), covered(mechanism)
    interval = timeline.get("interval")
    if interval is None or kind is None or epsilon is None or window is None:
        return None
    level, renews = registry.find(kind).level, mechanism.get("on_horizon") == "renew"
    return sums.cost(epsilon.value, window, interval, span, level, renews=renews)
