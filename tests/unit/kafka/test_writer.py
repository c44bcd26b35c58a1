"""The writer's protocol: what it asks again, and what it never does, against brokers that follow a script."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import AddPartitionsToTxnRequest, EndTxnRequest
from aiokafka.record.default_records import DefaultRecordBatch
from confluent_kafka import KafkaError, KafkaException

from eventveil.kafka.changelog import FencedTable, OwnerClosed
from eventveil.kafka.connection import Address, Unanswered, Unreached, Unsupported
from eventveil.kafka.rights import is_lasting
from eventveil.kafka.transaction_requests import DescribeTransactionRequest, NewEpochRequest
from eventveil.kafka.writer import Appended, Writer
from eventveil.model.records import MAX_MESSAGE_BYTES, Outgoing, TopicPartition
from eventveil.model.topology import Kafka

TOPIC = "changelog"
COORDINATOR, OTHER, LEADER = ("coordinator", 1), ("other", 2), ("leader", 3)
FOUND = SimpleNamespace(error_code=0, host=COORDINATOR[0], port=COORDINATOR[1])
FOUND_OTHER = SimpleNamespace(error_code=0, host=OTHER[0], port=OTHER[1])
SILENCE = Unanswered(COORDINATOR, "silence")
AWAY = Unreached("coordinator:1", "away")


def code(number: int) -> Any:
    """The answer of a coordinator."""
    return SimpleNamespace(error_code=number)


def initialised(epoch: int) -> Any:
    return SimpleNamespace(error_code=0, producer_id=7, producer_epoch=epoch)


def described(number: int, state: str, epoch: int = -1) -> Any:
    return SimpleNamespace(transaction_states=[(number, "owner", state, 0, 0, 7, epoch, [])])


def added(number: int, partition: int = 0) -> Any:
    return SimpleNamespace(errors=[(TOPIC, [(partition, number)])])


def took(number: int, offset: int = 5, at: int = 1000) -> Any:
    return SimpleNamespace(topics=[(TOPIC, [(0, number, offset, at, 0)])])


class Brokers:
    """Links to brokers that answer by a script; ``asked`` has every question, and who was asked."""

    def __init__(self, *script: tuple[type, Any]) -> None:
        self._script = [*script]
        self.asked: list[tuple[Address | None, Any]] = []
        self.forgotten: list[str] = []
        self.brokers = {COORDINATOR, OTHER, LEADER}

    @contextmanager
    def borrowed(self) -> Iterator[Any]:
        yield self

    def ask(self, address: Address | None, request: Any, _: float = 0) -> Any:
        self.asked.append((address, request))
        kind, answer = self._script.pop(0)
        assert isinstance(request, kind), f"asked {request} where {kind} was expected"
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ask_all(self, requests: dict[Address, Any], _: float) -> dict[Address, Any]:
        return {address: self.ask(address, request) for address, request in requests.items()}

    def muted(self, _: Address) -> float:
        return 0.0

    def ask_any(self, _: set[Address], request: Any) -> Any:
        return self.ask(None, request)

    def leaders(self, _: Any, topic: str) -> dict[int, int]:
        return {0: 3}

    def address(self, broker: int) -> Address | None:
        return LEADER if broker == 3 else None

    def forget(self, topic: str) -> None:
        self.forgotten.append(topic)

    @property
    def done(self) -> bool:
        """Whether the whole script was gone through."""
        return not self._script

    def questions(self, kind: type) -> list[Any]:
        return [request for _, request in self.asked if isinstance(request, kind)]


FIND, INIT = (FindCoordinatorRequest, FOUND), (NewEpochRequest, initialised(4))
NEW = (DescribeTransactionRequest, described(105, "Dead"))


def described_as(state: str, epoch: int) -> tuple[type, Any]:
    """The last transaction is in this state."""
    return DescribeTransactionRequest, described(0, state, epoch)


ADD, TOOK = (AddPartitionsToTxnRequest, added(0)), (ProduceRequest, took(0))
RECORDS = [Outgoing(TOPIC, b"value", b"key", 0), Outgoing(TOPIC, b"another", None, 0)]


def writer(brokers: Brokers) -> Writer:
    made = Writer(Kafka("nowhere:1"), "owner", 20)
    made._links = cast(Any, brokers)
    made.initialise(1)
    made.begin(1)
    return made


def error_of(call: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        call()
    return cast(KafkaError, caught.value.args[0])


def test_a_transaction_is_one_question_after_the_other() -> None:
    brokers = Brokers(FIND, NEW, INIT, ADD, TOOK, (EndTxnRequest, code(0)))
    one = writer(brokers)
    assert one.write(RECORDS) == [Appended(TOPIC, 0, 5, 2, 1000)]
    one.commit(1)
    assert brokers.done
    assert [address for address, _ in brokers.asked] == [
        None, COORDINATOR, COORDINATOR, COORDINATOR, LEADER, COORDINATOR,
    ]  # fmt: skip


def test_a_transaction_without_records_asks_nothing() -> None:
    brokers = Brokers(FIND, NEW, INIT)
    one = writer(brokers)
    assert one.write([]) == []
    one.commit(1)


def test_every_transaction_adds_its_partitions_and_numbers_go_on() -> None:
    end = (EndTxnRequest, code(0))
    brokers = Brokers(FIND, NEW, INIT, ADD, TOOK, end, ADD, TOOK, TOOK, end)
    one = writer(brokers)
    one.write(RECORDS)
    one.commit(1)
    one.begin(1)
    one.write(RECORDS)
    one.write(RECORDS)
    one.commit(1)
    assert brokers.done
    assert [first_sequence(request) for request in brokers.questions(ProduceRequest)] == [0, 2, 4]


def first_sequence(request: ProduceRequest) -> int:
    ((_, ((_, batch),)),) = request._topics
    return int.from_bytes(batch[53:57], "big")


@pytest.mark.parametrize("lost", ["add", "produce", "commit"])
def test_what_was_asked_and_not_answered_is_not_asked_again(lost: str) -> None:
    script = [FIND, NEW, INIT, ADD, TOOK, (EndTxnRequest, code(0))]
    at = {"add": 3, "produce": 4, "commit": 5}[lost]
    brokers = Brokers(*script[:at], (script[at][0], SILENCE))
    one = writer(brokers)

    def transact() -> None:
        one.write(RECORDS)
        one.commit(1)

    assert error_of(transact).code() == KafkaError._TIMED_OUT
    assert brokers.done
    assert len(brokers.asked) == at + 1


def test_a_coordinator_that_cannot_be_reached_is_looked_for_again() -> None:
    moved = (FindCoordinatorRequest, FOUND_OTHER)
    brokers = Brokers(FIND, NEW, INIT, (AddPartitionsToTxnRequest, AWAY), moved, ADD, TOOK)
    writer(brokers).write(RECORDS)
    assert [address for address, _ in brokers.asked[-2:]] == [OTHER, LEADER]


OTHER_COORDINATOR = [
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
]


@pytest.mark.parametrize("number", OTHER_COORDINATOR)
def test_a_coordinator_that_is_none_any_more_is_looked_for_again(number: int) -> None:
    moved = (FindCoordinatorRequest, FOUND_OTHER)
    brokers = Brokers(FIND, NEW, INIT, (AddPartitionsToTxnRequest, added(number)), moved, ADD, TOOK)
    writer(brokers).write(RECORDS)
    assert [address for address, _ in brokers.asked[-2:]] == [OTHER, LEADER]


@pytest.mark.parametrize("number", OTHER_COORDINATOR)
def test_a_transaction_is_not_ended_by_another_coordinator_than_it_began_at(number: int) -> None:
    # One that was deposed may remember the transaction before, and call this one committed too.
    answers = [(EndTxnRequest, code(number)), (EndTxnRequest, code(0))]
    gone = number == KafkaError.NOT_COORDINATOR
    brokers = Brokers(FIND, NEW, INIT, ADD, TOOK, *answers[: 1 if gone else 2])
    one = writer(brokers)
    one.write(RECORDS)
    if gone:
        assert error_of(lambda: one.commit(1)).code() == number
    else:
        one.commit(1)
    assert brokers.done
    assert {address for address, _ in brokers.asked[1:]} == {COORDINATOR, LEADER}


def test_a_coordinator_that_is_away_when_the_transaction_ends_is_not_replaced() -> None:
    brokers = Brokers(FIND, NEW, INIT, ADD, TOOK, (EndTxnRequest, AWAY))
    one = writer(brokers)
    one.write(RECORDS)
    assert error_of(lambda: one.commit(1)).code() == KafkaError._TRANSPORT
    assert brokers.done


def test_partitions_that_are_added_later_go_to_the_same_coordinator() -> None:
    brokers = Brokers(FIND, NEW, INIT, ADD, TOOK, (AddPartitionsToTxnRequest, AWAY))
    one = writer(brokers)
    one.write(RECORDS)
    error_of(lambda: one.write([Outgoing(TOPIC, b"value", b"key", 1)]))
    assert brokers.done


def test_a_transaction_that_is_still_being_decided_is_waited_for() -> None:
    busy = KafkaError.CONCURRENT_TRANSACTIONS
    brokers = Brokers(
        FIND,
        NEW,
        (NewEpochRequest, code(busy)),
        NEW,
        INIT,
        (AddPartitionsToTxnRequest, added(busy)),
        ADD,
        TOOK,
    )
    writer(brokers).write(RECORDS)
    assert brokers.done


def test_an_initialisation_without_an_answer_is_asked_again_and_the_newer_epoch_counts() -> None:
    brokers = Brokers(
        FIND, NEW, (NewEpochRequest, SILENCE), FIND, NEW, (NewEpochRequest, initialised(5)), ADD, TOOK,
    )  # fmt: skip
    writer(brokers).write(RECORDS)
    (request,) = brokers.questions(AddPartitionsToTxnRequest)
    assert (request._producer_id, request._producer_epoch) == (7, 5)


@pytest.mark.parametrize(
    "number",
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.REQUEST_TIMED_OUT,
    ],
)
def test_a_batch_that_a_leader_did_not_take_is_sent_again_the_same(number: int) -> None:
    brokers = Brokers(FIND, NEW, INIT, ADD, (ProduceRequest, took(number, -1, -1)), TOOK)
    assert writer(brokers).write(RECORDS) == [Appended(TOPIC, 0, 5, 2, 1000)]
    first, second = brokers.questions(ProduceRequest)
    assert first._topics == second._topics
    # It may have been deposed without knowing it.
    assert brokers.forgotten == [TOPIC]


@pytest.mark.parametrize("at", ["init", "add", "produce", "commit"])
@pytest.mark.parametrize("number", [KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.INVALID_TXN_STATE])
def test_a_refusal_is_told_as_the_broker_told_it_and_nothing_more_is_asked(at: str, number: int) -> None:
    refusals: dict[str, tuple[type, Any]] = {
        "init": (NewEpochRequest, code(number)),
        "add": (AddPartitionsToTxnRequest, added(number)),
        "produce": (ProduceRequest, took(number, -1, -1)),
        "commit": (EndTxnRequest, code(number)),
    }
    where = [*refusals].index(at)
    brokers = Brokers(FIND, NEW, *[INIT, ADD, TOOK][:where], refusals[at])

    def transact() -> None:
        one = writer(brokers)
        one.write(RECORDS)
        one.commit(1)

    assert error_of(transact).code() == number
    assert brokers.done


@pytest.mark.parametrize("abort", [code(0), code(KafkaError.INVALID_PRODUCER_EPOCH), SILENCE, AWAY])
def test_what_a_broker_refuses_to_write_is_aborted_if_that_is_possible(abort: Any) -> None:
    """Left open, it would hide what others write until it times out."""
    refused = (ProduceRequest, took(KafkaError.TOPIC_AUTHORIZATION_FAILED, -1, -1))
    brokers = Brokers(FIND, NEW, INIT, ADD, refused, (EndTxnRequest, abort))
    one = writer(brokers)
    assert error_of(lambda: one.write(RECORDS)).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert brokers.done
    (end,) = brokers.questions(EndTxnRequest)
    assert end._transaction_result is False


def test_a_commit_that_is_refused_is_not_followed_by_an_abort() -> None:
    """A coordinator may have committed what it refuses to commit once more."""
    brokers = Brokers(FIND, NEW, INIT, ADD, TOOK, (EndTxnRequest, code(KafkaError.UNKNOWN)))
    one = writer(brokers)
    one.write(RECORDS)
    assert error_of(lambda: one.commit(1)).code() == KafkaError.UNKNOWN
    assert len(brokers.questions(EndTxnRequest)) == 1


def test_a_timeout_that_brokers_do_not_allow_is_told_with_their_setting() -> None:
    refused = (NewEpochRequest, code(KafkaError.INVALID_TRANSACTION_TIMEOUT))
    error = error_of(lambda: writer(Brokers(FIND, NEW, refused)))
    assert error.str().startswith("transaction.max.timeout.ms of the brokers has to be 20000 or more: ")
    assert is_lasting(error)


def test_a_coordinator_that_does_not_describe_transactions_is_not_asked_again() -> None:
    brokers = Brokers(FIND, (DescribeTransactionRequest, Unsupported("coordinator:1", "request")))
    error = error_of(lambda: writer(brokers))
    assert "Eventveil needs Apache Kafka 3.0 or later" in error.str()
    assert is_lasting(error)
    assert brokers.done


def test_of_several_refusals_the_one_that_is_meant_is_told() -> None:
    refused = SimpleNamespace(
        errors=[
            (TOPIC, [(0, KafkaError.OPERATION_NOT_ATTEMPTED)]),
            ("sink", [(0, KafkaError.TOPIC_AUTHORIZATION_FAILED)]),
        ]
    )
    one = writer(Brokers(FIND, NEW, INIT, (AddPartitionsToTxnRequest, refused)))
    records = [*RECORDS, Outgoing("sink", b"release", b"key", 0)]
    error = error_of(lambda: one.write(records))
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert error.str().startswith("owner: topic sink: ")
    assert "no right to Write there" in error.str()


def test_a_topic_that_does_not_come_into_existence_is_named() -> None:
    missing = (AddPartitionsToTxnRequest, added(KafkaError.UNKNOWN_TOPIC_OR_PART))
    one = writer(Brokers(FIND, NEW, INIT, *[missing] * 20))
    one.begin(0.05)
    assert f"topic {TOPIC}: UNKNOWN_TOPIC_OR_PART" in error_of(lambda: one.write(RECORDS)).str()


def test_it_gives_up_when_the_time_is_over_and_says_what_stood_in_the_way() -> None:
    again = (ProduceRequest, took(KafkaError.NOT_ENOUGH_REPLICAS, -1, -1))
    one = writer(Brokers(FIND, NEW, INIT, ADD, *[again] * 20))
    one.begin(0.05)
    error = error_of(lambda: one.write(RECORDS))
    assert error.code() == KafkaError._TIMED_OUT
    assert "NOT_ENOUGH_REPLICAS" in error.str()


def test_an_append_time_that_is_not_told_is_none() -> None:
    brokers = Brokers(FIND, NEW, INIT, ADD, (ProduceRequest, took(0, 5, -1)))
    assert writer(brokers).write(RECORDS)[0].time is None


def test_a_record_that_is_too_large_is_not_sent() -> None:
    one = writer(Brokers(FIND, NEW, INIT))
    error = error_of(lambda: one.write([Outgoing(TOPIC, bytes(MAX_MESSAGE_BYTES + 1), None, 0)]))
    assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_a_batch_holds_the_records_as_they_were_given() -> None:
    brokers = Brokers(FIND, NEW, INIT, ADD, TOOK)
    records = [
        Outgoing(TOPIC, b"value", b"key", 0, (("name", b"x"), ("none", None))),
        Outgoing(TOPIC, None, b"key", 0),
    ]
    writer(brokers).write(records)
    ((_, ((_, content),)),) = brokers.questions(ProduceRequest)[0]._topics
    batch = DefaultRecordBatch(bytearray(content))
    assert batch.validate_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 4, 0)
    assert batch.is_transactional
    found = [(record.key, record.value, tuple(record.headers)) for record in batch]
    assert found == [(record.key, record.value, tuple(record.headers)) for record in records]


def test_after_an_abort_it_writes_in_a_new_epoch_that_it_asks_for_by_the_last_one() -> None:
    brokers = Brokers(
        FIND, NEW, INIT, ADD, TOOK, (EndTxnRequest, code(0)),
        described_as("PrepareAbort", 4), described_as("CompleteAbort", 4),
        (NewEpochRequest, code(KafkaError.CONCURRENT_TRANSACTIONS)), described_as("CompleteAbort", 4),
        (NewEpochRequest, initialised(5)), ADD, TOOK,
    )  # fmt: skip
    one = writer(brokers)
    one.write(RECORDS)
    one.abort(1)
    one.begin(1)
    one.write(RECORDS)
    assert brokers.done
    named = [request._fields[2:] for request in brokers.questions(NewEpochRequest)]
    assert named == [(-1, -1), (7, 4), (7, 4)]
    sent = [request._topics[0][1][0][1] for request in brokers.questions(ProduceRequest)]
    batches = [DefaultRecordBatch(bytearray(content)) for content in sent]
    assert [(one.producer_epoch, one.base_sequence) for one in batches] == [(4, 0), (5, 0)]


def test_a_transaction_without_records_leaves_nothing_to_abort() -> None:
    brokers = Brokers(FIND, NEW, INIT)
    writer(brokers).abort(1)
    assert brokers.done


@pytest.mark.parametrize("decided", ["Commit", "Abort"])
def test_what_a_predecessor_left_open_ends_as_its_coordinator_decided(decided: str) -> None:
    brokers = Brokers(
        FIND, described_as(f"Complete{decided}", 3), INIT, ADD, (EndTxnRequest, code(0)),
        described_as(f"Complete{decided}", 4), (NewEpochRequest, initialised(5)),
    )  # fmt: skip
    one = writer(brokers)
    one.settle([TopicPartition(TOPIC, 0)], 1)
    assert brokers.done
    assert [one._transaction_result for one in brokers.questions(EndTxnRequest)] == [decided == "Commit"]


def test_an_identity_that_never_had_a_producer_has_left_nothing_open() -> None:
    brokers = Brokers(FIND, NEW, INIT)
    writer(brokers).settle([TopicPartition(TOPIC, 0)], 1)
    assert brokers.done


def test_a_predecessor_is_asked_about_again_while_its_coordinator_moves() -> None:
    moving = (DescribeTransactionRequest, described(KafkaError.NOT_COORDINATOR, ""))
    silent = (DescribeTransactionRequest, SILENCE)
    brokers = Brokers(FIND, moving, FIND, silent, FIND, NEW, INIT)
    writer(brokers)
    assert brokers.done


@pytest.mark.parametrize("lost", [SILENCE, AWAY])
@pytest.mark.parametrize("at", ["describe", "epoch"])
def test_a_writer_fails_where_its_coordinator_goes_away_before_an_abort_is_complete(
    lost: Exception, at: str
) -> None:
    script = [described_as("CompleteAbort", 4), (NewEpochRequest, lost)]
    if at == "describe":
        script = [(DescribeTransactionRequest, lost)]
    brokers = Brokers(FIND, NEW, INIT, ADD, TOOK, (EndTxnRequest, code(0)), *script)
    one = writer(brokers)
    one.write(RECORDS)
    assert error_of(lambda: one.abort(1)).code() in {KafkaError._TIMED_OUT, KafkaError._TRANSPORT}
    assert brokers.done


def test_a_writer_that_has_a_successor_asks_for_no_epoch_after_an_abort() -> None:
    brokers = Brokers(FIND, NEW, INIT, ADD, TOOK, (EndTxnRequest, code(0)), described_as("Ongoing", 5))
    one = writer(brokers)
    one.write(RECORDS)
    assert error_of(lambda: one.abort(1)).code() == KafkaError.INVALID_PRODUCER_EPOCH
    assert brokers.done


def test_nobody_is_fenced_while_a_partition_has_no_leader() -> None:
    """A marker that ends something there could be lost, and with it what the coordinator knows."""
    elections = [{0: -1}, {}, {0: 3}]

    class Electing(Brokers):
        def renewed(self, _: Any, topics: Collection[str]) -> dict[str, dict[int, int]]:
            return {topic: elections.pop(0) for topic in topics}

    made = Writer(Kafka("nowhere:1"), "owner", 20)
    made._links = cast(Any, Electing())
    made.await_leaders([TopicPartition(TOPIC, 0)], 10)
    assert elections == []
    elections += 100 * [{0: -1}]
    found = error_of(lambda: made.await_leaders([TopicPartition(TOPIC, 0)], 0.2))
    assert found.code() == KafkaError.LEADER_NOT_AVAILABLE
    assert found.str() == f"{TOPIC}, partition 0 has no leader"


@pytest.mark.parametrize("during", [DescribeTransactionRequest, NewEpochRequest])
def test_a_take_over_that_is_given_up_while_it_waits_fences_nobody(
    during: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others may own the partition by the time that the coordinator answers."""
    table = FencedTable(Kafka("nowhere:1"), "owner", TOPIC, 0)

    class Revoking(Brokers):
        def ask(self, address: Address | None, request: Any, seconds: float = 0) -> Any:
            if isinstance(request, during):
                table.close()
            return super().ask(address, request, seconds)

    silent: list[tuple[type, Any]] = [(NewEpochRequest, SILENCE), FIND, NEW, INIT]
    brokers = Revoking(FIND, NEW, *(silent if during is NewEpochRequest else [INIT]))
    monkeypatch.setattr("eventveil.kafka.writer.links", lambda _: brokers)
    with pytest.raises(OwnerClosed):
        table.fence()
    assert [type(request) for _, request in brokers.asked][-1] is during
