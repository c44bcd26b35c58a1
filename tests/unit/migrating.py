"""A stream that lives through changes, without Kafka: its states, its ledger and its sink."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import numpy as np

from eventveil.audit.findings import Report
from eventveil.audit.generations import GenerationsAudit
from eventveil.audit.history import History
from eventveil.audit.records import FoundRecord
from eventveil.counting.counter import CounterState
from eventveil.formats.change import Change, Terms
from eventveil.formats.release import as_json, decided, label, ledger_entry, release_record
from eventveil.kinds.placement import StreamPlan
from eventveil.lifecycle.manifest import ManifestRecord
from eventveil.lifecycle.migration import Checkpoint, MigrationTarget, migration, reset
from eventveil.mechanisms.base import Mechanism
from eventveil.mechanisms.registry import of_stream
from eventveil.model.records import Outgoing, TopicPartition
from eventveil.model.topology import Stream
from eventveil.privacy.noise import NoiseSource
from eventveil.tasks.release import ReleaseState
from tests.contract.noises import ForcedNoise, attach
from tests.unit.support import stream

FIRST, PARTITIONS = 5, 2
COUNTING, BUDGET, LEDGER = "app-counting-changelog", "app-ledger-changelog", TopicPartition("app-ledger", 0)


class Lifetime:
    """Releases timestamp after timestamp; ``change`` moves on to other settings in between."""

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.sink_id, self.instance, self.generation = "sink-0", "instance-0", 0
        self.ledger: list[bytes] = []
        self.sink: list[bytes] = []
        self.tables: dict[TopicPartition, dict[bytes, bytes]] = {place: {} for place in self.places}
        self.decisions: Iterator[bool] = cycle([True, False])
        for place in self.places:
            manifest = ManifestRecord(
                "visits", "instance-0", self._fields(place), "t", "id", place.partition, FIRST, 0, 0
            )
            self.tables[place][ManifestRecord.key("visits")] = manifest.encode()

    @property
    def places(self) -> list[TopicPartition]:
        return [
            *(TopicPartition(COUNTING, partition) for partition in range(PARTITIONS)),
            TopicPartition(BUDGET, 0),
        ]

    @property
    def stream(self) -> Stream:
        return stream(**self.settings)

    @property
    def columns(self) -> int:
        return len(self.stream.counts.labels)

    @property
    def plan(self) -> StreamPlan:
        return StreamPlan(self.stream, 1)

    def _fields(self, place: TopicPartition) -> dict[str, Any]:
        if place[0] == BUDGET:
            return self.plan.budget_fields(PARTITIONS, self.sink_id)
        return self.plan.fields(PARTITIONS)

    def mechanism(self, noise: NoiseSource | None = None) -> Mechanism:
        settings = self.stream
        source = noise or ForcedNoise(self.decisions)
        return attach(of_stream(settings, source))

    @property
    def checkpoint(self) -> Checkpoint:
        """As the program would read it back."""
        counting = {place: self._counting(place) for place in self.places[:-1]}
        return Checkpoint("visits", counting, TopicPartition(BUDGET, 0), *self._budget())

    def _counting(self, place: TopicPartition) -> tuple[ManifestRecord, CounterState]:
        manifest = ManifestRecord.find(self.tables[place], "visits", "here")
        return manifest, manifest.counter_state(self.tables[place], "here")

    def _budget(self) -> tuple[ManifestRecord, ReleaseState]:
        table = self.tables[BUDGET, 0]
        manifest = ManifestRecord.find(table, "visits", "here")
        return manifest, manifest.release_state(table, "here")

    @property
    def history(self) -> History:
        history = History("visits")
        for value in self.ledger:
            history.add(value, "there")
        return history

    def release(self, timestamps: int, *, publish: bool = True) -> None:
        """Release more timestamps; without ``publish`` the last ones stay decided."""
        for _ in range(timestamps):
            _, state = self._budget()
            mechanism = self.mechanism()
            if state.mechanism is not None:
                mechanism.restore(state.mechanism.encode())
            release = mechanism.step(state.next * np.arange(1, self.columns + 1))
            record = release_record(self.stream, state.next, release, mechanism.units)
            kept = label(record, self.stream.sink.format, 17)
            if publish:
                self.ledger.append(ledger_entry(record, state.instance, decided(kept).published))
                self.sink.append(decided(kept).published)
            after = state.replace(
                next=state.next + 1,
                mechanism=mechanism.snapshot().decode(),
                pending=() if publish else (*state.pending, kept),
            )
            self.tables[BUDGET, 0][b"visits"] = after.encode()
            for place in self.places[:-1]:
                self.count(place, after.next)

    def count(self, place: TopicPartition, next_timestamp: int) -> None:
        """Say that a partition has counted up to a timestamp."""
        _, state = self._counting(place)
        counted = state.replace(next=next_timestamp, resume=7, judged=9)
        self.tables[place][b"visits"] = counted.encode()

    def target(self) -> MigrationTarget:
        self.generation += 1
        mechanism = self.stream.mechanism
        return MigrationTarget(
            instance=f"instance-{self.generation}",
            terms=Terms(
                mechanism.kind, mechanism.epsilon, mechanism.window, self.mechanism().units, mechanism.delta
            ),
            fields=self._fields(self.places[0]),
            budget_fields=self._fields(TopicPartition(BUDGET, 0)),
            ledger=LEDGER,
            sink="sink",
            partials_end=100 * self.generation,
            cluster="cluster",
            ledger_id="ledger-id",
        )

    def change(self, *, sink_id: str | None = None, **settings: Any) -> None:
        """Migrate to other settings."""
        life = self.checkpoint
        self.settings = {**self.settings, **settings}
        self.sink_id = sink_id or self.sink_id
        history = self.history
        for entry in life.pending_entries:
            history.add(entry, "pending")
        if sink_id:
            self.sink.clear()
        self.apply(migration(life, self.target(), history, self.mechanism()))

    def reset(self, start: int = FIRST) -> None:
        """Begin a new generation in a new sink."""
        life = self.checkpoint
        self.sink_id = f"sink-{self.generation + 1}"
        self.sink.clear()
        resume = dict.fromkeys(self.places[:-1], 1)
        self.apply(reset(life, self.target(), start, resume))

    def apply(self, records: list[Outgoing]) -> None:
        """What the brokers would hold after the transaction."""
        for record in records:
            place = (record.topic, record.partition)
            if record.topic == LEDGER[0]:
                assert record.value is not None
                self.ledger.append(record.value)
            elif record.topic == "sink":
                assert record.value is not None
                self.sink.append(record.value)
            elif record.value is None:
                self.tables[place].pop(record.key, None)  # type: ignore[index, arg-type]  # ours have both
            else:
                self.tables[place][record.key] = record.value  # type: ignore[index]  # ours have both

    def audit(self) -> list[Report]:
        """The audit of ledger and sink."""
        entries = [
            FoundRecord.read(LEDGER, number, b"visits", value) for number, value in enumerate(self.ledger)
        ]
        changes = [change for found in entries if (change := Change.read(found.fields))]
        audit = GenerationsAudit(
            "visits", self.stream.timeline, self.mechanism(), self.columns, self.stream.mechanism, 0, changes
        )
        for found in entries:
            audit.entry(found)
        for number, value in enumerate(self.sink):
            place, content = TopicPartition("sink", 0), as_json(value)
            audit.record(FoundRecord.read(place, number, b"visits", value, content=content))
        return audit.reports("everything")


def states(life: Checkpoint) -> list[CounterState | ReleaseState]:
    """All states of a life."""
    return [*(state for _, state in life.counting.values()), life.state]
