"""The same world with a stream of values: every value gets one reading, in its place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial

import orjson

from eventveil.kafka.barrier import is_nonce
from eventveil.model.records import Outgoing, TopicPartition
from eventveil.privacy.noise import NoiseSource
from eventveil.tasks.task import Task
from eventveil.tasks.values import PartitionPerturber, PerturberState, StreamPerturber
from eventveil.values.kinds import build
from tests.crashes.world import PARTITIONS, Slot, World
from tests.unit.support import INSTANCE
from tests.unit.values.streams import event, readings

RAW, LEDGER, CHANGELOG = "values", "app-ledger", "app-state-changelog"


class ValueWorld(World):
    """Two partitions of values, each with a task of its own."""

    def __init__(self, seed: int, noise: NoiseSource) -> None:
        self.readings = readings()
        super().__init__(seed, noise)

    def _create(self) -> None:
        self.log.create(LEDGER)
        for topic in (RAW, CHANGELOG, self.readings.sink):
            self.log.create(topic, PARTITIONS)

    def _slots(self) -> Iterable[Slot]:
        for number in range(PARTITIONS):
            read, place, sink = (TopicPartition(one, number) for one in (RAW, CHANGELOG, self.readings.sink))
            beside = (TopicPartition(LEDGER, 0), sink)
            yield Slot(f"perturb-{number}", read, place, beside, partial(self.perturb, number))

    def perturb(self, number: int, states: Mapping[bytes, bytes]) -> Task:
        one, name = self.readings, self.readings.name
        state = PerturberState(INSTANCE, number, 0)
        if (value := states.get(name.encode())) is not None:
            state = PerturberState.decode(value, "the state changelog")
        perturber = StreamPerturber(one, build(one, self._noise), state, version=self.version)
        ledgers = {name: TopicPartition(LEDGER, 0)}
        return PartitionPerturber(ledgers, TopicPartition(CHANGELOG, number), {name: perturber})

    def append(self, events: int) -> None:
        """Producers write values, some of which nobody can read."""
        for _ in range(events):
            value = event(self.rnd.randrange(150)) if self.rnd.random() < 0.9 else b"no event"
            self.log.append([Outgoing(RAW, value, None, self.rnd.randrange(PARTITIONS))])


class ValuesDrawnAgain(ValueWorld):
    """Broken: what was decided and not published is drawn again."""

    def perturb(self, number: int, states: Mapping[bytes, bytes]) -> Task:
        key = self.readings.name.encode()
        if (value := states.get(key)) is not None:
            fields = orjson.loads(value)
            drawn = [None if one is None else one + 1 for one in fields["pending"]["readings"]]
            fields["pending"]["readings"] = drawn
            states = {**states, key: orjson.dumps(fields)}
        return super().perturb(number, states)


def check_values(world: ValueWorld) -> int:
    """Assert all that must be true in the end; how many values have readings."""
    ends = [world.log.end((RAW, number)) for number in range(PARTITIONS)]
    charged = [0] * PARTITIONS
    entries = [one.value for one in world.committed(LEDGER)]
    for entry in map(orjson.loads, entries):
        assert entry["start"] == charged[entry["partition"]]
        charged[entry["partition"]] = entry["stop"]
    assert {one.value for one in world.public(LEDGER)} == {*entries}
    for number, end in enumerate(ends):
        place = (world.readings.sink, number)
        published = [orjson.loads(one.value or b"") for one in world.log.records(place) if one.value]
        assert [one["position"] for one in published] == [*range(end)]
        assert [one["offset"] for one in published] == [*range(end)]
        assert charged[number] >= end
        draws: defaultdict[int, set[bytes | None]] = defaultdict(set)
        for one in world.log.records(place, None, "read_uncommitted"):
            if not is_nonce(one.key):
                draws[orjson.loads(one.value or b"")["position"]].add(one.value)
        assert all(len(drawn) == 1 for drawn in draws.values())
        assert set(draws) == {*range(end)}
    return sum(ends)
