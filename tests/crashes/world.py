"""A world of a few workers, a log and a clock, in which anything may happen between two steps.

Each turn somebody is chosen by chance: producers append events, time passes, a worker continues one of the
tasks that it believes it owns, or a task is given to another worker. The former owner is not told and
continues, like a process that was cut off from its group. At the fault points of the table a worker may crash
(with everything that it runs), or stand still while others take the task over and work, and then continue.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import chain

import orjson

from eventveil.counting.counter import CounterState
from eventveil.kafka.barrier import behind, is_nonce, nonce_key
from eventveil.kafka.changelog import FencedTable, OwnerClosed, TransactionFailed
from eventveil.kinds.placement import StreamPlan
from eventveil.lifecycle.beginning import judged_anew_from
from eventveil.lifecycle.manifest import ManifestRecord
from eventveil.mechanisms.registry import of_stream
from eventveil.model.errors import Unsettled
from eventveil.model.partitioners import murmur2_partition
from eventveil.model.records import Chunk, Outgoing, TopicPartition
from eventveil.model.topology import Discover, Kafka, Stream
from eventveil.privacy.noise import NoiseSource
from eventveil.process.clock import Clock, PartitionClock
from eventveil.process.faults import FaultHook
from eventveil.replay.log import MemoryLog
from eventveil.replay.runner import LogRunner
from eventveil.tasks.aggregate import Aggregation, Outputs
from eventveil.tasks.release import PartitionSanitizer, ReleaseState, StreamSanitizer, Topics
from eventveil.tasks.repartition import Rekeyer, RekeyerState
from eventveil.tasks.task import Task, Transaction
from tests.unit.support import INSTANCE, stream, topology

WORKERS, PARTITIONS, USERS = 3, 2, 12
TURNS = 300
#: How likely a worker crashes, or stands still, at each of the fault points that it passes; less often while
#: it takes over, where it passes many and has nothing to lose yet.
CRASHES, PAUSES, TAKING_OVER = 0.04, 0.03, 0.25
_DEEPEST = 2

#: Ten seconds a timestamp, so that a pause may outlast a transaction.
COUNTS = stream(
    interval=10_000, origin=1_000_000, lateness=5_000, max_ahead=7_000, clock_skew=3_000,
    kind="budget-absorption", window=3,
)  # fmt: skip
REKEYED = stream(
    interval=10_000, origin=1_000_000, lateness=5_000, max_ahead=7_000, clock_skew=3_000,
    kind="budget-absorption", window=3, raw="events",
)  # fmt: skip
#: Two events of a user count, in different columns.
BY_COLUMN = stream(
    interval=10_000, origin=1_000_000, lateness=5_000, max_ahead=7_000, clock_skew=3_000,
    kind="uniform", window=3, contributions=2, per_column=1,
    options={"noise": "gaussian", "delta": Fraction(1, 10**6)},
)  # fmt: skip
REKEYED_BY_COLUMN = replace(BY_COLUMN, source=REKEYED.source)

#: What is released depends on what earlier releases of a block erred by.
TOTALS = stream(
    interval=10_000, origin=1_000_000, lateness=5_000, max_ahead=7_000, clock_skew=3_000,
    kind="totals", window=1, options={"blocks": "3,6", "noise": "gaussian", "delta": Fraction(1, 10**6)},
)  # fmt: skip

#: Columns are found in the data, at a cost for which a handful of events is enough.
DISCOVERS = stream(
    interval=10_000, origin=1_000_000, lateness=5_000, max_ahead=7_000, clock_skew=3_000,
    kind="seasonal", window=3, labels=("other",),
    discover=Discover(Fraction(30), Fraction(1, 10_000), Fraction(1, 10), 40, 20),
)  # fmt: skip

REKEYED_DISCOVERS = replace(DISCOVERS, source=REKEYED.source)

#: They are forgotten too. Errors are large against counts, for a release has the least part of epsilon.
FORGETS = stream(
    interval=10_000, origin=1_000_000, lateness=5_000, max_ahead=7_000, clock_skew=3_000,
    kind="uniform", window=3, labels=("other",), epsilon=Fraction(3, 2),
    discover=Discover(Fraction(30), Fraction(1, 10_000), Fraction(1, 10), 40, 20, forget=2),
)  # fmt: skip

REKEYED_BY_BOUNDARY = stream(
    interval=10_000, origin=1_000_000, lateness=5_000, max_ahead=7_000, clock_skew=3_000,
    kind="budget-absorption", window=3, raw="events", append_time="boundary",
)  # fmt: skip


class LogCluster:
    """What ``judged_anew_from`` asks a cluster."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    def first_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {place: self._log.start(place) for place in places}

    def offsets_at(self, places: Iterable[TopicPartition], time: int) -> dict[TopicPartition, int]:
        return {place: self._log.offset_at(place, time) for place in places}


class Crash(Exception):
    """A process has ended, at once."""


class Table(FencedTable):
    """The table with one writer, over a log in memory."""

    def __init__(self, log: MemoryLog, owner: str, place: TopicPartition, fault: FaultHook) -> None:
        super().__init__(Kafka("memory:0"), owner, *place, fault)
        self.log = log

    def fence(self) -> None:
        self._check_open()
        self._fault("take-over:before-fence")
        self._writer = self.log.writer(self.owner, 20.0)
        self._writer.initialise(30.0)
        self._fault("take-over:fenced")

    def _await_leaders(self, places: Collection[TopicPartition]) -> None:
        """Every partition has one."""

    def _read(self, drawn: bytes) -> dict[bytes, bytes]:
        table = self.log.table(self.place)
        if table.get(nonce_key(self.owner)) != drawn:
            raise behind(self.place)
        return {key: value for key, value in table.items() if not is_nonce(key)}


@dataclass(frozen=True, eq=False)
class Slot:
    """A task that somebody has to own, under this identity; ``beside`` are other partitions to mark."""

    identity: str
    input: TopicPartition
    changelog: TopicPartition
    beside: tuple[TopicPartition, ...]
    restore: Callable[[Mapping[bytes, bytes]], Task]


@dataclass
class Worker:
    """A process, with the tasks that it believes to own."""

    number: int
    running: dict[Slot, tuple[FencedTable, Task]]


class World:
    """See the module. ``table`` is what owns a changelog partition; only broken variants pass another."""

    #: Of Eventveil: each take-over is by the next one, and by the first again; empty where none is recorded.
    versions: tuple[str, ...] = ("",)

    def __init__(
        self,
        seed: int,
        noise: NoiseSource,
        of: Stream = COUNTS,
        table: Callable[[MemoryLog, str, TopicPartition, FaultHook], FencedTable] = Table,
    ) -> None:
        self.rnd, self.stream, self.topology = random.Random(seed), of, topology(of)
        self._noise, self._table = noise, table
        self.log = MemoryLog(now=of.timeline.origin)
        self.clock = PartitionClock(Clock(lambda: self.log.now, lambda: self.log.now), of.timeline.clock_skew)
        self.workers = [Worker(number, {}) for number in range(WORKERS)]
        self.owners: dict[Slot, Worker] = {}
        self.seen: Counter[str] = Counter()
        self._armed, self._standing = True, list[Worker]()
        self._create()
        self.slots = [*self._slots()]

    def _create(self) -> None:
        app, of = self.topology, self.stream
        rekeyed = {of.source.raw, app.rekeying_changelog} if of.source.raw is not None else set()
        for topic in sorted({of.source.topic, app.counting_changelog, *rekeyed}):
            self.log.create(topic, PARTITIONS)
        for topic in (app.partials, app.ledger, app.ledger_changelog, of.sink.topic, of.dead_letter):
            self.log.create(topic)

    # Restoring

    def _slots(self) -> Iterable[Slot]:
        app, source = self.topology, self.stream.source
        for number in range(PARTITIONS):
            read, place = (TopicPartition(one, number) for one in (source.topic, app.counting_changelog))
            yield Slot(f"aggregate-{number}", read, place, (), partial(self.aggregate, place))
            if source.raw is not None:
                read, place = (TopicPartition(one, number) for one in (source.raw, app.rekeying_changelog))
                yield Slot(f"rekey-{number}", read, place, (), partial(self.repartition, place))
        beside = (TopicPartition(app.ledger, 0), TopicPartition(self.stream.sink.topic, 0))
        read, place = (TopicPartition(one, 0) for one in (app.partials, app.ledger_changelog))
        yield Slot("sanitize-0", read, place, beside, self.release)

    def aggregate(self, changelog: TopicPartition, states: Mapping[bytes, bytes]) -> Task:
        one, name = self.stream, self.stream.name
        passed = () if one.source.raw is None else (0,) * PARTITIONS
        state = CounterState(INSTANCE, changelog.partition, 1, 1, 0, 0, passed=passed)
        if (value := states.get(name.encode())) is not None:
            state = CounterState.decode(value, "the counting changelog")
            if self.seen["take-over"] % 3 == 0:
                state = self._judged_anew(state)
        outputs = Outputs(self.topology.partials, {name: 0}, changelog)
        return Aggregation(outputs, PARTITIONS, {name: (one, state)})

    def _judged_anew(self, state: CounterState) -> CounterState:
        """As by a version that judges in another way: nothing may change if it does not."""
        one, cluster = self.stream, LogCluster(self.log)
        place, identity = TopicPartition(one.source.topic, state.partition), (one.name, INSTANCE)
        genesis = ManifestRecord(*identity, {}, place.topic, "id", state.partition, 1, 0, 0)
        begin = judged_anew_from(cluster, StreamPlan(one, 0), place, genesis, state)  # type: ignore[arg-type]
        self.seen["judged anew"] += begin < state.resume
        return state.judging_from(begin, keeps_marks=one.source.raw is not None)

    def repartition(self, changelog: TopicPartition, states: Mapping[bytes, bytes]) -> Task:
        source = self.stream.source
        state = RekeyerState(INSTANCE, changelog.partition, 0)
        if (value := states.get(source.topic.encode())) is not None:
            state = RekeyerState.decode(value, "the changelog of re-keying")
        return Rekeyer(source, [self.stream.timeline], PARTITIONS, state, changelog)

    def release(self, states: Mapping[bytes, bytes]) -> Task:
        app, one = self.topology, self.stream
        state = ReleaseState(INSTANCE, 1, 1, 0)
        if (value := states.get(one.name.encode())) is not None:
            state = ReleaseState.decode(value, "the ledger changelog")
        one = one.having(state.found)
        sanitizer = StreamSanitizer(
            one, PARTITIONS, of_stream(one, self._noise), state, None, noise=self._noise, version=self.version
        )
        topics = Topics(app.ledger, app.ledger_changelog, 0)
        return PartitionSanitizer(topics, {one.name: sanitizer})

    @property
    def version(self) -> str:
        """Of who takes a task over now."""
        return self.versions[self.seen["take-over"] % len(self.versions)]

    # What happens

    def run(self, turns: int = TURNS) -> None:
        """Let things happen; then nothing more goes wrong, and everybody finishes."""
        for _ in range(turns):
            self._something(self.rnd)
        self._armed = False
        self.seen["published amid crashes"] = self.seen["publish"]
        self.pass_time(30_000 + self.rnd.randrange(20_000))
        self._finish()

    def _something(self, rnd: random.Random) -> None:
        what = rnd.random()
        if what < 0.15:
            self.pass_time(rnd.randrange(6_000))
            self.append(rnd.randrange(6))
        elif what < 0.17:
            self._give(rnd.choice(self.slots))
        else:
            orphans = [slot for slot in self.slots if slot not in self.owners]
            if orphans:
                self._give(rnd.choice(orphans))
            else:
                worker = rnd.choice(self._awake)
                if worker.running:
                    self._turn(worker, rnd.choice([*worker.running]), rnd.choice((1, 3, 1000)))

    def _finish(self) -> None:
        for _ in range(1000):
            before = self._written
            for slot in [slot for slot in self.slots if slot not in self.owners]:
                self._give(slot)
            for worker in self.workers:
                for slot in [*worker.running]:
                    self._turn(worker, slot, 1000)
            owned = all(slot in self.owners for slot in self.slots)
            if owned and before == self._written:
                return
        raise AssertionError("the workers do not come to rest")

    @property
    def _awake(self) -> list[Worker]:
        return [worker for worker in self.workers if worker not in self._standing]

    def pass_time(self, milliseconds: int) -> None:
        before = self._open
        self.log.advance(self.log.now + milliseconds)
        self.seen["transaction that lasted too long"] += before - self._open

    @property
    def _open(self) -> int:
        return sum(one.transaction is not None for one in self.log._identities.values())

    def append(self, events: int) -> None:
        """Producers write events of now, before or after; some are late, early or malformed."""
        rnd, topic = self.rnd, self.stream.source.topic_of_events
        for _ in range(events):
            user = f"user-{rnd.randrange(USERS)}"
            value = orjson.dumps(
                {"user": user, "column": self.column(rnd), "time": self.log.now + rnd.randint(-16_000, 8_000)}
            )
            partition = murmur2_partition(user.encode(), PARTITIONS)
            if self.stream.source.raw is not None:
                partition = rnd.randrange(PARTITIONS)
            self.log.append([Outgoing(topic, value, user.encode(), partition)])

    def column(self, rnd: random.Random) -> str:
        """Of an event; where columns are found, others come as time goes on."""
        if self.stream.counts.discover is None:
            return rnd.choice("aaabbz")
        age = (self.log.now - self.stream.timeline.origin) // 60_000
        return f"{rnd.choice('aaabbz')}{max(0, age - rnd.choice((0, 0, 1)))}"

    def _give(self, slot: Slot) -> None:
        """Another worker becomes the owner of a task; the former one is not told."""
        worker = self.rnd.choice(self._awake)
        with self._process(worker):
            table = self._table(self.log, slot.identity, slot.changelog, partial(self._fault, worker, slot))
            self.owners[slot] = worker
            # Its own former task of this partition is gone: a process owns a partition once.
            worker.running.pop(slot, None)
            task = slot.restore(table.take_over(slot.beside))
            worker.running[slot] = (table, task)
            self._begin(table, task)
            self.seen["take-over"] += 1

    def _turn(self, worker: Worker, slot: Slot, most: int) -> None:
        """A worker continues a task: it reads, and commits whatever it can."""
        with self._process(worker):
            table, task = worker.running[slot]
            try:
                self._go_on(slot.input, table, task, most)
            except (TransactionFailed, OwnerClosed) as error:
                self.seen["fenced" if getattr(error, "shut_out", False) else "failed"] += 1
                if worker.running.get(slot) == (table, task):
                    del worker.running[slot]
                if self.owners.get(slot) is worker:
                    del self.owners[slot]

    def _begin(self, table: FencedTable, task: Task) -> None:
        self._runner(table, task).begin()

    def _go_on(self, place: TopicPartition, table: FencedTable, task: Task, most: int) -> None:
        runner = self._runner(table, task, place)
        for _ in chain(runner.take_in(self.read(place, task.position, most)), runner.settle()):
            pass

    def _runner(self, table: FencedTable, task: Task, place: TopicPartition | None = None) -> LogRunner:
        def commit(work: Transaction) -> None:
            self.commit(table, replace(work, records=tuple(work.records)))
            self.seen[work.name] += 1

        return LogRunner(task, commit, self.clock.now, None if place is None else lambda: self.log.end(place))

    def read(self, place: TopicPartition, position: int, most: int) -> Chunk:
        return self.log.read(place, position, most=most)

    def commit(self, table: FencedTable, work: Transaction) -> None:
        table.transact(work.name, work.records, self.clock if work.by_clock else None)

    def _fault(self, worker: Worker, slot: Slot, point: str) -> None:
        if not self._armed:
            return
        likely = TAKING_OVER if point.startswith(("take-over:", "mark:", "barrier:", "restore:")) else 1.0
        fate = self.rnd.random() / likely
        if fate < CRASHES:
            self.seen["crash"] += 1
            raise Crash
        if fate < CRASHES + PAUSES and len(self._standing) < _DEEPEST:
            self.seen["pause"] += 1
            self._standing.append(worker)
            self._meanwhile(slot)
            self._standing.remove(worker)

    def _meanwhile(self, slot: Slot) -> None:
        """While the owner of a task stands still, others take it over, mostly, and continue."""
        if self.rnd.random() < 0.3:
            self.pass_time(self.rnd.randrange(40_000))
        if self.rnd.random() < 0.8:
            self._give(slot)
        for _ in range(self.rnd.randrange(3)):
            owner = self.owners.get(slot)
            if owner in self._awake and slot in owner.running:
                self._turn(owner, slot, 1000)
        for _ in range(self.rnd.randrange(4)):
            self._something(self.rnd)

    def _process(self, worker: Worker) -> _Process:
        return _Process(self, worker)

    # What is in the log

    @property
    def _written(self) -> int:
        """How much lies in the log."""
        return sum(self.log.end(place) for place in self.log._partitions)

    def committed(self, topic: str) -> list[Outgoing]:
        return self._records(topic, "read_committed")

    def public(self, topic: str) -> list[Outgoing]:
        """What anybody can see, aborted records included."""
        return self._records(topic, "read_uncommitted")

    def _records(self, topic: str, isolation: object) -> list[Outgoing]:
        return [
            Outgoing(topic, one.value, one.key, number, one.headers)
            for number in range(self.log.partitions(topic))
            for one in self.log.records(TopicPartition(topic, number), None, isolation)  # type: ignore[arg-type]
            if not is_nonce(one.key)
        ]


class _Process:
    """What a worker does until it crashes, which ends all of its tasks and nobody else's."""

    def __init__(self, world: World, worker: Worker) -> None:
        self._world, self._worker = world, worker

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> bool:
        if isinstance(error, Crash):
            self._worker.running.clear()
        elif isinstance(error, TransactionFailed | OwnerClosed | Unsettled):
            self._world.seen["take-over lost"] += 1
        else:
            return False
        self._world.owners = {
            slot: owner
            for slot, owner in self._world.owners.items()
            if owner is not self._worker or slot in owner.running
        }
        return True
