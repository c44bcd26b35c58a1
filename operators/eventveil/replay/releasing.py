"""Releasing one stream of a replay: the task of the worker, over a log in memory with the partial counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from eventveil.counting.counter import Partial
from eventveil.formats.release import clipped
from eventveil.mechanisms.base import Release
from eventveil.mechanisms.registry import find, of_stream
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Stream
from eventveil.privacy.noise import NoiseSource
from eventveil.replay.log import MemoryLog
from eventveil.replay.runner import LogRunner
from eventveil.tasks.combiner import Combiner
from eventveil.tasks.discovery import split
from eventveil.tasks.release import Drawn, PartitionSanitizer, ReleaseState, StreamSanitizer, Topics

INSTANCE = "replay"
#: No sink has such a name, because no topic of Kafka can.
LEDGER, CHANGELOG = "replay: ledger", "replay: changelog"
_PARTIALS = TopicPartition("replay: partials", 0)


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


class Releasing:
    """One stream, from its first timestamp onwards, up to ``last`` (None: not known yet)."""

    def __init__(
        self,
        stream: Stream,
        partitions: int,
        first: int,
        last: int | None,
        noise: NoiseSource,
        *,
        seeded: bool,
        unbounded: bool = False,
    ) -> None:
        columns, named = len(stream.counts.labels), stream.counts.discover is not None
        self.stream, self.next, self.last = stream, first, last
        mechanism = of_stream(stream, noise)
        self._units = mechanism.units
        state = ReleaseState(INSTANCE, first, first, 0)
        # Files have JSON, whatever the sink has: no registry is asked.
        in_json = replace(stream, sink=replace(stream.sink, format="json"))
        self._sanitizer = StreamSanitizer(
            in_json, partitions, mechanism, state, None, seeded=seeded, noise=noise
        )
        self._task = PartitionSanitizer(Topics(LEDGER, CHANGELOG, 0), {stream.name: self._sanitizer})
        # What becomes public is handed on; of all that is written, only partial counts are read again.
        self._runner = LogRunner(self._task, lambda _: None, lambda: 0)
        self._log = MemoryLog()
        self._log.create(_PARTIALS.topic)
        self._drawn: deque[Drawn] = deque()
        #: Counts the same events without the bound.
        self._events = (
            Combiner(without_bound(stream.name), columns, partitions, INSTANCE, first, named=named)
            if unbounded
            else None
        )
        #: The first and the last timestamp known to have counted an event, 0 if none has: raw data.
        self.first_counted = self.last_counted = 0
        self._sums = RunningSums(_summed(stream), columns)

    @property
    def names(self) -> Collection[str]:
        """Of what is counted for it."""
        name = self.stream.name
        return (name,) if self._events is None else (name, without_bound(name))

    @property
    def ended(self) -> bool:
        """Whether every timestamp of the range has been released."""
        return self.last is not None and self.next > self.last

    @property
    def until(self) -> int:
        """The last timestamp that may be released by what is known so far."""
        return self.last_counted if self.last is None else self.last

    @property
    def found(self) -> tuple[str, ...]:
        """The columns that were found in the data and are known now; empty where they are listed."""
        named = self.stream.counts.discover is not None
        return self._sanitizer.stream.counts.labels[1:] if named else ()

    @property
    def largest_missed(self) -> int:
        """The most that a block counted of a column that it did not find: raw data."""
        return self._sanitizer.largest_missed

    @property
    def waiting(self) -> int:
        """How many partial counts are held, empty ones left out."""
        return self._sanitizer.combiner.waiting + (0 if self._events is None else self._events.waiting)

    def add(self, partials: Iterable[Partial]) -> None:
        """Partial counts were committed, of which those after the range are left out."""
        records = []
        for partial in partials:
            if self.last is not None and partial.timestamp > self.last:
                continue
            if partial.columns.size:
                self.first_counted = min(self.first_counted or partial.timestamp, partial.timestamp)
                self.last_counted = max(self.last_counted, partial.timestamp)
            if partial.stream == self.stream.name:
                records += [_PARTIALS.record(None, one.encode()) for one in partial.pieces()]
            elif self._events is not None:
                for one in partial.pieces():
                    self._events.add(one, one.encode(), 0)
        if records:
            self._log.append(records)
            self._task.process(self._log.read(_PARTIALS, self._task.position))
            self._log.delete_before(_PARTIALS, self._task.position)

    def take(self, until: int | None = None) -> Released | None:
        """The next release, if its timestamp is complete; none after timestamp ``until`` is drawn.

        ``until`` None: see ``Releasing.until``.
        """
        if not self._drawn:
            self._draw(self.until if until is None else until)
        if not self._drawn or not (self._events is None or self._events.complete()):
            return None
        drawn = self._drawn.popleft()
        self.next += 1
        merged = None if self._events is None else self._events.take()
        events = None if merged is None else merged.counts
        if merged is not None and self.stream.counts.discover is not None:
            events = split(merged.named, drawn.stream)
        release = clipped(drawn.release, self.stream.sink.minimum)
        truth = self._sums.add(drawn.counts)
        return Released(
            drawn.stream, drawn.timestamp, drawn.record, drawn.counts, release, self._units, truth, events
        )

    def _draw(self, until: int) -> None:
        """Decide and publish, as far as one pair of transactions goes."""
        self._sanitizer.until = until
        for done in self._runner.settle():
            if done.releases:
                return
            assert isinstance(done.cause, tuple)
            self._drawn += done.cause


class RunningSums:
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


def without_bound(name: str) -> str:
    """What counts the same events without the bound; no stream has such a name."""
    return f"{name}/unbounded"
