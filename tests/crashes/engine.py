"""The world of ``world``, where an engine counts: in transactions, with crashes, and a zombie at times."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from confluent_kafka import KafkaException

from eventveil.counting.counter import CounterState
from eventveil.counting.engine import EngineCounter
from eventveil.kafka.changelog import FencedTable
from eventveil.model.partitioners import murmur2_partition
from eventveil.model.records import Chunk, Outgoing, TopicPartition
from eventveil.model.topology import Stream
from eventveil.privacy.noise import NoiseSource
from eventveil.process.faults import FaultHook
from eventveil.replay.log import MemoryLog, MemoryWriter
from eventveil.tasks.aggregate import Aggregation
from eventveil.tasks.task import Task
from tests.crashes.world import COUNTS, PARTITIONS, Table, World
from tests.unit.support import stream

#: In different partitions of two.
COLUMNS = ("a", "d")
_TIMELINE = COUNTS.timeline
_FIELDS: dict[str, Any] = {
    name: getattr(_TIMELINE, name) for name in ("interval", "origin", "lateness", "max_ahead", "clock_skew")
}
ENGINE = stream(
    count="/n", user="/column", user_type="either", watermark="/until", labels=COLUMNS,
    kind="budget-absorption", window=3, **_FIELDS,
)  # fmt: skip
ENGINE_BY_TIME = stream(
    count="/n", user="/column", user_type="either", labels=COLUMNS, kind="budget-absorption", window=3,
    **_FIELDS,
)  # fmt: skip
assert len({murmur2_partition(one.encode(), PARTITIONS) for one in COLUMNS}) == 2


class EngineWorld(World):
    """See the module: counts, corrections and watermarks in transactions, of which many come to nothing."""

    def __init__(
        self,
        seed: int,
        noise: NoiseSource,
        of: Stream = ENGINE,
        table: Callable[[MemoryLog, str, TopicPartition, FaultHook], FencedTable] = Table,
    ) -> None:
        super().__init__(seed, noise, of, table)
        self._engine = self._started()
        self._zombies: list[MemoryWriter] = []

    def _started(self) -> MemoryWriter:
        engine = self.log.writer("engine", 10.0)
        engine.initialise(30.0)
        return engine

    def append(self, events: int) -> None:
        """The engine writes a transaction and commits it, or aborts it, or dies in it."""
        rnd = self.rnd
        try:
            self._engine.write([self._record() for _ in range(events)])
            fate = rnd.random()
            if fate < 0.6:
                self._engine.commit(30.0)
                self.seen["commit of the engine"] += 1
            elif fate < 0.7:
                self._engine.abort(30.0)
            elif fate < 0.8:
                self._zombies.append(self._engine)
                self._engine = self._started()
                self.seen["crash of the engine"] += 1
            if self._zombies and rnd.random() < 0.3:
                self._zombies.pop().commit(30.0)
        except KafkaException:
            # Its transaction was over, or it is a zombie: another one takes its place.
            self.seen["fenced engine"] += 1
            self._engine = self._started()

    def _record(self) -> Outgoing:
        rnd, rules = self.rnd, self.stream.timeline
        start = rules.origin + (self.log.now - rules.origin) // rules.interval * rules.interval
        start += rules.interval * rnd.choice((-2, -1, -1, 0, 0, 1))
        if self.stream.source.watermark is not None and rnd.random() < 0.25:
            until = start if rnd.random() < 0.9 else start + 5 * rules.interval
            return self._outgoing({"until": until}, rnd.randrange(PARTITIONS))
        column = rnd.choice("aaaddz")
        fields = {"column": column, "time": start + rnd.choice((0,) * 9 + (1,)), "n": rnd.randint(-1, 9)}
        return self._outgoing(fields, murmur2_partition(column.encode(), PARTITIONS))

    def _outgoing(self, fields: dict[str, Any], partition: int) -> Outgoing:
        return Outgoing(self.stream.source.topic, orjson.dumps(fields), b"key", partition)

    def _finish(self) -> None:
        """In the end the engine is back, and says that all is complete."""
        self._engine = self._started()
        if self.stream.source.watermark is not None:
            everywhere = range(PARTITIONS)
            self._engine.write([self._outgoing({"until": self.log.now}, number) for number in everywhere])
            self._engine.commit(30.0)
        super()._finish()


class EngineTruth:
    """Counts by timestamp and column, and dead letters, by partition and offset: one record at a time."""

    def __init__(self, world: World) -> None:
        self._rules, self._marked = world.stream.timeline, world.stream.source.watermark is not None
        self.counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self.refused: Counter[tuple[int, int]] = Counter()
        for number in range(PARTITIONS):
            self._complete = 0
            for record in world.log.records(TopicPartition(world.stream.source.topic, number)):
                if not self._takes(record.time, orjson.loads(record.value or b"")):
                    self.refused[number, record.offset] += 1
        # As of counts of events, where what is not there is 0.
        for counts in self.counts.values():
            for column in [column for column, count in counts.items() if not count]:
                del counts[column]

    def _takes(self, appended: int, fields: dict[str, Any]) -> bool:
        rules = self._rules
        if "until" in fields:
            if fields["until"] > appended + rules.max_ahead + rules.interval:
                return False
            self._complete = max(self._complete, fields["until"])
            return True
        timestamp, beyond = divmod(fields["time"] - rules.origin, rules.interval)
        end = rules.origin + (timestamp + 1) * rules.interval
        late = end <= self._complete if self._marked else appended >= end + rules.lateness
        early = fields["time"] > appended + rules.max_ahead
        if late or early or beyond or timestamp < 0 or fields["column"] not in COLUMNS or fields["n"] < 0:
            return False
        self.counts[timestamp + 1][fields["column"]] = fields["n"]
        return True


class CountedUncommitted(EngineWorld):
    """Counts are taken that the engine has aborted, or not committed yet."""

    def read(self, place: TopicPartition, position: int, most: int) -> Chunk:
        return self.log.read(place, position, "read_uncommitted", most)


class MarkedByLast(EngineWorld):
    """A successor begins with the last watermark that was read, not with the last that it will not meet."""

    def aggregate(self, changelog: TopicPartition, states: Mapping[bytes, bytes]) -> Task:
        task = super().aggregate(changelog, states)
        assert isinstance(task, Aggregation)
        (counter,) = task.counters.values()
        assert isinstance(counter, EngineCounter)
        place = TopicPartition(self.stream.source.topic, changelog.partition)
        for record in self.log.records(place):
            mark = orjson.loads(record.value or b"").get("until")
            if mark is not None and record.offset < counter.judged:
                counter._marked(mark, record.offset, record.time)
        return task


class MarkForgotten(EngineWorld):
    """A successor forgets the watermark of what it does not read again."""

    def aggregate(self, changelog: TopicPartition, states: Mapping[bytes, bytes]) -> Task:
        name = self.stream.name.encode()
        if name in states:
            state = CounterState.decode(states[name], "the counting changelog")
            states = {**states, name: state.replace(passed=()).encode()}
        return super().aggregate(changelog, states)


ENGINE_BROKEN: Mapping[str, type[EngineWorld]] = {
    "counted uncommitted": CountedUncommitted,
    "marked by last": MarkedByLast,
    "mark forgotten": MarkForgotten,
}
