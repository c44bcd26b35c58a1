"""Sanitizing one partition of the partials topic: merge, step the mechanism, decide; then publish.

Pure: it answers with the records of transaction A (decide and charge) and, once that is durable, with those
of transaction B (publish). What B publishes are the very bytes that A decided. A writes to the private
changelog only: were it aborted, its records would stay readable, and the retry draws again. So the entry in
the public ledger goes out with B.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import orjson

from eventveil.counting.counter import Partial
from eventveil.formats.release import (
    LABEL_BYTES,
    Asks,
    Decided,
    clipped,
    decided,
    label,
    ledger_entry,
    newly_chosen,
    release_record,
)
from eventveil.mechanisms.base import Counts, Mechanism, Release
from eventveil.model import timeline
from eventveil.model.durable import Durable, Natural, Positive, Program, unreadable, written
from eventveil.model.errors import doubt
from eventveil.model.records import BATCH_BYTES, Chunk, Outgoing, TopicPartition
from eventveil.model.topology import Stream
from eventveil.privacy.noise import NoiseSource
from eventveil.process.memory import Held
from eventveil.tasks.combiner import Combiner
from eventveil.tasks.discovery import Fading, Search
from eventveil.tasks.outages import Outage, left_out
from eventveil.tasks.task import Published, Publisher, StreamView, Transaction

_COUNT_AGAIN = (
    "Stop the workers, delete the topic, create it (`eventveil topics TOPOLOGY --create`) and run `eventveil"
    " migrate TOPOLOGY --apply`, which counts again what was not released; nothing is charged twice. But no"
    " stream of the file with append_time: boundary can continue after that: each needs a new name and a new"
    " sink, whose epsilon adds up"
)


class ReleaseState(Durable, frozen=True):
    """What the ledger changelog holds for one stream.

    ``next`` is the next timestamp to release, ``resume`` the first offset of the partials partition that it
    needs. ``mechanism`` is the mechanism's snapshot as JSON text, None before its first step. ``pending`` are
    releases that are decided and charged but perhaps not published yet (``eventveil.formats.release``), in
    order; the last one is that of timestamp ``next - 1``. ``missing`` are source partitions with the first
    and last timestamp that was decided without them, ``given_up`` with the first and last that will be
    (``eventveil.tasks.combiner``). ``found`` are the columns that were found by ``next``, in order: those of
    releases from then on. ``fading``: what the releases of each have come to, where columns are forgotten
    (``eventveil.tasks.discovery.Fade``); empty: nothing is remembered of them. ``searched``: partial counts
    of earlier timestamps are not there any more, so nothing is found by them. ``read`` is where the reading
    was, in a stream whose columns are found: its ``resume`` lies at the start of a block, and does not tell
    whether the partials topic has lost its end.
    ``eventveil`` is the version of Eventveil that has decided what is pending, empty if nothing is or if that
    is not recorded.
    """

    NEWER = ("eventveil", "fading")

    instance: str
    first: Positive
    next: Positive
    resume: Natural
    mechanism: str | None = written(None)
    pending: tuple[str, ...] = written(())
    missing: tuple[tuple[Natural, Positive, Positive], ...] = ()
    given_up: tuple[tuple[Natural, Positive, Positive], ...] = ()
    found: tuple[str, ...] = ()
    fading: tuple[Fading, ...] = ()
    searched: Natural = 0
    read: Natural = 0
    eventveil: Program = ""

    @property
    def published(self) -> int:
        """The last timestamp that is surely public; ``first - 1`` if there is none."""
        return self.next - len(self.pending) - 1

    @property
    def settled(self) -> ReleaseState:
        """The state once all that is pending is public."""
        return self.replace(pending=(), eventveil="")

    def entry(self, pending: Decided) -> bytes:
        """The ledger entry of a pending release."""
        return ledger_entry(pending.record, self.instance, pending.published, self.eventveil)

    def contradiction(self) -> str | None:
        """See ``Durable.contradiction``."""
        if not all(self.first <= first <= last < self.next for _, first, last in self.missing):
            return "the timestamps without a partition contradict the others"
        if not all(first <= last and last >= self.next for _, first, last in self.given_up):
            return "the timestamps that will go without a partition contradict the others"
        if self.first > self.next - len(self.pending):
            return "its timestamps contradict each other"
        if (self.next > self.first) != isinstance(self.mechanism, str):
            return "the budget state does not belong to its timestamps"
        if len({*self.found}) < len(self.found) or not all(self.found):
            return "the columns that were found contradict each other"
        if self.fading and len(self.fading) != len(self.found):
            return "what is remembered of columns does not belong to them"
        if any(abs(above) > 2**60 or not 0 <= quiet <= 1000 for above, quiet in self.fading):
            return "what is remembered of columns is out of range"
        if self.searched > self.next:
            return "its timestamps contradict each other"
        if self.eventveil and not self.pending:
            return "a version has decided releases that are not there"
        try:
            for one in self.pending:
                decided(one)
        except ValueError as error:
            return f"a release that is decided cannot be published: {error}"
        return None


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a mechanism has made of one timestamp; ``record`` is the release as JSON.

    ``counts`` is what it was made of, raw data: int64 of shape (columns,), those of ``stream``.
    """

    timestamp: int
    record: bytes
    counts: Counts
    release: Release
    stream: Stream


class StreamSanitizer:
    """One stream: its table of partials, its mechanism, its state.

    ``asks`` makes the record that asks producers for the reports of a threshold; None where they send events.
    ``seeded`` marks the releases of a replay with predictable noise. Where columns are found in the data,
    ``stream`` and ``mechanism`` have those that ``state`` has, and ``noise`` is for finding more. ``version``
    is that of Eventveil, for the ledger; empty in a replay, whose outputs are the same by every version.
    """

    def __init__(
        self,
        stream: Stream,
        partitions: int,
        mechanism: Mechanism,
        state: ReleaseState,
        asks: Asks | None,
        *,
        seeded: bool = False,
        noise: NoiseSource | None = None,
        version: str = "",
    ) -> None:
        if stream != stream.having(state.found):
            raise ValueError(f"stream {stream.name} does not have the columns of its state")
        self.stream, self.asks, self._seeded, self._version = stream, asks, seeded, version
        self._search = None
        if stream.counts.discover is not None:
            if noise is None:
                raise ValueError(f"stream {stream.name} needs noise to find columns")
            self._search = Search(stream, noise, state.fading)
        #: The id of the schema of the releases. Where they need one, nothing is decided before it is known.
        self.schema: int | None = None
        self.state = state
        self.combiner = Combiner(
            stream.name,
            len(stream.counts.labels),
            partitions,
            state.instance,
            self._first_needed(state),
            {partition: (first, last) for partition, first, last in state.missing},
            state.given_up,
            named=self._search is not None,
        )
        #: The last timestamp that may be decided; None: there is no such limit. Where partitions may be left
        #: out, nothing is released before it is known which.
        self.until = 0 if stream.timeline.grace is not None else None
        #: Whether what waits to be durable was decided by the clock.
        self.by_clock = False
        self._mechanism, self._step = mechanism, mechanism.on_truth
        self._next = state.next
        self._decided: list[Drawn] = []
        if state.mechanism is not None:
            try:
                mechanism.restore(state.mechanism.encode())
            except ValueError as error:
                raise unreadable(f"budget state of stream {stream.name}", str(error)) from None
        #: The part of epsilon, 0 to 1, that the window of the last published release has spent. What is only
        #: decided is not in it: its transaction may be aborted and its noise drawn again.
        self.spent = self._spent()

    def _first_needed(self, state: ReleaseState) -> int:
        """The first timestamp whose partial counts are needed: of the open block, where columns are found."""
        if self._search is None or self._search.over:
            return state.next
        return max(state.first, state.searched, self._search.first_of_block(state.next))

    def recollect(self) -> None:
        """Take the partial counts of released timestamps of the open block, as far as they are here.

        Columns that are not found yet were counted there, and are tested at the end of the block. Some of
        these timestamps are missing if nothing more could be found when the state was made, and other
        settings now allow it, which older states do not record. Then the search begins with the next
        timestamp: releases need no earlier ones.
        """
        while self._search is not None and self.combiner.next < self._next and self.combiner.complete():
            offset = self.combiner.first_offset
            self._search.take(self.combiner.take().named, offset)
        if self.combiner.next < self._next and self.combiner.lacks_next():
            self.state = self.state.replace(searched=self._next)
            while self.combiner.next < self._next:
                self.combiner.take()

    def insist(self, place: str) -> None:
        """Raise Unsettled if the next partial counts of a partition are missing from ``place``.

        A partition writes its timestamps in order, each in one transaction with its state, so where later
        ones are there they would be waited for forever.
        """
        if self.combiner.lacks_next():
            start = timeline.format_rfc3339(timeline.start_of(self.stream.timeline, self.combiner.next))
            what = (
                f"partial counts of stream {self.stream.name} for the timestamp that begins at {start} are"
                " gone, although later ones are there"
            )
            raise doubt(place, what, _COUNT_AGAIN)

    def draw(self) -> Drawn:
        """Release the next timestamp, which must be complete. Nothing of it is kept: see ``keep``."""
        missing = self.combiner.left_out
        self.by_clock = self.by_clock or bool(missing)
        offset, merged = self.combiner.first_offset, self.combiner.take()
        counts = merged.counts if self._search is None else self._search.take(merged.named, offset)
        drawn = self.drawn(counts, self._step, missing=missing)
        if self._search is not None:
            self._renew(self._search, drawn)
        return drawn

    @property
    def largest_missed(self) -> int:
        """See ``Search.largest_missed``: raw data; 0 where no columns are looked for."""
        return 0 if self._search is None else self._search.largest_missed

    def _renew(self, search: Search, drawn: Drawn) -> None:
        """Continue with the columns that are known after a timestamp, whose release is made.

        What is forgotten makes room for what is found.
        """
        stay = search.forget(drawn.timestamp, clipped(drawn.release, self.stream.sink.minimum))
        if stay is not None:
            self._mechanism.shrink(stay)
        found = search.end(drawn.timestamp)
        if found:
            self._mechanism.grow([search.level(one) for one in found], search.variance)
        if found or stay is not None:
            self.stream = self.stream.having(search.found)

    def drawn(
        self,
        counts: Counts,
        step: Callable[[Counts], Release],
        *,
        missing: Sequence[int] = (),
        forfeited: bool = False,
    ) -> Drawn:
        """The release of the next timestamp, by ``step`` of the mechanism over ``counts``.

        Every draw of every stream that counts is this one.
        """
        release, timestamp, units = step(counts), self._next, self._mechanism.units
        self._next += 1
        record = release_record(
            self.stream, timestamp, release, units, missing=missing, forfeited=forfeited, seeded=self._seeded
        )
        return Drawn(timestamp, record, counts, release, self.stream)

    def keep(self, drawn: Drawn) -> int:
        """Take note of what was drawn; the size of what is kept in bytes. Only ``charge`` makes it state."""
        self._decided.append(drawn)
        return len(drawn.record) + (LABEL_BYTES if self.stream.sink.format != "json" else 0)

    def charge(self, position: int) -> list[Drawn]:
        """Everything decided is pending from now on, given that all below ``position`` has been merged.

        Once a transaction and not once a release: a snapshot grows with the window.
        """
        self.state = self.state.replace(given_up=self.combiner.given_up)
        made, self._decided = self._decided, []
        if not made:
            return []
        if self.state.pending and self.state.eventveil != self._version:
            raise ValueError("what another version has decided has not been published")
        since = None if self._search is None else self._search.since
        needed = [one for one in (self.combiner.first_offset, since) if one is not None]
        # Where nothing more is looked for, ``resume`` does not lie at the start of the block. A successor
        # may look again: how many columns there is room for depends on settings that may change.
        over = self._search is not None and self._search.over
        self.state = self.state.replace(
            next=self._next,
            # A successor may decide before it has read again as far as its predecessor had.
            resume=min(needed, default=max(position, self.state.resume)),
            read=max(position, self.state.read) if self._search is not None else 0,
            searched=self._next if over else self.state.searched,
            found=self.stream.counts.labels[1:] if self._search is not None else (),
            fading=self._search.fading if self._search is not None else (),
            mechanism=self._mechanism.snapshot().decode(),
            pending=(*self.state.pending, *(self._label(one) for one in made)),
            eventveil=self._version,
            missing=tuple((one, *span) for one, span in sorted(self.combiner.missing.items())),
        )
        return made

    def _label(self, drawn: Drawn) -> str:
        return label(drawn.record, self.stream.sink.format, self.schema)

    @property
    def asked(self) -> bytes | None:
        """What producers of local reports are asked for after all that was decided; None of other streams."""
        return None if self.asks is None else self.asks(self._mechanism.threshold)

    def newly_asked(self) -> Iterator[bytes]:
        """What they are asked for by pending releases, each of which chose a threshold; most did not."""
        if self.asks is None:
            return
        for pending in self.state.pending:
            if (chosen := newly_chosen(decided(pending).record)) is not None:
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
        self.until = timeline.last_due(rules, now)
        before, on_hold = {one for one, _, _ in self.combiner.given_up}, dict[int, int]()
        for outage in outages:
            first, last = left_out(rules, outage)
            self.by_clock = self.combiner.give_up(outage.partition, first, last) or self.by_clock
            if not outage.over:
                on_hold[outage.partition] = max(first, last + 1)
        self.combiner.hold(on_hold)
        return sorted({one for one, _, _ in self.combiner.given_up} - before)

    @property
    def complete(self) -> bool:
        """Whether the next timestamp can be decided."""
        allowed = self.until is None or self._next <= self.until
        allowed = allowed and self.combiner.next == self._next
        return allowed and not self.lacks_schema and self.combiner.complete()

    @property
    def lacks_schema(self) -> bool:
        """Whether nothing may be decided, because releases need a schema that is not known (yet)."""
        return self.stream.sink.format != "json" and self.schema is None

    @property
    def by_partials_alone(self) -> bool:
        """Whether only a partial can make the next timestamp one that can be decided."""
        return self.stream.timeline.grace is None and self.stream.sink.format == "json"

    def published(self) -> None:
        """Take note that the pending releases are durable in the sink."""
        self.state = self.state.settled
        self.spent = self._spent()
        self.by_clock = False

    def _spent(self) -> float:
        return self._mechanism.window_spent / self._mechanism.units


def _has_work(one: StreamSanitizer) -> bool:
    return bool(one.state.pending) or one.by_clock or one.complete


def publication(sanitizer: StreamSanitizer, ledger: TopicPartition) -> Iterator[Outgoing]:
    """Ledger entry and release of each timestamp that is pending, as they were decided."""
    key = sanitizer.stream.name.encode()
    for pending in sanitizer.state.pending:
        one = decided(pending)
        yield ledger.record(key, sanitizer.state.entry(one))
        yield Outgoing(sanitizer.stream.sink.topic, one.published, key)


def releases_in(records: Iterable[Outgoing], ledger: str) -> list[Published]:
    """The releases that become public with these records, by their entries in the ledger."""
    entries = (orjson.loads(record.value or b"") for record in records if record.topic == ledger)
    return [Published(one["stream"], one["timestamp"], one["fresh"], "forfeited" in one) for one in entries]


@dataclass(frozen=True, slots=True)
class Topics:
    """Where the records of a transaction go: one partition of the ledger and of its changelog.

    ``control`` is the topic that asks for local reports.
    """

    ledger: str
    changelog: str
    partition: int
    control: str = ""


class PartitionSanitizer(Publisher):
    """The streams of one partition of the partials topic, from their durable states onwards.

    ``unasked`` are records of the control topic that a predecessor may not have written; they go out with the
    first releases, or before them.
    """

    # A partial count does not wait for the events that are being counted for the next.
    counts = False

    def __init__(
        self,
        topics: Topics,
        sanitizers: Mapping[str, StreamSanitizer],
        unasked: Mapping[str, bytes] | None = None,
    ) -> None:
        self._topics = topics
        self.sanitizers = sanitizers
        self._unasked = dict(unasked or {})
        self._resume = self._lowest_resume()
        self.position = self._resume
        self._drawn: tuple[Drawn, ...] = ()
        #: When the first release that is not public was due.
        self._awaited = self._first_due()
        #: In which something may be decided before a partial comes: by the clock, or once a schema is known.
        self._by_others = {name for name, one in sanitizers.items() if not one.by_partials_alone}
        #: In which something may be decided or published now: of hundreds of streams mostly a few.
        self._open = {*sanitizers}

    @property
    def resume(self) -> int:
        """See ``Task.resume``."""
        return self._resume

    @property
    def known(self) -> int:
        """An offset of the partials partition below which everything was there, by what the states say."""
        return max(max(one.state.resume, one.state.read) for one in self.sanitizers.values())

    @property
    def awaited(self) -> int:
        """See ``Task.awaited``."""
        return self._awaited

    def _first_due(self) -> int:
        return min(
            timeline.due_of(one.stream.timeline, one.state.published + 1) for one in self.sanitizers.values()
        )

    def _lowest_resume(self) -> int:
        return min(one.state.resume for one in self.sanitizers.values())

    def rests(self, now: int) -> bool:
        """See ``Task.rests``: where nothing may be given up, releases wait for partial counts only, or for
        their schema."""
        streams = [self.sanitizers[name] for name in self._by_others]
        return all(one.stream.timeline.grace is None and not one.lacks_schema for one in streams)

    def views(self) -> Mapping[str, StreamView]:
        """See ``Task.views``."""
        return {
            name: StreamView(
                one.state.published + 1,
                Held(partials=one.combiner.waiting),
                spent=one.spent,
                discarded=one.combiner.discarded,
            )
            for name, one in self.sanitizers.items()
        }

    def process(self, chunk: Chunk) -> None:
        """See ``Task.process``: merge the partials of a chunk.

        Raises StateRefused for a record that should not be there, and Unsettled where one is gone.
        """
        unseen, touched = chunk.since(self.position), set[str]()
        # Without the offset: a refusal goes to the log, and the difference between two is an exact count.
        place = str(TopicPartition(chunk.topic, chunk.partition))
        for offset, value in zip(unseen.offsets, unseen.values, strict=True):
            partial = Partial.decode(value or b"", place)
            sanitizer = self.sanitizers.get(partial.stream)
            # Below its own offset may be partials of an earlier life of the stream.
            if sanitizer is not None and offset >= sanitizer.state.resume:
                sanitizer.combiner.add(partial, value or b"", offset)
                sanitizer.recollect()
                touched.add(partial.stream)
        self._open |= touched
        for name in sorted(touched):
            self.sanitizers[name].insist(place)
        self.position = max(self.position, chunk.next_offset)

    def has_work(self, now: int) -> bool:
        """See ``Task.has_work``."""
        return bool(self._unasked) or any(_has_work(one) for _, one in self._opened())

    def _opened(self) -> list[tuple[str, StreamSanitizer]]:
        """Those in which something may be decided or published, in the order of the file."""
        return [(name, one) for name, one in self.sanitizers.items() if name in self._open]

    def decide(self) -> list[Outgoing]:
        """See ``Publisher.decide``: what is complete is released and charged.

        Empty if no timestamp is complete, and no partition given up since the last time. More may be complete
        than one transaction holds.
        """
        size, opened = 0, self._opened()
        for _, sanitizer in opened:
            while sanitizer.complete and size < BATCH_BYTES:
                size += sanitizer.keep(sanitizer.draw())
        self._drawn = tuple(one for _, sanitizer in opened for one in sanitizer.charge(self.position))
        self._open = self._by_others | {name for name, one in opened if _has_work(one)}
        return [self._state(name, one.state) for name, one in opened if one.state.pending or one.by_clock]

    def deciding(self, records: Sequence[Outgoing]) -> Transaction:
        """See ``Publisher.deciding``: the clock may have decided that timestamps go without a partition.

        Its cause is what was drawn.
        """
        by_clock = any(one.by_clock for one in self.sanitizers.values())
        drawn, self._drawn = self._drawn, ()
        return replace(super().deciding(records), by_clock=by_clock, cause=drawn)

    def publish(self) -> list[Outgoing]:
        """See ``Publisher.publish``: charges and releases become public as they are."""
        records: list[Outgoing] = []
        unasked = dict(self._unasked)
        for name, sanitizer in self._pending():
            records += publication(sanitizer, TopicPartition(self._topics.ledger, self._topics.partition))
            asked = [*sanitizer.newly_asked()]
            records += [self._asking(name, one) for one in asked]
            if unasked.get(name) in asked:
                del unasked[name]
            records.append(self._state(name, sanitizer.state.settled))
        return [*records, *(self._asking(name, one) for name, one in unasked.items())]

    def publishing(self, records: Sequence[Outgoing]) -> Transaction:
        """See ``Publisher.publishing``."""
        return Transaction("publish", records, releases=releases_in(records, self._topics.ledger))

    def _asking(self, name: str, record: bytes) -> Outgoing:
        """The record of the control topic that asks producers of local reports for what a stream wants."""
        return Outgoing(self._topics.control, record, name.encode(), 0)

    def published(self) -> None:
        """See ``Publisher.published``."""
        self._unasked.clear()
        for _, sanitizer in self._opened():
            sanitizer.published()
        self._resume, self._awaited = self._lowest_resume(), self._first_due()

    def _pending(self) -> list[tuple[str, StreamSanitizer]]:
        return [(name, one) for name, one in self._opened() if one.state.pending]

    def _state(self, name: str, state: ReleaseState) -> Outgoing:
        return Outgoing(self._topics.changelog, state.encode(), name.encode(), self._topics.partition)
