"""Perturbing one source partition of value streams: decide readings for a batch of values; then publish.

Pure: it answers with the records of transaction A (snapshot, readings, charges, resume offset; private) and,
once that is durable, with those of transaction B (readings and charges, public). The noise of a tree is in
the snapshot of A before B shows the first reading that depends on it, so a crash never draws it again for
readings that somebody has seen (docs/decisions/0009-value-streams.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import msgspec
import numpy as np

from eventveil.decoding.rules import Reason, ValueDecoder
from eventveil.formats.reading import reading_record, span_entry
from eventveil.model.durable import Durable, Natural, Program, unreadable, written
from eventveil.model.reach import header_of
from eventveil.model.records import NO_SCHEMAS, Chunk, Outgoing, Schemas, TopicPartition
from eventveil.model.topology import ReadingStream
from eventveil.tasks.task import Publisher, StreamView, Transaction
from eventveil.values.ledger import Charge
from eventveil.values.stream import ValueStream

READ = "read"
#: What can become of an event's value: read, or 0 in its place for one of these reasons.
VALUE_OUTCOMES = (
    READ,
    *(Reason.TOMBSTONE, Reason.TOO_LARGE, Reason.NOT_JSON, Reason.UNKNOWN_SCHEMA, Reason.NOT_OF_SCHEMA),
    *(Reason.MISSING_FIELD, Reason.WRONG_TYPE),
)


class Pending(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is decided but perhaps not published: offset and reading of each value, and charges."""

    offsets: tuple[Natural, ...]
    readings: tuple[int | None, ...]
    charges: tuple[Charge, ...]


NOTHING_PENDING = Pending((), (), ())


class PerturberState(Durable, frozen=True):
    """What the state changelog holds for one partition of a stream: raw data.

    ``resume`` is the next offset to read, ``position`` the number of values before it, ``charged`` how many
    of all positions have been charged; ``pending`` included in each. ``snapshot`` is that of the
    ``ValueStream`` behind them as JSON text, None before the first value. ``eventveil`` is the version of
    Eventveil that has made the pending charges, empty if there are none or if that is not recorded.
    """

    NEWER = ("eventveil",)

    instance: str
    partition: Natural
    resume: Natural
    position: Natural = written(0)
    charged: Natural = written(0)
    snapshot: str | None = written(None)
    pending: Pending = written(NOTHING_PENDING)
    eventveil: Program = ""

    @property
    def settled(self) -> PerturberState:
        """The state once all that is pending is public."""
        return self.replace(pending=NOTHING_PENDING, eventveil="")

    @property
    def published(self) -> int:
        """The positions below are surely public, the one at it is not unless it is pending."""
        return self.position - len(self.pending.readings)

    @property
    def published_charge(self) -> int:
        """How far the ledger has surely been charged."""
        return self.pending.charges[0].start if self.pending.charges else self.charged

    def contradiction(self) -> str | None:
        """See ``Durable.contradiction``."""
        pending = self.pending
        if len(pending.offsets) != len(pending.readings) or self.published < 0:
            return "there are not as many readings as values"
        ends = [*pending.offsets, self.resume]
        if any(one >= other for one, other in pairwise(ends)):
            return "the offsets of pending readings are not in order"
        stops = [charge.stop for charge in pending.charges]
        if stops and (stops != sorted(stops) or stops[-1] != self.charged):
            return "the pending charges contradict the others"
        if self.eventveil and not stops:
            return "a version has made charges that are not there"
        if (self.position > 0) != isinstance(self.snapshot, str):
            return "the snapshot does not belong to the position"
        return None


@dataclass(frozen=True, slots=True)
class PerturbedBatch:
    """What ``StreamPerturber.step`` made of the values from position ``start`` on; ``truth`` is raw data."""

    start: int
    truth: tuple[int, ...]
    pending: Pending
    outcomes: Counter[str]


class StreamPerturber:
    """One partition of one value stream, from a durable state onwards.

    ``seeded`` marks the readings of a replay with predictable noise. ``version``: see ``StreamSanitizer``.
    """

    def __init__(
        self,
        stream: ReadingStream,
        mechanism: ValueStream,
        state: PerturberState,
        *,
        seeded: bool = False,
        version: str = "",
    ) -> None:
        self._version = version
        self.stream, self.state, self.units, self._seeded = stream, state, mechanism.units, seeded
        self._mechanism = mechanism
        self._decode = ValueDecoder(stream).decode
        if state.snapshot is not None:
            try:
                mechanism.restore(state.snapshot.encode())
            except ValueError as error:
                raise unreadable(f"state of stream {stream.name}", str(error)) from None
        if mechanism.position != state.position or mechanism.charged_until != state.charged:
            raise unreadable(f"state of stream {stream.name}", "its snapshot is of another position")

    def step(
        self,
        offsets: Iterable[int],
        records: Iterable[bytes | None],
        behind: int,
        schemas: Schemas = NO_SCHEMAS,
    ) -> PerturbedBatch:
        """Decide the readings of the events at ``offsets``, all below ``behind``; they are pending then.

        What was pending before must have been published. After an error the object is of no use.
        """
        if self.state.pending != NOTHING_PENDING:
            raise ValueError("the batch before this one has not been published")
        # Below the resume offset are values from before the stream began.
        mine = [pair for pair in zip(offsets, records, strict=True) if pair[0] >= self.state.resume]
        decoded = [self._decode(record, schemas) for _, record in mine]
        truth = [value for value, _ in decoded]
        stepped = self._mechanism.step(np.array(truth, np.int64))
        readings = zip(stepped.values.tolist(), stepped.held.tolist(), strict=True)
        pending = Pending(
            tuple(offset for offset, _ in mine),
            tuple(None if held else reading for reading, held in readings),
            stepped.charges,
        )
        start = self.state.position
        self.state = self.state.replace(
            resume=max(self.state.resume, behind),
            position=self._mechanism.position,
            charged=self._mechanism.charged_until,
            snapshot=self._mechanism.snapshot().decode() if self._mechanism.position else None,
            pending=pending,
            eventveil=self._version if pending.charges else "",
        )
        return PerturbedBatch(start, tuple(truth), pending, Counter(reason or READ for _, reason in decoded))

    def records(self) -> Iterator[bytes]:
        """The pending readings, as the sink gets them."""
        pending, seeded = self.state.pending, self._seeded
        for position, (offset, reading) in enumerate(
            zip(pending.offsets, pending.readings, strict=True), self.state.published
        ):
            yield reading_record(self.stream, self.state.partition, position, offset, reading, seeded=seeded)

    def entries(self) -> Iterator[bytes]:
        """The pending charges, as the ledger gets them."""
        state = self.state
        for charge in state.pending.charges:
            yield span_entry(
                self.stream, state.partition, charge, self.units, state.instance, state.eventveil
            )

    def published(self) -> None:
        """Take note that what was pending is public."""
        self.state = self.state.settled


class PartitionPerturber(Publisher):
    """The value streams of one source partition, from their durable states onwards.

    ``ledgers`` is where each is charged, ``changelog`` where the states are kept.
    """

    counts_to_decide = True

    def __init__(
        self,
        ledgers: Mapping[str, TopicPartition],
        changelog: TopicPartition,
        streams: Mapping[str, StreamPerturber],
    ) -> None:
        self._ledgers, self._changelog, self.streams = ledgers, changelog, streams
        self._resume = self.position = min(one.state.resume for one in streams.values())
        self._read = max(one.state.resume for one in streams.values())
        self._offsets: list[int] = []
        self._values: list[bytes | None] = []
        self._schemas: Schemas = {}
        self._stepped: dict[str, PerturbedBatch] = {}

    @property
    def resume(self) -> int:
        """See ``Task.resume``."""
        return self._resume

    @property
    def known(self) -> int:
        """See ``Task.known``."""
        return max(self.position, self._read)

    def process(self, chunk: Chunk) -> None:
        """See ``Task.process``."""
        unseen = chunk.since(self.position)
        self._offsets += unseen.offsets
        self._values += unseen.values
        self._schemas = {**self._schemas, **chunk.schemas}
        self.position = max(self.position, chunk.next_offset)

    def has_work(self, now: int) -> bool:
        """See ``Task.has_work``."""
        return self.position > self._resume or any(
            one.state.pending != NOTHING_PENDING for one in self.streams.values()
        )

    def decide(self) -> list[Outgoing]:
        """See ``Publisher.decide``: everything that was processed gets a reading, and is charged.

        Control markers alone move the resume offset, for retention may remove them.
        """
        if self.position == self._resume:
            return []
        behind = {name: one for name, one in self.streams.items() if one.state.resume < self.position}
        self._stepped = {
            name: one.step(self._offsets, self._values, self.position, self._schemas)
            for name, one in behind.items()
        }
        self._offsets, self._values, self._schemas = [], [], {}
        return [self._state(name, one.state) for name, one in behind.items()]

    def deciding(self, records: Sequence[Outgoing]) -> Transaction:
        """See ``Publisher.deciding``. Its cause is what was made of the values, by stream."""
        outcomes = {name: batch.outcomes for name, batch in self._stepped.items()}
        return replace(super().deciding(records), outcomes=outcomes, cause=self._stepped)

    def publish(self) -> list[Outgoing]:
        """See ``Publisher.publish``. The charge of a span goes before its readings."""
        records: list[Outgoing] = []
        for name, one in self.streams.items():
            if one.state.pending == NOTHING_PENDING:
                continue
            key, sink = name.encode(), TopicPartition(one.stream.sink, one.state.partition)
            records += (self._ledgers[name].record(key, entry) for entry in one.entries())
            records += (sink.record(key, record) for record in one.records())
            records.append(self._state(name, one.state.settled))
        return records

    def publishing(self, records: Sequence[Outgoing]) -> Transaction:
        """See ``Publisher.publishing``."""
        readings = {name: len(one.state.pending.readings) for name, one in self.streams.items()}
        return Transaction("publish", records, readings=readings)

    def published(self) -> None:
        """See ``Publisher.published``."""
        for one in self.streams.values():
            one.published()
        self._resume = min(one.state.resume for one in self.streams.values())

    def views(self) -> Mapping[str, StreamView]:
        """See ``Task.views``: it closes no timestamp."""
        return {}

    def _state(self, name: str, state: PerturberState) -> Outgoing:
        return self._changelog.record(name.encode(), state.encode(), header_of(self.reach))
