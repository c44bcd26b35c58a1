"""The two logs under one interface: that in memory, and a broker with the worker's clients."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

from aiokafka.protocol.offset import OffsetRequest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as AskedPartition
from confluent_kafka.admin import AdminClient

from eventveil.kafka.cluster import Cluster
from eventveil.kafka.connection import Address
from eventveil.kafka.deadline import Deadline
from eventveil.kafka.links import Link, links
from eventveil.kafka.log import read_table
from eventveil.kafka.reader import Isolation, LogReader
from eventveil.kafka.writer import Appended, Writer
from eventveil.model.records import Outgoing, TopicPartition
from eventveil.model.topology import Kafka
from eventveil.replay.log import Logged, MemoryLog, MemoryWriter
from tests.kafka.topics import LOG_APPEND_TIME, create_topic, unique

BOTH: tuple[Isolation, Isolation] = ("read_committed", "read_uncommitted")
SECONDS = 30.0
_LATEST, _EARLIEST = -1, -2


class InMemory:
    """The log in memory."""

    def __init__(self, log: MemoryLog | None = None) -> None:
        self.log = log or MemoryLog(now=1_700_000_000_000)
        for name in ("append", "end", "start", "records", "table", "offset_at", "delete_before", "writer"):
            setattr(self, name, getattr(self.log, name))

    writer: type[MemoryWriter]

    def bounds(self, topic: str, partitions: Sequence[int]) -> list[list[int]]:
        """Where partitions begin, and where they end read committed and read uncommitted."""
        begins = [self.log.start((topic, one)) for one in partitions]
        return [
            begins,
            *([self.log.end((topic, one), isolation) for one in partitions] for isolation in BOTH),
        ]

    def topic(self, partitions: int = 1, *, stamped: bool = True) -> str:
        name = unique("topic")
        self.log.create(name, partitions, stamped=stamped)
        return name

    def wait_for_timeout(self, lasts: float, ends: Iterable[TopicPartition]) -> None:
        """Let transactions end that last for too long; ``ends`` are partitions in which none stays open."""
        self.log.advance(self.log.now + int(lasts * 1000) + 1)

    def pass_time(self) -> None:
        """Let a millisecond pass at least."""
        self.log.advance(self.log.now + 2)


class OnBroker:
    """The same on a broker: records are written by the worker's writer and read by confluent-kafka."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._cluster = Cluster(Kafka(bootstrap))
        self._consumers: dict[Isolation, Consumer] = {}

    @property
    def address(self) -> Address:
        host, _, port = self.bootstrap.partition(":")
        return host, int(port)

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()

    def topic(self, partitions: int = 1, *, stamped: bool = True) -> str:
        settings = LOG_APPEND_TIME if stamped else {"message.timestamp.type": "CreateTime"}
        return create_topic(self.bootstrap, unique("topic"), partitions, settings)

    def writer(self, identity: str, lasts: float) -> SettledWriter:
        return SettledWriter(Kafka(self.bootstrap), identity, lasts)

    @cached_property
    def _producer(self) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0, "log_level": 0})

    def append(self, records: Iterable[Outgoing], time: int | None = None) -> list[Appended]:
        placed: list[Message] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            placed.append(message)

        for one in records:
            more: dict[str, object] = {"headers": list(one.headers)}
            if time is not None:
                more["timestamp"] = time
            partition = -1 if one.partition is None else one.partition
            self._producer.produce(one.topic, one.value, one.key, partition, on_delivery=delivered, **more)
        assert self._producer.flush(SECONDS) == 0
        return [
            Appended(message.topic(), message.partition(), message.offset(), 1, None) for message in placed
        ]

    def _consumer(self, isolation: Isolation) -> Consumer:
        if isolation not in self._consumers:
            self._consumers[isolation] = Consumer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "group.id": unique("reader"),
                    "isolation.level": isolation,
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "error",
                    "fetch.wait.max.ms": 5,
                    "fetch.queue.backoff.ms": 1,
                    "fetch.error.backoff.ms": 10,
                    "topic.metadata.refresh.fast.interval.ms": 10,
                    "log_level": 0,
                }
            )
        return self._consumers[isolation]

    def end(self, place: TopicPartition, isolation: Isolation = "read_uncommitted") -> int:
        # See ``bounds``.
        end = LogReader(Kafka(self.bootstrap), TopicPartition(*place), isolation).end(0)
        return max(self.start(place), end)

    def bounds(self, topic: str, partitions: Sequence[int]) -> list[list[int]]:
        """The same in three requests; the clients of libraries need many."""
        with links(Kafka(self.bootstrap)).borrowed() as link:
            begins, stable, whole = (
                _told_offsets(link, self.address, level, topic, dict.fromkeys(partitions, time))
                for level, time in ((0, _EARLIEST), (1, _LATEST), (0, _LATEST))
            )
        # Where records were deleted into an open transaction, the broker tells the beginning of the batch in
        # which the first offset lies (docs/architecture.md). Nothing can be read there either way.
        return [begins, [*map(max, begins, stable)], whole]

    def start(self, place: TopicPartition) -> int:
        return self._cluster.first_offsets([place])[place]

    def offset_at(self, place: TopicPartition, time: int) -> int:
        return self._cluster.offsets_at([place], time)[place]

    def table(self, place: TopicPartition) -> dict[bytes, bytes]:
        return read_table(Kafka(self.bootstrap), *place)

    def delete_before(self, place: TopicPartition, offset: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        at = AskedPartition(*place, offset)
        admin.delete_records([at], operation_timeout=SECONDS)[at].result(SECONDS)

    def records(
        self,
        place: TopicPartition,
        start: int | None = None,
        isolation: Isolation = "read_committed",
        most: int | None = None,
    ) -> list[Logged]:
        consumer = self._consumer(isolation)
        first = self.start(place) if start is None else start
        if first == self.end(place, isolation):
            # See ``bounds``: if the broker tells an earlier end, the client never says it was reached.
            return []
        consumer.assign([AskedPartition(*place, first)])
        try:
            return [_logged(message) for message in _until_end(consumer)][:most]
        finally:
            consumer.unassign()

    def wait_for_timeout(self, lasts: float, ends: Iterable[TopicPartition]) -> None:
        give_up = time.monotonic() + lasts + SECONDS
        for place in ends:
            while self.end(place, "read_committed") < self.end(place):
                assert time.monotonic() < give_up, f"{place}: a transaction stays open"
                time.sleep(0.05)

    def pass_time(self) -> None:
        time.sleep(0.002)


class SettledWriter(Writer):
    """A writer that returns once its markers are in the log, which brokers write a moment later."""

    def commit(self, seconds: float) -> None:
        """Commit; an abort returns that late anyway."""
        ended = bool(self._added)
        super().commit(seconds)
        if ended:
            # Asked again, the coordinator answers only once the transaction is complete.
            self._run(lambda link: self._end_transaction(link, Deadline(SECONDS), commit=True))

    def add(self, places: Iterable[TopicPartition]) -> None:
        """Add partitions to the transaction, and write nothing to them."""
        self._run(lambda link: self._add(link, places))


def _until_end(consumer: Consumer) -> Iterator[Message]:
    give_up = time.monotonic() + SECONDS
    while time.monotonic() < give_up:
        first = consumer.poll(0.1)
        # Only what is there already: asked for many, the client waits for them.
        for message in [] if first is None else [first, *consumer.consume(1000, 0)]:
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                return
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise KafkaException(KafkaError(KafkaError.OFFSET_OUT_OF_RANGE))
            else:
                raise KafkaException(error)
    raise TimeoutError("the end of a partition was not reached")


def _told_offsets(link: Link, broker: Address, level: int, topic: str, times: Mapping[int, int]) -> list[int]:
    request = OffsetRequest(-1, level, [(topic, [*times.items()])])
    give_up = time.monotonic() + SECONDS
    while time.monotonic() < give_up:
        ((_, told),) = link.ask(broker, request, SECONDS).topics
        if not any(code for _, code, *_ in told):
            return [offset for *_, offset in sorted(told)]
        time.sleep(0.01)  # It does not lead a new topic yet.
    raise TimeoutError(f"{topic}: {told}")


def _logged(message: Message) -> Logged:
    kind, moment = message.timestamp()
    return Logged(
        message.offset(),
        moment,
        kind == TIMESTAMP_LOG_APPEND_TIME,
        message.key(),
        message.value(),
        message.headers() or [],
    )


Log = InMemory | OnBroker


@contextmanager
def on_broker(bootstrap: str) -> Iterator[OnBroker]:
    """The log of a broker, and no consumer left behind."""
    made = OnBroker(bootstrap)
    try:
        yield made
    finally:
        made.close()
