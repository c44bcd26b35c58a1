"""The topics that a topology needs, with the settings that its guarantees rest on. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from eventveil.describe.guarantee import count
from eventveil.kinds.registry import beside, kind_of
from eventveil.mechanisms.sizes import largest_release
from eventveil.model.topology import Stream, Topology

_HOUR, _DAY = 3_600_000, 86_400_000
_UNLIMITED = -1

Rule = Literal["equal", "at-least"]


@dataclass(frozen=True, slots=True)
class Setting:
    """A topic setting and why it must be so; for ``at-least``, -1 stands for unlimited."""

    name: str
    value: str
    rule: Rule
    reason: str

    def holds(self, found: str | None) -> bool:
        """Whether a topic with the value ``found`` will do."""
        if found is None:
            return False
        if self.rule == "equal":
            return found == self.value
        if int(found) == _UNLIMITED:
            return True
        return int(self.value) != _UNLIMITED and int(found) >= int(self.value)


def _equal(name: str, value: str, reason: str) -> Setting:
    return Setting(name, value, "equal", reason)


def _at_least(name: str, value: int, reason: str) -> Setting:
    return Setting(name, str(value), "at-least", reason)


_GROWN = (
    "If a source was given partitions, stop the workers and run `eventveil migrate TOPOLOGY --apply`; if "
    "not, restore the sources of the file"
)
#: Changelogs with a partition for each of their sources'.
_BY_SOURCE = ("counting changelog", "re-keying changelog", "state changelog", "sink")
#: What no spend or release is in: as many replicas as their owners like.
_OF_OTHERS = ("source", "dead letters")
_SHRUNK = (
    "The sources have fewer partitions than when this topic was made: one was recreated, or the file names "
    "others. Give the recreated source as many as it had, or restore the sources in the file"
)
_OTHERWISE_MANY = "Restore topics.partials, or the other setting that the number follows"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic: its role, how many partitions it must have (None: any number), its settings.

    ``partitions`` is what it is created with. ``required`` is checked, ``advised`` only used on creation;
    what is ``omitted`` there has to be right by the cluster's default. ``replicas``: how many each partition
    must have at least.
    """

    name: str
    role: str
    partitions: int
    exact_partitions: bool
    required: tuple[Setting, ...]
    advised: Mapping[str, str] = field(default_factory=dict)
    omitted: frozenset[str] = frozenset()
    replicas: int = 1

    @property
    def is_source(self) -> bool:
        """Whether the topic is somebody else's: raw events."""
        return self.role == "source"

    @property
    def is_sink_of_counts(self) -> bool:
        """Whether releases go there. Only sinks of values must not be compacted."""
        return self.role == "sink" and all(one.name != "cleanup.policy" for one in self.required)

    @property
    def settings(self) -> dict[str, str]:
        """The settings to create it with."""
        found = {**{setting.name: setting.value for setting in self.required}, **self.advised}
        return {name: value for name, value in found.items() if name not in self.omitted}

    def _remedy(self, partitions: int, *, is_empty: bool) -> str:
        """What to do about another number of partitions; a topic with records is never one to delete."""
        remedy = _OTHERWISE_MANY
        if self.role in _BY_SOURCE:
            remedy = _SHRUNK if partitions > self.partitions and not is_empty else _GROWN
        if is_empty:
            wrong = "is empty: if it was created with a wrong number, delete and recreate it"
            return f"{remedy}. {self.name} {wrong}"
        return f"{remedy}. Do not delete {self.name}: it may hold records that cannot be recreated"

    def mistakes(self, partitions: int, settings: Mapping[str, str], *, is_empty: bool = False) -> list[str]:
        """What is wrong with the topic as it is, each with how to correct it.

        ``is_empty``: it is known that nothing was ever written to it.
        """
        found = [
            f"topic {self.name} ({self.role}): {setting.name} is {settings.get(setting.name)}, it should be "
            f"{'at least ' if setting.rule == 'at-least' else ''}{setting.value}: {setting.reason}. "
            f"Correct it: kafka-configs.sh --bootstrap-server ... --alter --topic {self.name} "
            f"--add-config {setting.name}={setting.value}"
            for setting in self.required
            if not setting.holds(settings.get(setting.name))
        ]
        if self.exact_partitions and self.is_source and partitions != self.partitions:
            found.append(
                f"topic {self.name} ({self.role}): it has {partitions} partitions, and a pan-private stream"
                " needs one: its counters are in one place. Send its events to a topic with one partition"
            )
        elif self.exact_partitions and partitions != self.partitions:
            found.append(
                f"topic {self.name} ({self.role}): it has {partitions} partitions, it should have "
                f"{self.partitions}. {self._remedy(partitions, is_empty=is_empty)}"
            )
        return found


def hints(plan: TopicPlan, settings: Mapping[str, str]) -> list[str]:
    """What may go wrong with a topic as it is set, and is no mistake, each with how to avoid it."""
    if plan.is_sink_of_counts and "compact" in settings.get("cleanup.policy", ""):
        return [
            f"hint: topic {plan.name} ({plan.role}): cleanup.policy is {settings['cleanup.policy']}. All"
            " releases of a stream have one key, so compaction keeps only the latest: a slow consumer misses"
            " releases, and the audit cannot check those that are gone. To keep all: kafka-configs.sh"
            f" --bootstrap-server ... --alter --topic {plan.name} --add-config cleanup.policy=delete"
        ]
    limit = settings.get("retention.bytes")
    if not plan.is_source or limit is None or int(limit) == _UNLIMITED:
        return []
    return [
        f"hint: topic {plan.name} ({plan.role}): retention.bytes is {limit}, so records may be removed before"
        " retention.ms has passed. If a partition can receive that much while its events are still needed,"
        f" remove the limit: kafka-configs.sh --bootstrap-server ... --alter --topic {plan.name} --add-config"
        f" retention.bytes={_UNLIMITED}"
    ]


def short_of_replicas(found: Iterable[tuple[TopicPlan, int | None]]) -> list[str]:
    """Which topics have fewer replicas than they must, with what to do; None: their number is not known.

    Brokers lower ``min.insync.replicas`` to the number of replicas, so that setting shows nothing of it.
    """
    short: dict[tuple[int, int], list[str]] = {}
    for plan, replicas in found:
        if replicas is not None and replicas < plan.replicas:
            short.setdefault((replicas, plan.replicas), []).append(f"{plan.name} ({plan.role})")
    return [
        f"{_subject(names)} {'has' if len(names) == 1 else 'have'} {count(has, 'replica')}, and "
        f"topics.replication is {wanted}: a spend can be lost with {count(has, 'disk')}, whatever "
        f"min.insync.replicas says. Give each partition {count(wanted, 'replica')}: kafka-reassign-partitions"
        ".sh --bootstrap-server ... --reassignment-json-file FILE --execute; FILE lists the brokers of each "
        f"partition. If you accept that risk, set topics.replication to {has} in the topology, and "
        "topics.min_insync to no more"
        for (has, wanted), names in short.items()
    ]


def _subject(names: Sequence[str]) -> str:
    return f"topic{'s' * (len(names) > 1)} {', '.join(names)}"


def absent(plans: Iterable[TopicPlan], meant: Mapping[str, str]) -> list[str]:
    """Which topics do not exist, with what to do: those of the file's sources, then all others.

    ``meant`` has existing topics with a similar name.
    """
    found: dict[bool, list[str]] = {True: [], False: []}
    for plan in plans:
        near = f"; {meant[plan.name]} has a similar name" if plan.name in meant else ""
        found[plan.is_source].append(f"{plan.name} ({plan.role}{near})")
    return [
        f"{_subject(names)} does not exist: {_how_to_create(is_source, 'it')}"
        if len(names) == 1
        else f"{_subject(names)} do not exist: {_how_to_create(is_source, 'them')}"
        for is_source, names in found.items()
        if names
    ]


def _how_to_create(is_source: bool, it: str) -> str:
    if is_source:
        return f"create {it}, or let `eventveil topics TOPOLOGY --create --sources` do it"
    return f"`eventveil topics TOPOLOGY --create` creates {it}"


#: What managed services do not let anybody set; their default of the first is what it should be, false.
_OF_THE_SERVICE = frozenset(
    {"unclean.leader.election.enable", "min.cleanable.dirty.ratio", "max.compaction.lag.ms"}
)
#: And the least that they take of others.
_LEAST_OF_THE_SERVICE = {"segment.bytes": 50 * 1024 * 1024, "segment.ms": 4 * _HOUR}


def plan_topics(topology: Topology, source_partitions: Mapping[str, int]) -> list[TopicPlan]:
    """All topics of a topology; ``source_partitions`` are the real ones of the topics that hold events."""
    plans = [
        plan if plan.role in _OF_OTHERS else replace(plan, replicas=topology.topics.replication)
        for plan in _plans(topology, source_partitions)
    ]
    return [_as_managed(plan) for plan in plans] if topology.topics.managed == "true" else plans


def _as_managed(plan: TopicPlan) -> TopicPlan:
    """What can be created on a managed service: take-overs read more, and compaction is the service's."""
    advised = {
        name: str(max(int(value), _LEAST_OF_THE_SERVICE[name])) if name in _LEAST_OF_THE_SERVICE else value
        for name, value in plan.advised.items()
    }
    return replace(plan, advised=advised, omitted=_OF_THE_SERVICE)


def _plans(topology: Topology, source_partitions: Mapping[str, int]) -> list[TopicPlan]:
    settings = topology.topics
    events = {source: source for source in topology.sources} | {
        internal: raw for raw, internal in topology.rekeyed.items()
    }
    created = {source: _alone(topology, source) or settings.partitions for source in events}
    # Where the topic of events has got partitions, that of re-keyed ones has as many as before.
    sizes = {
        source: source_partitions.get(source, source_partitions.get(raw, created[source]))
        for source, raw in events.items()
    }
    partials = settings.partials
    return [
        *(_source(topology, source, raw) for source, raw in events.items()),
        *(_value_source(topology, source) for source in topology.value_sources),
        *_rekeying(topology, sizes, source_partitions),
        *(_counting(topology, sum(sizes.values())) if topology.streams else ()),
        *_values(topology, source_partitions),
        TopicPlan(
            topology.ledger, "ledger", partials, True, _never_removed(topology, "the audit needs every entry")
        ),
        *_control(topology),
        *_announcements(topology),
        *(_sink(topology, stream) for stream in topology.streams),
        *(_dead_letter(topology, name) for name in sorted({one.dead_letter for one in topology.streams})),
    ]


#: Small segments, so that compaction happens at all and a take-over reads little.
_COMPACTION = {
    "segment.ms": str(_HOUR // 6),
    "segment.bytes": str(32 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
    "max.compaction.lag.ms": str(_HOUR),
}
_SINK = {"message.timestamp.type": "LogAppendTime", "unclean.leader.election.enable": "false"}
_APPEND_TIME = _equal(
    "message.timestamp.type", "LogAppendTime", "whether an event is late is decided by the broker's time"
)


_BY_TIME_ALONE = _at_least(
    "retention.bytes",
    _UNLIMITED,
    "with a limit on bytes, as log.retention.bytes of the brokers is, a busy hour would remove records long"
    " before retention.ms does",
)


def _changelog(topology: Topology, name: str, role: str, partitions: int) -> TopicPlan:
    return TopicPlan(name, role, partitions, True, (*_compacted(topology),), _COMPACTION)


def _counting(topology: Topology, counted: int) -> Iterator[TopicPlan]:
    """What lies between the ``counted`` source partitions and the ledger."""
    partials = topology.topics.partials
    yield _changelog(topology, topology.counting_changelog, "counting changelog", counted)
    yield TopicPlan(topology.partials, "partials", partials, True, (*_kept_partials(topology),))
    yield _changelog(topology, topology.ledger_changelog, "ledger changelog", partials)


def _values(topology: Topology, source_partitions: Mapping[str, int]) -> Iterator[TopicPlan]:
    """The state of value streams, and their sinks: a partition for each partition of the source."""
    sizes = {
        source: source_partitions.get(source, topology.topics.partitions) for source in topology.value_sources
    }
    if sizes:
        yield _changelog(topology, topology.state_changelog, "state changelog", sum(sizes.values()))
    for stream in topology.readings:
        yield TopicPlan(
            stream.sink,
            "sink",
            sizes[stream.source.topic],
            True,
            (_equal("cleanup.policy", "delete", "compaction would leave the last reading alone"),),
            _SINK | {"min.insync.replicas": str(topology.topics.min_insync)},
        )


def _value_source(topology: Topology, source: str) -> TopicPlan:
    required = (
        _equal("cleanup.policy", "delete", "compaction would remove values and move the others"),
        _at_least("retention.ms", _HOUR, "values that were not read must survive a restart"),
    )
    advised = {
        "retention.ms": str(7 * _DAY),
        "min.insync.replicas": str(topology.topics.min_insync),
        "unclean.leader.election.enable": "false",
    }
    return TopicPlan(source, "source", topology.topics.partitions, False, required, advised)


def _durable(topology: Topology) -> tuple[Setting, ...]:
    return (
        _at_least(
            "min.insync.replicas",
            topology.topics.min_insync,
            "a spend that is on one broker only can be lost",
        ),
        _equal("unclean.leader.election.enable", "false", "it may rewind the budget that has been spent"),
        _at_least(
            "max.message.bytes", topology.topics.message_bytes, "the state of a wide stream has to fit"
        ),
    )


def _compacted(topology: Topology) -> tuple[Setting, ...]:
    return (
        _equal("cleanup.policy", "compact", "it holds the state; deletion would lose it"),
        replace(_APPEND_TIME, reason="a worker compares its clock with the broker's before it closes"),
        *_durable(topology),
    )


def _kept_partials(topology: Topology) -> tuple[Setting, ...]:
    longest = max(stream.timeline.interval + stream.timeline.lateness for stream in topology.streams)
    # Where columns are found, a restart reads the partial counts of the block before it again.
    searching = (one for one in topology.streams if one.counts.discover is not None)
    block = max((one.mechanism.window * one.timeline.interval for one in searching), default=0)
    return (
        _equal("cleanup.policy", "delete", "compaction would merge the partials of different times"),
        _at_least("retention.ms", max(7 * _DAY, 10 * longest) + block, "partials must outlive an outage"),
        _BY_TIME_ALONE,
        *_durable(topology),
    )


def _never_removed(topology: Topology, why: str) -> tuple[Setting, ...]:
    return (
        _equal("cleanup.policy", "delete", "compaction would remove what has to stay"),
        _at_least("retention.ms", _UNLIMITED, why),
        _at_least("retention.bytes", _UNLIMITED, why),
        *_durable(topology),
    )


def _rekeying(
    topology: Topology, sizes: Mapping[str, int], source_partitions: Mapping[str, int]
) -> Iterator[TopicPlan]:
    """The topics of events keyed by user, and the changelog of the stage that fills them."""
    for source in topology.rekeyed.values():
        plan = _source(topology, source, source)
        required = (*plan.required, _BY_TIME_ALONE, *_durable(topology))
        yield replace(
            plan, role="re-keyed events", partitions=sizes[source], exact_partitions=True, required=required
        )
    if topology.rekeyed:
        partitions = sum(
            source_partitions.get(raw, sizes[source]) for raw, source in topology.rekeyed.items()
        )
        yield _changelog(topology, topology.rekeying_changelog, "re-keying changelog", partitions)


def _source(topology: Topology, source: str, name: str) -> TopicPlan:
    """What the topic ``name`` must be to hold the events of the streams over ``source``."""
    streams = [stream for stream in topology.streams if stream.source.topic == source]
    timelines = [stream.timeline for stream in streams]
    by_boundary = streams[0].source.append_time == "boundary"
    longest = max(line.interval + line.lateness + line.max_ahead + line.clock_skew for line in timelines)
    required = (
        # The re-keyed topic is ours, and has append times in any case.
        *(() if by_boundary and name == streams[0].source.topic_of_events else (_APPEND_TIME,)),
        _equal("cleanup.policy", "delete", "compaction would remove earlier events of a user"),
        _at_least(
            "retention.ms",
            max(_HOUR, longest + min(longest, _DAY)),
            "events of a timestamp that is open must survive a restart (interval, lateness, max_ahead, and as"
            " long again for the restart, at most a day)",
        ),
    )
    alone = _alone(topology, source)
    return TopicPlan(
        name,
        "source",
        alone or topology.topics.partitions,
        alone is not None,
        required,
        {
            "retention.ms": str(max(7 * _DAY, 2 * longest)),
            "min.insync.replicas": str(topology.topics.min_insync),
            "unclean.leader.election.enable": "false",
        },
    )


def _alone(topology: Topology, source: str) -> int | None:
    """How many partitions the streams over a topic need it to have; None: any number."""
    streams = (stream for stream in topology.streams if stream.source.topic == source)
    return next((kind.partitions for kind in map(kind_of, streams) if kind.partitions is not None), None)


def _control(topology: Topology) -> Iterator[TopicPlan]:
    """Where streams of local reports ask for them: few records, and producers need the last of each."""
    if topology.control in beside(topology):
        yield _changelog(topology, topology.control, "control", 1)


def _announcements(topology: Topology) -> Iterator[TopicPlan]:
    """Where looks at the counters of pan-private streams are announced."""
    if topology.announcements in beside(topology):
        kept = _never_removed(topology, "a worker needs every announcement")
        yield TopicPlan(topology.announcements, "announcements", 1, True, kept)


def _sink(topology: Topology, stream: Stream) -> TopicPlan:
    required = (
        _at_least(
            "max.message.bytes",
            largest_release(stream),
            "a release that is charged must fit, or the stream is stuck",
        ),
    )
    return TopicPlan(
        stream.sink.topic,
        "sink",
        1,
        False,
        required,
        _SINK | {"min.insync.replicas": str(topology.topics.min_insync)},
    )


def _dead_letter(topology: Topology, name: str) -> TopicPlan:
    required = (
        _equal(
            "cleanup.policy",
            "delete",
            "dead letters have the keys of their events, and brokers refuse one without a key where records"
            " are compacted, which blocks its partition",
        ),
        _at_least(
            "max.message.bytes",
            topology.topics.message_bytes,
            "a dead letter that does not fit blocks its partition",
        ),
    )
    return TopicPlan(
        name, "dead letters", 1, False, required, {"min.insync.replicas": str(topology.topics.min_insync)}
    )
