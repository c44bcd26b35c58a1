"""The tasks of a worker over a log in memory, through a history that is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from eventveil.counting.counter import CounterState, Partial
from eventveil.kinds.placement import StreamPlan
from eventveil.lifecycle.beginning import judged_anew_from
from eventveil.lifecycle.manifest import ManifestRecord
from eventveil.lifecycle.migration import Checkpoint
from eventveil.lifecycle.relocation import SINCE, InputTopics, Log, Relocation, relocate
from eventveil.model.records import Outgoing, TopicPartition
from eventveil.model.topology import Stream, Topology
from eventveil.replay.log import MemoryLog, MemoryWriter
from eventveil.replay.runner import LogRunner
from eventveil.tasks.aggregate import Aggregation, Outputs
from eventveil.tasks.combiner import Combiner
from eventveil.tasks.release import ReleaseState
from eventveil.tasks.repartition import Rekeyer, RekeyerState
from eventveil.tasks.task import Task, Transaction
from tests.crashes.world import Crash, LogCluster
from tests.fuzz.histories import Event, Growing, History, JudgedAnew, Step, Who
from tests.fuzz.topologies import ORIGIN
from tests.unit.support import INSTANCE

#: Columns, or names where columns are found in the data, of a stream at a timestamp.
Counts = dict[tuple[str, int], Counter[str]]
#: Of transactions, which are over at once.
_SECONDS = 60.0
#: In the end, everybody reads everything after each of some long waits.
_WAITS, _WAIT = 4, 5000


class _Running(NamedTuple):
    """A task with its input, and the producer of its owner."""

    task: Task
    input: TopicPartition
    writer: MemoryWriter
    runner: LogRunner


class World:
    """See the module. Subclasses are broken."""

    def __init__(self, topology: Topology, history: History) -> None:
        self.topology = topology
        self.streams: Mapping[str, Stream] = {one.name: one for one in topology.streams}
        self._history = history
        self._source = topology.streams[0].source
        self._partitions = history.partitions
        self._growing = history.growing
        self._running: dict[Who, _Running] = {}
        self._aborting: set[Who] = set()
        self.log = MemoryLog(ORIGIN)
        self._create(history.partitions if self._growing is None else self._growing.partitions)
        self._geneses = {
            (name, number): self._genesis(name, number)
            for name in self.streams
            for number in range(self._partitions)
        }

    def _create(self, partitions: int) -> None:
        by_broker = self._source.append_time == "broker"
        self.log.create(self._source.topic, partitions, stamped=by_broker)
        if self._source.raw is not None:
            self.log.create(self._source.raw, partitions, stamped=by_broker)
        self.log.create(self.topology.counting_changelog, partitions)
        self.log.create(self.topology.rekeying_changelog, partitions)
        for topic in sorted({self.topology.partials, *(one.dead_letter for one in self.streams.values())}):
            self.log.create(topic)

    def _genesis(self, name: str, number: int) -> ManifestRecord:
        fields = {"source.partitions": self._partitions}
        return ManifestRecord(name, INSTANCE, fields, self._source.topic, "id", number, 1, 0, 0)

    # Restoring

    def _take_over(self, who: Who, anew: JudgedAnew = "nothing") -> None:
        """Another owner continues from what is durable; what the one before has left open is aborted."""
        number, source = who.partition, self._source
        if who.stage == "re-key":
            assert source.raw is not None
            place = TopicPartition(source.raw, number)
            task: Task = self._rekeyer(TopicPartition(self.topology.rekeying_changelog, number))
        else:
            place = TopicPartition(source.topic, number)
            task = self._aggregation(TopicPartition(self.topology.counting_changelog, number), anew)
        writer = self.log.writer(f"{who.stage}-{number}", _SECONDS)
        writer.initialise(_SECONDS)

        def commit(work: Transaction) -> None:
            self._commit(who, work)

        runner = LogRunner(task, commit, lambda: self.log.now, lambda: self.log.end(place))
        self._running[who] = _Running(task, place, writer, runner)

    def _rekeyer(self, changelog: TopicPartition) -> Rekeyer:
        state = RekeyerState(INSTANCE, changelog.partition, 0)
        if (value := self.log.table(changelog).get(self._source.topic.encode())) is not None:
            state = RekeyerState.decode(value, str(changelog))
        timelines = [one.timeline for one in self.streams.values()]
        return Rekeyer(self._source, timelines, self._partitions, state, changelog)

    def _aggregation(self, changelog: TopicPartition, anew: JudgedAnew) -> Aggregation:
        streams, grown = {}, {}
        for name, one in self.streams.items():
            state = self._judged_anew(one, self.restored(name, changelog), anew)
            streams[name] = (self.counted(one), state)
            grown[name] = self._geneses[name, changelog.partition].grown
        outputs = Outputs(self.topology.partials, dict.fromkeys(self.streams, 0), changelog)
        return Aggregation(outputs, self._partitions, streams, grown)

    def counted(self, stream: Stream) -> Stream:
        """The rules by which a stream is counted."""
        return stream

    def restored(self, name: str, changelog: TopicPartition) -> CounterState:
        """The state of a stream in a partition, the initial one if nothing was written yet."""
        state = CounterState(INSTANCE, changelog.partition, 1, 1, 0, 0)
        if (value := self.log.table(changelog).get(name.encode())) is not None:
            state = CounterState.decode(value, str(changelog))
        return state.waiting_for(0 if self._source.raw is None else self._partitions)

    def _judged_anew(self, stream: Stream, state: CounterState, anew: JudgedAnew) -> CounterState:
        """As a take-over by a version that judges in another way."""
        if anew == "nothing":
            return state
        begin, place = 0, TopicPartition(self._source.topic, state.partition)
        if anew == "possible":
            genesis = self._geneses[stream.name, state.partition]
            cluster, plan = LogCluster(self.log), StreamPlan(stream, 0)
            begin = judged_anew_from(cluster, plan, place, genesis, state)  # type: ignore[arg-type]
        return state.judging_from(begin, keeps_marks=self._source.raw is not None)

    # More partitions

    def _grow(self, growing: Growing) -> None:
        """As ``eventveil migrate`` and the take-over after it, while nobody counts."""
        moved = {name: self._relocated(one, growing) for name, one in self.streams.items()}
        self._partitions = growing.partitions
        for name, found in moved.items():
            for place, (genesis, state) in found.counting.items():
                self._geneses[name, place.partition] = genesis
                state = self._judged_anew(self.streams[name], state, "possible")
                self.log.append([place.record(name.encode(), state.encode())])
        for number in range(self._partitions):
            self._take_over(Who("count", number))

    def _relocated(self, stream: Stream, growing: Growing) -> Relocation:
        checkpoint, inputs = self._checkpoint(stream.name), self._inputs(growing.partitions)
        found = relocate(stream, checkpoint, inputs)
        assert found is not None
        if growing.later:
            since = found.differences[SINCE].new
            assert isinstance(since, int)
            found = relocate(stream, checkpoint, inputs, since + growing.later)
            assert found is not None
        return found

    def _inputs(self, partitions: int) -> InputTopics:
        partials = TopicPartition(self.topology.partials, 0)
        logs = {
            number: Log(
                TopicPartition(self.topology.counting_changelog, number),
                begin=0,
                end=self.log.end(TopicPartition(self._source.topic, number)),
                again=0,
            )
            for number in range(partitions)
        }
        return InputTopics("id", "id", 0, self.log.end(partials), self.log.now, logs)

    def _checkpoint(self, name: str) -> Checkpoint:
        """What is durable of a stream of which nothing was released yet."""
        counting = {}
        for number in range(self._partitions):
            place = TopicPartition(self.topology.counting_changelog, number)
            counting[place] = (self._geneses[name, number], self.restored(name, place))
        place, genesis = TopicPartition(self.topology.ledger_changelog, 0), self._genesis(name, 0)
        return Checkpoint(name, counting, place, genesis, ReleaseState(INSTANCE, 1, 1, 0))

    # What happens

    def run(self, events: Iterable[Event]) -> Counts:
        """What is counted at each timestamp in the end, of ``events`` instead of those of the history."""
        for number in range(self._partitions):
            if self._source.raw is not None:
                self._take_over(Who("re-key", number))
            self._take_over(Who("count", number))
        waiting = [*events][::-1]
        for step in self._history.steps:
            self._settle(step)
            while waiting and waiting[-1].at <= step.now:
                self._append(waiting.pop())
            self._aborting |= step.aborts & self._running.keys()
            self._read(step.reads)
        assert not waiting
        self._aborting.clear()
        for _ in range(_WAITS):
            self.log.advance(self.log.now + _WAIT)
            self._read({})
        return self._combined()

    def _settle(self, step: Step) -> None:
        """Time passes, which everybody notices at once: ends are captured before more is appended."""
        self.log.advance(step.now)
        for who in [*self._running]:
            self._go_on(who, 0)
        if self._growing is not None and step.now >= self._growing.at:
            self._grow(self._growing)
            self._growing = None
        for who, anew in step.taken_over.items():
            if who in self._running:
                self._take_over(who, anew)
                self._go_on(who, 0)

    def _append(self, event: Event) -> None:
        topic = self._source.topic_of_events
        self.log.append([Outgoing(topic, event.value, event.key, event.partition, event.headers)])

    def _read(self, most: Mapping[Who, int]) -> None:
        """Everybody reads, those first who pass events on to others."""
        for who in sorted(self._running, reverse=True):
            if (number := most.get(who)) != 0:
                self._go_on(who, number)

    def _go_on(self, who: Who, most: int | None) -> None:
        """Commit what can be committed, and read ``most`` records (None: all)."""
        task, place, _, runner = self._running[who]
        try:
            for _ in runner.settle():
                pass
            if most != 0 and task.position < self.log.end(place, "read_committed"):
                for _ in runner.take_in(self.log.read(place, task.position, most=most)):
                    pass
        except Crash:
            self._take_over(who)

    def _commit(self, who: Who, work: Transaction) -> None:
        writer = self._running[who].writer
        writer.begin(_SECONDS)
        writer.write(tuple(work.records))
        if who in self._aborting:
            self._aborting.remove(who)
            raise Crash
        writer.commit(_SECONDS)

    def _combined(self) -> Counts:
        """Partial counts, added up; raises StateRefused where two differ."""
        combiners = {
            name: Combiner(
                name,
                len(one.counts.labels),
                self._partitions,
                INSTANCE,
                1,
                named=one.counts.discover is not None,
            )
            for name, one in self.streams.items()
        }
        for record in self.log.records(TopicPartition(self.topology.partials, 0)):
            assert record.value is not None
            partial = Partial.decode(record.value, "partial counts")
            combiners[partial.stream].add(partial, record.value, record.offset)
        return {
            (name, timestamp): self._taken(name, combiner)
            for name, combiner in combiners.items()
            for timestamp in range(1, self._history.last + 1)
        }

    def _taken(self, name: str, combiner: Combiner) -> Counter[str]:
        assert combiner.complete(), f"timestamp {combiner.next} of {name} is not closed"
        merged, labels = combiner.take(), self.streams[name].counts.labels
        if self.streams[name].counts.discover is not None:
            return Counter(merged.named)
        return Counter(dict(zip(labels, merged.counts.tolist(), strict=True)))
