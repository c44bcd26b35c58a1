"""The same world with a pan-private stream: what memory shows is drawn for once, and wiped in the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import orjson

from eventveil.counting.counter import CounterState
from eventveil.kafka.changelog import FencedTable
from eventveil.mechanisms.pan_private import Counters, PanPrivate
from eventveil.mechanisms.registry import of_stream
from eventveil.model.records import Outgoing, TopicPartition
from eventveil.tasks.aggregate import Batch
from eventveil.tasks.pan_private import (
    Exposure,
    PanPrivateStream,
    PanPrivateTopics,
    SingleCounter,
    release_key,
)
from eventveil.tasks.release import ReleaseState, StreamSanitizer
from eventveil.tasks.task import Task, Transaction
from tests.crashes.world import COUNTS, PARTITIONS, USERS, Slot, Worker, World
from tests.unit.support import INSTANCE, ZeroNoise, stream

_TIMELINE = COUNTS.timeline
#: Without noise, so that releases show the truth; what is drawn, and how often, is watched.
PAN_PRIVATE = stream(
    kind="budget-distribution", adjacency="substitute", epsilon=Fraction(1000), window=1,
    options={"pan_private": "single"}, interval=_TIMELINE.interval, origin=_TIMELINE.origin,
    lateness=_TIMELINE.lateness, max_ahead=_TIMELINE.max_ahead, clock_skew=_TIMELINE.clock_skew,
)  # fmt: skip


class Watched(PanPrivateStream):
    """Tells its world whenever counters are drawn from, and which counters it has had."""

    world: PanPrivateWorld

    def _open(self) -> None:
        super()._open()
        if (counters := self.aggregator.counter.counters) is not None:
            self.world.opened.append((self, counters))

    def decide(self) -> Batch:
        if self.draws:
            self.world.drawn[self.timestamp] += 1
        return super().decide()

    @property
    def shown(self) -> Counters | None:
        """The counters that it may still show: those of the timestamp that it counts."""
        return None if self._ended else self.aggregator.counter.counters


class PanPrivateWorld(World):
    """One partition with a task that counts and releases. The process of a crash takes its memory with it."""

    kind: type[Watched] = Watched

    def __init__(self, seed: int) -> None:
        self.drawn: Counter[int] = Counter()
        self.opened: list[tuple[Watched, Counters]] = []
        super().__init__(seed, ZeroNoise(), PAN_PRIVATE)

    def _create(self) -> None:
        app, of = self.topology, self.stream
        # Nobody writes into its second partition.
        self.log.create(of.source.topic, PARTITIONS)
        for topic in (app.ledger, app.counting_changelog, of.sink.topic, of.dead_letter):
            self.log.create(topic)

    def _slots(self) -> Iterable[Slot]:
        app, of = self.topology, self.stream
        read, place, ledger, sink = (
            TopicPartition(one, 0)
            for one in (of.source.topic, app.counting_changelog, app.ledger, of.sink.topic)
        )
        yield Slot("pan-private-0", read, place, (ledger, sink), self.restore)

    def restore(self, states: Mapping[bytes, bytes]) -> Task:
        app, one, name = self.topology, self.stream, self.stream.name
        counted, released, exposure = (
            CounterState(INSTANCE, 0, 1, 1, 0, 0), ReleaseState(INSTANCE, 1, 1, 0), Exposure(INSTANCE),
        )  # fmt: skip
        if (value := states.get(name.encode())) is not None:
            counted = CounterState.decode(value, "the changelog")
        if (value := states.get(release_key(name))) is not None:
            released = ReleaseState.decode(value, "the changelog")
        if (value := states.get(Exposure.key(name))) is not None:
            exposure = Exposure.decode(value, "the changelog")
        assert counted.next == released.next >= exposure.timestamp
        mechanism = of_stream(one, self._noise)
        assert isinstance(mechanism, PanPrivate)
        places = PanPrivateTopics(TopicPartition(app.ledger, 0), TopicPartition(app.counting_changelog, 0))
        sanitizer = StreamSanitizer(one, 1, mechanism, released, None, version=self.version)
        task = self.kind(one, mechanism, counted, sanitizer, exposure, places)
        task.world = self
        return task

    def append(self, events: int) -> None:
        """Producers write events of now, before or after; some are late, early or malformed."""
        for _ in range(events):
            fields = {
                "user": f"user-{self.rnd.randrange(USERS)}",
                "column": self.rnd.choice("aaabbz"),
                "time": self.log.now + self.rnd.randint(-16_000, 8_000),
            }
            self.log.append([Outgoing(self.stream.source.topic, orjson.dumps(fields), b"key", 0)])

    def _go_on(self, place: TopicPartition, table: FencedTable, task: Task, most: int) -> None:
        """A task goes back after a release: to what a chunk does not have, if it was read before that one."""
        runner, chunk = self._runner(table, task, place), self.read(place, task.position, most)
        if chunk.start <= task.position < chunk.next_offset:
            task.process(chunk)
        for _ in runner.settle():
            pass

    def _turn(self, worker: Worker, slot: Slot, most: int) -> None:
        before, crashes = worker.running.get(slot), self.seen["crash"]
        super()._turn(worker, slot, most)
        if before is not None and worker.running.get(slot) != before and self.seen["crash"] == crashes:
            self.give_up(before[1])

    def give_up(self, task: Task) -> None:
        """What a worker does with a task that it has lost."""
        task.end()


def check_pan_private(world: PanPrivateWorld) -> Counter[str]:
    """Assert all that must be true in the end; how many timestamps were released, and given up."""
    of, seen = world.stream, Counter[str]()
    truth = _Truth(world)
    sink = [orjson.loads(one.value or b"") for one in world.committed(of.sink.topic)]
    ledger = [orjson.loads(one.value or b"") for one in world.committed(world.topology.ledger)]
    assert [one["timestamp"] for one in sink] == [*range(1, len(sink) + 1)]
    assert [one["timestamp"] for one in ledger] == [*range(1, len(sink) + 1)]
    for topic in (of.sink.topic, world.topology.ledger):
        versions = defaultdict(set)
        for one in world.public(topic):
            versions[orjson.loads(one.value or b"")["timestamp"]].add(one.value)
        assert all(len(found) == 1 for found in versions.values()), "seen in two draws"
    before = dict.fromkeys(of.counts.labels, 0)
    for one in sink:
        given_up = one.get("forfeited", False)
        expected = before if given_up else {label: truth.counts[one["timestamp"]][label] for label in before}
        assert one["counts"] == expected, one
        assert one["spent"]["publish"] > 0 or not given_up
        before = one["counts"]
        seen["given up" if given_up else "counted"] += 1
    letters = Counter(
        int(dict(record.headers)["eventveil.offset"]) for record in world.committed(of.dead_letter)
    )
    assert letters == truth.refused
    assert {*world.drawn.values()} == {1}, "counters were drawn from twice"
    for task, counters in world.opened:
        assert counters is task.shown or not counters.cells.any(), "counters were left in memory"
    return seen


class _Truth:
    """Counts by timestamp and column, and dead letters by offset. A user counts as often as it comes."""

    def __init__(self, world: World) -> None:
        rules = world.stream.timeline
        self.counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self.refused: Counter[int] = Counter()
        for record in world.log.records(TopicPartition(world.stream.source.topic, 0)):
            event = orjson.loads(record.value or b"")
            timestamp = (event["time"] - rules.origin) // rules.interval + 1
            late = record.time >= rules.origin + timestamp * rules.interval + rules.lateness
            early = event["time"] > record.time + rules.max_ahead
            if late or early or timestamp < 1 or event["column"] not in world.stream.counts.labels:
                self.refused[record.offset] += 1
            else:
                self.counts[timestamp][event["column"]] += 1


class _Unexposed(Watched):
    def next(self, now: int) -> Transaction | None:
        work = super().next(now)
        if work is None or work.name != "expose":
            return work
        key, before = Exposure.key(self.stream.name), self.exposure.encode()
        records = (one._replace(value=before) if one.key == key else one for one in work.records)
        return replace(work, records=tuple(records))


class DrawnUnexposed(PanPrivateWorld):
    """Broken: a release is drawn before it is durable that it will be."""

    kind = _Unexposed


class _Unwiped(SingleCounter):
    def go_on(self) -> None:
        self.counters = None
        super().go_on()


class _LeavesCounters(Watched):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.aggregator.counter.__class__ = _Unwiped


class CountersLeft(PanPrivateWorld):
    """Broken: the counters of a timestamp stay in memory when the next one begins."""

    kind = _LeavesCounters


class NotGivenUp(PanPrivateWorld):
    """Broken: a worker that has lost the partition leaves its counters as they are."""

    def give_up(self, task: Task) -> None:
        assert isinstance(task, Watched)
        task._ended = True


class ExposureForgotten(PanPrivateWorld):
    """Broken: a successor does not look whether the timestamp was exposed, and draws for it."""

    def restore(self, states: Mapping[bytes, bytes]) -> Task:
        key = Exposure.key(self.stream.name)
        return super().restore({one: value for one, value in states.items() if one != key})


#: With what must be said of each.
PAN_PRIVATE_BROKEN: Mapping[type[PanPrivateWorld], str] = {
    DrawnUnexposed: "drawn from twice",
    ExposureForgotten: "drawn from twice",
    CountersLeft: "left in memory",
    NotGivenUp: "left in memory",
}
