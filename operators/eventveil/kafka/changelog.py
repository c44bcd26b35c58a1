"""A table with one writer: its changelog partition is written by one fenced transactional producer only.

Fence first, read after: a new owner fences the former one, so that what is then read to the end
is all there will ever be. And what is read must hold a nonce that was written after the fencing, for the
broker that answers may be cut off and show an older end (``eventveil.kafka.barrier``). After any error the
object is dead; the truth is in the log.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException

from eventveil.kafka.barrier import Floors, behind, is_nonce, least_end, nonce, nonce_key
from eventveil.kafka.log import read_latest, values_of
from eventveil.kafka.writer import Appended, Writer
from eventveil.model.errors import EventveilError, Unsettled
from eventveil.model.records import Columns, Headers, Outgoing, TopicPartition, parts_of
from eventveil.model.topology import Kafka
from eventveil.process.clock import ClockAhead, PartitionClock
from eventveil.process.faults import FaultHook, no_fault

_TIMEOUT_SECONDS = 30.0
_TRANSACTION_SECONDS = 20.0
#: After this a take-over gives up, and the next attempt waits again.
_LEADERS_SECONDS = 5.0
#: Within which records are written, so that the commit still comes in time.
_WRITING_SECONDS = _TRANSACTION_SECONDS - 1
#: How often the broker is asked for its time before its answers are called too slow.
_COMPARISONS = 20
#: The broker ends a transaction that lasted for its timeout. The answers to it come a little later than it
#: begins there, and clocks run at slightly different rates.
_OVERDUE = 0.95
_FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
#: A broker takes no time that is ahead of its own by more than an hour, unless the topic says otherwise.
_OTHER_CLOCK = (
    "the clock of this machine is ahead of the broker's by more than message.timestamp.after.max.ms of a"
    " topic, or far behind it, so the broker refused the records. Synchronize the clocks of workers and"
    " brokers"
)


class TransactionFailed(EventveilError):
    """A transaction did not commit, or nobody knows whether it did.

    ``shut_out``: the broker takes nothing more from this writer. ``overdue``: that is because the transaction
    ``lasted`` for as long, in seconds, as one may last; the broker aborts it then, and gives the same answer
    as to a writer that has a successor. ``fenced``: otherwise, so a newer owner exists.
    """

    def __init__(self, owner: str, error: KafkaError, lasted: float = 0.0) -> None:
        self.error = error
        self.shut_out = error.code() in _FENCED
        self.overdue = self.shut_out and lasted >= _OVERDUE * _TRANSACTION_SECONDS
        self.fenced = self.shut_out and not self.overdue
        what = "transaction failed"
        if self.overdue:
            what = (
                f"the transaction took {lasted:.0f} s, and the broker aborts one after "
                f"{_TRANSACTION_SECONDS:.0f} s"
            )
        if error.code() == KafkaError.INVALID_TIMESTAMP:
            what = _OTHER_CLOCK
        #: In words, without the owner.
        self.what = f"{what}: {error.name()}: {error.str()}"
        super().__init__(f"{owner}: {self.what}")


class OwnerClosed(EventveilError):
    """The partition was given up in this process; its owner now derives everything from the log."""


def write_once(
    kafka: Kafka,
    owner: str,
    make: Callable[[Floors], Sequence[Outgoing]],
    beside: Iterable[TopicPartition] = (),
) -> Floors:
    """Fence earlier writers of this name, then make the records and write them in one transaction.

    What they are made of may be read from the partitions ``beside`` beyond their floors, which ``make`` is
    given. Returns the offset of the last record that was written to each partition.
    """
    table = FencedTable(kafka, owner, "", 0)
    table.fence()
    table.mark(beside)
    if records := make(table.floors):
        table.transact("write", records)
    return table.floors


class FencedTable:
    """One changelog partition and its only writer. Its methods block; one thread at a time may call them."""

    def __init__(
        self,
        kafka: Kafka,
        owner: str,
        topic: str,
        partition: int,
        fault: FaultHook = no_fault,
        hear: Callable[[int], None] | None = None,
    ) -> None:
        """``hear`` is told when, by its clock, the broker has appended what was written, in epoch ms."""
        self.owner, self.topic, self.partition = owner, topic, partition
        self._hear = hear
        self._kafka = kafka
        self._fault = fault
        self._writer: Writer | None = None
        self._closed = False
        self._floors: dict[TopicPartition, int] = {}
        #: The headers of what ``take_over`` has read, by key.
        self.headers: Mapping[bytes, Headers] = {}
        #: How many transactions it has committed, that of the barrier included.
        self.commits = 0

    @property
    def floors(self) -> Floors:
        """The offset of the last record that was written to each partition, which its true leader has."""
        return self._floors

    def take_over(
        self, beside: Sequence[TopicPartition] = (), written: Iterable[TopicPartition] = ()
    ) -> dict[bytes, bytes]:
        """Fence the former owner, resolve its transaction, then read the table behind the barrier.

        ``beside`` are the other partitions that will be read because of it, each beyond its floor, and
        ``written`` further ones that its owner writes to together with it. Raises TransactionFailed,
        KafkaException, Unsettled if no broker shows what was written, or OwnerClosed if the partition was
        given up meanwhile.
        """
        places = [self.place, *beside, *written]
        self._await_leaders(places)
        self.fence()
        self._settle(places)
        self.mark(beside)
        drawn = uuid.uuid4().hex.encode()
        self.transact("barrier", [nonce(self.place, self.owner, drawn)])
        self._fault("restore:before-read")
        table = self._read(drawn)
        self._fault("restore:read")
        return table

    @property
    def place(self) -> TopicPartition:
        """The partition that holds the table."""
        return TopicPartition(self.topic, self.partition)

    def _read(self, drawn: bytes) -> dict[bytes, bytes]:
        place = self.place
        latest = read_latest(self._kafka, place, least_end(self._floors, place))
        table = values_of(latest)
        if table.get(nonce_key(self.owner)) != drawn:
            raise behind(place)
        self.headers = {key: latest[key].headers for key in table}
        return {key: value for key, value in table.items() if not is_nonce(key)}

    def fence(self) -> None:
        """Shut out the former owner and resolve its transaction. Raises as ``take_over`` does."""
        self._check_open()
        self._fault("take-over:before-fence")
        # A coordinator may be away for longer than it takes others to own the partition. An owner that was
        # given up meanwhile must not fence them.
        self._writer = Writer(self._kafka, self.owner, _TRANSACTION_SECONDS, self._check_open)
        try:
            self._writer.initialise(_TIMEOUT_SECONDS)
        except KafkaException as error:
            raise self._failed(error) from error
        self._fault("take-over:fenced")

    def _await_leaders(self, places: Collection[TopicPartition]) -> None:
        """Wait, but not for long, for partitions without a leader. Raises KafkaException.

        A marker that ends something there could be lost, and what the coordinator knows of the former owner's
        transaction is lost with the first marker of this one. So nobody is fenced before all have a leader.
        """
        self._check_open()
        Writer(self._kafka, self.owner, _TRANSACTION_SECONDS).await_leaders(places, _LEADERS_SECONDS)

    def _settle(self, places: Iterable[TopicPartition]) -> None:
        """Let nothing of the former owner be open in these partitions. Raises as ``take_over`` does."""
        self._check_open()
        if self._writer is None:
            raise OwnerClosed(self.owner)
        try:
            self._writer.settle(places, _TIMEOUT_SECONDS)
        except KafkaException as error:
            raise self._failed(error) from error
        self._fault("take-over:settled")

    def mark(self, places: Iterable[TopicPartition]) -> None:
        """Find out how far other partitions reach, with nonces that no read_committed reader will meet.

        Raises as ``transact`` does.
        """
        if records := [nonce(place, self.owner) for place in places]:
            self._run("mark", records, commit=False)
            self._fault("mark:aborted")

    def transact(
        self,
        name: str,
        records: Iterable[Outgoing],
        clock: PartitionClock | None = None,
        confirm: Callable[[], object] | None = None,
    ) -> None:
        """Write all records in one transaction, or fail: TransactionFailed, or OwnerClosed once given up.

        What was decided by a ``clock`` is committed only if the broker confirms that the clock was not ahead
        by more than was declared, and ClockAhead is raised if not. One of the records has to be of the table:
        the answer to it tells the broker's time. Nor is anything committed if a partition has become shorter
        than it was; that is Unsettled, for another take-over finds out what is lost. Nor before ``confirm``
        has returned, which is called once all is written; what it raises is raised. There is no retry: after
        a failure the object only raises OwnerClosed.
        """
        self._run(name, records, clock, confirm, commit=True)
        self.commits += 1
        self._fault(f"{name}:committed")

    def _run(
        self,
        name: str,
        records: Iterable[Outgoing],
        clock: PartitionClock | None = None,
        confirm: Callable[[], object] | None = None,
        *,
        commit: bool,
    ) -> None:
        self._check_open()
        writer, began = self._writer, time.monotonic()
        if writer is None:
            raise OwnerClosed(self.owner)
        try:
            self._fault(f"{name}:before-begin")
            began = time.monotonic()
            writer.begin(_WRITING_SECONDS)
            self._fault(f"{name}:begun")
            self._write(name, writer, records, clock)
            if confirm is not None:
                confirm()
            self._fault(f"{name}:before-commit")
            self._check_open()
            if commit:
                writer.commit(_TIMEOUT_SECONDS)
            else:
                writer.abort(_TIMEOUT_SECONDS)
        except ClockAhead:
            self.close()
            raise
        except Unsettled:
            self.close()
            with contextlib.suppress(KafkaException):
                writer.abort(_TIMEOUT_SECONDS)
            raise
        except KafkaException as error:
            raise self._failed(error, time.monotonic() - began) from error

    def _write(
        self, name: str, writer: Writer, records: Iterable[Outgoing], clock: PartitionClock | None
    ) -> None:
        answers = _Answers(self.topic, self._floors, clock)
        written = 0
        state: Outgoing | None = None

        def taken() -> Iterator[Outgoing | Columns]:
            nonlocal written, state
            for part in parts_of(records):
                number = len(part) if isinstance(part, Columns) else 1
                self._pass_each(f"{name}:before-produce", number)
                written += number
                if isinstance(part, Outgoing) and part.topic == self.topic:
                    state = part
                yield part

        appended = writer.write(taken())
        self._pass_each(f"{name}:produced", written)
        answers.note(appended)
        self._tell_time(appended)
        # A slow answer leaves it open when the record was appended: then the state is written once more.
        for _ in range(_COMPARISONS):
            if answers.confirm(self.owner) or state is None:
                break
            answers = _Answers(self.topic, self._floors, clock)
            answers.note(writer.write([state]))
        answers.insist(self.owner)

    def _tell_time(self, appended: Iterable[Appended]) -> None:
        times = [batch.time for batch in appended if batch.time is not None]
        if self._hear is not None and times:
            self._hear(max(times))

    def _pass_each(self, point: str, records: int) -> None:
        """Pass a point as often as there are records. There may be a million, and only tests have faults."""
        if self._fault is not no_fault:
            for _ in range(records):
                self._fault(point)

    def close(self) -> None:
        """Give the partition up, at once and from any thread: no transaction begins or commits after this.

        What is under way stays uncommitted, and the next owner's take-over aborts it.
        """
        self._closed = True

    def dispose(self) -> None:
        """Close, and free the writer."""
        self.close()
        self._writer = None

    def _failed(self, error: KafkaException, lasted: float = 0.0) -> EventveilError:
        closed = self._closed
        self.close()
        return OwnerClosed(self.owner) if closed else TransactionFailed(self.owner, error.args[0], lasted)

    def _check_open(self) -> None:
        if self._closed:
            raise OwnerClosed(self.owner)


class _Answers:
    """What the broker answers to the records of a transaction: where they are, which raises the floors, and
    when those of the table were appended."""

    def __init__(self, topic: str, floors: dict[TopicPartition, int], clock: PartitionClock | None) -> None:
        self._topic, self._floors, self._clock = topic, floors, clock
        self._before = dict(floors)
        self._began = clock.elapsed() if clock else 0
        #: By how many ms the clock was ahead, at least and at most.
        self._least: int | None = None
        self._most: int | None = None

    def note(self, batches: Iterable[Appended]) -> None:
        """Take in what has been appended. Raises Unsettled if a log has shrunk."""
        for batch in batches:
            self._raise_floor(batch)
            if self._clock is not None and batch.topic == self._topic and batch.time is not None:
                # It was appended after the beginning, and before this moment.
                least = self._clock.ahead(self._began, batch.time)
                most = self._clock.ahead(self._clock.elapsed(), batch.time)
                self._least = least if self._least is None else max(least, self._least)
                self._most = most if self._most is None else min(most, self._most)

    def _raise_floor(self, batch: Appended) -> None:
        place = TopicPartition(batch.topic, batch.partition)
        if batch.offset < 0:
            raise Unsettled(str(place), "the broker did not say where it put a record")
        if batch.offset <= self._before.get(place, -1):
            what = "it is shorter than it was: deleted and created again, or its newest records are lost"
            raise Unsettled(str(place), what)
        self._floors[place] = max(batch.offset + batch.count - 1, self._floors.get(place, -1))

    def confirm(self, owner: str) -> bool:
        """Whether the clock was certainly not ahead by more than declared; ClockAhead if it certainly was."""
        if self._clock is None:
            return True
        if self._least is None or self._most is None or self._least > self._clock.skew:
            raise ClockAhead(owner, self._clock.skew, self._least, self._most)
        return self._most <= self._clock.skew

    def insist(self, owner: str) -> None:
        """Raise ClockAhead unless ``confirm`` says yes."""
        if self._clock is not None and not self.confirm(owner):
            raise ClockAhead(owner, self._clock.skew, self._least, self._most)
