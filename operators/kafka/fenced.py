"""A table with one writer: its changelog partition is written by one fenced transactional producer only.

Fence first, read after: whoever takes over shuts the former owner out, so that what is then read to the end
is all there will ever be. And what is read must hold a nonce that was written after the fencing, for the
broker that answers may be cut off and show an older end (``operators.kafka.barrier``). After any error the
object is dead; the truth is in the log.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Sequence

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer

from operators.clock import ClockAhead, OwnerClock
from operators.errors import EventveilError, Unsettled
from operators.faults import FaultHook, no_fault
from operators.kafka.barrier import Floors, Place, behind, is_nonce, least_end, nonce, nonce_key
from operators.kafka.reading import read_table
from operators.kafka.settings import librdkafka
from operators.records import MAX_MESSAGE_BYTES, Outgoing
from operators.topology.model import Kafka

_TIMEOUT_SECONDS = 30.0
_TRANSACTION_SECONDS = 20.0
#: How often the broker is asked for its time before its answers are called too slow.
_COMPARISONS = 20
_FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}


class TransactionFailed(EventveilError):
    """A transaction did not commit, or nobody knows whether it did. ``fenced``: a newer owner exists."""

    def __init__(self, owner: str, error: KafkaError) -> None:
        super().__init__(f"{owner}: transaction failed: {error.name()}: {error.str()}")
        self.error = error
        self.fenced = error.code() in _FENCED


class OwnerClosed(EventveilError):
    """The partition was given up in this process; whoever owns it now derives everything from the log."""


def transactional_producer(kafka: Kafka, transactional_id: str) -> Producer:
    """A producer whose ``init_transactions`` is still to be called."""
    return Producer(
        {
            **librdkafka(kafka),
            "transactional.id": transactional_id,
            "transaction.timeout.ms": int(_TRANSACTION_SECONDS * 1000),
            "message.timeout.ms": int(_TRANSACTION_SECONDS * 1000) - 1000,
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
            # A sink that was deleted must be missed, not made anew behind everybody's back.
            "allow.auto.create.topics": False,
            "linger.ms": 2,
            "message.max.bytes": MAX_MESSAGE_BYTES,
            "queue.buffering.max.kbytes": 65_536,
        }
    )


def write_once(
    kafka: Kafka,
    owner: str,
    make: Callable[[Floors], Sequence[Outgoing]],
    beside: Iterable[Place] = (),
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
        self, kafka: Kafka, owner: str, topic: str, partition: int, fault: FaultHook = no_fault
    ) -> None:
        self.owner, self.topic, self.partition = owner, topic, partition
        self._kafka = kafka
        self._fault = fault
        self._producer: Producer | None = None
        self._closed = False
        self._floors: dict[Place, int] = {}

    @property
    def floors(self) -> Floors:
        """The offset of the last record that was written to each partition, which its true leader has."""
        return self._floors

    def take_over(self, beside: Iterable[Place] = ()) -> dict[bytes, bytes]:
        """Fence the former owner, resolve its transaction, then read the table behind the barrier.

        ``beside`` are the other partitions that will be read because of it, each beyond its floor. Raises
        TransactionFailed, KafkaException, Unsettled if no broker shows what was written, or OwnerClosed if
        the partition was given up meanwhile.
        """
        self.fence()
        self.mark(beside)
        drawn = uuid.uuid4().hex.encode()
        self.transact("barrier", [nonce((self.topic, self.partition), self.owner, drawn)])
        self._fault("restore:before-read")
        table = self._read(drawn)
        self._fault("restore:read")
        return table

    def _read(self, drawn: bytes) -> dict[bytes, bytes]:
        place = (self.topic, self.partition)
        table = read_table(self._kafka, *place, least=least_end(self._floors, place))
        if table.get(nonce_key(self.owner)) != drawn:
            raise behind(place)
        return {key: value for key, value in table.items() if not is_nonce(key)}

    def fence(self) -> None:
        """Shut out the former owner and resolve its transaction. Raises as ``take_over`` does."""
        self._check_open()
        self._fault("take-over:before-fence")
        self._producer = transactional_producer(self._kafka, self.owner)
        try:
            self._producer.init_transactions(_TIMEOUT_SECONDS)
        except KafkaException as error:
            raise self._failed(error) from error
        self._fault("take-over:fenced")

    def mark(self, places: Iterable[Place]) -> None:
        """Find out how far other partitions reach, with nonces that no read_committed reader will meet.

        Raises as ``transact`` does.
        """
        if records := [nonce(place, self.owner) for place in places]:
            self._run("mark", records, None, commit=False)
            self._fault("mark:aborted")

    def transact(self, name: str, records: Iterable[Outgoing], clock: OwnerClock | None = None) -> None:
        """Write all records in one transaction, or fail: TransactionFailed, or OwnerClosed once given up.

        What was decided by a ``clock`` is committed only if the broker confirms that the clock was not ahead
        by more than was declared, and ClockAhead is raised if not. One of the records has to be of the table:
        the answer to it tells the broker's time. Nor is anything committed if a partition has become shorter
        than it was; that is Unsettled, for another take-over finds out what is lost. There is no retry: after
        a failure the object only raises OwnerClosed.
        """
        self._run(name, records, clock, commit=True)
        self._fault(f"{name}:committed")

    def _run(self, name: str, records: Iterable[Outgoing], clock: OwnerClock | None, *, commit: bool) -> None:
        self._check_open()
        producer = self._producer
        if producer is None:
            raise OwnerClosed(self.owner)
        try:
            self._fault(f"{name}:before-begin")
            producer.begin_transaction()
            self._fault(f"{name}:begun")
            self._write(name, producer, records, clock)
            self._fault(f"{name}:before-commit")
            self._check_open()
            if commit:
                producer.commit_transaction(_TIMEOUT_SECONDS)
            else:
                producer.abort_transaction(_TIMEOUT_SECONDS)
        except ClockAhead:
            self.close()
            raise
        except Unsettled:
            self.close()
            with contextlib.suppress(KafkaException):
                producer.abort_transaction(_TIMEOUT_SECONDS)
            raise
        except KafkaException as error:
            raise self._failed(error) from error
        except SystemError as error:
            raise self._failed(_told_of(error, producer)) from error

    def _write(
        self, name: str, producer: Producer, records: Iterable[Outgoing], clock: OwnerClock | None
    ) -> None:
        answers = _Answers(self.topic, self._floors, clock)
        state = None
        for record in records:
            self._fault(f"{name}:before-produce")
            self._produce(producer, record, answers)
            self._fault(f"{name}:produced")
            if record.topic == self.topic:
                state = record
        answers.wait(producer)
        # A slow answer leaves it open when the record was appended: then the state is written once more.
        for _ in range(_COMPARISONS):
            if answers.confirm(self.owner) or state is None:
                break
            answers = _Answers(self.topic, self._floors, clock)
            self._produce(producer, state, answers)
            answers.wait(producer)
        answers.insist(self.owner)

    def _produce(
        self, producer: Producer, record: Outgoing, delivered: Callable[[KafkaError | None, Message], None]
    ) -> None:
        while True:
            try:
                producer.produce(
                    record.topic,
                    value=record.value,
                    key=record.key,
                    partition=-1 if record.partition is None else record.partition,
                    headers=list(record.headers),
                    on_delivery=delivered,
                )
            except BufferError:
                producer.poll(0.1)
            else:
                producer.poll(0)
                return

    def close(self) -> None:
        """Give the partition up, at once and from any thread: no transaction begins or commits after this.

        What is under way stays uncommitted, and the next owner's take-over aborts it.
        """
        self._closed = True

    def dispose(self) -> None:
        """Close, and free the producer's threads; may take a moment."""
        self.close()
        self._producer = None

    def _failed(self, error: KafkaException) -> EventveilError:
        closed = self._closed
        self.close()
        return OwnerClosed(self.owner) if closed else TransactionFailed(self.owner, error.args[0])

    def _check_open(self) -> None:
        if self._closed:
            raise OwnerClosed(self.owner)


def _told_of(error: SystemError, producer: Producer) -> KafkaException:
    """The fatal error that confluent-kafka met in the midst of delivery reports.

    Python makes a SystemError of it, with the fatal error as its cause or, now and then, with none. Then the
    producer is asked to abort, which fails of the same.
    """
    if isinstance(error.__cause__, KafkaException):
        return error.__cause__
    try:
        producer.abort_transaction(_TIMEOUT_SECONDS)
    except KafkaException as told:
        return told
    return KafkaException(KafkaError(KafkaError._FAIL, f"the client failed without a reason: {error}"))


class _Answers:
    """What the broker answers to the records of a transaction: errors, offsets, and the time of those of the
    table. The offsets raise the floors."""

    def __init__(self, topic: str, floors: dict[Place, int], clock: OwnerClock | None) -> None:
        self._topic, self._floors, self._clock = topic, floors, clock
        self._before = dict(floors)
        self._failures: list[KafkaError] = []
        self._doubts: list[Unsettled] = []
        self._began = clock.elapsed() if clock else 0
        #: By how many ms the clock was ahead, at least and at most.
        self._least: int | None = None
        self._most: int | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """The delivery report of a record."""
        if error is not None:
            self._failures.append(error)
            return
        self._raise_floor((message.topic() or "", message.partition() or 0), message.offset())
        if self._clock is not None and message.topic() == self._topic:
            kind, appended = message.timestamp()
            if kind == TIMESTAMP_LOG_APPEND_TIME:
                # It was appended after the beginning, and before this moment.
                least = self._clock.ahead(self._began, appended)
                most = self._clock.ahead(self._clock.elapsed(), appended)
                self._least = least if self._least is None else max(least, self._least)
                self._most = most if self._most is None else min(most, self._most)

    def _raise_floor(self, place: Place, offset: int | None) -> None:
        if offset is None or offset < 0:
            self._doubts.append(Unsettled(_name(place), "the broker did not say where it put a record"))
        elif offset <= self._before.get(place, -1):
            what = "it is shorter than it was: deleted and created again, or its newest records are lost"
            self._doubts.append(Unsettled(_name(place), what))
        else:
            self._floors[place] = max(offset, self._floors.get(place, -1))

    def wait(self, producer: Producer) -> None:
        """Wait for all answers. Raises KafkaException if one is an error, Unsettled if a log has shrunk."""
        producer.flush(_TIMEOUT_SECONDS)
        if self._failures:
            raise KafkaException(self._failures[0])
        if self._doubts:
            raise self._doubts[0]

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


def _name(place: Place) -> str:
    return f"{place[0]}, partition {place[1]}"
