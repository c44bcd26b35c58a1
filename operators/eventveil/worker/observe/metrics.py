"""Every metric of the worker, in one list: /metrics and docs/metrics.md are made from it.

What is on by default is a function of releases, spends and clocks, which are public; whatever is a count of
events, even in sum, is ``raw`` and must be asked for.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from eventveil import __version__
from eventveil.kinds.kind import Role
from eventveil.kinds.registry import kind_of
from eventveil.model import timeline
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Stream
from eventveil.privacy import gaussian
from eventveil.process.memory import NOTHING, Held
from eventveil.read.health import STATES
from eventveil.tasks.task import StreamView
from eventveil.worker.observe.losses import REASONS
from eventveil.worker.observe.observation import (
    CLOSING,
    HELD_SECONDS,
    HOLDS,
    RELEASING,
    ROLES,
    SILENT_SECONDS,
    STALL_SECONDS,
    Observation,
)

Samples = Iterable[tuple[tuple[str, ...], float]]
Read = Callable[[Observation], Samples]

RAW = "Reveals exact counts: raw data, only with --raw-metrics."


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric under its full name; ``unit`` is for people, ``labels`` are those of each sample."""

    name: str
    kind: Literal["counter", "gauge"]
    unit: str
    labels: tuple[str, ...]
    help: str
    read: Read
    raw: bool = False

    @property
    def description(self) -> str:
        """The help text, with a warning if the metric reveals exact counts."""
        return f"{self.help} {RAW}" if self.raw else self.help


def _single(of: Callable[[Observation], float]) -> Read:
    return lambda seen: [((), of(seen))]


def _by_role(of: Callable[[Observation, Role], float]) -> Read:
    return lambda seen: [((role,), of(seen, role)) for role in ROLES]


def _of_roles(seen: Observation, partitions: Collection[TopicPartition]) -> Samples:
    return [((role,), sum(seen.role(tp) == role for tp in partitions)) for role in ROLES]


def _by_released(of: Callable[[Stream, StreamView], float]) -> Read:
    return lambda seen: [((name,), of(seen.streams[name], view)) for name, view in _views(seen, RELEASING)]


def _held_up(seen: Observation) -> Samples:
    holds = Counter(seen.holds(time.monotonic()).values())
    return [((hold,), holds[hold]) for hold in HOLDS]


def _views(seen: Observation, roles: Collection[str]) -> Iterator[tuple[str, StreamView]]:
    for tp, partition in seen.partitions.items():
        if seen.role(tp) in roles:
            yield from partition.streams.items()


def _delays(seen: Observation, roles: Collection[str]) -> Samples:
    now = time.time_ns() // 1_000_000
    longest: dict[str, int] = {}
    for stream, view in _views(seen, roles):
        longest[stream] = max(longest.get(stream, 0), seen.delay(stream, view.next, now))
    # Whole seconds: how long a single close took, in milliseconds, would tell how many events it had.
    return [((stream,), delay // 1000) for stream, delay in longest.items()]


def _releases(seen: Observation) -> Samples:
    for stream in seen.streams:
        yield (stream, "fresh"), seen.releases[stream, True]
        yield (stream, "repeated"), seen.releases[stream, False]


def _forfeited(seen: Observation) -> Samples:
    return [((name,), seen.forfeited[name]) for name, one in seen.streams.items() if kind_of(one).gives_up]


def _counting(seen: Observation) -> Samples:
    # Of streams that this worker releases now: another one knows more of the others.
    states = seen.counting.states()
    for stream in dict(_views(seen, RELEASING)):
        for one in STATES:
            yield (stream, one), one == states[stream]


def _lost(seen: Observation) -> Samples:
    for stream in seen.topology.all_streams:
        counts = {one: seen.events[stream.name, one] for one in kind_of(stream).outcomes}
        lost = sum(counts[one] for one in REASONS & counts.keys())
        yield (stream.name,), lost / max(1, sum(counts.values()))


def _spent_of(stream: Stream, share: float) -> float:
    """What this share of the units of a window is in terms of epsilon, with what finding columns costs it."""
    settings = stream.mechanism
    if settings.delta is None:
        return share * float(settings.epsilon) + float(stream.epsilon - settings.epsilon)
    return float(gaussian.spent(settings.epsilon, settings.delta, Fraction(share)))


def _events(seen: Observation) -> Samples:
    for stream in seen.topology.all_streams:
        for outcome in kind_of(stream).outcomes:
            yield (stream.name, outcome), seen.events[stream.name, outcome]


def _fetched(seen: Observation) -> Samples:
    topology = seen.topology
    topics = (*topology.rekeyed, *topology.sources, *topology.value_sources)
    return [((topic,), seen.fetched[topic]) for topic in topics]


def _lag(seen: Observation) -> Samples:
    for tp, view in seen.partitions.items():
        if seen.role(tp) in {*CLOSING, "perturb"} and view.end is not None:
            yield (tp.topic, str(tp.partition)), max(0, view.end - view.position)


def _held(of: Callable[[Held], int]) -> Read:
    def read(seen: Observation) -> Samples:
        found: dict[str, Held] = {}
        for stream, view in _views(seen, "aggregate"):
            found[stream] = found.get(stream, NOTHING) + view.held
        return [((stream,), of(held)) for stream, held in found.items()]

    return read


METRICS = (
    Metric(
        "eventveil_build_info", "gauge", "1", ("version",), "The version of Eventveil.",
        lambda _: [((__version__,), 1)],
    ),
    Metric(
        "eventveil_start_time_seconds", "gauge", "Unix seconds", (),
        "When the process started; its counters count from there.",
        _single(lambda seen: seen.started),
    ),
    Metric(
        "eventveil_memory_limit_bytes", "gauge", "bytes", (),
        "The resident memory at which the worker stops; absent if it never does.",
        lambda seen: [] if seen.memory_limit is None else [((), seen.memory_limit)],
    ),
    Metric(
        "eventveil_ready", "gauge", "0 or 1", (),
        "1 if /health/ready answers 200, else 0.",
        _single(lambda seen: not seen.obstacles(time.monotonic())),
    ),
    Metric(
        "eventveil_assigned_partitions", "gauge", "partitions", ("role",),
        "Partitions that the consumer group has assigned to this worker.",
        lambda seen: _of_roles(seen, seen.assigned or ()),
    ),
    Metric(
        "eventveil_owned_partitions", "gauge", "partitions", ("role",),
        "Partitions that this worker has taken over and serves.",
        lambda seen: _of_roles(seen, seen.partitions),
    ),
    Metric(
        "eventveil_held_partitions", "gauge", "partitions", ("reason",),
        "Owned partitions that are blocked until an operator acts: a transaction has been open for "
        f"{HELD_SECONDS:.0f} s or more (open-transaction), a source should have LogAppendTime and no longer "
        "has it (append-time), a schema registry cannot be queried (schema-registry) or does not know the "
        "schema of a sink (sink-schema), the watermark of an engine that counts is missing for a timestamp "
        "that is due (watermark), or the clock of this machine is behind the brokers' by more than "
        "clock_skew (clock). The log says what to do.",
        _held_up,
    ),
    Metric(
        "eventveil_topic_mistakes", "gauge", "mistakes", (),
        "Topic settings with which a worker would refuse to start. The worker is not ready unless it is 0.",
        _single(lambda seen: len(seen.mistakes)),
    ),
    Metric(
        "eventveil_counting_state", "gauge", "0 or 1", ("stream", "state"),
        "State of each stream that this worker releases, judged by its last releases: 1 for the current one "
        "of counting, much-less (than half of counts.expected), nothing (indistinguishable from noise) and "
        "unknown (too few releases). Derived from releases alone; docs/privacy.md has the argument.",
        _counting,
    ),
    Metric(
        "eventveil_take_overs_total", "counter", "take-overs", ("role",),
        "Partitions taken over, once per rebalance and once after each failure of their owner.",
        _by_role(lambda seen, role: seen.take_overs[role]),
    ),
    Metric(
        "eventveil_owner_failures_total", "counter", "failures", ("role",),
        "Owners of a partition that ended because of an error, those that were fenced included; a new "
        "owner follows each.",
        _by_role(lambda seen, role: seen.failures[role]),
    ),
    Metric(
        "eventveil_fenced_total", "counter", "failures", ("role",),
        "Owners that ended because a newer owner of their partition fenced them. Many of them: a second "
        "application with this name.",
        _by_role(lambda seen, role: seen.fenced[role]),
    ),
    Metric(
        "eventveil_close_delay_seconds", "gauge", "whole seconds", ("stream",),
        "How long the oldest open timestamp has been due, the longest over this worker's source partitions; "
        "0 if none is due.",
        lambda seen: _delays(seen, CLOSING),
    ),
    Metric(
        "eventveil_release_delay_seconds", "gauge", "whole seconds", ("stream",),
        "How long the oldest timestamp without a release has been due; 0 if none is due.",
        lambda seen: _delays(seen, RELEASING),
    ),
    Metric(
        "eventveil_releases_total", "counter", "releases", ("stream", "kind"),
        "Releases published by this worker; kind is fresh, or repeated if nothing new was drawn for one.",
        _releases,
    ),
    Metric(
        "eventveil_forfeited_total", "counter", "timestamps", ("stream",),
        "Timestamps of a pan-private stream that this worker gave up, and charged, after a failure.",
        _forfeited,
    ),
    Metric(
        "eventveil_readings_total", "counter", "records", ("stream",),
        "Records of a value stream published by this worker, one per value: their number is public.",
        lambda seen: [((one.name,), seen.readings[one.name]) for one in seen.topology.readings],
    ),
    Metric(
        "eventveil_last_release_time_seconds", "gauge", "Unix seconds", ("stream",),
        "When this worker last published a release; absent before its first. Its age is time() minus this.",
        lambda seen: [((stream,), at) for stream, at in dict(seen.released_at).items()],
    ),
    Metric(
        "eventveil_released_until_seconds", "gauge", "Unix seconds", ("stream",),
        "The end of the last released timestamp: all earlier ones are public.",
        _by_released(lambda stream, view: timeline.start_of(stream.timeline, view.next) / 1000),
    ),
    Metric(
        "eventveil_budget_spent_epsilon", "gauge", "epsilon", ("stream",),
        "What the window that ends at the last release has spent, in terms of epsilon, since the terms last "
        "changed (eventveil migrate). With noise: gaussian it is the epsilon that the mu squared of its "
        "spends has at the delta of the stream, not a share of it. Where columns are found in the data, each "
        "window has spent all that finding them costs.",
        _by_released(lambda stream, view: _spent_of(stream, view.spent)),
    ),
    Metric(
        "eventveil_budget_remaining_epsilon", "gauge", "epsilon", ("stream",),
        "What remains of epsilon in the window that ends at the last release: epsilon less what is spent. "
        "What was spent before a change of terms may leave less.",
        _by_released(lambda stream, view: float(stream.epsilon) - _spent_of(stream, view.spent)),
    ),
    Metric(
        "eventveil_partials_discarded", "gauge", "partial counts", ("stream",),
        "Partial counts left out of timestamps because their partition had no leader (on_missing: release), "
        "since the stream was taken over. One per timestamp and partition, whether or not it arrives later.",
        _by_released(lambda _, view: view.discarded),
    ),
    Metric(
        "eventveil_events_total", "counter", "records", ("stream", "outcome"),
        "Records with a durable verdict, each counted once however often it is read, by outcome: "
        "counted, bounded (beyond the contributions of their user), ignored (unknown column), filtered (by "
        "`source.filter`), or else the reason of the dead letter. In value streams: read, or the reason why "
        "a value is 0.",
        _events, raw=True,
    ),
    Metric(
        "eventveil_lost_ratio", "gauge", "0 to 1", ("stream",),
        "Of the records whose verdict became durable since the start, the share that does not count for a "
        "reason (docs/dead-letters.md); 0 before the first.",
        _lost, raw=True,
    ),
    Metric(
        "eventveil_records_fetched_total", "counter", "records", ("topic",),
        "Records fetched from a source topic as they come; after a take-over some are fetched again.",
        _fetched, raw=True,
    ),
    Metric(
        "eventveil_lag_records", "gauge", "records", ("topic", "partition"),
        "How far reading is behind the last stable offset of a source partition, as of the last fetch.",
        _lag, raw=True,
    ),
    Metric(
        "eventveil_open_contributions", "gauge", "pairs", ("stream",),
        "Pairs of user and open timestamp that this worker holds in memory.",
        _held(lambda held: held.contributions), raw=True,
    ),
    Metric(
        "eventveil_open_timestamps", "gauge", "timestamps", ("stream",),
        "Timestamps with events that are not closed, once for each source partition of this worker.",
        _held(lambda held: held.timestamps), raw=True,
    ),
    Metric(
        "eventveil_remembered_users", "gauge", "users", ("stream",),
        "Distinct users that this worker holds in memory, in an open timestamp or not; streams that look for "
        "the user in the same field of a source share them.", _held(lambda held: held.users), raw=True,
    ),
    Metric(
        "eventveil_throttled_seconds", "gauge", "seconds", (),
        "The longest throttle time that brokers have recently imposed on this worker because of a quota; 0 "
        "from a minute after the last one. It depends on how much is written.",
        _single(lambda seen: seen.throttled), raw=True,
    ),
    Metric(
        "eventveil_resident_memory_bytes", "gauge", "bytes", (),
        "Resident memory of the process, compared with the limit ten times a second.",
        _single(lambda seen: seen.resident), raw=True,
    ),
)  # fmt: skip


class WorkerCollector(Collector):
    """Reads the metrics of an observation whenever Prometheus asks; ``raw`` adds those that reveal counts."""

    def __init__(self, seen: Observation, raw: bool) -> None:
        self._seen = seen
        self._metrics = [metric for metric in METRICS if raw or not metric.raw]

    def collect(self) -> Iterator[Family]:
        """See ``prometheus_client``'s Collector."""
        for metric in self._metrics:
            family_of = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = family_of(metric.name, metric.description, labels=metric.labels)
            for labels, value in metric.read(self._seen):
                family.add_metric(labels, value)
            yield family


def describe_metrics() -> str:
    """docs/metrics.md."""
    return _PAGE.format(
        public="\n".join(_row(metric) for metric in METRICS if not metric.raw),
        raw="\n".join(_row(metric) for metric in METRICS if metric.raw),
        stall=f"{STALL_SECONDS:.0f}",
        silent=f"{SILENT_SECONDS:.0f}",
    )


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {metric.unit} | {labels} | {metric.help} |"


_PAGE = """\
# Metrics and health

This page is printed by `eventveil metrics`.

`eventveil run` serves HTTP on 127.0.0.1:9464 or, if that port is taken, on the next free one of the 99 \
after it; the log says which. `--metrics HOST:PORT` listens there and nowhere else (port 0 takes a free \
one), `--metrics off` nowhere.

| path | answers |
| --- | --- |
| `/metrics` | the metrics below, for Prometheus |
| `/` | a page of the releases, for browsers: by default if only this machine can connect, else with \
`--page` |
| `/health/live` | 200 while the process and its event loop run, also during start, take-over and recovery; \
else 503: restart it |
| `/health/ready` | 200 if the consumer group has assigned partitions (perhaps none) and each is owned, \
read and not stalled; else 503 and the reasons as JSON: how many partitions of a topic, and with \
`--raw-metrics` which ones, since when and after which error |

A partition is stalled if it had something to do and made no progress for {stall} seconds, and it is not \
read if no broker has answered a fetch of it for {silent} seconds, even if nothing is due. A stream that \
waits for the partials of another worker's partitions makes that worker not ready, not this one; to watch \
streams, alert on `eventveil_release_delay_seconds`.

The sum of `eventveil_assigned_partitions` over all workers is the number of partitions of the topics that \
they read. If it stays lower for longer than a rebalance takes, and every worker is scraped, another \
program has joined the consumer group (`name` in the file), and the partitions assigned to it are not \
counted. `kafka-consumer-groups.sh --bootstrap-server ... --group NAME --describe --members` lists all \
members with their hosts and client ids; the client id of a worker is NAME, or `client.id` of \
`kafka.clients`. Stop the program, or give it a group of its own. ACLs keep others out: grant Read on the \
group only as [deploy.md](deploy.md) lists it.

Counters live in the memory of one process: add them up over workers, and use `rate` or `increase`, which \
see restarts. Labels: `role` is `aggregate` (counts a source partition), `sanitize` \
(releases streams), `accumulate` (both, for a pan-private stream), `perturb` (gives values their readings) \
or `rekey` (passes events on to the partition of their user).

## On by default

They are based on public information: releases, spends, clocks, and the life of the worker.

| metric | type | unit | labels | meaning |
| --- | --- | --- | --- | --- |
{public}

## Only with `--raw-metrics`

**These reveal exact counts without noise.** Treat them, and every database and dashboard that they reach, \
as raw data. Verdicts become durable when a timestamp closes or dead letters are written; those of a \
transaction whose outcome is unknown, because its owner failed within it, are left out.

| metric | type | unit | labels | meaning |
| --- | --- | --- | --- | --- |
{raw}
"""
