"""What a reader asks again, what it passes over and what it believes, of a leader that follows a script."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.offset import OffsetRequest
from aiokafka.record.util import calc_crc32c
from confluent_kafka import KafkaError, KafkaException

from eventveil.kafka import reader
from eventveil.kafka.connection import Address, Unanswered, Unreached, Unsupported
from eventveil.kafka.epoch_requests import EpochEndRequest, EpochEnds
from eventveil.kafka.log import read_backwards, read_table
from eventveil.kafka.outgoing import Producer, batches
from eventveil.kafka.reader import StoredRecord, epoch_end, read_records
from eventveil.model.errors import Unsettled
from eventveil.model.reach import Reach
from eventveil.model.records import NO_EPOCH, Outgoing, TopicPartition
from eventveil.model.topology import Kafka

PLACE = TopicPartition("changelog", 0)
NOWHERE = Kafka("nowhere:1")
LEADER = ("leader", 1)
ABORT, COMMIT = 0, 1
_ATTRIBUTES_AT, _CHECKSUM_AT, _AFTER_CHECKSUM = 21, 17, 21
_CONTROL = 0x20


def batch(offset: int, *values: bytes | None, key: bytes = b"next", producer: int = 7) -> bytes:
    """Records of a transaction, as the log of a partition has them from an offset on."""
    records = [Outgoing(PLACE.topic, value, key, PLACE.partition) for value in values]
    (made,), _ = batches(records, Producer(producer, 0), 0)
    return struct.pack(">q", offset) + made.content[8:]


def marker(offset: int, kind: int, producer: int = 7) -> bytes:
    """The end of a transaction of a producer."""
    made = bytearray(batch(offset, b"\0" * 6, key=struct.pack(">hh", 0, kind), producer=producer))
    (attributes,) = struct.unpack_from(">h", made, _ATTRIBUTES_AT)
    struct.pack_into(">h", made, _ATTRIBUTES_AT, attributes | _CONTROL)
    struct.pack_into(">I", made, _CHECKSUM_AT, calc_crc32c(bytes(made[_AFTER_CHECKSUM:])))
    return bytes(made)


class Leader:
    """Links to a broker with a log: batches by their last offset, and where it ends for each question.

    ``aborted`` are producers with the first and the last offset of a transaction, ``troubles`` errors or
    error codes that come first. ``offsets`` have been fetched from, ``forgotten`` is how often the leader was
    asked for anew, ``made`` how often by a link of its own. ``epochs`` were asked for, each with that of the
    leader.
    """

    def __init__(self, *log: tuple[int, bytes], ends: list[int], aborted: Any = (), first: int = 0) -> None:
        self.log, self.ends, self.aborted, self.first = [*log], ends, [*aborted], first
        self.troubles: list[Exception | int] = []
        self.offsets: list[int] = []
        self.levels: set[int] = set()
        self.epochs: list[tuple[int, int]] = []
        self.forgotten = self.made = 0

    @contextmanager
    def borrowed(self) -> Iterator[Leader]:
        yield self

    @contextmanager
    def new(self) -> Iterator[Leader]:
        self.made += 1
        yield self

    def leaders(self, _: object, topic: str) -> dict[int, int]:
        assert topic == PLACE.topic
        return {PLACE.partition: 1}

    def address(self, broker: int) -> Address | None:
        return LEADER if broker == 1 else None

    def forget(self, _: str) -> None:
        self.forgotten += 1

    def muted(self, _: Address) -> float:
        return 0.0

    def ask(self, address: Address, request: Any, _: float) -> Any:
        assert address == LEADER
        trouble = self.troubles.pop(0) if self.troubles else 0
        if isinstance(trouble, Exception):
            raise trouble
        if isinstance(request, OffsetRequest):
            return self._offset(request, trouble)
        if isinstance(request, EpochEndRequest):
            return self._epoch(request, trouble)
        assert isinstance(request, FetchRequest)
        return self._records(request, trouble)

    def _offset(self, request: Any, code: int) -> Any:
        ((topic, ((number, which),)),) = request._topics
        self.levels.add(request._isolation_level)
        found = self.first
        if which == -1:
            found = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        return SimpleNamespace(topics=[(topic, [(number, code, -1, found)])])

    def _epoch(self, request: EpochEndRequest, code: int) -> Any:
        self.epochs.append((request.epoch, request.current))
        answer = (-1, -1) if code else (request.epoch - 1, 5)
        return SimpleNamespace(topics=[(request.place.topic, [(code, request.place.partition, *answer)])])

    def _records(self, request: Any, code: int) -> Any:
        ((topic, ((number, offset, _),)),) = request.topics
        self.offsets.append(offset)
        self.levels.add(request._isolation_level)
        there = [content for at, content in self.log if at >= offset]
        # One batch at a time, so that a reading takes several questions.
        content = there[0] if there else b""
        aborted = [(producer, begun) for producer, begun, ended in self.aborted if ended >= offset]
        row = (number, code, 99, 99, 0, aborted, -1, content)
        return SimpleNamespace(API_VERSION=11, error_code=0, topics=[(topic, [row])])


@pytest.fixture
def led(monkeypatch: pytest.MonkeyPatch) -> Callable[[Leader], Leader]:
    def lead(leader: Leader) -> Leader:
        monkeypatch.setattr(reader, "links", lambda _: leader)
        return leader

    return lead


Led = Callable[[Leader], Leader]
A, B = StoredRecord(0, b"next", b"a"), StoredRecord(1, b"next", b"b")


def test_a_partition_is_read_from_its_first_record_to_the_end_that_it_has_now(led: Led) -> None:
    one = led(Leader((1, batch(0, b"a", b"b")), (2, marker(2, COMMIT)), (3, batch(3, b"c")), ends=[3]))
    assert [*read_records(NOWHERE, PLACE)] == [A, B]
    assert one.offsets == [0, 2]
    assert one.levels == {1}


def test_what_was_aborted_is_met_by_those_who_read_uncommitted_only(led: Led) -> None:
    log = [(0, batch(0, b"a")), (1, batch(1, b"b", producer=8)), (2, marker(2, ABORT)), (3, batch(3, b"c"))]
    led(Leader(*log, ends=[4], aborted=[(7, 0, 2)]))
    assert [one.value for one in read_records(NOWHERE, PLACE)] == [b"b", b"c"]
    one = led(Leader(*log, ends=[4]))
    assert [one.value for one in read_records(NOWHERE, PLACE, isolation="read_uncommitted")] == [
        b"a",
        b"b",
        b"c",
    ]
    assert one.levels == {0}


def test_records_that_were_compacted_away_leave_a_gap_that_is_passed_over(led: Led) -> None:
    one = led(Leader((4, batch(4, b"a")), (9, batch(9, b"b")), ends=[10], first=2))
    assert [one.offset for one in read_records(NOWHERE, PLACE)] == [4, 9]
    assert one.offsets == [2, 5]


def test_a_reading_begins_at_its_offset_also_within_a_batch(led: Led) -> None:
    one = led(Leader((1, batch(0, b"a", b"b")), ends=[2]))
    assert [*read_records(NOWHERE, PLACE, start=1)] == [B]
    assert one.offsets == [1]


def test_an_empty_partition_is_not_fetched_from(led: Led) -> None:
    one = led(Leader(ends=[0]))
    assert [*read_records(NOWHERE, PLACE)] == []
    assert not one.offsets


def test_a_table_has_the_last_value_of_a_key_and_none_of_those_that_were_deleted(led: Led) -> None:
    log = [(0, batch(0, b"a", b"b")), (2, batch(2, b"c", key=b"gone")), (3, batch(3, None, key=b"gone"))]
    led(Leader(*log, ends=[4]))
    assert read_table(NOWHERE, *PLACE) == {b"next": b"b"}


def test_backwards_the_newest_block_comes_first_and_each_further_one_is_twice_as_long(led: Led) -> None:
    led(Leader(*((at, batch(at, b"%d" % at)) for at in range(7)), ends=[7]))
    found = read_backwards(NOWHERE, *PLACE, 0, 7, size=2)
    assert [(start, [one.offset for one in block]) for start, block in found] == [
        (5, [5, 6]),
        (1, [1, 2, 3, 4]),
        (0, [0]),
    ]


def test_an_end_before_the_floor_is_asked_for_again_until_the_marker_is_there(led: Led) -> None:
    one = led(Leader((0, batch(0, b"a")), (1, marker(1, COMMIT)), ends=[0, 0, 2]))
    assert read_table(NOWHERE, *PLACE, least=1) == {b"next": b"a"}
    # The leader that acknowledged the record is still the one that is asked.
    assert not one.forgotten


def test_an_end_that_stays_before_the_floor_is_sought_at_any_broker(
    led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_COMMITTING_SECONDS", 0.0)
    one = led(Leader((0, batch(0, b"a")), ends=[0, 0, 2]))
    one.log.append((1, marker(1, COMMIT)))
    assert read_table(NOWHERE, *PLACE, least=1) == {b"next": b"a"}
    assert one.forgotten == one.made == 2


def test_a_log_that_goes_on_ending_early_is_a_doubt(led: Led, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "BARRIER_SECONDS", 0.2)
    monkeypatch.setattr(reader, "_COMMITTING_SECONDS", 0.0)
    one = led(Leader(ends=[3]))
    with pytest.raises(Unsettled, match="changelog, partition 0: for 35 s no broker has shown") as doubt:
        read_table(NOWHERE, *PLACE, least=4)
    # Offsets of a topic are nobody's business, and time does not make a loss of it.
    assert "4" not in str(doubt.value)
    assert doubt.value.refusal is None
    assert one.made >= 1
    assert not one.offsets


def test_without_a_floor_the_first_end_is_believed_of_a_leader_that_was_asked_for(led: Led) -> None:
    one = led(Leader((0, batch(0, b"a")), ends=[1, 9]))
    assert read_table(NOWHERE, *PLACE) == {b"next": b"a"}
    assert one.forgotten == 1


@pytest.mark.parametrize(
    "trouble",
    [
        int(KafkaError.NOT_LEADER_FOR_PARTITION),
        int(KafkaError.OFFSET_NOT_AVAILABLE),
        Unanswered(LEADER, "silence"),
        Unreached("leader:1", "away"),
    ],
)
@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_question_is_asked_again_of_whoever_leads_then(
    led: Led, trouble: Exception | int, before: int
) -> None:
    one = led(Leader((1, batch(0, b"a", b"b")), ends=[2]))
    one.troubles = [*[0] * before, trouble, trouble]
    assert [*read_records(NOWHERE, PLACE)] == [A, B]
    # Twice, and once because it knew of no floor.
    assert one.forgotten == 3


@pytest.mark.parametrize(
    "trouble",
    [
        int(KafkaError.NOT_LEADER_FOR_PARTITION),
        int(KafkaError.UNKNOWN_LEADER_EPOCH),
        Unanswered(LEADER, "silence"),
    ],
)
def test_the_end_of_an_epoch_is_asked_again_of_whoever_leads_then(led: Led, trouble: Exception | int) -> None:
    one = led(Leader(ends=[2]))
    one.troubles = [trouble, trouble]
    assert epoch_end(NOWHERE, PLACE, 3, 4) == Reach(2, 5)
    assert {*one.epochs} == {(3, 4)}
    assert one.forgotten == 2


def test_a_leader_of_a_later_epoch_is_asked_whatever_its_epoch_is(led: Led) -> None:
    one = led(Leader(ends=[2]))
    one.troubles = [int(KafkaError.FENCED_LEADER_EPOCH)]
    assert epoch_end(NOWHERE, PLACE, 3, 4) == Reach(2, 5)
    assert one.epochs == [(3, 4), (3, NO_EPOCH)]


def test_a_broker_that_is_not_asked_for_epochs_says_nothing_of_them(led: Led) -> None:
    one = led(Leader(ends=[2]))
    one.troubles = [Unsupported("leader:1", "request")]
    assert epoch_end(NOWHERE, PLACE, 3, 4) is None
    one.troubles = [int(KafkaError.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(KafkaException, match="Describe"):
        epoch_end(NOWHERE, PLACE, 3, 4)


def test_the_question_for_an_epoch_is_written_as_brokers_read_it() -> None:
    """By the schema of OffsetForLeaderEpoch in version 3."""
    made = EpochEndRequest(TopicPartition("raw", 2), 7, 9).prepare({23: (2, 4)})
    assert made.API_VERSION == 3
    assert made.encode() == struct.pack(">ii h3s i iii", -1, 1, 3, b"raw", 1, 2, 9, 7)
    answer = struct.pack(">ii h3s i hiiq", 0, 1, 3, b"raw", 1, 0, 2, 6, 41)
    assert EpochEnds.decode(answer).topics == [("raw", [(0, 2, 6, 41)])]


@pytest.mark.parametrize(("before", "right"), [(0, "Describe"), (1, "Describe"), (2, "Read")])
def test_a_missing_right_is_told_at_once(led: Led, before: int, right: str) -> None:
    one = led(Leader((0, batch(0, b"a")), ends=[1]))
    one.troubles = [*[0] * before, int(KafkaError.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(KafkaException, match=f"topic changelog: .* no right to {right} there"):
        [*read_records(NOWHERE, PLACE)]


def test_an_offset_that_the_log_no_longer_holds_is_an_error_and_no_jump(led: Led) -> None:
    one = led(Leader((3, batch(3, b"a")), ends=[4], first=3))
    one.troubles = [0, int(KafkaError.OFFSET_OUT_OF_RANGE)]
    with pytest.raises(KafkaException) as caught:
        [*read_records(NOWHERE, PLACE, start=1)]
    assert caught.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_damaged_records_are_an_error(led: Led) -> None:
    damaged = bytearray(batch(0, b"a"))
    damaged[-1] ^= 1
    led(Leader((0, bytes(damaged)), ends=[1]))
    with pytest.raises(KafkaException, match="Invalid CRC"):
        [*read_records(NOWHERE, PLACE)]


@pytest.mark.parametrize("silent", [True, False])
def test_nothing_new_for_too_long_is_an_error(
    led: Led, monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:
    monkeypatch.setattr(reader, "_SILENCE_SECONDS", 0.1)
    one = led(Leader(ends=[1]))
    if silent:
        one.troubles = [Unanswered(LEADER, "silence")] * 1000
    with pytest.raises(KafkaException) as caught:
        [*read_records(NOWHERE, PLACE)]
    assert caught.value.args[0].code() == KafkaError._TIMED_OUT


def test_who_is_not_let_in_is_told_at_once(led: Led) -> None:
    one = led(Leader(ends=[1]))
    one.troubles = [Unreached("leader:1", "no such user", KafkaError._AUTHENTICATION)]
    with pytest.raises(KafkaException, match="no such user"):
        [*read_records(NOWHERE, PLACE)]
    assert not one.troubles
