"""A log in memory: partitions, transactions and readers as Apache Kafka has them, in one process.

``replay`` and tests drive over it what a worker drives over a cluster. It holds what the worker builds on:

* Records of a transaction lie in the log at once, at their offsets. Its marker takes an offset in every
  partition that was added to it, also where nothing was written.
* A reader of committed records sees none beyond the first record of the oldest open transaction (the last
  stable offset), none that was aborted, and no marker; a reader of uncommitted ones sees every record.
* A newer producer of the same identity aborts the open transaction of the older one, which is then refused.
  So is one whose transaction has lasted too long.

The same behaviours and random histories are asked of this log and of Apache Kafka (tests/conformance). What
has no counterpart there is not here either: nothing is lost, reordered, sent twice or answered late. Records
are not compacted: a reader of a table takes the last value of each key. Not safe for threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from confluent_kafka import KafkaError, KafkaException

from eventveil.kafka.outgoing import Part, by_partition, portions
from eventveil.kafka.reader import Isolation
from eventveil.kafka.writer import Appended, Writer
from eventveil.model.records import NO_APPEND_TIME, Chunk, Headers, Outgoing, Records, TopicPartition


class TransactionalWriter(Protocol):
    """The transactional producer of an identity: ``eventveil.kafka.writer.Writer`` and ``MemoryWriter``.

    Every method raises KafkaException; after that the producer must not be used any more.
    """

    def initialise(self, seconds: float) -> None:
        """Fence every earlier producer of the identity, and wait until its transaction is decided."""

    def settle(self, places: Iterable[TopicPartition], seconds: float) -> None:
        """End in these partitions what an earlier producer has left open, if a broker lost the marker."""

    def begin(self, seconds: float) -> None:
        """Begin a transaction, whose records have to be written within ``seconds``."""

    def write(self, records: Iterable[Part]) -> list[Appended]:
        """Write records in their order, by partition; they are in the log when it returns."""

    def commit(self, seconds: float) -> None:
        """Commit the transaction."""

    def abort(self, seconds: float) -> None:
        """Abort the transaction."""


class Logged(NamedTuple):
    """A record in the log. ``stamped``: ``time`` (epoch ms) is the log's own, else that of who wrote it."""

    offset: int
    time: int
    stamped: bool
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(slots=True, eq=False)
class _Transaction:
    """``places`` are the partitions that were added to it."""

    began: int
    committed: bool = False
    places: set[TopicPartition] = field(default_factory=set)


@dataclass(slots=True)
class _Identity:
    """What is known of a transactional id; its producers before ``epoch`` are fenced."""

    epoch: int
    lasts: int
    transaction: _Transaction | None = None


class _Entry(NamedTuple):
    """What lies at an offset: a record, alone or of a transaction, or (None) a marker."""

    time: int
    record: Logged | None
    transaction: _Transaction | None = None


class _Partition:
    """Entries from offset ``start`` on, and where each open transaction begins."""

    def __init__(self) -> None:
        self.start = 0
        self.entries: list[_Entry] = []
        self._open: dict[_Transaction, int] = {}

    def end(self, isolation: Isolation) -> int:
        end = self.start + len(self.entries)
        if isolation == "read_uncommitted":
            return end
        return max(self.start, min(self._open.values(), default=end))

    def append(self, record: Logged, transaction: _Transaction | None) -> None:
        if transaction is not None:
            self._open.setdefault(transaction, record.offset)
        self.entries.append(_Entry(record.time, record, transaction))

    def mark(self, transaction: _Transaction, time: int) -> None:
        self.entries.append(_Entry(time, None))
        self._open.pop(transaction, None)

    def visible(self, start: int, isolation: Isolation) -> Iterator[Logged]:
        for at in range(start - self.start, self.end(isolation) - self.start):
            _, record, transaction = self.entries[at]
            hidden = isolation == "read_committed" and transaction is not None and not transaction.committed
            if record is not None and not hidden:
                yield record

    def delete_before(self, offset: int) -> None:
        del self.entries[: offset - self.start]
        self.start = offset


class MemoryLog:
    """Topics, their partitions, and what is known of transactional ids.

    Its clock, in epoch milliseconds, stands still until ``advance``. Errors are those of the broker, as
    KafkaException; a topic or partition that does not exist is UNKNOWN_TOPIC_OR_PART.
    """

    def __init__(self, now: int = 0) -> None:
        self.now = now
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._counts: dict[str, int] = {}
        self._stamped: dict[str, bool] = {}
        self._identities: dict[str, _Identity] = {}

    # Topics

    def create(self, topic: str, partitions: int = 1, *, stamped: bool = True) -> None:
        """Create a topic. ``stamped``: its records get the time of the log (LogAppendTime).

        Raises KafkaException if it exists.
        """
        if topic in self._counts:
            raise _error(KafkaError.TOPIC_ALREADY_EXISTS, topic)
        self._counts[topic], self._stamped[topic] = partitions, stamped
        self._partitions |= {TopicPartition(topic, number): _Partition() for number in range(partitions)}

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has."""
        if topic not in self._counts:
            raise _error(KafkaError.UNKNOWN_TOPIC_OR_PART, f"topic {topic}")
        return self._counts[topic]

    def advance(self, now: int) -> None:
        """Set the clock; every transaction that has lasted too long by then is aborted, its producer fenced.

        It may be set back.
        """
        self.now = now
        for identity in self._identities.values():
            transaction = identity.transaction
            if transaction is not None and now - transaction.began > identity.lasts:
                self._shut_out(identity)

    # Reading

    def end(self, place: TopicPartition, isolation: Isolation = "read_uncommitted") -> int:
        """Where a partition ends for a reader; for one of committed records, at the last stable offset.

        That is never before the first offset, as a broker may tell it (docs/architecture.md).
        """
        return self._partition(place).end(isolation)

    def start(self, place: TopicPartition) -> int:
        """The first offset that a partition still has."""
        return self._partition(place).start

    def records(
        self,
        place: TopicPartition,
        start: int | None = None,
        isolation: Isolation = "read_committed",
        most: int | None = None,
    ) -> list[Logged]:
        """What a reader sees from offset ``start`` (None: the first) to the end, ``most`` records at most.

        Raises OFFSET_OUT_OF_RANGE where the log has no such offset yet, or no longer.
        """
        partition = self._partition(place)
        start = partition.start if start is None else start
        if not partition.start <= start <= partition.end("read_uncommitted"):
            raise _error(KafkaError.OFFSET_OUT_OF_RANGE, f"{place}, offset {start}")
        return list(islice(partition.visible(start, isolation), most))

    def read(
        self,
        place: TopicPartition,
        start: int | None = None,
        isolation: Isolation = "read_committed",
        most: int | None = None,
    ) -> Chunk:
        """The same as a chunk. Its next offset is the end for this reader, unless records were left out."""
        first = self.start(place) if start is None else start
        found = self.records(place, first, isolation, None if most is None else most + 1)
        after = max(first, self.end(place, isolation))
        if most is not None and len(found) > most:
            after = found.pop().offset
        return _chunk(place, first, found, after)

    def table(self, place: TopicPartition) -> dict[bytes, bytes]:
        """The last committed value of every key; a record without a value deletes its key."""
        found: dict[bytes, bytes] = {}
        for record in self.records(place):
            if record.key is None:
                continue
            if record.value is None:
                found.pop(record.key, None)
            else:
                found[record.key] = record.value
        return found

    def offset_at(self, place: TopicPartition, time: int) -> int:
        """The first offset whose record or marker has at least this time; the end if there is none."""
        partition = self._partition(place)
        offsets = (partition.start + at for at, entry in enumerate(partition.entries) if entry.time >= time)
        return next(offsets, self.end(place))

    def delete_before(self, place: TopicPartition, offset: int) -> None:
        """Delete what lies below an offset, as retention does. Raises OFFSET_OUT_OF_RANGE beyond the end."""
        partition = self._partition(place)
        if not 0 <= offset <= partition.end("read_uncommitted"):
            raise _error(KafkaError.OFFSET_OUT_OF_RANGE, f"{place}, offset {offset}")
        if offset > partition.start:
            partition.delete_before(offset)

    # Writing

    def append(self, records: Iterable[Outgoing], time: int | None = None) -> list[Appended]:
        """Write records outside of any transaction; ``time`` is what their producer says (None: now)."""
        return self._append(self.placed(list(records)), time, None)

    def writer(self, identity: str, lasts: float) -> MemoryWriter:
        """The transactional producer of an identity, whose transactions may last for this many seconds."""
        return MemoryWriter(self, identity, lasts)

    def placed(self, records: Sequence[Part]) -> dict[TopicPartition, list[Outgoing]]:
        """The records of each partition, in their order; all of these partitions exist."""
        found = by_partition(records, self.partitions)
        for place in found:
            self._partition(place)
        return {place: [*Records(parts)] for place, parts in found.items()}

    def _append(
        self,
        placed: Mapping[TopicPartition, Iterable[Outgoing]],
        time: int | None,
        transaction: _Transaction | None,
    ) -> list[Appended]:
        appended = []
        for place, records in placed.items():
            partition, stamped = self._partition(place), self._stamped[place.topic]
            first = partition.end("read_uncommitted")
            claimed = self.now if stamped or time is None else time
            for offset, one in enumerate(records, first):
                logged = Logged(offset, claimed, stamped, one.key, one.value, list(one.headers))
                partition.append(logged, transaction)
            count = partition.end("read_uncommitted") - first
            appended.append(Appended(*place, first, count, self.now if stamped else None))
        return appended

    def _partition(self, place: TopicPartition) -> _Partition:
        if place not in self._partitions:
            raise _error(KafkaError.UNKNOWN_TOPIC_OR_PART, str(place))
        return self._partitions[place]

    # The coordinator

    def _initialise(self, name: str, lasts: int) -> int:
        """The epoch of a new producer, which fences those before it."""
        identity = self._identities.setdefault(name, _Identity(-1, lasts))
        if identity.transaction is not None:
            self._decide(identity, committed=False)
        identity.epoch, identity.lasts = identity.epoch + 1, lasts
        return identity.epoch

    def _shut_out(self, identity: _Identity) -> None:
        identity.epoch += 1
        self._decide(identity, committed=False)

    def _add(self, name: str, epoch: int, places: Iterable[TopicPartition]) -> None:
        """Make partitions part of the transaction of a producer, which begins with the first."""
        identity = self._current(name, epoch)
        if identity.transaction is None:
            identity.transaction = _Transaction(self.now)
        identity.transaction.places.update(places)

    def _write(
        self, name: str, epoch: int, placed: Mapping[TopicPartition, Iterable[Outgoing]]
    ) -> list[Appended]:
        # Every partition knows the newer epoch by the marker that ended the transaction of the older.
        return self._append(placed, None, self._current(name, epoch).transaction)

    def _end(self, name: str, epoch: int, *, committed: bool) -> None:
        self._decide(self._current(name, epoch), committed=committed)

    def _current(self, name: str, epoch: int) -> _Identity:
        identity = self._identities[name]
        if epoch != identity.epoch:
            raise _error(KafkaError.INVALID_PRODUCER_EPOCH, name)
        return identity

    def _decide(self, identity: _Identity, *, committed: bool) -> None:
        transaction, identity.transaction = identity.transaction, None
        assert transaction is not None
        transaction.committed = committed
        for place in sorted(transaction.places):
            self._partition(place).mark(transaction, self.now)


class MemoryWriter:
    """See ``TransactionalWriter``; the seconds that it is given mean nothing here: all is done at once."""

    def __init__(self, log: MemoryLog, identity: str, lasts: float) -> None:
        self._log, self._identity, self._lasts = log, identity, int(lasts * 1000)
        self._epoch: int | None = None
        self._added: set[TopicPartition] = set()

    def initialise(self, seconds: float) -> None:
        """See ``TransactionalWriter.initialise``."""
        self._epoch = self._log._initialise(self._identity, self._lasts)

    def settle(self, places: Iterable[TopicPartition], seconds: float) -> None:
        """See ``TransactionalWriter.settle``; no marker is ever lost here."""

    def begin(self, seconds: float) -> None:
        """See ``TransactionalWriter.begin``; the log learns of it with the first partition."""

    def write(self, records: Iterable[Part]) -> list[Appended]:
        """See ``TransactionalWriter.write``."""
        appended: list[Appended] = []
        for portion in portions(records):
            placed = self._placed(portion)
            self.add(placed)
            assert self._epoch is not None
            appended += self._log._write(self._identity, self._epoch, placed)
        return appended

    def add(self, places: Iterable[TopicPartition]) -> None:
        """Make partitions part of the transaction, as the first half of ``write`` does.

        The log is not asked where they are part of it.
        """
        if new := {*places} - self._added:
            assert self._epoch is not None
            self._log._add(self._identity, self._epoch, new)
            self._added |= new

    def _placed(self, records: Sequence[Part]) -> dict[TopicPartition, list[Outgoing]]:
        try:
            return self._log.placed(records)
        except KafkaException as error:
            # On a cluster the topic may yet come, so a writer waits for it as long as it may.
            raise _error(
                KafkaError._TIMED_OUT, f"no success before the deadline; last failure: {error.args[0].str()}"
            ) from error

    def commit(self, seconds: float) -> None:
        """See ``TransactionalWriter.commit``. Where nothing was written the log is not asked."""
        self._finish(committed=True)

    def abort(self, seconds: float) -> None:
        """See ``TransactionalWriter.abort``."""
        self._finish(committed=False)

    def _finish(self, *, committed: bool) -> None:
        if self._added:
            assert self._epoch is not None
            self._log._end(self._identity, self._epoch, committed=committed)
            self._added.clear()


if TYPE_CHECKING:
    _producers: tuple[type[TransactionalWriter], ...] = (MemoryWriter, Writer)


def _chunk(place: TopicPartition, start: int, records: Sequence[Logged], after: int) -> Chunk:
    return Chunk(
        *place,
        generation=0,
        start=start,
        offsets=[record.offset for record in records],
        append_times=[record.time if record.stamped else NO_APPEND_TIME for record in records],
        keys=[record.key for record in records],
        values=[record.value for record in records],
        next_offset=after,
        headers=[record.headers for record in records],
        own_times=[record.time for record in records],
    )


def _error(code: int, what: str) -> KafkaException:
    return KafkaException(KafkaError(code, f"{what}: {KafkaError(code).str()}"))
