"""Faust's Kafka driver with a chunk as the unit that travels, read committed, positioned by the worker.

Stock Faust creates two asyncio tasks per record. Here one message stands for the records of one topic that
one fetch returned, a chunk for each partition; agents, group, assignment and rebalancing stay Faust's. What
differs on purpose:

* every topic is read committed, so that an aborted partial count is never merged;
* partitions are delivered only once the worker owns them, from the offset that its own state says; the
  group's committed offsets are for lag tools;
* an offset that the log does not hold is an error, never a reset.

Positions are read in the thread of the consumer, with no await between them and the records, so that a chunk
says truly from where to where it reaches. The worker refuses a chunk that does not begin where it is.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from math import inf
from typing import Any, Protocol, TypeVar

import aiokafka
import faust
from aiokafka import client
from aiokafka.consumer.fetcher import FetchResult
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import (
    BrokerResponseError,
    InvalidSessionTimeoutError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    kafka_errors,
)
from aiokafka.protocol.metadata import MetadataRequest
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, ConsumerMessage

from eventveil.kafka.settings import aiokafka as aiokafka_settings
from eventveil.model.errors import EventveilError
from eventveil.model.records import MAX_MESSAGE_BYTES, NO_EPOCH, Chunk, TopicPartition
from eventveil.model.topology import Kafka
from eventveil.worker.faust import fetches, frames
from eventveil.worker.faust.fetches import Block

#: A member of the group that is not heard of for this long has left it. One with a name of its own may come
#: back until then, and gets its partitions again.
SESSION_SECONDS, STATIC_SECONDS = 10.0, 30.0
#: For how long a fetch is waited for at once, and how often one looks whether a partition is owned yet.
_WAIT_SECONDS, _LOOK_SECONDS = 1.0, 0.01
#: A worker without partitions need not hurry: it first has to take over what it is assigned.
_STANDBY_SECONDS = 0.1
#: Of all partitions, unless a single batch has more. Larger ones leave the caches, and take no less time.
_FETCH_BYTES = 8 * 1024 * 1024
#: For how long a broker may keep a fetch that finds nothing. A partition that is not in a fetch, because its
#: records are being counted or it was moved to another offset, waits for the end of that; so the longer time
#: is for when nothing has come or moved for some seconds. The first record ends it at once.
_ASK_MS, _ASK_AT_REST_MS, _REST_SECONDS = 250, 1000, 5.0
#: While nothing is due, a broker gathers up to this many bytes, for at most this long: each answer costs a
#: worker milliseconds, however few records it has. If fetched records still wait to be counted, it gathers no
#: longer than a fetch that finds nothing lasts. Gathering ends this long before something is due, and again
#: just before; the first is skipped where so few records come that they are counted in a millisecond or two.
#: From then on each record ends a fetch at once, until what was due is released. If less than the least time
#: is left, nothing is gathered.
_GATHERED_BYTES, _GATHER_MS, _BEFORE_DUE_MS, _LEAST_MS, _FEW = 1024 * 1024, 1000, (50, 5), 20, 2_000
#: How long records are counted, to know how many come.
_PACE_SECONDS = 1.0
_UNFIT_SESSION = (
    f"the brokers refuse this worker's session timeout ({1000 * SESSION_SECONDS:.0f} ms, or"
    f" {1000 * STATIC_SECONDS:.0f} ms with --member). It must be between group.min.session.timeout.ms and"
    " group.max.session.timeout.ms of the brokers. Change these settings, or add or remove --member"
)
#: What RFC 8305 proposes.
_NEXT_ADDRESS_SECONDS = 0.25
#: To move a partition takes no request. If it takes longer than this, the consumer's thread is held up.
_SLOW_SECONDS = 5.0

T = TypeVar("T")


#: Brokers take group.instance.id up to 249 characters; what stands for the topics takes the others.
_TOPICS_DIGITS = 8
LONGEST_MEMBER = 249 - len("-") - _TOPICS_DIGITS


def instance_id(member: str, topics: Iterable[str]) -> str:
    """The ``group.instance.id`` of a member that reads these topics, in any order.

    The topics are part of it. Where a static member comes back to a group that is stable, brokers give it
    its old assignment without a look at its topics (KAFKA-12759): nobody would own those that are new, and
    those that are gone would stop aiokafka. Under another id it is another member, and partitions are given
    out anew.
    """
    # Names of topics have no line breaks.
    digest = hashlib.sha256("\n".join(sorted(topics)).encode()).hexdigest()
    return f"{member}-{digest[:_TOPICS_DIGITS]}"


class FencedInstanceIdError(BrokerResponseError):  # type: ignore[misc]
    """A newer member has taken the ``group.instance.id`` of this one.

    aiokafka has no name for this answer of a broker, and would stop with UnknownError.
    """

    errno, message = 82, "FENCED_INSTANCE_ID"
    description = "Another member has joined the group with the same group.instance.id."

    def __repr__(self) -> str:
        """What aiokafka raises has this as its text."""
        return "another worker has started with the same --member; give each worker a name of its own"


class GroupMaxSizeReachedError(BrokerResponseError):  # type: ignore[misc]
    """The group has as many members as the brokers allow; for aiokafka it is the same as above."""

    errno, message = 81, "GROUP_MAX_SIZE_REACHED"
    description = "The consumer group has reached its maximum size."

    def __repr__(self) -> str:
        """What aiokafka raises has this as its text."""
        return (
            "the consumer group has as many members as the brokers allow (group.max.size); run fewer workers,"
            " or raise that"
        )


for _unknown in (FencedInstanceIdError, GroupMaxSizeReachedError):
    kafka_errors.setdefault(_unknown.errno, _unknown)

#: Tells which partitions are to be fetched from, and the token of the owner of each.
Wanted = Callable[[], Mapping[TopicPartition, int]]


class Delivery(Protocol):
    """The worker, as the driver sees it. Called in the event loop of the app."""

    kafka: Kafka
    group: str
    session_timeout: float
    #: Its name in the group, which survives a restart; None: each start is a new member.
    member: str | None
    #: All that it reads.
    topics: Collection[str]
    #: Those of them whose records are to come with their own times.
    own_timed: Collection[str]

    def assigned(self, partitions: set[TopicPartition]) -> None:
        """These partitions, and no others, are this worker's from now on; must return at once."""

    def revoked(self) -> None:
        """No partition is this worker's any more; must return at once."""

    def wanted(self) -> Mapping[TopicPartition, int]:
        """The partitions to fetch from, and the token of the owner of each; from any thread."""

    def resting(self) -> Collection[TopicPartition]:
        """The partitions of which nothing is to be fetched for a moment."""

    def rest_seconds(self) -> float:
        """For how long these may rest, should ``ChunkConsumerThread.wake`` not be called before."""

    def quiet_seconds(self) -> float:
        """For how long nothing will be due that has to be closed or released; 0 or less: something is."""

    def delivered(self, partition: TopicPartition, records: int) -> None:
        """A chunk with this number of records of this partition is on its way to an agent."""

    def out_of_range(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions do not hold the offset that is to be read next."""

    def failed(self, error: BaseException) -> None:
        """Nothing more can be delivered."""


class ChunkSchema(faust.Schema[None, list[Chunk]]):
    """Hands the agent the chunks as they are."""

    def loads_key(self, app: Any, message: Any, **_: Any) -> None:
        """Chunks have no key."""

    def loads_value(self, app: Any, message: Any, **_: Any) -> list[Chunk]:
        """The chunks that the driver put into the message."""
        chunks: list[Chunk] = message.value
        return chunks


class ChunkConsumerThread(driver.AIOKafkaConsumerThread):
    """The thread that owns the aiokafka consumer."""

    _lost: frozenset[TopicPartition] = frozenset()
    #: When something last came or was moved, in monotonic seconds.
    _stirred = 0.0
    _quiet_until = 0.0
    #: How many records a second came before ``_counted_since``, as far as that is known, and how many since.
    _pace, _came, _counted_since = inf, 0, inf
    _own_timed: Collection[str] = ()
    #: The last attempt to commit offsets to the group, and whether it is known to have failed.
    _committing: Future[None] | None = None
    _uncommitted = False
    #: Ends the wait of the fetch that is being waited for.
    _waiter: asyncio.Future[None] | None = None

    def _create_worker_consumer(self, transport: Any) -> aiokafka.AIOKafkaConsumer:
        try_all_addresses(self.thread_loop)
        fetches.keep_bytes()
        frames.read_whole_answers()
        create_no_topics()
        delivery: Delivery = transport.delivery
        self._own_timed = delivery.own_timed
        self._assignor = RoundRobinPartitionAssignor
        session = int(delivery.session_timeout * 1000)
        member = delivery.member
        return aiokafka.AIOKafkaConsumer(
            **{"client_id": delivery.group, **aiokafka_settings(delivery.kafka)},
            group_id=delivery.group,
            group_instance_id=None if member is None else instance_id(member, delivery.topics),
            partition_assignment_strategy=[self._assignor],
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            check_crcs=True,
            fetch_max_wait_ms=_ASK_MS,
            fetch_max_bytes=_FETCH_BYTES,
            max_partition_fetch_bytes=MAX_MESSAGE_BYTES,
            session_timeout_ms=session,
            heartbeat_interval_ms=max(session // 5, 300),
            rebalance_timeout_ms=max(session, 30_000),
            request_timeout_ms=40_000,
            # A worker that owns nothing for a while (standby, outage) must stay in the group.
            max_poll_interval_ms=2**31 - 1,
            metadata_max_age_ms=30_000,
        )

    async def on_start(self) -> None:
        """Start the consumer, whose fetcher is not to stop for an error of which it knows already."""
        await super().on_start()
        if (consumer := self._consumer) is not None:
            return_to_bootstrap(consumer._client)
            keep_first_errors(consumer._fetcher)
            before_each_request(consumer._fetcher, self._be_patient)
            self._counted_since = time.monotonic()

    async def fetch(self, wanted: Wanted, resting: Collection[TopicPartition], seconds: float) -> list[Chunk]:
        """The next chunks of the wanted partitions; if none come within the timeout, an empty list.

        Nothing comes of those that are resting. What was fetched of them already is fetched again later.
        """
        return await self._in_thread(self._fetch(wanted, resting, seconds))

    async def _in_thread(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the consumer's thread; from the app's event loop.

        Not by ``call_thread``: its queue has two workers, and calls that were given up keep theirs. Raises
        RuntimeError if the thread ends before it is done.
        """
        doing = asyncio.run_coroutine_threadsafe(work, self.thread_loop)
        try:
            return await asyncio.wrap_future(doing)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if doing.cancelled() and task is not None and not task.cancelling():
                # Not the caller was cancelled, and it must not look as if.
                raise RuntimeError("the thread of the consumer has ended") from None
            raise

    def wake(self, partition: TopicPartition | None = None) -> None:
        """End the wait for a fetch, since it would be asked for otherwise now; from the app's event loop.

        With a partition, which is wanted again, only if some of its records are there already.
        """
        fetcher = None if self._consumer is None else self._consumer._fetcher
        if fetcher is not None and (partition is None or partition in fetcher._records):
            self.thread_loop.call_soon_threadsafe(self._end_wait)

    def _end_wait(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def out_of_range(self) -> frozenset[TopicPartition]:
        """The partitions that did not hold the offset that was asked for, since the last call."""
        lost, self._lost = self._lost, frozenset()
        return lost

    async def check(self) -> None:
        """Raise what has stopped the consumer: its fetcher or the group, which may have revoked a right."""
        await self._in_thread(self._check())

    async def _check(self) -> None:
        consumer = self._consumer
        if consumer is None or consumer._closed or consumer._fetcher is None or consumer._fetcher._closed:
            return
        if consumer._fetcher.error_future.done():
            raise RuntimeError("aiokafka's fetcher has stopped")
        try:
            consumer._coordinator.check_errors()
        except InvalidSessionTimeoutError as error:
            raise EventveilError(_UNFIT_SESSION) from error

    async def _fetch(
        self, wanted: Wanted, resting: Collection[TopicPartition], seconds: float
    ) -> list[Chunk]:
        consumer = self._ensure_consumer()
        fetcher = consumer._fetcher
        if consumer._closed or fetcher._closed:
            return []
        _let_rest(consumer, resting)
        self._waiter = waiter = fetcher._create_fetch_waiter()
        try:
            chunks = await self._drain(consumer, wanted())
            if not chunks:
                await asyncio.wait([waiter], timeout=seconds)
                chunks = await self._drain(consumer, wanted())
        finally:
            waiter.cancel()
        return chunks

    async def _drain(
        self, consumer: aiokafka.AIOKafkaConsumer, wanted: Mapping[TopicPartition, int]
    ) -> list[Chunk]:
        fetcher = consumer._fetcher
        if fetcher._subscriptions.reassignment_in_progress:
            return []
        chunks: list[Chunk] = []
        if fetcher._records:
            self.stir()
        with fetcher._subscriptions.fetch_context():
            # Of most partitions nothing is there most of the time, and asking each takes its time.
            for tp in [tp for tp in wanted if tp in fetcher._records]:
                token = wanted[tp]
                # Once more if that shows a fetch to be used up: until it does, aiokafka asks the broker for
                # nothing, of no partition, and what is written meanwhile is seen a tenth of a second later.
                for _ in range(2):
                    try:
                        chunk = await self._next_chunk(consumer, tp, token)
                    except OffsetOutOfRangeError:
                        # What other partitions have is not to be lost with it.
                        self._lost |= {tp}
                        break
                    except NoOffsetForPartitionError:
                        # Noted before the owner had moved the partition to where it reads on.
                        break
                    if chunk is not None:
                        chunks.append(chunk)
                        self._came += len(chunk.offsets)
                    if not _is_used_up(fetcher, tp):
                        break
        return chunks

    async def _next_chunk(
        self, consumer: aiokafka.AIOKafkaConsumer, tp: TopicPartition, token: int
    ) -> Chunk | None:
        """What comes next of a partition, None if nothing does."""
        fetcher, start = consumer._fetcher, _position(consumer, tp)
        if start is None:
            return None
        # With a timeout of zero this never yields to the loop, so the positions belong to the records.
        source = _records_of(fetcher, tp)
        block = await self._block(fetcher, tp)
        after = _position(consumer, tp)
        if after is None or after == start:
            return None
        epoch = NO_EPOCH if source is None else fetches.epoch_of(source)
        return _as_chunk(tp, token, start, block, after, epoch)

    async def _block(self, fetcher: Any, tp: TopicPartition) -> Block:
        """The next block of a partition, an empty one if there is none."""
        if isinstance(fetched := fetcher._records.get(tp), FetchResult):
            fetches.take_over(fetched, own_times=tp.topic in self._own_timed)
        for blocks in (await fetcher.fetched_records({tp}, timeout=0, max_records=1)).values():
            block: Block = blocks[0]
            return block
        return Block()

    def _be_patient(self, fetcher: Any) -> None:
        """Set for how long brokers may keep the next fetch, and how much ends it."""
        now = time.monotonic()
        fetcher._fetch_min_bytes, fetcher._fetch_max_wait_ms = 1, _ASK_MS
        if now > self._stirred + _REST_SECONDS:
            fetcher._fetch_max_wait_ms = _ASK_AT_REST_MS
            return
        self._count(now)
        few = self._pace * min(self._quiet_until - now, _GATHER_MS / 1000) <= _FEW
        waits = [1000 * (self._quiet_until - now) - before for before in _BEFORE_DUE_MS[few:]]
        if wait := next((wait for wait in waits if wait >= _LEAST_MS), None):
            longest = _ASK_MS if fetcher._records else _GATHER_MS
            fetcher._fetch_min_bytes, fetcher._fetch_max_wait_ms = _GATHERED_BYTES, int(min(longest, wait))

    def _count(self, now: float) -> None:
        """Note how many records come a second."""
        if (seconds := now - self._counted_since) >= _PACE_SECONDS:
            self._pace, self._came, self._counted_since = self._came / seconds, 0, now

    def stir(self) -> None:
        """Ask the brokers more often again; from any thread."""
        self._stirred = time.monotonic()

    def let_gather(self, seconds: float) -> None:
        """Nothing will be due for this long, 0 or less if something is; from any thread."""
        self._quiet_until = time.monotonic() + seconds

    async def go_to(self, partition: TopicPartition, offset: int) -> bool:
        """Move a partition to an offset; False if it is not assigned any more."""
        slow = asyncio.get_running_loop().call_later(_SLOW_SECONDS, self._tell_slow, partition)
        try:
            return await self._in_thread(self._go_to(partition, offset))
        finally:
            slow.cancel()

    def _tell_slow(self, partition: TopicPartition) -> None:
        told = "%s, partition %d: the consumer has not moved to its offset for %.0f s; its thread is held up"
        self.log.warning(told, *partition, _SLOW_SECONDS)

    async def _go_to(self, partition: TopicPartition, offset: int) -> bool:
        consumer = self._ensure_consumer()
        self.stir()
        if partition not in consumer.assignment():
            return False
        consumer.seek(aiokafka.TopicPartition(*partition), offset)
        return _position(consumer, partition) == offset

    @property
    def is_assigned(self) -> bool:
        """Whether the group has given it partitions; from any thread."""
        return self._consumer is not None and bool(self._consumer.assignment())

    def end_of(self, partition: TopicPartition) -> int | None:
        """The last stable offset that a fetch has reported, None if none has; from any thread."""
        consumer = self._consumer
        state = None if consumer is None else _state(consumer, partition)
        end: int | None = None if state is None else state.lso
        return end

    def hides(self, partition: TopicPartition) -> bool:
        """Whether the last fetch reported records behind the last stable offset; from any thread."""
        consumer = self._consumer
        state = None if consumer is None else _state(consumer, partition)
        return bool(state and state.lso is not None and state.highwater > state.lso)

    def answer_of(self, partition: TopicPartition) -> int | None:
        """When a fetch was last answered, by the wall clock, and 0 before the first; from any thread.

        None if no broker is asked: the partition rests or is not assigned, or what came is still waiting.
        """
        if (consumer := self._consumer) is None:
            return None
        state = _state(consumer, partition)
        if state is None or state.paused or partition in consumer._fetcher._records:
            return None
        return int(state.timestamp or 0)

    def commit_progress(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Begin to commit offsets to the group, for the eyes of lag tools; from the app's event loop.

        A failure means nothing, and nobody waits: without a coordinator of the group aiokafka tries forever.
        While it does, no other commit begins.
        """
        if self._committing is not None and not self._committing.done():
            self._tell_uncommitted("the group's coordinator has not answered yet")
            return
        committing = self._commit_progress(offsets)
        self._committing = asyncio.run_coroutine_threadsafe(committing, self.thread_loop)

    async def _commit_progress(self, offsets: Mapping[TopicPartition, int]) -> None:
        try:
            consumer = self._ensure_consumer()
            owned = consumer.assignment()
            if mine := {aiokafka.TopicPartition(*tp): at for tp, at in offsets.items() if tp in owned}:
                await consumer.commit(mine)
        except Exception as error:
            self._tell_uncommitted(repr(error))
        else:
            self._uncommitted = False

    def _tell_uncommitted(self, why: str) -> None:
        if not self._uncommitted:
            self.log.info("offsets not committed to the consumer group, trying again: %s", why)
        self._uncommitted = True


def try_all_addresses(loop: asyncio.AbstractEventLoop) -> None:
    """Let connections that are made in a loop try the next address of a name when one does not answer soon.

    asyncio gives the first address all the time, unless it is asked for this. Where IPv6 does not work, for
    instance, aiokafka would never be connected to a broker whose name has such an address.
    """
    impatient = partial(loop.create_connection, happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS)
    loop.create_connection = impatient  # type: ignore[method-assign]


class MetadataOfExisting(MetadataRequest):  # type: ignore[misc]  # aiokafka has no types
    """Asks for topics without leave to create those that do not exist."""

    def __init__(self, topics: list[str] | None = None) -> None:
        super().__init__(topics, allow_auto_topic_creation=False)


def create_no_topics() -> None:
    """Let the clients that aiokafka has in this process leave topics that do not exist as they are.

    aiokafka asks so that a broker with ``auto.create.topics.enable``, which is Kafka's default, creates them.
    A topic that was deleted would be there again, empty, with other settings and fewer partitions, and the
    worker would take it for another one.
    """
    client.MetadataRequest = MetadataOfExisting


def return_to_bootstrap(client: Any) -> None:
    """Let an aiokafka client ask the addresses of its settings where no broker that it knows answers.

    aiokafka 0.14 asks them once. If all brokers got other addresses, it would look for the old ones forever.
    """
    update = client._metadata_update

    async def find(cluster: Any, topics: Any) -> bool:
        if await update(cluster, topics):
            return True
        # It asks for no topics. That none are told is no change of them, for which the group would rejoin.
        listeners, client.cluster._listeners = client.cluster._listeners, set()
        try:
            await client.bootstrap()
        except KafkaError:
            # None of these answers either.
            return False
        finally:
            client.cluster._listeners = listeners
        return bool(await update(cluster, topics))

    client._metadata_update = find


def keep_first_errors(fetcher: Any) -> None:
    """Let an aiokafka fetcher keep what it has of a partition when another error of it comes.

    Two brokers may be asked for one partition while its leader moves. aiokafka 0.14 asserts that only one of
    them answers, and its fetcher ends. What is ignored here comes again with the next fetch.
    """
    note = fetcher._set_error

    def note_first(partition: Any, error: Exception) -> None:
        if partition not in fetcher._records:
            note(partition, error)

    fetcher._set_error = note_first


def before_each_request(fetcher: Any, prepare: Callable[[Any], None]) -> None:
    """Let an aiokafka fetcher be prepared right before it makes requests for what it has to fetch."""
    make = fetcher._get_actions_per_node

    def prepared(assignment: Any) -> Any:
        prepare(fetcher)
        return make(assignment)

    fetcher._get_actions_per_node = prepared


def _position(consumer: aiokafka.AIOKafkaConsumer, partition: TopicPartition) -> int | None:
    """The next offset to be delivered; None while the partition is not assigned or has no position yet."""
    state = _state(consumer, partition)
    position: int | None = state.position if state is not None and state.has_valid_position else None
    return position


def _state(consumer: aiokafka.AIOKafkaConsumer, partition: TopicPartition) -> Any:
    """What aiokafka knows of a partition; None while it is not assigned."""
    subscription = consumer._subscription.subscription
    assignment = subscription and subscription.assignment
    key = aiokafka.TopicPartition(*partition)
    return assignment.state_value(key) if assignment and key in assignment.tps else None


def _let_rest(consumer: aiokafka.AIOKafkaConsumer, resting: Collection[TopicPartition]) -> None:
    """Fetch nothing of these partitions, and of all others again."""
    paused = consumer.paused()
    partitions = {aiokafka.TopicPartition(*tp) for tp in resting} & consumer.assignment()
    consumer.pause(*(partitions - paused))
    consumer.resume(*(paused - partitions))


def _is_used_up(fetcher: Any, partition: TopicPartition) -> bool:
    """Whether a fetch has no more batches of records, although aiokafka may not have noticed yet."""
    records = _records_of(fetcher, partition)
    return records is not None and not records._records.has_next()


def _records_of(fetcher: Any, partition: TopicPartition) -> Any:
    """What a fetch has brought of a partition, None if nothing."""
    fetched = fetcher._records.get(partition)
    return fetched._partition_records if isinstance(fetched, FetchResult) else None


def _as_chunk(
    partition: TopicPartition, token: int, start: int, block: Block, after: int, epoch: int = NO_EPOCH
) -> Chunk:
    return Chunk(
        topic=partition.topic,
        partition=partition.partition,
        generation=token,
        start=start,
        offsets=block.offsets,
        append_times=block.append_times,
        keys=block.keys,
        values=block.values,
        next_offset=after,
        headers=block.headers,
        own_times=block.own_times,
        epoch=epoch,
    )


class ChunkConsumer(driver.Consumer):
    """Faust's consumer, delivering chunks of the partitions that the worker owns."""

    _thread: ChunkConsumerThread

    @property
    def thread(self) -> ChunkConsumerThread:
        """Where the aiokafka consumer lives."""
        return self._thread

    @property
    def _delivery(self) -> Delivery:
        delivery: Delivery = self.transport.delivery  # type: ignore[attr-defined]  # our own transport
        return delivery

    def _new_consumer_thread(self) -> ChunkConsumerThread:
        return ChunkConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Give everything up before Faust does anything else about it."""
        self._delivery.revoked()
        self.thread.stir()
        await super().on_partitions_revoked(revoked)

    async def perform_seek(self) -> None:
        """Where Faust would seek to the committed offsets: tell the worker what is assigned.

        It must not take long: Faust ends its recovery task for good, silently, after a timeout.
        """
        self._delivery.assigned({TopicPartition(*one) for one in self.assignment()})

    async def _drain_messages(self, fetcher: Any) -> None:
        try:
            while not (self._stopped.is_set() or fetcher._stopped.is_set()):
                await self._deliver_once()
        except asyncio.CancelledError:
            if not self.app.should_stop:
                raise
        except Exception as error:
            if not self.app.should_stop:
                self._delivery.failed(error)

    async def _deliver_once(self) -> None:
        if not (self.flow_active and self._delivery.wanted()):
            await asyncio.sleep(_LOOK_SECONDS if self._thread.is_assigned else _STANDBY_SECONDS)
            return
        resting = self._delivery.resting()
        self._thread.let_gather(self._delivery.quiet_seconds())
        seconds = max(_LOOK_SECONDS, self._delivery.rest_seconds()) if resting else _WAIT_SECONDS
        chunks = await self._thread.fetch(self._delivery.wanted, resting, seconds)
        if lost := self._thread.out_of_range():
            self._delivery.out_of_range(lost)
        by_topic = defaultdict[str, list[Chunk]](list)
        for chunk in chunks:
            by_topic[chunk.topic].append(chunk)
        for of_topic in by_topic.values():
            # A chunk that is lost on the way leaves a gap, which its owner notices and reads again.
            if self.flow_active:
                await self._deliver(of_topic)

    async def _deliver(self, chunks: list[Chunk]) -> None:
        first = chunks[0]
        message: Any = ConsumerMessage(
            first.topic, first.partition, first.next_offset, 0.0, 0, None, None, chunks,  # type: ignore[arg-type]
            None, 0, 0, TP(first.topic, first.partition), generation_id=self.app.consumer_generation_id,
        )  # fmt: skip
        for chunk in chunks:
            self._delivery.delivered(TopicPartition(chunk.topic, chunk.partition), len(chunk.offsets))
        await self.wait_first(self.callback(message), self.suspend_flow.wait())

    def on_buffer_full(self, tp: TP) -> None:
        """The worker bounds what is on its way; Faust's own bookkeeping would outlive a revocation."""

    def on_buffer_drop(self, tp: TP) -> None:
        """See ``on_buffer_full``."""

    async def commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:
        """Faust's offsets of acknowledged messages mean nothing here; see ``commit_progress``."""
        return False

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Faust's livelock detector counts records; chunks would only confuse it."""


class ChunkTransport(driver.Transport):
    """Faust's Kafka transport with the chunk consumer."""

    Consumer = ChunkConsumer

    def __init__(self, *args: Any, delivery: Delivery, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.delivery = delivery
