"""Playing the events of a test of a value stream: a reading for each value, with the noise off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import orjson

from eventveil.model.records import Chunk
from eventveil.model.topology import ReadingStream, Stream
from eventveil.replay.inputs import Input
from eventveil.replay.values import ValueReplay
from eventveil.tasks.values import READ
from eventveil.testing.model import Case, Event, Played
from eventveil.testing.noise import NoiseOff


class _Values(Input):
    """The events of a test, one entry a chunk."""

    def __init__(self, case: Case) -> None:
        super().__init__(case.stream.source.topic)
        self._events, self._partitions = case.events, case.partitions
        self._next = [0] * case.partitions
        #: The number of the event whose values were delivered last.
        self.read = 0

    def rules(self, stream: Stream, last: int | None) -> Stream:
        """As they are."""
        return stream

    def begin(self, earliest: int, longest: int) -> Mapping[int, int]:
        """Every partition begins at 0."""
        return dict.fromkeys(range(self._partitions), 0)

    def chunks(self) -> Iterator[Chunk]:
        """One for each event, with all its repeats."""
        for event in self._events:
            self.read += 1
            yield self._chunk(event)

    def _chunk(self, event: Event) -> Chunk:
        partition, values = event.partition or 0, event.values
        start = self._next[partition]
        after = self._next[partition] = start + len(values)
        nothing = [None] * len(values)
        offsets, times = range(start, after), [0] * len(values)
        return Chunk("values", partition, 0, start, offsets, times, nothing, values, after)

    def ended(self, partition: int) -> bool:
        """See ``Input.ended``; nobody asks."""
        return self.read == len(self._events)


def play_values(case: Case, stream: ReadingStream) -> Played:
    """The readings of the events of a test, in steps of the grid, and which events had no value."""
    source, noise, played = _Values(case), NoiseOff(), Played()
    running = ValueReplay([stream], source, lambda *_: noise, seeded=True)
    known = running.outcomes[stream.name].copy()
    for replayed in running:
        noise.next_timestamp()
        played.readings[source.read] = [orjson.loads(record)["reading"] for record in replayed.records]
        now = running.outcomes[stream.name]
        for reason, number in (now - known).items():
            if reason != READ:
                played.unreadable[source.read, str(reason)] += number
        known = now.copy()
    return played
