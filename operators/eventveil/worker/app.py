"""The worker: one Faust app with an agent per role: aggregate and sanitize, rekey, accumulate, perturb.

Faust brings the consumer group, the assignment of partitions and the agents; all state and every offset are
kept by the owners of the partitions (``eventveil.worker.runner``), in topics that only they can write.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, cast

import faust

from eventveil.audit.witness_file import WitnessFile
from eventveil.decoding.details import long_duration
from eventveil.formats.release import schema_text
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.diagnosis import obstacle
from eventveil.kafka.links import links
from eventveil.kafka.settings import faust_credentials
from eventveil.kinds.registry import roles
from eventveil.model.records import Chunk, TopicPartition
from eventveil.model.topology import Topology
from eventveil.privacy.noise import NoiseSource, SystemNoise
from eventveil.process.clock import SYSTEM_CLOCK, Clock
from eventveil.process.faults import FaultHook, no_fault
from eventveil.process.memory import NOTHING, Held, MemoryLimit, MemoryLimitReached
from eventveil.process.patience import PATIENCE_SECONDS
from eventveil.schema_registry.known import known_schemas
from eventveil.schema_registry.subjects import Subjects
from eventveil.worker.assignment import Assignment
from eventveil.worker.contended import ContendedName
from eventveil.worker.ends import EndWatch
from eventveil.worker.faust.compatibility import check_private_members
from eventveil.worker.faust.driver import (
    SESSION_SECONDS,
    STATIC_SECONDS,
    ChunkConsumer,
    ChunkSchema,
    ChunkTransport,
)
from eventveil.worker.missing import LeaderWatch
from eventveil.worker.observe.observation import ROLES, UNDO, Hold, Observation, PartitionView
from eventveil.worker.observe.progress import listed
from eventveil.worker.owners import Owners
from eventveil.worker.restore.restored import Context
from eventveil.worker.threads import Threads
from eventveil.worker.told import Told
from eventveil.worker.topic_guard import Inquiry
from eventveil.worker.witnessed import Witnessed

log = logging.getLogger(__name__)

_TICK_SECONDS = 0.1
_PROGRESS_SECONDS = 5.0
_WATCH_SECONDS = 1.0
_LOOK_SECONDS = 0.5
_STOP_SECONDS = 8.0
_MORE_MEMORY = (
    "Raise the limit; run more workers, each with its share of the partitions; or hold less: fewer open "
    "timestamps, with a shorter lateness or a smaller max_ahead, or shorter names of users, with a smaller "
    "max_bytes (`eventveil migrate TOPOLOGY --apply`)"
)


class _App(faust.App):
    def _create_directories(self) -> None:
        """Faust's tables would need some; a worker keeps nothing on disk, and runs where it is full."""


class Worker:
    """Runs a topology until it is asked to stop or must not continue.

    ``memory_limit`` is in bytes of resident memory, None for none. ``witness`` is the file that the ledger is
    compared with before anything is released (``eventveil.formats.witness``). ``member`` is a name in the
    consumer group that no other worker has: a worker that comes back under it keeps its partitions.

    ``noise`` makes the noise source of an owner; ``fault`` is called at every step of the protocol
    (``eventveil.process.faults``); ``doubt_seconds`` is how long the same doubt may stand
    (``eventveil.process.patience``). Only tests pass others than the defaults of these, of the clock and of
    the session timeout.
    """

    def __init__(
        self,
        topology: Topology,
        *,
        noise: Callable[[], NoiseSource] = SystemNoise,
        clock: Clock = SYSTEM_CLOCK,
        fault: FaultHook = no_fault,
        session_timeout: float | None = None,
        doubt_seconds: float = PATIENCE_SECONDS,
        memory_limit: int | None = None,
        witness: WitnessFile | None = None,
        member: str | None = None,
    ) -> None:
        check_private_members()
        self._memory = MemoryLimit(memory_limit, _MORE_MEMORY)
        self.observation = Observation(topology)
        self.observation.memory_limit = memory_limit
        self.kafka = topology.kafka
        self.group = topology.name
        self.member = member
        self.topics: Collection[str] = roles(topology).keys()
        self.own_timed: Collection[str] = topology.own_timed
        self.session_timeout = session_timeout or (SESSION_SECONDS if member is None else STATIC_SECONDS)
        self._topology = topology
        self._clock, self._fault = clock, fault
        self._cluster = Cluster(topology.kafka)
        witnessed = Witnessed(witness, self._cluster)
        witnessed.begin()
        self._threads = Threads()
        self._end_watch = EndWatch(self._cluster, self._failed_in_thread)
        releasing = [one.source.topic for one in topology.streams if one.timeline.grace is not None]
        self._leader_watch = LeaderWatch(
            self._cluster, dict.fromkeys(releasing), clock, self._failed_in_thread
        )
        context = Context(
            topology, self._cluster, Inquiry(self._cluster, self._threads.looking), self._threads,
            self._end_watch, self._leader_watch, witnessed, self.observation, noise,
            known_schemas(topology), _subjects(topology),
        )  # fmt: skip
        self.owners = Owners(context, clock, fault)
        self._stop = asyncio.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told = Told(partial(obstacle, topology.kafka), self._threads.diagnosing, self.observation)
        self._assignment = Assignment(
            self.owners.make,
            self._go_to,
            self._threads.taking_over,
            self.failed,
            patience=2 * self.session_timeout,
            doubt_seconds=doubt_seconds,
            doubted=self._cluster.renew,
            observation=self.observation,
            told=self._told,
            wake=self._wake,
        )
        self._contended = ContendedName(member, self.observation.fenced.total)
        self._app = self._make_app()

    def _make_app(self) -> faust.App:
        topology = self._topology
        app = _App(
            topology.name,
            broker=[f"kafka://{address}" for address in topology.kafka.bootstrap.split(",")],
            broker_credentials=faust_credentials(topology.kafka),
            broker_session_timeout=self.session_timeout,
            store="memory://",
            web_enabled=False,
            topic_disable_leader=True,
            topic_allow_declare=False,
            stream_wait_empty=False,
        )
        app.transport = ChunkTransport(app.conf.broker_consumer, app, delivery=self)
        schema = ChunkSchema()
        read = roles(topology)

        async def handle(chunks: Any) -> None:
            async for of_topic in chunks:
                self._handle(of_topic)

        for role in ROLES:
            if topics := [topic for topic, reader in read.items() if reader == role]:
                app.agent(app.topic(*topics, schema=schema, acks=False), name=role)(handle)
        return app

    def _handle(self, chunks: Sequence[Chunk]) -> None:
        # An exception in an agent would make Faust acknowledge the chunks and continue.
        try:
            self._check_memory()
            for chunk in chunks:
                if chunk.topic != self._topology.partials:
                    self.observation.fetched[chunk.topic] += len(chunk.offsets)
                self._assignment.handle(chunk)
        except Exception as error:
            self.failed(error)

    def _check_memory(self) -> None:
        """Between chunks, and before anything is closed. Raises MemoryLimitReached."""
        self.observation.resident = self._memory.check(self._held)

    def _held(self) -> Mapping[str, Held]:
        """By stream, over all partitions."""
        found: dict[str, Held] = {}
        for owner in self._assignment.owners.values():
            for name, view in owner.task.views().items():
                found[name] = found.get(name, NOTHING) + view.held
        return found

    @property
    def _consumer(self) -> ChunkConsumer:
        return cast(ChunkConsumer, self._app.consumer)

    async def _go_to(self, partition: TopicPartition, offset: int) -> bool:
        self._fault("seek:before")
        moved = await self._consumer.thread.go_to(partition, offset)
        self._fault("seek:done")
        return moved

    def _wake(self, partition: TopicPartition | None) -> None:
        self._consumer.thread.wake(partition)

    def assigned(self, partitions: set[TopicPartition]) -> None:
        """See ``eventveil.worker.faust.driver.Delivery``."""
        mine = {tp for tp in partitions if self.owners.has_streams(tp)}
        log.info("assigned %d partitions", len(mine))
        self.observation.assigned = frozenset(mine)
        self._contended.assigned()
        self._fault("rebalance:before-assign")
        self._assignment.assign(mine)
        self._fault("rebalance:assigned")

    def revoked(self) -> None:
        """See ``eventveil.worker.faust.driver.Delivery``."""
        self.observation.assigned = None
        self._assignment.revoke()
        self._fault("rebalance:revoked")

    def wanted(self) -> Mapping[TopicPartition, int]:
        """See ``eventveil.worker.faust.driver.Delivery``."""
        return self._assignment.wanted()

    def resting(self) -> Collection[TopicPartition]:
        """See ``eventveil.worker.faust.driver.Delivery``."""
        return self._assignment.resting(self._clock.wall())

    def rest_seconds(self) -> float:
        """See ``eventveil.worker.faust.driver.Delivery``."""
        return self._assignment.rest_seconds(self._clock.wall())

    def quiet_seconds(self) -> float:
        """See ``eventveil.worker.faust.driver.Delivery``."""
        now = self._clock.wall()
        return (self._assignment.quiet_until(now) - now) / 1000

    def delivered(self, partition: TopicPartition, records: int) -> None:
        """See ``eventveil.worker.faust.driver.Delivery``."""
        owner = self._assignment.owners.get(partition)
        if owner is not None:
            owner.sent(records)

    def out_of_range(self, partitions: Collection[TopicPartition]) -> None:
        """See ``eventveil.worker.faust.driver.Delivery``."""
        for tp in partitions:
            self._assignment.doubt(tp, "it does not hold the offset that is to be read next")

    def failed(self, error: BaseException) -> None:
        """Stop the worker because of an error; the first one counts."""
        if self._failure is None:
            self._failure = error
            if isinstance(error, MemoryLimitReached):
                # At once: the chunks that are being counted still grow, and the kernel may not wait for them.
                log.error("stopping: %s", error)
            self._assignment.revoke()
            self._stop.set()

    def _failed_in_thread(self, error: BaseException) -> None:
        assert self._loop is not None, "threads are started in the event loop"
        self._loop.call_soon_threadsafe(self.failed, error)

    def stop(self) -> None:
        """Ask the worker to stop gracefully."""
        self._stop.set()

    async def run(self) -> BaseException | None:
        """Work until ``stop`` or a failure, which is returned."""
        self._loop = asyncio.get_running_loop()
        # What is loaded stays. The garbage collector need not look through it, while all threads wait.
        gc.collect()
        gc.freeze()
        if any(stream.source.append_time == "boundary" for stream in self._topology.streams):
            self._end_watch.start()
        self._leader_watch.start()
        tasks = [
            asyncio.create_task(work)
            for work in (self._run_app(), self._keep_time(), self._watch_consumer(), self._keep_observing())
        ]
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                self.failed(task.exception() or RuntimeError("a background task exited unexpectedly"))
            task.cancel()
        self._end_watch.stop()
        self._leader_watch.stop()
        self.revoked()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._app.stop(), timeout=_STOP_SECONDS)
        return self._failure

    async def _run_app(self) -> None:
        # Joining the group may take any time, so it is one task among several.
        await self._app.start()
        while not self._app.crashed:
            await asyncio.sleep(_WATCH_SECONDS)
        raise self._app.crash_reason or RuntimeError("the Faust app crashed")

    async def _keep_observing(self) -> None:
        was_ready = False
        holds: dict[TopicPartition, Hold] = {}
        while True:
            partitions = {
                tp: PartitionView(
                    owner.task.position,
                    self._consumer.thread.end_of(tp),
                    owner.busy,
                    owner.task.views(),
                    hides=self._consumer.thread.hides(tp),
                    untimed=owner.task.untimed,
                    unread=owner.unread,
                    unregistered=owner.unregistered,
                    behind=owner.behind,
                    answer=self._consumer.thread.answer_of(tp),
                )
                for tp, owner in self._assignment.owners.items()
            }
            self.observation.throttled = links(self.kafka).throttling.seconds
            self.observation.look(partitions, time.monotonic(), self._clock.wall())
            holds = self._tell_holds(holds)
            self._told.look(self.observation.silent(time.monotonic()))
            ready = not self.observation.obstacles(time.monotonic())
            if ready and not was_ready:
                _tell_ready(self.observation.upcoming())
            was_ready = ready
            await asyncio.sleep(_LOOK_SECONDS)

    def _tell_holds(self, before: dict[TopicPartition, Hold]) -> dict[TopicPartition, Hold]:
        """Log which partitions are held up from now on, and which no longer are."""
        now = self.observation.holds(time.monotonic())
        for tp in sorted(now.keys() - before.keys()):
            if now[tp] != "clock":
                log.warning("%s, partition %d, is held up: %s", *tp, self.observation.undo(tp, now[tp]))
        for tp in sorted(before.keys() - now.keys()):
            if before[tp] != "clock":
                log.info("%s, partition %d, is no longer held up", *tp)
        # This is one thing, whatever partitions a worker has.
        was, behind = ("clock" in holds.values() for holds in (before, now))
        if behind and not was:
            log.warning("%s", UNDO["clock"].format(behind=long_duration(self.observation.behind)))
        elif was and not behind:
            log.info("the clock of this machine is no longer behind the brokers'")
        return now

    async def _keep_time(self) -> None:
        tick_due, progress_due = time.monotonic(), 0.0
        now = self._clock.wall()
        while True:
            # An owner that becomes due is not kept waiting for the next tick, which is for all others.
            until_due = self._assignment.until_due(self._clock.wall()) / 1000
            await asyncio.sleep(min(until_due, max(0.0, tick_due - time.monotonic())))
            before, now = now, self._clock.wall()
            if time.monotonic() < tick_due:
                self._assignment.tick_due(before, now)
                continue
            tick_due = time.monotonic() + _TICK_SECONDS
            self._check_memory()
            self._assignment.tick(self._clock.wall())
            if time.monotonic() >= progress_due and self._assignment.owners:
                progress_due = time.monotonic() + _PROGRESS_SECONDS
                positions = {tp: owner.task.position for tp, owner in self._assignment.owners.items()}
                self._consumer.thread.commit_progress(positions)

    async def _watch_consumer(self) -> None:
        """Raise what has stopped the consumer, also before it was ever assigned anything."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            await self._consumer.thread.check()


def _subjects(topology: Topology) -> Subjects | None:
    """None if no sink needs a schema. Raises EventveilError if the extra ``registry`` is missing."""
    if topology.registry is None or not topology.with_schemas:
        return None
    return Subjects(topology.registry, schema_text)


def _tell_ready(upcoming: Sequence[str]) -> None:
    """Log that every assigned partition is served, and what is released next."""
    log.info("ready%s%s", "; next: " * bool(upcoming), listed(upcoming))
