"""What aiokafka's fetcher notes of a partition stops neither the fetcher nor the worker."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from aiokafka import client
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer.fetcher import READ_COMMITTED, Fetcher, FetchResult, PartitionRecords
from aiokafka.consumer.subscription_state import TopicPartitionState
from aiokafka.errors import (
    InvalidSessionTimeoutError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    for_code,
)
from aiokafka.protocol.metadata import MetadataRequest, MetadataRequest_v5
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from eventveil.model.errors import EventveilError
from eventveil.model.records import NO_APPEND_TIME, TopicPartition
from eventveil.model.topology import Kafka
from eventveil.worker.faust import driver
from eventveil.worker.faust.driver import (
    LONGEST_MEMBER,
    ChunkConsumerThread,
    before_each_request,
    keep_first_errors,
)
from tests.kafka.addresses import behind_a_dead_address

PLACE = TopicPartition("raw", 2)


class Subscriptions:
    reassignment_in_progress = False

    def is_assigned(self, _: TopicPartition) -> bool:
        return True

    @contextmanager
    def fetch_context(self) -> Iterator[None]:
        yield


@pytest.fixture
def fetcher() -> Any:
    made = Fetcher.__new__(Fetcher)
    made._records, made._prefetch_backoff = OrderedDict(), 0.1
    made._subscriptions, made._fetch_waiters = Subscriptions(), set()
    made._wait_consume_future = made._wait_empty_future = None
    made._closed = True
    return made


def test_without_care_a_second_error_of_a_partition_ends_the_fetcher(fetcher: Any) -> None:
    fetcher._set_error(PLACE, NoOffsetForPartitionError(PLACE))
    with pytest.raises(AssertionError):
        fetcher._set_error(PLACE, NoOffsetForPartitionError(PLACE))


def test_the_last_answer_is_that_of_a_partition_of_which_something_is_asked(fetcher: Any) -> None:
    thread = ChunkConsumerThread.__new__(ChunkConsumerThread)
    thread._consumer = None
    assert thread.answer_of(PLACE) is None
    state = _state_of_a_partition()
    assignment = SimpleNamespace(tps={PLACE}, state_value=lambda _: state)
    subscription = SimpleNamespace(subscription=SimpleNamespace(assignment=assignment))
    thread._consumer = SimpleNamespace(_subscription=subscription, _fetcher=fetcher)
    assert thread.answer_of(PLACE) == 0
    state.timestamp = 1_795_976_899_000
    assert thread.answer_of(PLACE) == 1_795_976_899_000
    assert thread.answer_of(TopicPartition("raw", 3)) is None
    state._paused = True
    assert thread.answer_of(PLACE) is None
    state._paused = False
    fetcher._records[PLACE] = object()
    assert thread.answer_of(PLACE) is None


def _state_of_a_partition() -> Any:
    async def make() -> Any:
        # It makes a future.
        return TopicPartitionState(None)

    return asyncio.run(make())


def test_of_two_errors_of_a_partition_the_first_is_kept(fetcher: Any) -> None:
    keep_first_errors(fetcher)
    first = NoOffsetForPartitionError(PLACE)
    fetcher._set_error(PLACE, first)
    fetcher._set_error(PLACE, OffsetOutOfRangeError({PLACE: 7}))
    assert fetcher._records[PLACE]._error is first
    other = TopicPartition("raw", 3)
    fetcher._set_error(other, first)
    assert set(fetcher._records) == {PLACE, other}


@pytest.mark.parametrize(
    ("error", "lost"),
    [(NoOffsetForPartitionError(PLACE), set()), (OffsetOutOfRangeError({PLACE: 7}), {PLACE})],
)
def test_an_error_of_before_the_partition_was_moved_is_dropped_and_only_a_lost_offset_is_told(
    fetcher: Any, error: Exception, lost: set[TopicPartition]
) -> None:
    state = SimpleNamespace(position=5, has_valid_position=True)
    assignment = SimpleNamespace(tps={PLACE}, state_value=lambda _: state)
    subscription = SimpleNamespace(subscription=SimpleNamespace(assignment=assignment))
    consumer: Any = SimpleNamespace(_fetcher=fetcher, _subscription=subscription)
    thread = ChunkConsumerThread.__new__(ChunkConsumerThread)
    thread._consumer = None
    fetcher._set_error(PLACE, error)
    assert asyncio.run(thread._drain(consumer, {PLACE: 1})) == []
    assert not fetcher._records
    assert thread.out_of_range() == lost


class AskedConnection:
    """A connection of aiokafka that keeps what is asked through it."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def send(self, request: Any) -> Any:
        self.asked.append(request.build(MetadataRequest_v5))
        return SimpleNamespace(brokers=[])


def test_a_question_for_topics_creates_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers create what is missing if they are asked so, which aiokafka does."""
    connection = AskedConnection()

    async def ask() -> None:
        asking = AIOKafkaClient()
        monkeypatch.setattr(asking.cluster, "brokers", lambda: [SimpleNamespace(nodeId=1)])
        monkeypatch.setattr(asking, "_get_conn", lambda _: asyncio.sleep(0, connection))
        for topics in ({"deleted"}, set[str]()):
            await asking._metadata_update(asking.cluster, topics)

    monkeypatch.setattr(client, "MetadataRequest", MetadataRequest)
    asyncio.run(ask())
    driver.create_no_topics()
    asyncio.run(ask())
    told = [(one.topics, one.allow_auto_topic_creation) for one in connection.asked]
    assert told == [(["deleted"], True), (None, True), (["deleted"], False), (None, False)]


def joined_as(monkeypatch: pytest.MonkeyPatch, member: str | None, *topics: str) -> Any:
    """The name under which aiokafka joins the group of a worker that reads these topics."""
    asked: dict[str, Any] = {}
    monkeypatch.setattr(driver.fetches, "keep_bytes", lambda: None)
    monkeypatch.setattr(driver.frames, "read_whole_answers", lambda: None)
    monkeypatch.setattr(driver.aiokafka, "AIOKafkaConsumer", lambda **settings: asked.update(settings))
    delivery = SimpleNamespace(
        kafka=Kafka("localhost:9092"), group="shop", session_timeout=30.0, member=member, topics=topics,
        own_timed=(),
    )  # fmt: skip
    thread = ChunkConsumerThread.__new__(ChunkConsumerThread)
    thread.thread_loop = Mock()
    thread._create_worker_consumer(SimpleNamespace(delivery=delivery))
    return asked["group_instance_id"]


def test_a_named_worker_that_reads_other_topics_is_another_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers give a member that comes back its old partitions, whatever it reads now (KAFKA-12759)."""
    before = joined_as(monkeypatch, "a", "orders", "views")
    assert joined_as(monkeypatch, "a", "views", "orders") == before
    assert (
        len({before, joined_as(monkeypatch, "a", "orders"), joined_as(monkeypatch, "a", "ordersviews")}) == 3
    )
    assert joined_as(monkeypatch, "b", "orders", "views") != before
    # It is the same after an update of the program, too.
    assert before == "a-a1e99c00"


def test_the_longest_name_of_a_worker_is_one_that_brokers_take(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(joined_as(monkeypatch, "x" * LONGEST_MEMBER, "orders")) == 249


def test_a_worker_without_a_name_is_a_new_member_at_each_start(monkeypatch: pytest.MonkeyPatch) -> None:
    assert joined_as(monkeypatch, None, "orders") is None


GATHERED = 1024 * 1024


@pytest.mark.parametrize(
    ("quiet", "stirred", "asked", "later"),
    [
        (10.0, 1.0, (GATHERED, 1000), (GATHERED, 1000)),
        # A fetch ends before something is due, whenever it is asked for.
        (0.25, 1.0, (GATHERED, 200), (GATHERED, 75)),
        # One more ends right before that.
        (0.1875, 1.0, (GATHERED, 137), (GATHERED, 57)),
        # Something is due, or was.
        (0.0625, 1.0, (GATHERED, 57), (1, 250)),
        (0.0234375, 1.0, (1, 250), (1, 250)),
        (-inf, 1.0, (1, 250), (1, 250)),
        # Nothing has come for a while: the first record is not kept waiting.
        (10.0, 6.0, (1, 1000), (1, 1000)),
    ],
)
def test_brokers_gather_records_while_nothing_is_due(
    quiet: float, stirred: float, asked: Any, later: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(driver, "time", SimpleNamespace(monotonic=lambda: now[0]))
    thread = ChunkConsumerThread.__new__(ChunkConsumerThread)
    requests: list[tuple[int, int]] = []
    fetcher: Any = SimpleNamespace(_records={})
    fetcher._get_actions_per_node = lambda _: requests.append(
        (fetcher._fetch_min_bytes, fetcher._fetch_max_wait_ms)
    )
    before_each_request(fetcher, thread._be_patient)
    thread.stir()
    now[0] += stirred
    thread.let_gather(quiet)
    fetcher._get_actions_per_node("assignment")
    now[0] += 0.125
    fetcher._get_actions_per_node("assignment")
    assert requests == [asked, later]


@pytest.mark.parametrize(
    ("records", "quiet", "asked"),
    [
        # Few records are fetched once, right before something is due; of more most are there sooner.
        (2_000, 0.5, 495),
        (6_000, 0.5, 450),
        (6_000, 0.25, 245),
        # How long nothing is due does not matter beyond the longest fetch.
        (2_000, 10.0, 1000),
        (2_200, 1.0625, 1000),
    ],
)
def test_few_records_are_fetched_once_before_something_is_due(
    records: int, quiet: float, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(driver, "time", SimpleNamespace(monotonic=lambda: now[0]))
    thread = ChunkConsumerThread.__new__(ChunkConsumerThread)
    thread._counted_since, thread._came = now[0], records
    now[0] += 1.0
    thread.stir()
    thread.let_gather(quiet)
    fetcher: Any = SimpleNamespace(_records={})
    thread._be_patient(fetcher)
    assert (fetcher._fetch_min_bytes, fetcher._fetch_max_wait_ms) == (GATHERED, asked)


def test_nothing_is_gathered_for_long_while_records_have_still_to_be_counted() -> None:
    thread = ChunkConsumerThread.__new__(ChunkConsumerThread)
    thread.stir()
    thread.let_gather(10.0)
    fetcher: Any = SimpleNamespace(_records={PLACE: "records"})
    thread._be_patient(fetcher)
    assert (fetcher._fetch_min_bytes, fetcher._fetch_max_wait_ms) == (GATHERED, 250)


class Waiting(ChunkConsumerThread):
    """A thread whose consumer gives what is put into ``chunks``, to those who want a partition."""

    def __init__(self, fetcher: Any) -> None:
        fetcher._loop, fetcher._closed = asyncio.get_running_loop(), False
        self.thread_loop = fetcher._loop
        self._consumer: Any = SimpleNamespace(
            _fetcher=fetcher, _closed=False, assignment=set, paused=set, pause=dict, resume=dict
        )
        self.chunks: list[Any] = []

    def _ensure_consumer(self) -> Any:
        return self._consumer

    async def _drain(self, consumer: Any, wanted: Any) -> list[Any]:
        return [chunk for chunk in self.chunks if chunk in wanted]


async def test_a_wait_ends_when_a_partition_is_wanted_again_of_which_records_are_there(fetcher: Any) -> None:
    thread, wanted = Waiting(fetcher), dict[TopicPartition, int]()
    thread.chunks.append(PLACE)
    fetching = asyncio.create_task(thread.fetch(lambda: wanted, (), 30.0))
    await asyncio.sleep(0.05)
    wanted[PLACE] = 1
    thread.wake(PLACE)
    await asyncio.sleep(0.05)
    assert not fetching.done()  # nothing is there
    fetcher._records[PLACE] = "records"
    thread.wake(PLACE)
    async with asyncio.timeout(10):
        assert await fetching == [PLACE]
    assert not fetcher._fetch_waiters


async def test_a_wait_ends_when_times_have_to_be_told_anew(fetcher: Any) -> None:
    thread = Waiting(fetcher)
    fetching = asyncio.create_task(thread.fetch(dict, (), 30.0))
    await asyncio.sleep(0.05)
    thread.wake()
    async with asyncio.timeout(10):
        assert await fetching == []


def test_records_come_with_their_own_times_only_in_topics_that_are_asked_for_them() -> None:
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, 0, 0, 10**6)
    for offset, time in enumerate((7, -1, 5)):
        builder.append(offset, time, None, b"v", [])
    data = bytes(builder.build())

    def own_times(*asked: str) -> list[int]:
        thread = ChunkConsumerThread.__new__(ChunkConsumerThread)
        thread._own_timed = asked
        source = PartitionRecords(PLACE, MemoryRecords(data), [], 0, None, None, True, READ_COMMITTED)
        fetched = FetchResult.__new__(FetchResult)
        fetched._partition_records = source

        async def fetched_records(*_: Any, **__: Any) -> dict[TopicPartition, list[Any]]:
            return {PLACE: [*source]}

        made: Any = SimpleNamespace(_records={PLACE: fetched}, fetched_records=fetched_records)
        block = asyncio.run(thread._block(made, PLACE))
        chunk = driver._as_chunk(PLACE, 1, 0, block, 3)
        assert [*chunk.append_times] == [NO_APPEND_TIME] * 3
        return [*chunk.own_times]

    assert own_times("other", "raw") == [7, -1, 5]
    assert own_times("other") == []


def test_a_worker_whose_name_another_has_taken_is_told_so() -> None:
    """aiokafka stops with the representation of what a broker answered."""
    assert "another worker has started with the same --member" in str(KafkaError(repr(for_code(82)())))


def test_a_worker_for_which_the_group_has_no_room_is_told_so() -> None:
    assert "(group.max.size); run fewer workers" in str(KafkaError(repr(for_code(81)())))


def test_a_session_timeout_that_brokers_refuse_is_told_with_their_setting_and_the_option() -> None:
    def refused() -> None:
        raise InvalidSessionTimeoutError

    thread = Committing(None)
    thread._consumer = SimpleNamespace(
        _closed=False,
        _fetcher=SimpleNamespace(_closed=False, error_future=Mock(done=lambda: False)),
        _coordinator=SimpleNamespace(check_errors=refused),
    )
    told = r"\(10000 ms, or 30000 ms with --member\)\. .* group\.min\.session\.timeout\.ms"
    with running(thread), pytest.raises(EventveilError, match=told):
        asyncio.run(thread.check())


class Committing(ChunkConsumerThread):
    """A thread with a loop of its own, whose consumer commits by ``commit`` and has one partition."""

    def __init__(self, commit: Any) -> None:
        self.log: Any = logging.getLogger("committing")
        self.thread_loop = asyncio.new_event_loop()
        self.moved: list[int] = []
        self._consumer: Any = SimpleNamespace(
            commit=commit,
            assignment=lambda: {PLACE},
            seek=lambda _, offset: self.moved.append(offset),
            _subscription=SimpleNamespace(subscription=None),
            _closed=True,
        )

    def _ensure_consumer(self) -> Any:
        return self._consumer


@contextmanager
def running(thread: Committing) -> Iterator[Committing]:
    runs = Thread(target=thread.thread_loop.run_forever)
    runs.start()
    try:
        yield thread
    finally:
        thread.thread_loop.call_soon_threadsafe(thread.thread_loop.stop)
        runs.join()
        left = asyncio.all_tasks(thread.thread_loop)
        for task in left:
            task.cancel()
        if left:
            thread.thread_loop.run_until_complete(asyncio.wait(left))
        thread.thread_loop.close()


def test_a_commit_without_an_answer_holds_up_neither_take_overs_nor_the_check(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """aiokafka commits for as long as the group has no coordinator."""
    begun: list[Any] = []

    async def commit(offsets: Any) -> None:
        begun.append(offsets)
        await asyncio.Future()

    async def scenario(thread: Committing) -> None:
        async with asyncio.timeout(60):
            for offset in range(5):
                thread.commit_progress({PLACE: offset})
                await thread.go_to(PLACE, offset)
                await thread.check()

    caplog.set_level("INFO")
    with running(Committing(commit)) as thread:
        asyncio.run(scenario(thread))
    assert thread.moved == [0, 1, 2, 3, 4]
    assert begun == [{PLACE: 0}]
    assert [record.getMessage() for record in caplog.records] == [
        "offsets not committed to the consumer group, trying again: "
        "the group's coordinator has not answered yet"
    ]


def test_a_thread_that_ends_is_an_error_for_those_who_wait_for_it_and_no_cancellation() -> None:
    thread = Committing(None)

    async def scenario() -> None:
        waiting = asyncio.create_task(thread._in_thread(asyncio.sleep(1000)))
        given_up = asyncio.create_task(thread._in_thread(asyncio.sleep(1000)))
        await asyncio.sleep(0.05)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        thread.thread_loop.call_soon_threadsafe(end)
        with pytest.raises(RuntimeError, match="has ended"):
            await waiting

    def end() -> None:
        # As mode does when the thread ends.
        for task in asyncio.all_tasks(thread.thread_loop):
            task.cancel()

    with running(thread):
        asyncio.run(scenario())


def test_a_commit_that_fails_is_told_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Exception | None] = [KafkaError("away"), ValueError("odd"), None, KafkaError("again")]

    async def commit(_: Any) -> None:
        if (answer := answers.pop(0)) is not None:
            raise answer

    async def scenario(thread: Committing) -> None:
        async with asyncio.timeout(60):
            while answers:
                thread.commit_progress({PLACE: 1})
                assert thread._committing is not None
                await asyncio.wrap_future(thread._committing)

    caplog.set_level("INFO")
    with running(Committing(commit)) as thread:
        asyncio.run(scenario(thread))
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "away" in told[0]
    assert "again" in told[1].rpartition("trying again")[2]


def test_a_thread_that_does_not_move_a_partition_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "_SLOW_SECONDS", 0.01)
    moves = Event()

    async def scenario(thread: Committing) -> None:
        thread.thread_loop.call_soon_threadsafe(moves.wait)
        moving = asyncio.create_task(thread.go_to(PLACE, 7))
        async with asyncio.timeout(60):
            while not caplog.records:
                await asyncio.sleep(0.01)
            moves.set()
            await moving

    try:
        with running(Committing(None)) as thread:
            asyncio.run(scenario(thread))
    finally:
        moves.set()
    assert thread.moved == [7]
    assert "raw, partition 2: the consumer has not moved to its offset" in caplog.text


def test_of_a_name_with_several_addresses_aiokafka_is_connected_to_one_that_answers() -> None:
    async def scenario(port: int) -> None:
        loop = asyncio.get_running_loop()
        driver.try_all_addresses(loop)
        async with asyncio.timeout(60):
            transport, _ = await loop.create_connection(asyncio.Protocol, "broker.test", port)
        transport.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with behind_a_dead_address("broker.test", port):
            asyncio.run(scenario(port))
