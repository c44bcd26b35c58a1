"""What the log says of owners that ended, and of a time in which no broker answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from eventveil.kafka.changelog import TransactionFailed
from eventveil.model.errors import EventveilError, Unsettled
from eventveil.model.records import TopicPartition
from eventveil.worker import told
from eventveil.worker.observe.observation import Observation
from eventveil.worker.told import Told
from tests.unit.support import topology

NO_LEADER = KafkaException(KafkaError(KafkaError._NOENT, "Failed to query partition leaders"))
LATER = KafkaException(KafkaError(KafkaError._TIMED_OUT, "Failed while waiting for controller"))
NOTHING_LISTENS = EventveilError("localhost:9092: nothing listens there. Check kafka.bootstrap")
DOUBT = Unsettled("topic raw", "it does not exist")


@pytest.fixture(autouse=True)
def logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """With a shorter time for others with the same reason."""
    monkeypatch.setattr(told, "_GATHER_SECONDS", 0.01)
    caplog.set_level("INFO")
    return caplog


def made(obstacle: Callable[[], EventveilError | None]) -> Told:
    return Told(obstacle, asyncio.to_thread, Observation(topology()))


def failures(one: Told, *rounds: list[tuple[int, Exception]]) -> None:
    """In each round partitions of a topic end, each with its error, and that is logged."""

    async def play() -> None:
        for ends in rounds:
            for partition, error in ends:
                one.stopped(TopicPartition("raw", partition), error)
            while one._telling is not None:
                await asyncio.sleep(0.005)

    asyncio.run(play())


def test_partitions_with_the_same_reason_are_one_line(logged: pytest.LogCaptureFixture) -> None:
    failures(made(lambda: None), [(partition, NO_LEADER) for partition in (3, 0, 1, 2, 9, 6, 7)])
    assert logged.messages == [
        "stopped processing raw, partitions 0-3, 6-7, 9; retrying: Failed to query partition leaders (_NOENT)"
    ]


def test_other_reasons_are_lines_of_their_own(logged: pytest.LogCaptureFixture) -> None:
    failed = TransactionFailed("app-aggregate-1", KafkaError(KafkaError._TIMED_OUT, "timed out"))
    failures(made(lambda: None), [(0, NO_LEADER), (1, failed), (2, DOUBT), (3, NO_LEADER)])
    assert logged.messages == [
        "stopped processing raw, partitions 0, 3; retrying: Failed to query partition leaders (_NOENT)",
        "stopped processing raw, partition 1; retrying: transaction failed: _TIMED_OUT: timed out",
        f"stopped processing raw, partition 2; retrying: {DOUBT}",
    ]


def test_a_clock_that_brokers_refuse_is_told_as_that(logged: pytest.LogCaptureFixture) -> None:
    error = KafkaError(KafkaError.INVALID_TIMESTAMP, "Broker: Invalid timestamp")
    failures(made(lambda: None), [(0, TransactionFailed("app-aggregate-0", error))])
    assert logged.messages == [
        "stopped processing raw, partition 0; retrying: the clock of this machine is ahead of the broker's"
        " by more than message.timestamp.after.max.ms of a topic, or far behind it, so the broker refused"
        " the records. Synchronize the clocks of workers and brokers: INVALID_TIMESTAMP: Broker:"
        " Invalid timestamp"
    ]


def test_a_reason_is_told_in_full_once_in_a_while(
    logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = made(lambda: None)
    failures(one, [(0, DOUBT)], [(0, DOUBT), (1, DOUBT)])
    monkeypatch.setattr(told, "_SHORT_SECONDS", 0.0)
    failures(one, [(0, DOUBT)])
    assert logged.messages == [
        f"stopped processing raw, partition 0; retrying: {DOUBT}",
        "stopped processing raw, partitions 0-1 for the same reason; retrying",
        f"stopped processing raw, partition 0; retrying: {DOUBT}",
    ]


def test_an_outage_is_told_once_with_what_is_the_matter_and_its_end(
    logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = made(lambda: NOTHING_LISTENS)
    everyone = [(partition, LATER) for partition in range(12)]
    failures(one, [(partition, NO_LEADER) for partition in range(12)], everyone, everyone)
    away = f"no broker answers, so nothing is counted or released; retrying: {NOTHING_LISTENS}"
    assert logged.messages == [away]
    assert one._observation.outage == str(NOTHING_LISTENS)
    monkeypatch.setattr(told, "_OUTAGE_SECONDS", 0.0)
    failures(one, everyone)
    assert logged.messages == [away, away]
    one.taken_over()
    one.taken_over()
    assert one._observation.outage is None
    (again,) = logged.messages[2:]
    assert again.startswith("brokers answer again after 0 s; overdue timestamps are released now")


def test_an_outage_is_no_reason_any_more_once_a_broker_lets_the_worker_in(
    logged: pytest.LogCaptureFixture,
) -> None:
    """Partitions may still wait, for their leaders or for enough replicas."""
    found: list[EventveilError | None] = [NOTHING_LISTENS, None]
    one = made(lambda: found.pop(0))
    failures(one, [(0, LATER)], [(0, DOUBT)])
    assert one._observation.outage == str(NOTHING_LISTENS), "a doubt asks no broker"
    failures(one, [(0, NO_LEADER)])
    assert one._observation.outage is None
    one.taken_over()
    assert logged.messages[-1].startswith("brokers answer again after 0 s")


def test_certificates_that_cannot_be_read_are_the_obstacle(logged: pytest.LogCaptureFixture) -> None:
    def unreadable() -> None:
        raise EventveilError("kafka.security.ca ca.pem: it cannot be used")

    failures(made(unreadable), [(0, LATER)], [(0, LATER)])
    (told,) = logged.messages
    assert told.endswith("retrying: kafka.security.ca ca.pem: it cannot be used")


def looks(one: Told, *looks: list[int]) -> None:
    """Each time, fetches of these partitions have had no answer; if of none, a fetch was answered."""

    async def play() -> None:
        for silent in looks:
            if not silent:
                one._observation.heard = time.monotonic()
            one.look([TopicPartition("raw", number) for number in silent])
            while one._telling is not None:
                await asyncio.sleep(0.005)

    asyncio.run(play())


def test_an_outage_in_which_no_owner_has_anything_to_do_is_told(
    logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(told, "_ASK_SECONDS", 0.0)
    one = made(lambda: NOTHING_LISTENS)
    one._observation.heard = time.monotonic() - 75
    looks(one, [0, 1], [0, 1], [0, 1])
    away = f"no broker answers, so nothing is counted or released; retrying: {NOTHING_LISTENS}"
    assert logged.messages == [away]
    assert one._observation.outage == str(NOTHING_LISTENS)
    looks(one, [], [])
    assert one._observation.outage is None
    (again,) = logged.messages[1:]
    assert again.startswith("brokers answer again after 75 s")


def test_a_partition_whose_fetches_alone_are_not_answered_is_told_of_once(
    logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(told, "_ASK_SECONDS", 0.0)
    one = made(lambda: None)
    looks(one, [3], [3], [3, 4], [])
    first, second, again = logged.messages
    assert first.startswith("raw, partition 3: no fetch has been answered for 60 s or more")
    assert second.startswith("raw, partition 4: ")
    assert "no leader" in second
    assert again == "fetches are answered again"
    assert one._observation.outage is None
    looks(one, [3])
    assert len(logged.messages) == 4


def test_owners_that_end_during_an_outage_do_not_end_it(logged: pytest.LogCaptureFixture) -> None:
    """Of partitions without an owner nothing is fetched, so none is silent."""
    one = made(lambda: NOTHING_LISTENS)
    looks(one, [0])
    one.look([])
    assert one._observation.outage == str(NOTHING_LISTENS)
    assert len(logged.messages) == 1


def test_a_broker_is_not_asked_at_every_look() -> None:
    asked: list[None] = []
    looks(made(lambda: asked.append(None)), *[[0]] * 5)
    assert len(asked) == 1


def test_a_doubt_asks_no_broker(logged: pytest.LogCaptureFixture) -> None:
    """It is what a broker said."""
    asked: list[None] = []
    failures(made(lambda: asked.append(None)), [(0, DOUBT)])
    assert not asked
    assert len(logged.messages) == 1
