"""Reading a partition to its end through the links that the writers have: no client, no thread, no timer.

A take-over reads a changelog partition, and the newest records of a ledger and of sinks: a few records each,
hundreds of times when a worker with many streams starts. A consumer of a client library costs far more than
that takes: threads, connections, metadata. Here a reading is three questions to the leader of the partition:
where it begins, where it ends, and what is in it.

Nothing that is read is believed before the broker has shown a log as long as it has to be
(``eventveil.kafka.barrier``). Questions change nothing, so they are asked again until there is an answer.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Collection, Iterator
from typing import Any, Literal, NamedTuple

from aiokafka.consumer.fetcher import READ_COMMITTED, READ_UNCOMMITTED, PartitionRecords
from aiokafka.errors import KafkaError as ClientError
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.structs import TopicPartition as FetchedPartition
from confluent_kafka import KafkaError, KafkaException

from eventveil.kafka.barrier import BARRIER_SECONDS, behind
from eventveil.kafka.connection import Throttled, Unanswered, Unreached
from eventveil.kafka.deadline import FIRST_PAUSE, LONGEST_PAUSE, Deadline
from eventveil.kafka.epoch_requests import EpochEndRequest
from eventveil.kafka.links import MUTED_SECONDS, PASSING, Link, Links, Refused, links
from eventveil.model.reach import Reach
from eventveil.model.records import NO_EPOCH, Headers, TopicPartition
from eventveil.model.topology import Kafka

log = logging.getLogger(__name__)

Isolation = Literal["read_committed", "read_uncommitted"]
_LEVELS = {"read_committed": READ_COMMITTED, "read_uncommitted": READ_UNCOMMITTED}
_CONSUMER, _EARLIEST, _LATEST = -1, -2, -1
#: Of a fetch; a larger record comes alone. Below the end there always is something, so nobody waits for it.
_FETCH_BYTES, _FETCH_MS = 1_048_576, 500
#: How long to wait for a broker, and how long without any answer, or anything new in it.
_ANSWER_SECONDS, _SILENCE_SECONDS = 10.0, 30.0
#: The version of an answer that tells which replica to read from.
_WITH_REPLICA = 11
#: After this an end that is too early is not that of a transaction that is just being committed, so another
#: broker may lead; after that, waiting for one that shows what was written is told.
_COMMITTING_SECONDS, _QUIET_SECONDS = 0.1, 3.0
_NOT_SHOWN = (
    "%s, partition %d: a record just written is not readable yet; the answering broker is isolated, or"
    " another producer has an open transaction"
)
_PASSING = PASSING | {
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.KAFKA_STORAGE_ERROR,
}


class StoredRecord(NamedTuple):
    """A record of a partition."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def read_records(
    kafka: Kafka,
    place: TopicPartition,
    *,
    isolation: Isolation = "read_committed",
    start: int | None = None,
    least: int = 0,
) -> Iterator[StoredRecord]:
    """The records of a partition from offset ``start`` to the end that the log has now, at least ``least``.

    None: from the first that it has. A broker that shows a shorter log is not believed, but another one
    sought; Unsettled is raised if there is none. Raises KafkaException for a broker error, a silence of 30
    seconds included. An offset that the log no longer holds is an error, never a jump.
    """
    reading = LogReader(kafka, place, isolation)
    end = reading.end(least)
    position = reading.first() if start is None else start
    silence = _silence(place)
    while position < end:
        found = reading.fetch(position)
        try:
            for record in found:
                if record.offset >= end:
                    return
                yield StoredRecord(record.offset, record.key, record.value, record.headers)
        except ClientError as error:
            raise KafkaException(KafkaError(KafkaError._BAD_MSG, f"{place}: {error}")) from error
        if found.next_fetch_offset == position:
            silence.pause("nothing was shown below the end")
        else:
            position, silence = found.next_fetch_offset, _silence(place)


def epoch_end(kafka: Kafka, place: TopicPartition, epoch: int, least: int) -> Reach | None:
    """The last epoch up to ``epoch`` that the log of a partition has, and where it ended, says the leader.

    The leader has to be in epoch ``least`` or a later one: a former leader knows less. None if no broker of
    this version tells; NO_EPOCH if the leader does not know. Raises KafkaException.
    """
    reading = LogReader(kafka, place, "read_uncommitted")
    try:
        return reading.epoch_end(epoch, least)
    except KafkaException as error:
        code = error.args[0].code()
        if code == KafkaError.UNSUPPORTED_VERSION:
            return None
        if code != KafkaError.FENCED_LEADER_EPOCH:
            raise
        return reading.epoch_end(epoch, NO_EPOCH)


def _silence(place: TopicPartition) -> Deadline:
    """Pauses between questions, until nothing new was heard for too long."""
    return Deadline(_SILENCE_SECONDS, f"{place}: no answer while reading to the end")


class LogReader:
    """Questions about one partition to the broker that leads it, whichever that is now."""

    def __init__(self, kafka: Kafka, place: TopicPartition, isolation: Isolation) -> None:
        self._kafka, self._place, self._level = kafka, place, _LEVELS[isolation]

    def forget(self) -> None:
        """Ask for the leader again."""
        links(self._kafka).forget(self._place.topic)

    def end(self, least: int) -> int:
        """Where the partition ends now for this reader, ``least`` or later. Raises Unsettled if it does not.

        What was committed a moment ago cannot be read yet: the marker is written after the answer.
        """
        if not least:
            # Who knows of no floor asks who leads, as a new client would.
            self.forget()
        began, told, pause = time.monotonic(), False, FIRST_PAUSE
        while (end := self._offset(_LATEST)) < least:
            waited = time.monotonic() - began
            if waited > BARRIER_SECONDS:
                raise behind(self._place)
            if waited > _QUIET_SECONDS and not told:
                told = True
                log.info(_NOT_SHOWN, *self._place)
            if waited > _COMMITTING_SECONDS:
                self._seek_another()
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return end

    def _seek_another(self) -> None:
        """Ask any broker who leads; a link asks the one that it is connected to, which may be cut off."""
        known = links(self._kafka)
        known.forget(self._place.topic)
        with contextlib.suppress(Unreached, Refused), known.new() as link:
            known.leaders(link, self._place.topic)

    def first(self) -> int:
        """The first offset that the partition still has."""
        return self._offset(_EARLIEST)

    def _offset(self, which: int) -> int:
        topic, number = self._place
        answer = self._ask(OffsetRequest(_CONSUMER, self._level, [(topic, [(number, which)])]), "Describe")
        ((_, ((_, _, _, offset, *_),)),) = answer.topics
        return int(offset)

    def epoch_end(self, epoch: int, current: int) -> Reach:
        """See ``epoch_end``. Raises KafkaException also if the leader is in a later epoch."""
        request = EpochEndRequest(self._place, epoch, current)
        answer = self._ask(request, "Describe", _PASSING - {KafkaError.FENCED_LEADER_EPOCH})
        ((_, ((_, _, found, end),)),) = answer.topics
        return Reach(int(found), int(end))

    def fetch(self, position: int) -> Any:
        """What is there from an offset on, as aiokafka unpacks it: at least one batch of what is there."""
        topic, number = self._place
        wanted = [(topic, [(number, position, _FETCH_BYTES)])]
        answer = self._ask(FetchRequest(_FETCH_MS, 1, _FETCH_BYTES, self._level, wanted), "Read")
        ((_, (told,)),) = answer.topics
        # A client that names a rack is told of a replica in between.
        aborted, content = told[-3 if answer.API_VERSION >= _WITH_REPLICA else -2], told[-1]
        place, records = FetchedPartition(*self._place), MemoryRecords(content or b"")
        return PartitionRecords(place, records, aborted, position, None, None, True, self._level)

    def _ask(self, request: Any, right: str, passing: Collection[int] = _PASSING) -> Any:
        """What the leader answers. Raises KafkaException, which names the ``right`` if that is missing.

        Errors that are ``passing`` are waited out.
        """
        known, silence = links(self._kafka), _silence(self._place)
        while True:
            try:
                with known.borrowed() as link:
                    answer, obstacle = self._asked(known, link, request, right, passing)
                if answer is not None:
                    return answer
            except Refused as error:
                raise KafkaException(error.error) from error
            except Unreached as error:
                # Another connection of this client can be read from.
                if error.is_final and not isinstance(error, Throttled):
                    raise KafkaException(error.error) from error
                obstacle = str(error)
            except Unanswered as error:
                obstacle = str(error)
            known.forget(self._place.topic)
            silence.pause(obstacle)

    def _asked(
        self, known: Links, link: Link, request: Any, right: str, passing: Collection[int]
    ) -> tuple[Any, str]:
        """The answer, or None and why another attempt may bring one. Raises Refused, and as links do."""
        topic, number = self._place
        leader = known.address(known.leaders(link, topic).get(number, -1))
        if leader is None:
            return None, "it has no leader"
        answer = link.ask(leader, request, _ANSWER_SECONDS + min(link.muted(leader), MUTED_SECONDS))
        at = 0 if isinstance(request, EpochEndRequest) else 1
        codes = {row[at] for _, rows in answer.topics for row in rows} - {KafkaError.NO_ERROR}
        codes |= {getattr(answer, "error_code", KafkaError.NO_ERROR)} - {KafkaError.NO_ERROR}
        if not codes:
            return answer, ""
        code = codes.pop()
        if code not in passing:
            raise Refused(f"topic {topic}", code, right)
        return None, KafkaError(code).name()
