"""Counting the partitions of a replay: chunks in, partial counts out.

The aggregation of each partition closes timestamps as the append times pass their due times, as a worker does
by the clock. What is still open when a partition has ended is closed when it is asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from eventveil.counting.boundaries import Boundary
from eventveil.counting.counter import CounterState, Partial
from eventveil.model.records import NO_APPEND_TIME, Chunk, TopicPartition
from eventveil.model.timeline import timestamp_of
from eventveil.model.topology import Stream
from eventveil.process.memory import NOTHING, Held
from eventveil.replay.inputs import Input
from eventveil.replay.releasing import INSTANCE
from eventveil.replay.runner import LogRunner
from eventveil.tasks.aggregate import Aggregation, Batch, Outputs
from eventveil.topology.scalars import END_OF_TIME

#: Nothing of a transaction is written: a replay uses what it contains.
_NOWHERE = Outputs("", {}, TopicPartition("", 0))


@dataclass(frozen=True, slots=True)
class Scope:
    """What is counted, all by the name of the stream: under which rules, from which timestamp to which one.

    ``last`` None: as far as there are events. ``starts`` are the first offsets of all partitions, ``events``
    the number of partitions of the topic that re-keyed events come from, 0 if that is not known.
    """

    streams: Mapping[str, Stream]
    first: Mapping[str, int]
    last: Mapping[str, int | None]
    boundaries: Mapping[str, Mapping[int, tuple[Boundary, ...]]]
    starts: Mapping[int, int]
    events: int = 0

    def aggregation(self, partition: int) -> Aggregation:
        """What counts a partition."""
        offset = self.starts[partition]
        states = {
            name: CounterState(
                INSTANCE, partition, self.first[name], self.first[name], offset, offset,
                boundaries=self.boundaries.get(name, {}).get(partition, ()),
            ).waiting_for(self.events)
            for name in self.streams
        }  # fmt: skip
        streams = {name: (stream, states[name]) for name, stream in self.streams.items()}
        made = Aggregation(_NOWHERE, len(self.starts), streams)
        for name, counter in made.counters.items():
            if counter.boundaries is not None and self.boundaries.get(name):
                counter.boundaries = replace(counter.boundaries, known=self._known(name, partition))
        return made

    def _known(self, name: str, partition: int) -> int:
        """The first timestamp with a known boundary in a partition; of one without any, one out of reach.

        What is below all boundaries is measured by that, and not by the range: how far back it begins must
        not decide what counts.
        """
        if own := self.boundaries[name].get(partition):
            return own[0].last
        return timestamp_of(self.streams[name].timeline, END_OF_TIME)

    def past(self, name: str, timestamp: int) -> bool:
        """Whether a timestamp is behind the last one of its stream."""
        last = self.last[name]
        return last is not None and timestamp > last


class Counting(ABC):
    """Partitions that are being counted.

    ``events`` are those that were judged so far: raw data. ``elsewhere`` are bytes of memory in processes of
    its own.
    """

    events = 0
    elsewhere = 0

    @abstractmethod
    def steps(self) -> Generator[Sequence[Partial], None, None]:
        """Read on: the timestamps that were closed, few at a time, if any. Ends where all is read or past.

        Raises what reading the input raises.
        """

    @abstractmethod
    def next(self, partition: int, name: str) -> int:
        """The next timestamp of a stream that the partition closes."""

    @abstractmethod
    def ended(self, partition: int) -> bool:
        """Whether all that a partition has to say has been read."""

    @abstractmethod
    def close(self, partition: int, name: str) -> Partial:
        """Close the next timestamp of a stream in a partition that has ended."""

    @abstractmethod
    def last_open(self, name: str) -> int:
        """The last timestamp of a stream that has an event and is not closed, 0 if there is none."""

    @abstractmethod
    def held(self, name: str) -> Held:
        """What is in memory of a stream, except for what waits to be merged: raw data."""

    @abstractmethod
    def outcomes(self, name: str) -> Counter[str]:
        """See ``Replay.outcomes``."""


class OwnCounting(Counting):
    """Counts what an input delivers, in this process."""

    def __init__(self, scope: Scope, source: Input, partitions: Sequence[int]) -> None:
        self._scope, self._source = scope, source
        self._aggregators = {partition: scope.aggregation(partition) for partition in partitions}

    def steps(self) -> Generator[Sequence[Partial], None, None]:
        """See ``Counting.steps``."""
        for chunk in self._source.chunks():
            yield from self.observe(chunk)
            if all(map(self.past, self._aggregators)):
                return

    def past(self, partition: int) -> bool:
        """Whether a partition has closed every timestamp of the range."""
        counters = self._aggregators[partition].counters
        return all(self._scope.past(name, counter.next) for name, counter in counters.items())

    def observe(self, chunk: Chunk) -> Iterator[Sequence[Partial]]:
        """Judge a chunk, and close what is complete then, little by little."""
        if self.past(chunk.partition):
            return
        now = max(chunk.append_times, default=NO_APPEND_TIME)
        # What is committed is handed on. Nobody knows where the partition ended at that time.
        runner = LogRunner(self._aggregators[chunk.partition], lambda _: None, lambda: now)
        for done in runner.take_in(chunk):
            if isinstance(done.cause, Batch) and done.cause.partials:
                yield done.cause.partials
        self.events += len(chunk.offsets)
        yield ()

    def next(self, partition: int, name: str) -> int:
        """See ``Counting.next``."""
        return self._aggregators[partition].counters[name].next

    def ended(self, partition: int) -> bool:
        """See ``Counting.ended``."""
        return self._source.ended(partition)

    def close(self, partition: int, name: str) -> Partial:
        """See ``Counting.close``."""
        return self._aggregators[partition].counters[name].close()

    def last_open(self, name: str) -> int:
        """See ``Counting.last_open``."""
        return max((one.counters[name].last_open or 0 for one in self._aggregators.values()), default=0)

    def held(self, name: str) -> Held:
        """See ``Counting.held``."""
        return sum((one.counters[name].held for one in self._aggregators.values()), NOTHING)

    def outcomes(self, name: str) -> Counter[str]:
        """See ``Counting.outcomes``."""
        return sum((one.counters[name].outcomes for one in self._aggregators.values()), Counter())
