"""A topic whose events are re-keyed (``repartition: true``), read as it is: a replay needs no worker for it.

The tasks of a worker's re-keying stage pass its events on into a log in memory, with one partition, and the
replay counts what is there. So verdicts, bounds and the order of a partition's events are those of the
re-keyed topic; between partitions, the one that is furthest behind by append time is read first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from eventveil.model.fields import in_envelope
from eventveil.model.records import Chunk, TopicPartition
from eventveil.model.topology import Kafka, Stream, Topology
from eventveil.replay.inputs import Input, Share, TopicInput, never_late
from eventveil.replay.log import MemoryLog
from eventveil.replay.releasing import INSTANCE
from eventveil.replay.runner import LogRunner
from eventveil.tasks.repartition import Rekeyer, RekeyerState
from eventveil.tasks.task import Transaction
from eventveil.topology.scalars import END_OF_TIME


def open_topic(topology: Topology, topic: str) -> Input:
    """A source topic of a topology: one whose events are re-keyed, what that made of it, or any other."""
    registry = topology.registry if topic in topology.by_schema else None
    streams = [one for one in topology.streams if topic in {one.source.topic, one.source.topic_of_events}]
    around = any(in_envelope(field) for one in streams for field in one.source.looked_at)
    more: dict[str, Any] = {"registry": registry, "protobuf": topology.has_protobuf}
    target = topology.rekeyed.get(topic)
    if target is not None:
        return RekeyingInput(topology.kafka, topic, target, **more)
    rekeyed = topic in topology.rekeyed.values()
    return TopicInput(topology.kafka, topic, rekeyed=rekeyed, envelope=around, **more)


class RekeyingInput(TopicInput):
    """Events of ``raw`` as they would be in ``target``, in one partition.

    Where the broker tells no append times (``append_time: boundary``), nothing is late or too far ahead: when
    a worker would have seen the events nobody knows.
    """

    def __init__(self, kafka: Kafka, raw: str, target: str, **more: Any) -> None:
        super().__init__(kafka, raw, envelope=True, **more)
        self.topic = target
        self._place = TopicPartition(target, 0)
        self._streams: list[Stream] = []
        self._log = MemoryLog()
        self._read_to = 0
        self._tasks: dict[int, Rekeyer] = {}

    def rules(self, stream: Stream, last: int | None) -> Stream:
        """See ``Input.rules``."""
        self._streams.append(stream)
        if stream.source.append_time == "broker":
            return stream
        self._unbounded.add(stream.name)
        self.warnings.append(
            f"{stream.name}: the topic has no append times of the broker, so no event is late or too far"
            " ahead here"
        )
        return never_late(stream, last)

    def begin(self, earliest: int, longest: int) -> Mapping[int, int]:
        """See ``Input.begin``: there is one partition, which holds what has been passed on."""
        starts = super().begin(earliest, longest)
        self.events = len(starts)
        self._log.create(self._place.topic)
        self._tasks = {partition: self._task(partition, start) for partition, start in starts.items()}
        return {0: 0}

    def _task(self, partition: int, start: int) -> Rekeyer:
        return Rekeyer(
            self._streams[0].source,
            [one.timeline for one in self._streams],
            1,
            RekeyerState(INSTANCE, partition, start),
            TopicPartition("", partition),
            own_times=any(one.source.own_time for one in self._streams),
        )

    def _pass_on(self, work: Transaction) -> None:
        self._log.append([one for one in work.records if one.topic == self._place.topic])

    def chunks(self) -> Iterator[Chunk]:
        """See ``Input.chunks``."""
        runners = {
            partition: LogRunner(task, self._pass_on, lambda: self._log.now)
            for partition, task in self._tasks.items()
        }
        for partition, runner in runners.items():
            self._conclude(partition, runner)
        for chunk in super().chunks():
            self._log.advance(max(self._log.now, *chunk.append_times, 0))
            for _ in runners[chunk.partition].take_in(chunk):
                pass
            self._conclude(chunk.partition, runners[chunk.partition])
            yield self._passed_on(chunk)

    def _conclude(self, partition: int, runner: LogRunner) -> None:
        """Nothing is still to come from a partition that has ended: no timestamp waits for it."""
        task = self._tasks[partition]
        if not super().ended(partition) or self._streams[0].source.append_time == "boundary":
            return
        task.capture_end(END_OF_TIME, task.position)
        for _ in runner.settle():
            pass

    def _passed_on(self, chunk: Chunk) -> Chunk:
        """What has been passed on since, which the log need not keep."""
        found = self._log.read(self._place, self._read_to)
        self._read_to = found.next_offset
        self._log.delete_before(self._place, self._read_to)
        return replace(found, schemas=chunk.schemas)

    def ended(self, partition: int) -> bool:
        """See ``Input.ended``."""
        return all(super(RekeyingInput, self).ended(one) for one in self._tasks)

    def split(self, count: int) -> list[Share]:
        """See ``Input.split``: a user's events may be in any partition."""
        return []
