"""Broken workers: each breaks one rule of the protocol, and the checks must notice it in some history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from eventveil.counting.counter import CounterState
from eventveil.kafka.barrier import is_nonce
from eventveil.kafka.changelog import FencedTable, OwnerClosed, TransactionFailed
from eventveil.model.records import Chunk, Outgoing, TopicPartition
from eventveil.privacy.noise import SeededNoise
from eventveil.tasks.release import PartitionSanitizer, ReleaseState
from eventveil.tasks.task import Task, Transaction
from tests.crashes.world import COUNTS, REKEYED, Table, World
from tests.unit.support import chunk


class Unfenced(Table):
    """Nobody is shut out: every owner has an identity of its own."""

    made = 0

    def fence(self) -> None:
        Unfenced.made += 1
        owner, self.owner = self.owner, f"{self.owner}-{Unfenced.made}"
        super().fence()
        self.owner = owner


class ReadBeforeFenced(Table):
    """The state is read first, and the former owner shut out afterwards."""

    def take_over(
        self, beside: Iterable[TopicPartition] = (), written: Iterable[TopicPartition] = ()
    ) -> dict[bytes, bytes]:
        table = self.log.table((self.topic, self.partition))
        # Under load it takes a while.
        self._fault("read:before-fence")
        self.fence()
        self.mark(beside)
        return {key: value for key, value in table.items() if not is_nonce(key)}


class RestoredUncommitted(Table):
    """The state is read with the records of transactions that were aborted."""

    def _read(self, drawn: bytes) -> dict[bytes, bytes]:
        found = self.log.records((self.topic, self.partition), None, "read_uncommitted")
        return {one.key: one.value for one in found if one.key and one.value and not is_nonce(one.key)}


class InputUncommitted(World):
    """Records are processed that were aborted, or are not committed yet."""

    def read(self, place: TopicPartition, position: int, most: int) -> Chunk:
        return self.log.read(place, position, "read_uncommitted", most)


class OneTransaction(World):
    """Decided, charged and published at once: what was aborted can be seen, and is drawn again."""

    def release(self, states: Mapping[bytes, bytes]) -> Task:
        return _broken(super().release(states), _AtOnce)


class ForgetsTheBlock(World):
    """After a restart only what is counted from then on is looked at for columns."""

    def release(self, states: Mapping[bytes, bytes]) -> Task:
        key = self.stream.name.encode()
        if (value := states.get(key)) is not None:
            state = ReleaseState.decode(value, "the ledger changelog")
            states = {**states, key: state.replace(searched=state.next).encode()}
        return super().release(states)


class ForgetsReleases(World):
    """After a restart only what is released from then on says which columns are quiet."""

    def release(self, states: Mapping[bytes, bytes]) -> Task:
        key = self.stream.name.encode()
        if (value := states.get(key)) is not None:
            state = ReleaseState.decode(value, "the ledger changelog")
            states = {**states, key: state.replace(fading=()).encode()}
        return super().release(states)


def _broken(task: Any, kind: type[Task]) -> Task:
    task.__class__ = kind
    return task


class _AtOnce(PartitionSanitizer):
    def next(self, now: int) -> Transaction | None:
        if decided := self.decide():
            return Transaction("publish", (*decided, *self.publish()))
        return None

    def committed(self, done: Transaction) -> None:
        self.published()


class PublishedBeforeDecided(World):
    """Releases and charges go out before the decision is durable."""

    def release(self, states: Mapping[bytes, bytes]) -> Task:
        return _broken(super().release(states), _OtherWayRound)


class _OtherWayRound(_AtOnce):
    later: tuple[Outgoing, ...] = ()

    def next(self, now: int) -> Transaction | None:
        if self.later:
            return Transaction("decide", self.later)
        if not self.decide():
            return None
        *public, state = self.publish()
        self.later = (state,)
        return Transaction("publish", tuple(public))

    def committed(self, done: Transaction) -> None:
        if done.name == "decide":
            self.later = ()
            self.published()


class FreshNoise(World):
    """What was decided and not published is drawn again."""

    redrawn = 0

    def release(self, states: Mapping[bytes, bytes]) -> Task:
        name = self.stream.name.encode()
        if (value := states.get(name)) is not None:
            state = ReleaseState.decode(value, "the ledger changelog")
            states = {
                **states,
                name: state.replace(pending=tuple(map(self._redrawn, state.pending))).encode(),
            }
        return super().release(states)

    def _redrawn(self, record: str) -> str:
        self.redrawn += 1
        found = orjson.loads(record)
        found["counts"] = {column: count + self.redrawn for column, count in found["counts"].items()}
        return orjson.dumps(found).decode()


class RetriedInPlace(World):
    """After a failure the same records are written again by a new producer, and nothing is read."""

    def commit(self, table: FencedTable, work: Transaction) -> None:
        try:
            super().commit(table, work)
        except (TransactionFailed, OwnerClosed):
            again = Table(self.log, table.owner, (table.topic, table.partition), table._fault)
            again.fence()
            super().commit(again, work)
            raise


class NothingReadAgain(World):
    """Counting resumes where the former owner stopped, without the events of timestamps that are open."""

    def aggregate(self, changelog: TopicPartition, states: Mapping[bytes, bytes]) -> Task:
        task = super().aggregate(changelog, states)
        if (value := states.get(self.stream.name.encode())) is not None:
            judged = CounterState.decode(value, "the counting changelog").judged
            task.process(chunk(start=task.position, next_offset=max(judged, task.position)))
        return task


class StateApart(World):
    """The state is committed after what it tells, in a transaction of its own."""

    def commit(self, table: FencedTable, work: Transaction) -> None:
        own = [record for record in work.records if record.topic == table.topic]
        rest = [record for record in work.records if record.topic != table.topic]
        if rest and own:
            table.transact(work.name, rest)
        super().commit(table, replace(work, records=tuple(own or rest)))


TABLES = (Unfenced, ReadBeforeFenced, RestoredUncommitted)
WORLDS = (
    InputUncommitted,
    OneTransaction,
    PublishedBeforeDecided,
    FreshNoise,
    RetriedInPlace,
    NothingReadAgain,
    StateApart,
)
BROKEN = {one.__name__: one for one in (*TABLES, *WORLDS)}


def broken_world(name: str, seed: int) -> World:
    """A history of this seed with workers that are broken so."""
    noise, broken = SeededNoise(seed), BROKEN[name]
    if issubclass(broken, World):
        # Partial counts that are made again are the same; events that are passed on again are too many.
        return broken(seed, noise, REKEYED if broken is InputUncommitted else COUNTS)
    return World(seed, noise, table=broken)
