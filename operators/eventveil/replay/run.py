"""The replay itself: chunks in, releases out, through the parts that the worker is made of.

``eventveil.replay.partitions`` says when a partition closes a timestamp, in this process or in others.
Releases come in the order of (timestamp, stream name), as soon as every partition has closed the timestamp.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby, product
from typing import TypeVar

from eventveil.counting.boundaries import Boundary
from eventveil.counting.counter import Partial
from eventveil.kinds.registry import plan_streams
from eventveil.model.errors import EventveilError
from eventveil.model.records import TopicPartition
from eventveil.model.timeline import format_rfc3339, start_of, timestamp_of
from eventveil.model.topology import UNBOUNDED, Stream, Topology
from eventveil.privacy.noise import NoiseSource, SeededNoise, SystemNoise
from eventveil.process.memory import Held
from eventveil.replay.inputs import Input
from eventveil.replay.partitions import Counting, OwnCounting, Scope
from eventveil.replay.processes import ProcessCounting, shares
from eventveil.replay.releasing import Released, Releasing, without_bound

Noise = Callable[[Stream], NoiseSource]
_T = TypeVar("_T")
#: How many timestamps of a partition that has ended are closed at once, and with how many counts at most.
_AHEAD, _AHEAD_COLUMNS = 500, 50_000


def replay(
    topology: Topology,
    source: Input,
    *,
    start: int | None = None,
    end: int | None = None,
    only: Collection[str] = (),
    seed: int | None = None,
    noise: Noise | None = None,
    processes: int | None = 1,
    unbounded: bool = False,
    now: int | None = None,
) -> Replay:
    """Replay the streams of a topology that read ``source``, or those of them that ``only`` names.

    ``start`` and ``end`` as in ``plan_span``. With a ``seed`` the noise is reproducible and the records are
    marked; ``noise`` makes the noise source of a stream instead (only tests give it). ``processes`` as in
    ``shares``: it changes no release. ``unbounded``: count a second time without the contribution bound, for
    ``Released.events``. ``now``, in epoch milliseconds, is what the end is compared with where data decide
    it. Raises ValueError for a range or names that do not fit, EventveilError or KafkaException if the input
    cannot be read.
    """
    streams = select_streams(topology, source.topic, only)
    span = plan_span(streams, start, end)
    boundaries = {
        plan.name: source.boundaries(
            plan.stream, span.first[plan.name], TopicPartition(topology.partials, plan.partials_partition)
        )
        for plan in plan_streams(topology)
        if plan.stream in streams and plan.stream.source.has_boundaries
    }
    if noise is None:
        noise = (lambda _: SystemNoise()) if seed is None else seeded_noise(seed)
    return Replay(
        streams, source, span, noise, boundaries, processes, seeded=seed is not None, unbounded=unbounded,
        now=now,
    )  # fmt: skip


def select_streams(topology: Topology, topic: str | None, only: Collection[str] = ()) -> list[Stream]:
    """The streams over ``topic`` (None: over any) that ``only`` names (empty: all). Raises ValueError."""
    names = {stream.name for stream in topology.streams}
    known = names | {stream.name for stream in topology.readings}
    for name in only:
        if name not in names:
            raise ValueError(f"there is no stream {name}, only {', '.join(sorted(known))}")
    if topic is not None and topic not in topology.sources:
        raise ValueError(
            f"no stream reads topic {topic}; those of the file are {', '.join(topology.topics_of_events)}"
        )
    wanted = [stream for stream in topology.streams if not only or stream.name in only]
    for stream in wanted:
        if only and topic not in {None, stream.source.topic}:
            raise ValueError(f"stream {stream.name} reads topic {stream.source.topic}, not {topic}")
    return [stream for stream in wanted if topic in {None, stream.source.topic}]


def seeded_noise(seed: int) -> Noise:
    """Reproducible noise that is a stream's own: other streams, and their order, do not change it."""
    return lambda stream: SeededNoise.of(f"eventveil replay {seed}:{stream.name}")


@dataclass(frozen=True, slots=True)
class ReplaySpan:
    """The first and the last timestamp of each stream, by name, both included.

    ``last`` None: each stream ends with the last timestamp for which it counted an event. A ``last`` below
    ``first`` means that no timestamp of the stream lies in the range.
    """

    first: Mapping[str, int]
    last: Mapping[str, int] | None


def plan_span(streams: Sequence[Stream], start: int | None, end: int | None) -> ReplaySpan:
    """Every timestamp from ``start`` (None: the origin) that ends at or before ``end``.

    With ``end`` None the data decide. Raises ValueError if ``start`` is no timestamp's first instant in some
    stream, or if no timestamp of any stream lies in the range.
    """
    first = {stream.name: _first(stream, start) for stream in streams}
    if end is None:
        return ReplaySpan(first, None)
    last = {stream.name: timestamp_of(stream.timeline, end) - 1 for stream in streams}
    if all(last[name] < first[name] for name in first):
        ends = [
            f"of {stream.name} ends at {format_rfc3339(start_of(stream.timeline, first[stream.name] + 1))}"
            for stream in streams
        ]
        raise ValueError(f"no timestamp ends by {format_rfc3339(end)}: the first one {', '.join(ends)}")
    return ReplaySpan(first, last)


def _first(stream: Stream, start: int | None) -> int:
    if start is None:
        return 1
    rules = stream.timeline
    timestamp = timestamp_of(rules, start)
    before, after = start_of(rules, timestamp), start_of(rules, timestamp + 1)
    told = f"{format_rfc3339(start)} is not where a timestamp of stream {stream.name} begins"
    if timestamp < 1:
        raise ValueError(f"{told}: the first one begins at {format_rfc3339(rules.origin)}")
    if start != before:
        raise ValueError(f"{told}: the nearest are {format_rfc3339(before)} and {format_rfc3339(after)}")
    return timestamp


class Replay:
    """Iterate over it, once, to get every release. ``streams`` in the order of the topology.

    ``releasing``: how far each of them is, by name.
    """

    def __init__(
        self,
        streams: Sequence[Stream],
        source: Input,
        span: ReplaySpan,
        noise: Noise,
        boundaries: Mapping[str, Mapping[int, tuple[Boundary, ...]]],
        processes: int | None,
        *,
        seeded: bool,
        unbounded: bool = False,
        now: int | None = None,
    ) -> None:
        self.streams = list(streams)
        self.span = span
        self._now = now
        self._seeded = seeded
        #: Called after every chunk, so that progress can be shown before there is a first release.
        self.on_chunk: Callable[[], object] = lambda: None
        last = {stream.name: None if span.last is None else span.last[stream.name] for stream in streams}
        judged = {stream.name: source.rules(stream, last[stream.name]) for stream in streams}
        starts = source.begin(
            min(_earliest(judged[name], span.first[name]) for name in judged),
            max(stream.source.max_bytes for stream in streams),
        )
        scope = Scope(judged, span.first, last, boundaries, starts, source.events)
        if unbounded:
            scope = _with_unbounded(scope)
        self._partitions = list(starts)
        self._counting = _counting(scope, source, processes)
        self.releasing = {
            stream.name: Releasing(
                stream, len(starts), span.first[stream.name], last[stream.name], noise(stream),
                seeded=seeded, unbounded=unbounded,
            )
            for stream in sorted(streams, key=lambda stream: stream.name)
        }  # fmt: skip
        self._counted = {name: one for one in self.releasing.values() for name in one.names}

    def __iter__(self) -> Iterator[Released]:
        """The releases, in order.

        Raises what reading the input raises, and EventveilError if the data decide the end and it lies in the
        future: a single event with a wrong time would fill the disk.
        """
        with closing(self._counting.steps()) as steps:
            for partials in steps:
                self._add(partials)
                self.on_chunk()
                yield from self._complete()
        self._settle_last()
        yield from self._complete()

    @property
    def events(self) -> int:
        """How many records have been judged so far: raw data."""
        return self._counting.events

    @property
    def outcomes(self) -> dict[str, Counter[str]]:
        """What became of the records read so far, per stream: raw data. See ``StreamCounter.outcomes``.

        A record counted here may belong to a timestamp after the range.
        """
        return {name: self._counting.outcomes(name) for name in self.releasing}

    def held(self) -> dict[str, Held]:
        """What is in memory, by stream: raw data."""
        return {
            name: sum(map(self._counting.held, one.names), Held(partials=one.waiting))
            for name, one in self.releasing.items()
        }

    @property
    def elsewhere(self) -> int:
        """Bytes of memory that other processes hold for this one."""
        return self._counting.elsewhere

    def _add(self, partials: Sequence[Partial]) -> None:
        """Partial counts, those of a stream behind each other."""
        for name, those in groupby(partials, lambda one: one.stream):
            self._counted[name].add(those)

    def _complete(self) -> Iterator[Released]:
        """The releases whose turn it is and whose counts are complete."""
        while (one := self._turn()) is not None:
            released = one.take()
            if released is None and (closed := [*self._close_ended(one)]):
                one.add(closed)
                released = one.take()
            if released is None:
                return
            yield released

    def _turn(self) -> Releasing | None:
        """The stream to release next, None if there is none or if the data have yet to say."""
        running = [one for one in self.releasing.values() if not one.ended]
        # The streams are sorted by name, and min takes the first of equals.
        turn = min(running, key=lambda one: one.next, default=None)
        return None if turn is None or turn.next > turn.until else turn

    def _close_ended(self, one: Releasing) -> Iterator[Partial]:
        """Close a stream's next timestamps where partitions have ended, several at once if they are small."""
        ended = [partition for partition in self._partitions if self._counting.ended(partition)]
        size = 0
        for timestamp in range(one.next, min(one.until, one.next + _AHEAD) + 1):
            for name, partition in product(one.names, ended):
                while self._counting.next(partition, name) <= timestamp:
                    partial = self._counting.close(partition, name)
                    size += len(partial.columns)
                    yield partial
            if size > _AHEAD_COLUMNS:
                return

    def _settle_last(self) -> None:
        """Everything has been read: a stream that the data end ends with its last event."""
        for name, one in self.releasing.items():
            if one.last is None:
                one.last = max(one.last_counted, self._counting.last_open(name))
                if self._now is not None:
                    _check_end(one, self.span.first[name], self._now)


def _check_end(one: Releasing, first: int, now: int) -> None:
    """Raise EventveilError if a stream would end after ``now``, later than a worker lets events be ahead."""
    rules, last = one.stream.timeline, one.last
    if last is not None and start_of(rules, last) > now + rules.max_ahead:
        name, when = one.stream.name, format_rfc3339(start_of(rules, last))
        raise EventveilError(
            f"raw data, not to be published: the last event of {name} is in the timestamp that begins at"
            f" {when}, in the future, so --to last would release {last - first + 1:,} timestamps. Correct the"
            " time of that event, or set the end with --to TIME"
        )


def _counting(scope: Scope, source: Input, processes: int | None) -> Counting:
    if divided := shares(source, processes):
        return ProcessCounting(scope, source, divided)
    return OwnCounting(scope, source, list(scope.starts))


def _earliest(stream: Stream, first: int) -> int:
    """No record appended earlier can count: genesis looks for the first offset in the same way."""
    rules = stream.timeline
    if stream.source.append_time == "boundary":
        return 0
    return start_of(rules, first) - rules.max_ahead - rules.clock_skew


def _with_unbounded(scope: Scope) -> Scope:
    """The scope, and every stream of it once more without the contribution bound."""
    streams = dict(scope.streams)
    for name, stream in scope.streams.items():
        counts = replace(stream.counts, contributions=UNBOUNDED, per_column=None)
        streams[without_bound(name)] = replace(stream, name=without_bound(name), counts=counts)

    def twice(known: Mapping[str, _T]) -> dict[str, _T]:
        return {**known, **{without_bound(name): value for name, value in known.items()}}

    return replace(
        scope,
        streams=streams,
        first=twice(scope.first),
        last=twice(scope.last),
        boundaries=twice(scope.boundaries),
    )
