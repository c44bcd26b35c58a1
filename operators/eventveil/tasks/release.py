"""Sanitizing one partition of the partials topic: merge, step the mechanism, decide; then publish.

Pure: it answers with the records of transaction A (decide and charge) and, once that is durable, with those
of transaction B (publish). What B publishes are the very bytes that A decided. A writes to the private
changelog only: were it aborted, its records would stay readable, and the retry draws again. So the entry in
the public ledger goes out with B.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import orjson

from eventveil.counting.counter import STATE_VERSION, Partial, read_state, unreadable
from eventveil.formats.release import Asks, ledger_entry, newly_chosen, release_record
from eventveil.mechanisms.base import Mechanism, Release
from eventveil.model import timeline
from eventveil.model.records import BATCH_BYTES, Chunk, Outgoing, TopicPartition
from eventveil.model.topology import Stream
from eventveil.tasks.combiner import Merger
from eventveil.tasks.outages import Outage, left_out


@dataclass(frozen=True, slots=True)
class ReleaseState:
    """What the ledger changelog holds for one stream.

    ``next`` is the next timestamp to release, ``resume`` the first offset of the partials partition that it
    needs. ``mechanism`` is the mechanism's snapshot as JSON text, None before its first step. ``pending`` are
    release records that are decided and charged but perhaps not published yet, in order; the last one is that
    of timestamp ``next - 1``. ``missing`` are source partitions with the first and last timestamp that was
    decided without them, ``given_up`` with the first and last that will be (``eventveil.tasks.combiner``).
    """

    instance: str
    first: int
    next: int
    resume: int
    mechanism: str | None = None
    pending: tuple[str, ...] = ()
    missing: tuple[tuple[int, int, int], ...] = ()
    given_up: tuple[tuple[int, int, int], ...] = ()

    @property
    def published(self) -> int:
        """The last timestamp that is surely public; ``first - 1`` if there is none."""
        return self.next - len(self.pending) - 1

    def encode(self) -> bytes:
        """JSON bytes of this state."""
        fields = asdict(self)
        for name in ("missing", "given_up"):
            if not fields[name]:
                del fields[name]
        return orjson.dumps({"version": STATE_VERSION, **fields})

    @classmethod
    def decode(cls, value: bytes, place: str) -> ReleaseState:
        """Read a state back; ``place`` names it in the StateRefused that anything unexpected raises."""
        fields = read_state(value, place)
        try:
            missing, given_up = _spans(fields.pop("missing", ())), _spans(fields.pop("given_up", ()))
            pending = tuple(fields["pending"])
            state = cls(**{**fields, "pending": pending, "missing": missing, "given_up": given_up})
        except (KeyError, TypeError, ValueError) as error:
            raise unreadable(place, str(error)) from None
        if not all(state.first <= first <= last < state.next for _, first, last in missing):
            raise unreadable(place, "the timestamps without a partition contradict the others")
        if not all(first <= last and last >= state.next for _, first, last in given_up):
            raise unreadable(place, "the timestamps that will go without a partition contradict the others")
        if not all(type(number) is int for number in (state.first, state.next, state.resume)):
            raise unreadable(place, "an offset or timestamp is not a whole number")
        if not (1 <= state.first <= state.next - len(state.pending) and state.resume >= 0):
            raise unreadable(place, "its timestamps contradict each other")
        if (state.next > state.first) != isinstance(state.mechanism, str):
            raise unreadable(place, "the budget state does not belong to its timestamps")
        if not isinstance(fields["pending"], list) or not all(isinstance(one, str) for one in state.pending):
            raise unreadable(place, "a pending release is no text")
        return state


def _spans(found: Iterable[Iterable[int]]) -> tuple[tuple[int, int, int], ...]:
    return tuple((int(one), int(first), int(last)) for one, first, last in found)


class StreamSanitizer:
    """One stream: its table of partials, its mechanism, its state.

    ``asks`` makes the record that asks producers for the reports of a threshold; None where they send events.
    """

    def __init__(
        self, stream: Stream, partitions: int, mechanism: Mechanism, state: ReleaseState, asks: Asks | None
    ) -> None:
        self.stream, self.asks = stream, asks
        self.state = state
        self.merger = Merger(
            stream.name,
            len(stream.counts.labels),
            partitions,
            state.instance,
            state.next,
            {partition: (first, last) for partition, first, last in state.missing},
            state.given_up,
        )
        # Where partitions may be left out, nothing is released before it is known which.
        self._known_until = 0 if stream.timeline.grace is not None else None
        #: Whether what waits to be durable was decided by the clock.
        self.by_clock = False
        self._mechanism = mechanism
        self._decided: list[str] = []
        if state.mechanism is not None:
            try:
                mechanism.restore(state.mechanism.encode())
            except ValueError as error:
                raise unreadable(f"budget state of stream {stream.name}", str(error)) from None
        #: The part of epsilon, 0 to 1, that the window of the last published release has spent. What is only
        #: decided is not in it: its transaction may be aborted and its noise drawn again.
        self.spent = self._spent()

    def decide(self) -> int:
        """Release the next timestamp, which must be complete; the size of the record in bytes.

        Only ``charge`` brings it into the state.
        """
        missing = self.merger.left_out
        self.by_clock = self.by_clock or bool(missing)
        return self.decided(self._mechanism.step(self.merger.take()), missing=missing)

    def decided(self, release: Release, *, missing: Sequence[int] = (), forfeited: bool = False) -> int:
        """Take note of the release of the next timestamp; the size of its record in bytes."""
        timestamp, units = self.state.next + len(self._decided), self._mechanism.units
        record = release_record(self.stream, timestamp, release, units, missing=missing, forfeited=forfeited)
        self._decided.append(record.decode())
        return len(record)

    def charge(self, position: int) -> None:
        """Everything decided is pending from now on, given that all below ``position`` has been merged.

        Once a transaction and not once a release: a snapshot grows with the window.
        """
        self.state = replace(self.state, given_up=self.merger.given_up)
        if not self._decided:
            return
        held = self.merger.first_offset
        self.state = replace(
            self.state,
            next=self.state.next + len(self._decided),
            resume=position if held is None else held,
            mechanism=self._mechanism.snapshot().decode(),
            pending=(*self.state.pending, *self._decided),
            missing=tuple((one, *span) for one, span in sorted(self.merger.missing.items())),
        )
        self._decided = []

    @property
    def asked(self) -> bytes | None:
        """What producers of local reports are asked for after all that was decided; None of other streams."""
        return None if self.asks is None else self.asks(self._mechanism.threshold)

    def newly_asked(self) -> Iterator[bytes]:
        """What they are asked for by pending releases, each of which chose a threshold; most did not."""
        if self.asks is None:
            return
        for pending in self.state.pending:
            if (chosen := newly_chosen(pending.encode())) is not None:
                yield self.asks(chosen)

    def look(self, now: int, outages: Sequence[Outage]) -> list[int]:
        """Take note of what was seen of the partitions up to ``now``; those that are given up from now on.

        Timestamps that are due by now may be decided then, up to the next look: all are known that can be
        left out of them. A partition that is without a leader since before a timestamp was due holds that up
        even if its partial is there, until it has a leader again or the grace is over: whether the partial
        is there depends on data, and which partitions count must not.
        """
        rules = self.stream.timeline
        if rules.grace is None:
            return []
        self._known_until = timeline.last_due(rules, now)
        before, on_hold = {one for one, _, _ in self.merger.given_up}, dict[int, int]()
        for outage in outages:
            first, last = left_out(rules, outage)
            self.by_clock = self.merger.give_up(outage.partition, first, last) or self.by_clock
            if not outage.over:
                on_hold[outage.partition] = max(first, last + 1)
        self.merger.hold(on_hold)
        return sorted({one for one, _, _ in self.merger.given_up} - before)

    @property
    def complete(self) -> bool:
        """Whether the next timestamp can be decided."""
        known = self._known_until is None or self.state.next + len(self._decided) <= self._known_until
        return known and self.merger.complete()

    def published(self) -> None:
        """Take note that the pending releases are durable in the sink."""
        self.state = replace(self.state, pending=())
        self.spent = self._spent()
        self.by_clock = False

    def _spent(self) -> float:
        return self._mechanism.window_spent / self._mechanism.units


def publication(sanitizer: StreamSanitizer, ledger: TopicPartition) -> Iterator[Outgoing]:
    """Ledger entry and release of each timestamp that is pending, as they were decided."""
    key = sanitizer.stream.name.encode()
    for pending in sanitizer.state.pending:
        record = pending.encode()
        yield Outgoing(ledger[0], ledger_entry(record, sanitizer.state.instance), key, ledger[1])
        yield Outgoing(sanitizer.stream.sink.topic, record, key)


@dataclass(frozen=True, slots=True)
class Topics:
    """Where the records of a transaction go: one partition of the ledger and of its changelog.

    ``control`` is the topic that asks for local reports.
    """

    ledger: str
    changelog: str
    partition: int
    control: str = ""


class PartitionSanitizer:
    """The streams of one partition of the partials topic, from their durable states onwards."""

    def __init__(self, topics: Topics, sanitizers: Mapping[str, StreamSanitizer]) -> None:
        self._topics = topics
        self.sanitizers = sanitizers
        self.resume = min(sanitizer.state.resume for sanitizer in sanitizers.values())
        self.position = self.resume

    @property
    def awaited(self) -> int:
        """When the next release of a stream is due, or was, in epoch milliseconds."""
        return min(
            timeline.due_of(one.stream.timeline, one.state.published + 1) for one in self.sanitizers.values()
        )

    def observe(self, chunk: Chunk) -> None:
        """Merge the partials of a chunk.

        Raises StateRefused for a record that should not be there, ValueError if records between the position
        and the chunk are missing.
        """
        unseen = chunk.since(self.position)
        for offset, value in zip(unseen.offsets, unseen.values, strict=True):
            place = f"{chunk.topic}, partition {chunk.partition}, offset {offset}"
            partial = Partial.decode(value or b"", place)
            sanitizer = self.sanitizers.get(partial.stream)
            # Below its own offset may be partials of an earlier life of the stream.
            if sanitizer is not None and offset >= sanitizer.state.resume:
                sanitizer.merger.add(partial, value or b"", offset)
        self.position = max(self.position, chunk.next_offset)

    def decide(self) -> list[Outgoing]:
        """Transaction A: what is complete is released, charged and durable, nothing is public.

        Empty if no timestamp is complete, and no partition given up since the last time. More may be complete
        than one transaction holds.
        """
        size = 0
        for sanitizer in self.sanitizers.values():
            while sanitizer.complete and size < BATCH_BYTES:
                size += sanitizer.decide()
        for sanitizer in self.sanitizers.values():
            sanitizer.charge(self.position)
        return [
            self._state(name, one.state)
            for name, one in self.sanitizers.items()
            if one.state.pending or one.by_clock
        ]

    def publish(self) -> list[Outgoing]:
        """Transaction B: charges and releases become public as they are, and are pending no longer.

        Empty if nothing is pending.
        """
        records: list[Outgoing] = []
        for name, sanitizer in self._pending():
            records += publication(sanitizer, TopicPartition(self._topics.ledger, self._topics.partition))
            records += [self.asking(name, asked) for asked in sanitizer.newly_asked()]
            records.append(self._state(name, replace(sanitizer.state, pending=())))
        return records

    def asking(self, name: str, record: bytes) -> Outgoing:
        """The record of the control topic that asks producers of local reports for what a stream wants."""
        return Outgoing(self._topics.control, record, name.encode(), 0)

    def published(self) -> None:
        """Take note that transaction B is durable."""
        for sanitizer in self.sanitizers.values():
            sanitizer.published()
        self.resume = min(sanitizer.state.resume for sanitizer in self.sanitizers.values())

    def _pending(self) -> list[tuple[str, StreamSanitizer]]:
        return [(name, one) for name, one in self.sanitizers.items() if one.state.pending]

    def _state(self, name: str, state: ReleaseState) -> Outgoing:
        return Outgoing(self._topics.changelog, state.encode(), name.encode(), self._topics.partition)
