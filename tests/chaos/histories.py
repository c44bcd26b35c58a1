"""Mutants on the log in memory: random histories instead of scenarios, judged by the same verifier.

What happens is that of ``tests.crashes``: workers crash, stand still and are taken over between any two
steps. The clock that they decide by may be ahead at times, too, as in the scenario of trusting-its-clock, and
somebody may write false partial counts in transactions that are aborted, as in that of reading-uncommitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from eventveil.counting.counter import Partial
from eventveil.kafka.barrier import is_nonce
from eventveil.kafka.changelog import FencedTable, OwnerClosed
from eventveil.model.errors import EventveilError
from eventveil.model.records import Outgoing, TopicPartition
from eventveil.model.topology import Stream
from eventveil.process.clock import Clock, ClockAhead, PartitionClock
from eventveil.tasks.task import Transaction
from tests.chaos.mutants import SLOW, broken
from tests.chaos.verifier import NOISE, Logs, Record, Report, Rules, verify
from tests.crashes.world import COUNTS, PARTITIONS, Slot, Worker, World
from tests.unit.support import INSTANCE

#: Every release is fresh, so the verifier sees all counts.
OBSERVED: Stream = replace(COUNTS, mechanism=replace(COUNTS.mechanism, kind="uniform"))
#: More than the clock_skew that the stream declares.
_AHEAD = 20_000
#: How likely false partial counts are written when events are, and of how many coming timestamps.
_FORGING, _FORGED = 0.1, 8
#: How many turns others have while a mutant takes its time.
_MEANWHILE = 10
_COLUMN, _COUNT = np.array([0]), np.array([99])


@dataclass(frozen=True, slots=True)
class Circumstances:
    """``ahead``: in what share of the turns the clock is ahead of the log's; ``forger``: if there is one."""

    ahead: float = 0.0
    forger: bool = False


ORDINARY = Circumstances()


class Revealing:
    """Multiples of NOISE, of a seed."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        return self._random.integers(-(2**15), 2**15, size) * NOISE


class History(World):
    """A world under circumstances."""

    def __init__(self, seed: int, circumstances: Circumstances) -> None:
        super().__init__(seed, Revealing(seed), OBSERVED)
        self._ahead, self._circumstances = 0, circumstances
        self._renew_clock()

    def _renew_clock(self) -> None:
        clock = Clock(lambda: self.log.now + self._ahead, lambda: self.log.now)
        self.clock = PartitionClock(clock, self.stream.timeline.clock_skew)

    def pass_time(self, milliseconds: int) -> None:
        self._ahead = _AHEAD if self._armed and self.rnd.random() < self._circumstances.ahead else 0
        super().pass_time(milliseconds)

    def _fault(self, worker: Worker, slot: Slot, point: str) -> None:
        """Where a mutant takes its time, others have it."""
        super()._fault(worker, slot, point)
        if point == SLOW and self._armed and len(self._standing) < 2:
            self._standing.append(worker)
            for _ in range(_MEANWHILE):
                self._something(self.rnd)
            self._standing.remove(worker)

    def append(self, events: int) -> None:
        super().append(events)
        if self._circumstances.forger and self.rnd.random() < _FORGING:
            self._forge()

    def _forge(self) -> None:
        """Write false partial counts of all partitions for the coming timestamps, and abort."""
        partials, rules = self.topology.partials, self.stream.timeline
        # A worker may have decided timestamps up to the one that is open now.
        first = (self.log.now - rules.origin) // rules.interval
        forger = self.log.writer("forger", 20.0)
        forger.initialise(30.0)
        forger.write(
            Outgoing(partials, false.encode(), self.stream.name.encode(), 0)
            for ahead in range(_FORGED)
            for number in range(PARTITIONS)
            for false in [Partial(self.stream.name, first + ahead, number, INSTANCE, _COLUMN, _COUNT)]
        )
        forger.abort(30.0)
        self.seen["forged"] += 1

    def commit(self, table: FencedTable, work: Transaction) -> None:
        """What was decided too early is not committed, and another owner has another clock."""
        try:
            super().commit(table, work)
        except ClockAhead as error:
            self.seen["clock ahead"] += 1
            self._renew_clock()
            raise OwnerClosed(table.owner) from error

    def verify(self) -> Report:
        """What the verifier says of the log; transactions of workers that crashed are aborted by then."""
        self.log.advance(self.log.now + 60_000)
        app, of = self.topology, self.stream
        logs = Logs(
            raw=[*self._of(of.source.topic)],
            sink=[*self._of(of.sink.topic)],
            dead=[*self._of(of.dead_letter)],
            ledger=[*self._of(app.ledger)],
            ledger_changelog=[*self._of(app.ledger_changelog)],
            counting_changelog=[*self._of(app.counting_changelog)],
        )
        return verify(_rules(of), logs)

    def _of(self, topic: str) -> Iterator[Record]:
        for number in range(self.log.partitions(topic)):
            place = TopicPartition(topic, number)
            committed = {one.offset for one in self.log.records(place)}
            for one in self.log.records(place, None, "read_uncommitted"):
                if not is_nonce(one.key):
                    yield Record(
                        partition=number,
                        offset=one.offset,
                        time=one.time,
                        key=one.key,
                        # The verifier knows the field by this name.
                        value=one.value and one.value.replace(b'"column"', b'"place"'),
                        headers=dict(one.headers),
                        committed=one.offset in committed,
                    )


def _rules(of: Stream) -> Rules:
    return Rules(
        stream=of.name,
        source=of.source.topic,
        partitions=PARTITIONS,
        columns=["a", "b"],
        origin=of.timeline.origin,
        interval=of.timeline.interval,
        lateness=of.timeline.lateness,
        max_ahead=of.timeline.max_ahead,
        max_bytes=of.source.max_bytes,
        window=of.mechanism.window,
    )


@contextmanager
def history(seed: int, mutant: str = "", circumstances: Circumstances = ORDINARY) -> Iterator[History]:
    """The history of a seed, at its end, of a mutant or of the worker as it is.

    One of a mutant may have stopped before, at records that cannot be there: what it did is in the log.
    """
    made = History(seed, circumstances)
    if not mutant:
        made.run()
        yield made
        return
    with broken(mutant):
        try:
            made.run()
        except (AssertionError, EventveilError) as error:
            made.seen[f"stopped: {type(error).__name__}"] += 1
    yield made
