"""Replaying value streams: the worker's task over history, one reading per value of each partition."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from eventveil.model.records import Chunk, TopicPartition
from eventveil.model.topology import ReadingStream, Topology
from eventveil.privacy.noise import NoiseSource, SeededNoise, SystemNoise
from eventveil.replay.inputs import Input
from eventveil.replay.releasing import CHANGELOG, INSTANCE, LEDGER
from eventveil.replay.runner import LogRunner
from eventveil.tasks.values import PartitionPerturber, PerturbedBatch, PerturberState, StreamPerturber
from eventveil.values.kinds import build
from eventveil.values.ledger import Charge

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
    return lambda stream, partition: SeededNoise.of(f"eventveil replay {seed}:{stream.name}:{partition}")


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
        self._tasks = {
            partition: self._task(partition, start, noise)
            for partition, start in source.begin(0, longest).items()
        }

    def _task(self, partition: int, start: int, noise: Noise) -> PartitionPerturber:
        """What gives the values of a partition their readings, as a worker does."""
        perturbers = {
            stream.name: StreamPerturber(
                stream,
                build(stream, noise(stream, partition)),
                PerturberState(INSTANCE, partition, start),
                seeded=self._seeded,
            )
            for stream in self.streams
        }
        ledgers = dict.fromkeys(perturbers, TopicPartition(LEDGER, 0))
        return PartitionPerturber(ledgers, TopicPartition(CHANGELOG, partition), perturbers)

    def __iter__(self) -> Iterator[Replayed]:
        for chunk in self._source.chunks():
            self.events += len(chunk.offsets)
            yield from self._replayed(chunk)
            self.on_chunk()

    def _replayed(self, chunk: Chunk) -> Iterator[Replayed]:
        task, made = self._tasks[chunk.partition], dict[str, PerturbedBatch]()
        # What becomes public is handed on, and nothing is read again.
        for done in LogRunner(task, lambda _: None, lambda: 0).take_in(chunk):
            for name, outcomes in done.outcomes.items():
                self.outcomes[name] += outcomes
            if isinstance(done.cause, dict):
                made = done.cause
                continue
            public = defaultdict[tuple[str, bytes | None], list[bytes]](list)
            for topic, value, key, *_ in done.records:
                public[topic, key].append(value or b"")
            for name, batch in made.items():
                one = task.streams[name]
                yield Replayed(
                    one.stream, chunk.partition, batch.start, public[one.stream.sink, name.encode()],
                    batch.truth, batch.pending.charges, one.units,
                )  # fmt: skip
