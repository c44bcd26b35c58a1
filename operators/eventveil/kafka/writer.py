"""A transactional producer without threads: Kafka's transaction protocol, one request after the other.

It does less than the producers of the client libraries, on purpose:

* It is initialised once. Nothing makes it ask for a new epoch later, so a writer that was fenced stays so.
* A request is sent again only if it was not sent at all, or if the broker's answer says that it was not
  done, or is the same if done twice. What was sent and not answered ends the writer: a late duplicate of it
  could otherwise meet the next transaction (as KIP-890 describes), and the log tells the successor the truth.
* Of a partition one batch is on its way at a time, so a batch that is sent again cannot overtake another.
* A transaction ends at the coordinator that it began at, or not at all. A former coordinator that is cut off
  from the others remembers the transaction before this one as committed, and would say so of this one.
* Because of an error only what a broker refused to write is aborted: all requests were answered then, and
  none asked for the commit. All else is left to the next writer of the identity, when it is initialised.

A transaction begins at the coordinator with the first partition that is added to it, and ends there; records
go to the leaders of their partitions, and count as written once all replicas in sync have them (acks=all).
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import AddPartitionsToTxnRequest, EndTxnRequest
from confluent_kafka import KafkaError, KafkaException

from eventveil.kafka.cluster import OTHER_COORDINATOR
from eventveil.kafka.connection import Address, Unanswered, Unreached
from eventveil.kafka.deadline import LONGEST_PAUSE, Deadline
from eventveil.kafka.links import PASSING, Link, Refused, links
from eventveil.kafka.outgoing import OutgoingBatch, Part, Producer, batches, by_partition, portions
from eventveil.kafka.succession import LastTransaction, was_committed
from eventveil.kafka.transaction_requests import DescribeTransactionRequest, NewEpochRequest
from eventveil.model.records import TopicPartition
from eventveil.model.topology import Kafka

T = TypeVar("T")
_ALL_REPLICAS, _TRANSACTION = -1, 1
#: How long to wait for an answer before asking again; another broker may have the right one.
_INIT_SECONDS = 10.0
#: How long a leader waits for its replicas before it reports too few, and how long it may take to answer at
#: all. One that was deposed and does not know it reports too few; its successor is then found.
_REPLICAS_SECONDS, _LEADER_SECONDS = 5.0, 12.0
#: The broker has done nothing, or what it has done is the same when asked again.
_NOT_YET = {KafkaError.CONCURRENT_TRANSACTIONS, KafkaError.REQUEST_TIMED_OUT}
#: The broker takes a batch that it has already for a duplicate, by its sequence number.
_OTHER_LEADER = PASSING | {KafkaError.KAFKA_STORAGE_ERROR}
#: What DescribeTransactions answers about an identity that never had a producer.
_UNKNOWN_IDENTITY = 105
#: What AddPartitionsToTxn answers about a topic, and not about the producer.
_OF_TOPIC = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART}
#: What says that no transaction of this producer is open any more.
_OVER = {KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_TXN_STATE}
_ABANDON_SECONDS = 5.0
_TOO_FEW_REPLICAS = {KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND}


@dataclass(frozen=True, slots=True)
class Appended:
    """A batch that is in the log of a partition: ``count`` records from ``offset`` on, not yet committed.

    ``time`` is when the broker appended it, in epoch milliseconds by its clock; None if it does not tell.
    """

    topic: str
    partition: int
    offset: int
    count: int
    time: int | None


class Writer:
    """The transactional producer of an identity. One thread at a time may call it.

    Its methods block, and raise KafkaException; after that it must not be used any more. ``lasts`` is how
    long, in seconds, a transaction may last before the broker aborts it. ``initialise`` calls ``check``
    before each of its requests; what that raises ends it.
    """

    def __init__(
        self, kafka: Kafka, identity: str, lasts: float, check: Callable[[], object] = lambda: None
    ) -> None:
        self._identity, self._lasts, self._check = identity, lasts, check
        self._links = links(kafka)
        self._coordinator: Address | None = None
        self._producer: Producer | None = None
        self._sequences: defaultdict[TopicPartition, int] = defaultdict(int)
        self._added: set[TopicPartition] = set()
        self._deadline = Deadline(0)
        self._obstacle = ""
        #: Whether the last transaction of an earlier producer was committed; None if there was none.
        self._last_committed: bool | None = None

    def initialise(self, seconds: float) -> None:
        """Fence every earlier producer of the identity, and wait until its transaction is decided."""
        self._run(lambda link: self._succeed(link, Deadline(seconds, check=self._check)))

    def await_leaders(self, places: Collection[TopicPartition], seconds: float) -> None:
        """Wait until each of these partitions has a leader. Raises KafkaException if one has none by then."""
        self._run(lambda link: self._await_leaders(link, places, Deadline(seconds)))

    def settle(self, places: Iterable[TopicPartition], seconds: float) -> None:
        """End in these partitions what an earlier producer has left open, as its coordinator decided.

        After ``initialise`` nothing should be open. But brokers of Apache Kafka 4.3 take a partition that has
        no leader for one that was deleted, and call the transaction complete without a marker there
        (KAFKA-20734). The marker of this producer's next transaction would then end that one too, in its
        partitions alone: a state that was committed, for instance, and the aborted entry of the ledger. An
        empty transaction writes the marker that is missing.
        """
        if self._last_committed is not None:
            self._deadline = Deadline(seconds)
            self._run(lambda link: self._add(link, places))
            self._end_epoch(seconds, commit=self._last_committed)

    def begin(self, seconds: float) -> None:
        """Begin a transaction, whose records have to be written within ``seconds``."""
        self._deadline = Deadline(seconds)

    def write(self, records: Iterable[Part]) -> list[Appended]:
        """Write records in their order, by partition; they are in the log when it returns."""
        return self._run(lambda link: self._written(link, records))

    def commit(self, seconds: float) -> None:
        """Commit the transaction. Raised is also that nobody knows whether it is."""
        if self._added:
            self._run(lambda link: self._end_transaction(link, Deadline(seconds), commit=True))
            self._added.clear()

    def abort(self, seconds: float) -> None:
        """Abort the transaction: no read_committed reader will meet its records.

        What it writes after that has a new epoch. A coordinator that was not answered in time sends the
        marker of the abort again, and one that arrives late would end, in its partition alone, a transaction
        of the same epoch (KIP-890): part of what is committed then would be aborted.
        """
        self._end_epoch(seconds, commit=False)

    def _end_epoch(self, seconds: float, *, commit: bool) -> None:
        """End the transaction, and ask for a new epoch once its markers are written."""
        if self._added:
            self._run(lambda link: self._end_for_good(link, Deadline(seconds), commit=commit))

    def _run(self, work: Callable[[Link], T]) -> T:
        try:
            with self._links.borrowed() as link:
                return work(link)
        except (Refused, Unreached) as error:
            raise KafkaException(error.error) from error
        except Unanswered as error:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, str(error))) from error

    def _succeed(self, link: Link, deadline: Deadline) -> None:
        """Become the successor, and learn what has become of the last transaction before that."""
        seen: list[LastTransaction] = []
        while True:
            try:
                if (last := self._describe(link, deadline)) is not None:
                    seen.append(last)
                if self._has_new_epoch(link, deadline):
                    break
            except Unanswered as error:
                # If it was done after all, the epoch that is asked for now is the newer one.
                self._coordinator = None
                deadline.pause(str(error))
        assert self._producer is not None
        self._last_committed = was_committed(seen, self._producer)

    def _await_leaders(self, link: Link, places: Collection[TopicPartition], deadline: Deadline) -> None:
        topics = sorted({topic for topic, _ in places})
        while True:
            leaders = self._links.renewed(link, topics)
            without = [place for place in places if leaders[place.topic].get(place.partition, -1) < 0]
            if not without:
                return
            if not deadline.left:
                exists = leaders[without[0].topic]
                told = f"{without[0]} has no leader" if exists else f"topic {without[0].topic} does not exist"
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, told))
            time.sleep(min(LONGEST_PAUSE, deadline.left))

    def _describe(self, link: Link, deadline: Deadline) -> LastTransaction | None:
        """The last transaction of the identity; None if it never had a producer."""
        request = DescribeTransactionRequest(self._identity)
        while True:
            answer = self._ask_coordinator(link, deadline, request, _INIT_SECONDS)
            ((code, _, state, _, _, number, epoch, *_),) = answer.transaction_states
            if code == _UNKNOWN_IDENTITY:
                return None
            if code == KafkaError.NO_ERROR:
                return LastTransaction(Producer(number, epoch), state)
            self._again(deadline, code)

    def _has_new_epoch(self, link: Link, deadline: Deadline) -> bool:
        """Ask for a new epoch once; False if it may be asked for again, after a pause."""
        milliseconds = int(self._lasts * 1000)
        request = NewEpochRequest(self._identity, milliseconds, self._producer)
        answer = self._ask_coordinator(link, deadline, request, _INIT_SECONDS)
        if answer.error_code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            needs = f"transaction.max.timeout.ms of the brokers has to be {milliseconds} or more"
            raise self._refused(answer.error_code, needs)
        if answer.error_code != KafkaError.NO_ERROR:
            self._again(deadline, answer.error_code)
            return False
        self._producer = Producer(answer.producer_id, answer.producer_epoch)
        self._sequences.clear()
        return True

    def _renew(self, link: Link, deadline: Deadline) -> None:
        """Ask for a new epoch once the transaction that has ended is complete.

        Not before: a coordinator compares the epoch that a producer names only where no transaction is open,
        and would abort one of a newer owner.
        """
        while True:
            last = self._describe(link, deadline)
            if last is None or last.producer != self._producer:
                raise self._refused(KafkaError.INVALID_PRODUCER_EPOCH)
            if not last.is_complete:
                deadline.pause(last.state)
            elif self._has_new_epoch(link, deadline):
                return

    def _end_for_good(self, link: Link, deadline: Deadline, *, commit: bool) -> None:
        """On one connection: a coordinator that was restarted in between may have lost markers. Then this
        writer fails, and the next owner ends what they should have ended."""
        self._end_transaction(link, deadline, commit=commit)
        self._renew(link, deadline)
        self._added.clear()

    def _ask_coordinator(
        self, link: Link, deadline: Deadline, request: Any, seconds: float | None = None
    ) -> Any:
        """What the coordinator answers, whichever broker that is now."""
        while True:
            address = self._coordinator or self._find_coordinator(link, deadline)
            self._coordinator = address
            deadline.check()
            try:
                patience = deadline.left if seconds is None else seconds + link.muted(address)
                return link.ask(address, request, min(patience, deadline.left))
            except Unreached as error:
                if self._added:
                    raise
                self._coordinator = None
                self._unreached(deadline, error)

    def _find_coordinator(self, link: Link, deadline: Deadline) -> Address:
        request = FindCoordinatorRequest(self._identity, _TRANSACTION)
        while True:
            try:
                answer = link.ask_any(self._links.brokers, request)
            except Unreached as error:
                self._unreached(deadline, error)
                continue
            if answer.error_code == KafkaError.NO_ERROR:
                return answer.host, answer.port
            self._again(deadline, answer.error_code)

    def _unreached(self, deadline: Deadline, error: Unreached) -> None:
        if error.is_final:
            raise error
        deadline.pause(str(error))

    def _again(
        self, deadline: Deadline, code: int, also: Iterable[int] = (), place: str | None = None
    ) -> None:
        """Wait for another attempt. Raises Refused unless the answer promises that one may succeed.

        The answer is about ``place``, None: about the identity.
        """
        final = code not in {*OTHER_COORDINATOR, *_NOT_YET, *also}
        if final or (self._added and code == KafkaError.NOT_COORDINATOR):
            raise self._refused(code, place)
        if code in OTHER_COORDINATOR and not self._added:
            self._coordinator = None
        name = KafkaError(code).name()
        deadline.pause(name if place is None else f"{place}: {name}")

    def _refused(self, code: int, place: str | None = None) -> Refused:
        return Refused(place or f"transactional id {self._identity}", code, "Write")

    def _end_transaction(self, link: Link, deadline: Deadline, *, commit: bool) -> None:
        assert self._producer is not None
        request = EndTxnRequest(self._identity, self._producer.id, self._producer.epoch, commit)
        while True:
            answer = self._ask_coordinator(link, deadline, request)
            if answer.error_code == KafkaError.NO_ERROR:
                return
            self._again(deadline, answer.error_code)

    def _written(self, link: Link, records: Iterable[Part]) -> list[Appended]:
        try:
            return self._write(link, records)
        except Refused as error:
            if error.error.code() not in _OVER:
                self._abandon(link)
            raise

    def _abandon(self, link: Link) -> None:
        """Abort what was written, if that is possible at once.

        Left open, it would hide what others write to these partitions until it times out. If this producer
        has a successor, the coordinator refuses.
        """
        if self._added:
            with suppress(Refused, Unreached, Unanswered, KafkaException):
                self._end_transaction(link, Deadline(_ABANDON_SECONDS), commit=False)

    def _write(self, link: Link, records: Iterable[Part]) -> list[Appended]:
        appended: list[Appended] = []
        for portion in portions(records):
            placed = by_partition(portion, lambda topic: len(self._leaders(link, topic)))
            self._add(link, placed)
            appended += self._send_all(link, {place: self._batches(place, placed[place]) for place in placed})
        return appended

    def _leaders(self, link: Link, topic: str) -> dict[int, int]:
        """By partition of a topic; if it does not exist, it is waited for."""
        while True:
            try:
                if found := self._links.leaders(link, topic):
                    return found
            except Unreached as error:
                self._unreached(self._deadline, error)
                continue
            self._deadline.pause(f"topic {topic} does not exist")

    def _add(self, link: Link, places: Iterable[TopicPartition]) -> None:
        """Make partitions part of the transaction."""
        assert self._producer is not None
        new: defaultdict[str, list[int]] = defaultdict(list)
        for topic, number in places:
            if (topic, number) not in self._added:
                new[topic].append(number)
        producer, topics = self._producer, [*new.items()]
        request = AddPartitionsToTxnRequest(self._identity, producer.id, producer.epoch, topics)
        while new:
            answer = self._ask_coordinator(link, self._deadline, request)
            errors = {(code, topic) for topic, those in answer.errors for _, code in those if code}
            if not errors:
                self._added.update(
                    TopicPartition(topic, number) for topic, those in new.items() for number in those
                )
                return
            # "Not attempted" is said of the partitions beside one that was refused.
            told = {one for one in errors if one[0] != KafkaError.OPERATION_NOT_ATTEMPTED} or errors
            code, topic = max(sorted(told), key=lambda one: _is_final(one[0]))
            place = f"{self._identity}: topic {topic}" if code in _OF_TOPIC else None
            self._again(self._deadline, code, {KafkaError.UNKNOWN_TOPIC_OR_PART}, place)

    def _batches(self, place: TopicPartition, records: Sequence[Part]) -> deque[OutgoingBatch]:
        assert self._producer is not None
        made, self._sequences[place] = batches(records, self._producer, self._sequences[place])
        return made

    def _send_all(self, link: Link, waiting: dict[TopicPartition, deque[OutgoingBatch]]) -> list[Appended]:
        """Send the batches of each partition one after the other, those of different leaders at once."""
        appended: list[Appended] = []
        while waiting:
            done = self._send(link, {place: those[0] for place, those in waiting.items()})
            for one in done:
                place = TopicPartition(one.topic, one.partition)
                waiting[place].popleft()
                if not waiting[place]:
                    del waiting[place]
            appended += done
            if not done:
                self._deadline.pause(self._obstacle)
        return appended

    def _send(self, link: Link, sent: dict[TopicPartition, OutgoingBatch]) -> list[Appended]:
        """What was appended of one batch of each partition."""
        milliseconds = int(min(_REPLICAS_SECONDS, self._deadline.left) * 1000)
        requests = {
            leader: ProduceRequest(self._identity, _ALL_REPLICAS, milliseconds, topics)
            for leader, topics in self._by_leader(link, sent).items()
        }
        try:
            patience = _LEADER_SECONDS + max(map(link.muted, requests), default=0.0)
            answers = link.ask_all(requests, min(patience, self._deadline.left))
        except Unanswered:
            self._forget({topic for topic, _ in sent})
            raise
        appended: list[Appended] = []
        for answer in answers.values():
            if isinstance(answer, Unreached):
                self._leader_away(answer, {topic for topic, _ in sent})
                continue
            for topic, those in answer.topics:
                for number, code, offset, at, *_ in those:
                    if self._took(topic, code):
                        count = sent[TopicPartition(topic, number)].count
                        appended.append(Appended(topic, number, offset, count, at if at >= 0 else None))
        return appended

    def _by_leader(
        self, link: Link, sent: dict[TopicPartition, OutgoingBatch]
    ) -> dict[Address, list[tuple[str, list[tuple[int, bytes]]]]]:
        """Batches by the broker that takes them, as the protocol lists them; without those that have none."""
        found: defaultdict[Address, defaultdict[str, list[tuple[int, bytes]]]]
        found = defaultdict(lambda: defaultdict(list))
        for place, batch in sent.items():
            topic, number = place
            leader = self._links.address(self._leaders(link, topic).get(number, -1))
            if leader is None:
                self._obstacle = f"{place}, has no leader"
                self._links.forget(topic)
            else:
                found[leader][topic].append((number, batch.content))
        return {leader: [*topics.items()] for leader, topics in found.items()}

    def _leader_away(self, error: Unreached, topics: Iterable[str]) -> None:
        if error.is_final:
            raise error
        self._obstacle = str(error)
        self._forget(topics)

    def _forget(self, topics: Iterable[str]) -> None:
        """Ask for the leaders again: who does not take records may have been deposed, and not know it."""
        for topic in topics:
            self._links.forget(topic)

    def _took(self, topic: str, code: int) -> bool:
        """Whether a leader took a batch; False if it may be sent again. Raises Refused."""
        if code == KafkaError.NO_ERROR:
            return True
        self._obstacle = f"{topic}: {KafkaError(code).name()}"
        self._forget([topic])
        if code not in {*_NOT_YET, *_OTHER_LEADER, *_TOO_FEW_REPLICAS}:
            raise Refused(f"{self._identity}: topic {topic}", code, "Write")
        return False


def _is_final(code: int) -> bool:
    """Whether asking the coordinator again, for these partitions, would not help."""
    return code not in _NOT_YET | OTHER_COORDINATOR | {KafkaError.UNKNOWN_TOPIC_OR_PART}
