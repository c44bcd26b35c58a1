"""The replay itself: chunks in, releases out, through the parts that the worker is made of.

``eventveil.replay.partitions`` says when a partition closes a timestamp, in this process or in others.
Releases come in the order of (timestamp, stream name), as soon as every partition has closed the timestamp.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from eventveil.counting.boundaries import Boundary
from eventveil.counting.counter import Partial
from eventveil.formats.release import clipped
from eventveil.kinds.registry import plan_streams
from eventveil.mechanisms.base import Release
from eventveil.mechanisms.registry import find, of_stream
from eventveil.model.records import TopicPartition
from eventveil.model.timeline import start_of
from eventveil.model.topology import UNBOUNDED, Stream, Topology
from eventveil.privacy.noise import NoiseSource, SeededNoise, SystemNoise
from eventveil.process.memory import NOTHING, Held
from eventveil.replay.inputs import Input
from eventveil.replay.partitions import INSTANCE, Counting, OwnCounting, Task
from eventveil.replay.processes import ProcessCounting, shares
from eventveil.replay.span import Span, plan_span
from eventveil.tasks.combiner import Merger
from eventveil.tasks.release import ReleaseState, StreamSanitizer

Noise = Callable[[Stream], NoiseSource]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Released:
    """One timestamp of one stream.

    ``record`` are the bytes of the sink. ``counts`` are the true counts of the timestamp, raw data: int64 of
    shape (columns,). ``truth`` is what the release should be: the same, or their sums where the release is a
    sum over a span of timestamps. ``events`` is how many there were before bounding, if that was asked for.
    ``release`` holds the spends, in units of which ``units`` make up epsilon.
    """

    stream: Stream
    timestamp: int
    record: bytes
    counts: NDArray[np.int64]
    release: Release
    units: int
    truth: NDArray[np.int64]
    events: NDArray[np.int64] | None = None


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
) -> Replay:
    """Replay the streams of a topology that read ``source``, or those of them that ``only`` names.

    ``start`` and ``end`` as in ``plan_span``. With a ``seed`` the noise is reproducible and the records are
    marked; ``noise`` makes the noise source of a stream instead (only tests give it). ``processes`` as in
    ``shares``: it changes no release. ``unbounded``: count a second time without the contribution bound, for
    ``Released.events``. Raises ValueError for a range or names that do not fit, EventveilError
    or KafkaException if the input cannot be read.
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
        streams, source, span, noise, boundaries, processes, seeded=seed is not None, unbounded=unbounded
    )


def select_streams(topology: Topology, topic: str | None, only: Collection[str] = ()) -> list[Stream]:
    """The streams over ``topic`` (None: over any) that ``only`` names (empty: all). Raises ValueError."""
    names = {stream.name for stream in topology.streams}
    known = names | {stream.name for stream in topology.readings}
    for name in only:
        if name not in names:
            raise ValueError(f"there is no stream {name}, only {', '.join(sorted(known))}")
    if topic is not None and topic not in topology.sources:
        raise ValueError(
            f"no stream reads topic {topic}, only {', '.join((*topology.sources, *topology.value_sources))}"
        )
    wanted = [stream for stream in topology.streams if not only or stream.name in only]
    for stream in wanted:
        if only and topic not in {None, stream.source.topic}:
            raise ValueError(f"stream {stream.name} reads topic {stream.source.topic}, not {topic}")
    return [stream for stream in wanted if topic in {None, stream.source.topic}]


def seeded_noise(seed: int) -> Noise:
    """Reproducible noise that is a stream's own: other streams, and their order, do not change it."""

    def make(stream: Stream) -> NoiseSource:
        digest = hashlib.sha256(f"eventveil replay {seed}:{stream.name}".encode()).digest()
        return SeededNoise(int.from_bytes(digest, "big"))

    return make


class _StreamReplay:
    """One stream, from its first timestamp onwards, drawn as a worker draws it."""

    def __init__(
        self,
        stream: Stream,
        partitions: int,
        first: int,
        last: int | None,
        noise: NoiseSource,
        *,
        unbounded: bool,
    ) -> None:
        columns = len(stream.counts.labels)
        self.stream, self.next, self.last = stream, first, last
        mechanism = of_stream(stream, noise)
        self._units = mechanism.units
        self._sanitizer = StreamSanitizer(
            stream, partitions, mechanism, ReleaseState(INSTANCE, first, first, 0), None
        )
        #: By the names of what is counted, of which the first is released.
        self.mergers = {stream.name: self._sanitizer.merger}
        if unbounded:
            name = _unbounded(stream.name)
            self.mergers[name] = Merger(name, columns, partitions, INSTANCE, first)
        #: The first and the last timestamp known to have counted an event.
        self.first_counted = self.last_counted = 0
        self._sums = Sums(_summed(stream), columns)

    @property
    def ended(self) -> bool:
        """Whether every timestamp of the range has been released."""
        return self.last is not None and self.next > self.last

    def add(self, partial: Partial) -> None:
        """Keep a partial of the range."""
        if self.last is not None and partial.timestamp > self.last:
            return
        self.mergers[partial.stream].add(partial, partial.encode() if partial.columns.size else b"", 0)
        if partial.columns.size:
            self.first_counted = min(self.first_counted or partial.timestamp, partial.timestamp)
            self.last_counted = max(self.last_counted, partial.timestamp)

    def release(self, seeded: bool) -> Released:
        """Release the next timestamp, which must be complete."""
        self.next += 1
        drawn = self._sanitizer.draw(seeded=seeded)
        events = [one.take() for name, one in self.mergers.items() if name != self.stream.name]
        release = clipped(drawn.release, self.stream.sink.minimum)
        truth = self._sums.add(drawn.counts)
        return Released(
            self.stream, drawn.timestamp, drawn.record, drawn.counts, release, self._units, truth, *events
        )


class Sums:
    """Sums of true counts over the last ``span`` timestamps: raw data."""

    def __init__(self, span: int, columns: int) -> None:
        self._last = deque([np.zeros(columns, np.int64)], maxlen=span)
        self._sum = np.zeros(columns, np.int64)

    def add(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The sums that end with these counts."""
        if self._last.maxlen == 1:
            return counts
        if len(self._last) == self._last.maxlen:
            self._sum -= self._last[0]
        self._last.append(counts)
        self._sum += counts
        return self._sum.copy()


def _summed(stream: Stream) -> int:
    """Over how many timestamps a release of the stream is a sum."""
    span = stream.mechanism.options.get("span", 1)
    return int(span) if find(stream.mechanism.kind).level == "event" else 1


def _unbounded(name: str) -> str:
    """What counts the same events without the bound; no stream has such a name."""
    return f"{name}/unbounded"


class Replay:
    """Iterate over it, once, to get every release. ``streams`` in the order of the topology."""

    def __init__(
        self,
        streams: Sequence[Stream],
        source: Input,
        span: Span,
        noise: Noise,
        boundaries: Mapping[str, Mapping[int, tuple[Boundary, ...]]],
        processes: int | None,
        *,
        seeded: bool,
        unbounded: bool = False,
        counting: Callable[[Task], Counting] | None = None,
    ) -> None:
        """``counting``: what counts the partitions instead of reading ``source`` (``eventveil.testing``)."""
        self.streams = list(streams)
        self.span = span
        self._seeded = seeded
        #: Called after every chunk, so that progress can be shown before there is a first release.
        self.on_chunk: Callable[[], object] = lambda: None
        last = {stream.name: None if span.last is None else span.last[stream.name] for stream in streams}
        judged = {stream.name: source.rules(stream, last[stream.name]) for stream in streams}
        starts = source.begin(
            min(_earliest(judged[name], span.first[name]) for name in judged),
            max(stream.source.max_bytes for stream in streams),
        )
        task = Task(judged, span.first, last, boundaries, starts, source.events)
        if unbounded:
            task = _with_unbounded(task)
        self._partitions = list(starts)
        self._counting = _counting(task, source, processes) if counting is None else counting(task)
        self._streams = {
            stream.name: _StreamReplay(
                stream, len(starts), span.first[stream.name], last[stream.name], noise(stream),
                unbounded=unbounded,
            )
            for stream in sorted(streams, key=lambda stream: stream.name)
        }  # fmt: skip
        self._counted = {name: one for one in self._streams.values() for name in one.mergers}

    def __iter__(self) -> Iterator[Released]:
        """The releases, in order. Raises what reading the input raises."""
        with closing(self._counting.steps()) as steps:
            for partials in steps:
                for partial in partials:
                    self._counted[partial.stream].add(partial)
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
        return {name: self._counting.outcomes(name) for name in self._streams}

    @property
    def first_counted(self) -> dict[str, int]:
        """The first timestamp of each stream that has an event, 0 if none has: raw data."""
        return {name: one.first_counted for name, one in self._streams.items()}

    @property
    def last_counted(self) -> dict[str, int]:
        """The last timestamp of each stream that has an event, 0 if none has: raw data."""
        return {name: one.last_counted for name, one in self._streams.items()}

    def held(self) -> dict[str, Held]:
        """What is in memory, by stream: raw data."""
        return {
            name: sum(
                (
                    self._counting.held(of) + Held(partials=merger.waiting)
                    for of, merger in one.mergers.items()
                ),
                NOTHING,
            )
            for name, one in self._streams.items()
        }

    @property
    def elsewhere(self) -> int:
        """Bytes of memory that other processes hold for this one."""
        return self._counting.elsewhere

    def _complete(self) -> Iterator[Released]:
        """The releases whose turn it is and whose counts are complete."""
        while (one := self._turn()) is not None and self._gather(one):
            yield one.release(self._seeded)

    def _turn(self) -> _StreamReplay | None:
        """The stream to release next, None if there is none or if the data have yet to say."""
        running = [one for one in self._streams.values() if not one.ended]
        # The streams are sorted by name, and min takes the first of equals.
        turn = min(running, key=lambda one: one.next, default=None)
        if turn is None or (turn.last is None and turn.next > turn.last_counted):
            return None
        return turn

    def _gather(self, one: _StreamReplay) -> bool:
        """Close a stream's next timestamp where a partition has ended; whether all have closed it now."""
        counting = self._counting
        for name, partition in product(one.mergers, self._partitions):
            while counting.next(partition, name) <= one.next:
                if not counting.ended(partition):
                    return False
                one.add(counting.close(partition, name))
        return True

    def _settle_last(self) -> None:
        """Everything has been read: a stream that the data end ends with its last event."""
        for name, one in self._streams.items():
            if one.last is None:
                one.last = max(one.last_counted, self._counting.last_open(name))


def _counting(task: Task, source: Input, processes: int | None) -> Counting:
    divided = shares(source, processes)
    return ProcessCounting(task, source, divided) if divided else OwnCounting(task, source, list(task.starts))


def _earliest(stream: Stream, first: int) -> int:
    """No record appended earlier can count: genesis looks for the first offset in the same way."""
    rules = stream.timeline
    if stream.source.append_time == "boundary":
        return 0
    return start_of(rules, first) - rules.max_ahead - rules.clock_skew


def _with_unbounded(task: Task) -> Task:
    """The task, and every stream of it once more without the contribution bound."""
    streams = dict(task.streams)
    for name, stream in task.streams.items():
        counts = replace(stream.counts, contributions=UNBOUNDED)
        streams[_unbounded(name)] = replace(stream, name=_unbounded(name), counts=counts)

    def twice(known: Mapping[str, _T]) -> dict[str, _T]:
        return {**known, **{_unbounded(name): value for name, value in known.items()}}

    return replace(
        task,
        streams=streams,
        first=twice(task.first),
        last=twice(task.last),
        boundaries=twice(task.boundaries),
    )
