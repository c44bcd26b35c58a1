"""A table with one writer: its changelog partition is written by one fenced transactional producer only.

Fence first, read after: whoever takes over shuts the former owner out, so that what is then read to the end
is all there will ever be. After any error the object is dead; the truth is in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message, Producer

from operators.errors import EventveilError
from operators.faults import FaultHook, no_fault
from operators.kafka.cluster import Cluster
from operators.kafka.reading import read_table, settled_end
from operators.kafka.settings import librdkafka
from operators.records import MAX_MESSAGE_BYTES, Outgoing
from operators.topology.model import Kafka

_TIMEOUT_SECONDS = 30.0
_TRANSACTION_SECONDS = 20.0
_FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}


class TransactionFailed(EventveilError):
    """A transaction did not commit, or nobody knows whether it did. ``fenced``: a newer owner exists."""

    def __init__(self, owner: str, error: KafkaError) -> None:
        super().__init__(f"{owner}: transaction failed: {error.name()}: {error.str()}")
        self.error = error
        self.fenced = error.code() in _FENCED


class ClockAhead(EventveilError):
    """The clock of this machine is ahead of a broker's by more than was declared, or nobody can tell."""

    def __init__(self, owner: str, ahead: int | None, skew: int) -> None:
        found = "the broker did not tell the append time" if ahead is None else f"it is {ahead} ms ahead"
        super().__init__(
            f"{owner}: nothing is decided by the clock of this machine: {found}, clock_skew is {skew} ms. "
            "Timestamps would close before their events are in. Set the clocks of workers and brokers right"
        )


class OwnerClosed(EventveilError):
    """The partition was given up in this process; whoever owns it now derives everything from the log."""


@dataclass(frozen=True, slots=True)
class DeclaredClock:
    """The clock that decisions go by, and by how many milliseconds it may be ahead of a broker's.

    ``now`` gives epoch milliseconds; ``shown`` what it shows when the clock of a broker shows its argument.
    """

    now: Callable[[], int]
    skew: int
    shown: Callable[[int], int] = int


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


def write_once(kafka: Kafka, owner: str, make: Callable[[], Sequence[Outgoing]]) -> None:
    """Fence earlier writers of this name, then make the records and write them in one transaction."""
    table = FencedTable(kafka, owner, "", 0)
    table.fence()
    if records := make():
        table.transact("write", records)


class FencedTable:
    """One changelog partition and its only writer. Its methods block; one thread at a time may call them."""

    def __init__(
        self,
        kafka: Kafka,
        owner: str,
        topic: str,
        partition: int,
        fault: FaultHook = no_fault,
        clock: DeclaredClock | None = None,
    ) -> None:
        self.owner, self.topic, self.partition = owner, topic, partition
        self._kafka = kafka
        self._fault = fault
        self._clock = clock
        self._producer: Producer | None = None
        self._closed = False

    def take_over(self) -> dict[bytes, bytes]:
        """Fence the former owner, resolve its transaction, then read the table.

        Raises TransactionFailed, KafkaException, or OwnerClosed if the partition was given up meanwhile.
        """
        self.fence()
        self._check_open()
        settled_end(self._kafka, Cluster(self._kafka), self.topic, self.partition)
        self._fault("restore:before-read")
        table = read_table(self._kafka, self.topic, self.partition)
        self._fault("restore:read")
        return table

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

    def transact(self, name: str, records: Iterable[Outgoing], decided: int = 0) -> None:
        """Write all records in one transaction, or fail: TransactionFailed, or OwnerClosed once given up.

        Where decisions go by a clock, ``decided`` is what it showed then, and one of the records must be of
        the table: the broker's answer tells its time, and ClockAhead is raised before anything is committed
        if the clock was ahead of it by more than was declared. There is no retry: after a failure the object
        only raises OwnerClosed.
        """
        self._check_open()
        producer = self._producer
        if producer is None:
            raise OwnerClosed(self.owner)
        failures: list[KafkaError] = []
        appended: list[tuple[int, int]] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)
            elif message.topic() == self.topic:
                appended.append(message.timestamp())

        began = 0 if self._clock is None else max(decided, self._clock.now())
        try:
            self._fault(f"{name}:before-begin")
            producer.begin_transaction()
            self._fault(f"{name}:begun")
            for record in records:
                self._fault(f"{name}:before-produce")
                self._produce(producer, record, delivered)
                self._fault(f"{name}:produced")
            producer.flush(_TIMEOUT_SECONDS)
            if failures:
                raise KafkaException(failures[0])
            self._check_clock(began, appended)
            self._fault(f"{name}:before-commit")
            self._check_open()
            producer.commit_transaction(_TIMEOUT_SECONDS)
        except KafkaException as error:
            raise self._failed(error) from error
        except SystemError as error:
            # So Python calls a fatal error that confluent-kafka raises in the midst of delivery reports.
            if not isinstance(error.__cause__, KafkaException):
                raise
            raise self._failed(error.__cause__) from error
        self._fault(f"{name}:committed")

    def _check_clock(self, began: int, appended: Iterable[tuple[int, int]]) -> None:
        """Raise ClockAhead unless what was appended after ``began`` has, by the broker, a time after it."""
        if self._clock is None:
            return
        times = [time for kind, time in appended if kind == TIMESTAMP_LOG_APPEND_TIME]
        ahead = began - self._clock.shown(min(times)) if times else None
        if ahead is None or ahead > self._clock.skew:
            self.close()
            raise ClockAhead(self.owner, ahead, self._clock.skew)

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
