"""Replaying value streams: the worker's pure core over history, one reading per value of each partition."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from eventveil.model.topology import ReadingStream, Topology
from eventveil.privacy.noise import NoiseSource, SeededNoise, SystemNoise
from eventveil.replay.inputs import Input
from eventveil.tasks.values import PerturberState, StreamPerturber
from eventveil.values.kinds import build
from eventveil.values.ledger import Charge

_INSTANCE = "replay"
Noise = Callable[[ReadingStream, int], NoiseSource]


@dataclass(frozen=True, slots=True)
class Replayed:
    """The values of one chunk of one partition, from position ``start`` on.

    ``records`` are the bytes of the sink, one per value. ``truth`` are the values behind them in steps of the
    grid: raw data. ``units`` make up epsilon.
    """

    stream: ReadingStream
    partition: int
    start: int
    records: Sequence[bytes]
    truth: Sequence[int]
    charges: Sequence[Charge]
    units: int


def replay_values(
    topology: Topology,
    source: Input,
    *,
    only: Collection[str] = (),
    seed: int | None = None,
    noise: Noise | None = None,
) -> ValueReplay:
    """Replay the value streams of a topology that read ``source``, or those of them that ``only`` names.

    With a ``seed`` the noise is reproducible and the records are marked; ``noise`` makes the noise source of
    a stream and partition instead (only tests give it). Raises EventveilError or KafkaException if the input
    cannot be read.
    """
    streams = [
        stream
        for stream in topology.readings
        if (not only or stream.name in only) and source.topic in {None, stream.source.topic}
    ]
    if noise is None:
        noise = (lambda _, __: SystemNoise()) if seed is None else seeded_noise(seed)
    return ValueReplay(streams, source, noise, seeded=seed is not None)


def seeded_noise(seed: int) -> Noise:
    """Reproducible noise of each partition of a stream: nothing else changes it."""

    def make(stream: ReadingStream, partition: int) -> NoiseSource:
        text = f"eventveil replay {seed}:{stream.name}:{partition}"
        return SeededNoise(int.from_bytes(hashlib.sha256(text.encode()).digest(), "big"))

    return make


class ValueReplay:
    """Iterate once for what becomes of each chunk. The input is read while iterating."""

    def __init__(
        self, streams: Sequence[ReadingStream], source: Input, noise: Noise, *, seeded: bool
    ) -> None:
        if source.is_json:
            streams = [replace(one, source=replace(one.source, format="json")) for one in streams]
        self.streams, self._source, self._seeded = streams, source, seeded
        #: What became of the values read so far, per stream: raw data.
        self.outcomes: dict[str, Counter[str]] = {stream.name: Counter() for stream in streams}
        #: How many values have been read so far: raw data.
        self.events = 0
        self.on_chunk: Callable[[], object] = lambda: None
        longest = max(stream.source.max_bytes for stream in streams)
        self._perturbers = {
            partition: [
                StreamPerturber(
                    stream,
                    build(stream, noise(stream, partition)),
                    PerturberState(_INSTANCE, partition, start),
                )
                for stream in streams
            ]
            for partition, start in source.begin(0, longest).items()
        }

    def __iter__(self) -> Iterator[Replayed]:
        for chunk in self._source.chunks():
            self.events += len(chunk.offsets)
            for one in self._perturbers[chunk.partition]:
                batch = one.step(chunk.offsets, chunk.values, chunk.next_offset)
                self.outcomes[one.stream.name] += batch.outcomes
                yield Replayed(
                    one.stream,
                    chunk.partition,
                    batch.start,
                    tuple(one.records(seeded=self._seeded)),
                    batch.truth,
                    batch.pending.charges,
                    one.units,
                )
                one.published()
            self.on_chunk()
