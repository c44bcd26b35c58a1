"""Counting the partitions of a topic in several processes, some partitions in each.

Aggregation is pure: the partial counts do not depend on the process. The parent merges and releases. It
listens to the child that is furthest behind by append time; the others wait once their pipes are full, so
that counts do not pile up. A child sees its parent end, however it ends, and ends too.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from subprocess import DEVNULL, Popen
from threading import Thread

import numpy as np
from confluent_kafka import KafkaException

from eventveil.counting.counter import Partial
from eventveil.model.errors import EventveilError
from eventveil.model.records import NO_APPEND_TIME
from eventveil.process import allocator
from eventveil.process.memory import NOTHING, Held, resident
from eventveil.replay.inputs import Input, Share
from eventveil.replay.partitions import Counting, OwnCounting, Scope
from eventveil.replay.releasing import INSTANCE

#: A process takes half a second of a core to start, and counts 700,000 events in that time. With fewer events
#: than these, all would take more than a tenth of the time to start.
_PAYS = 5_000_000
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class _Step:
    """What a child has to say: which timestamps it closed, and where it stands.

    ``read`` is the child's ``Input.done``, ``events`` its ``Counting.events``, ``held`` what it holds of each
    stream and ``resident`` its memory in bytes.
    """

    partition: int
    partials: Sequence[Partial]
    next: Mapping[str, int]
    appended: int
    read: int
    events: int
    held: Mapping[str, Held]
    resident: int


@dataclass(frozen=True, slots=True)
class _End:
    outcomes: Mapping[str, Counter[str]]


@dataclass(frozen=True, slots=True)
class _Failure:
    told: str


def shares(source: Input, processes: int | None) -> list[Share]:
    """How an input is divided among processes; empty if this one is to count alone.

    ``processes`` None: as many as there are cores, if there are enough events for that to pay.
    """
    if processes is None:
        processes = cores() if (source.total or 0) >= _PAYS else 1
    found = source.split(processes) if processes > 1 else []
    return found if len(found) > 1 else []


def cores() -> int:
    """Those that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ProcessCounting(Counting):
    """Counts the shares of an input, each in a process of its own. ``source`` is told the progress."""

    def __init__(self, scope: Scope, source: Input, shares: Sequence[Share]) -> None:
        self._scope, self._source, self._shares = scope, source, shares
        self._next = {(one, name): scope.first[name] for one in scope.starts for name in scope.streams}
        self._ended: set[int] = set()
        self._held: dict[tuple[int, str], Held] = {}
        self._outcomes: Counter[tuple[str, str]] = Counter()

    def steps(self) -> Generator[Sequence[Partial], None, None]:
        """See ``Counting.steps``. Raises EventveilError too if a child fails."""
        children: list[_Child] = []
        try:
            for share in self._shares:
                children.append(_Child(share.partitions))
            for child, share in zip(children, self._shares, strict=True):
                child.begin(self._scope, share)
            running = [*children]
            while running:
                child = min(running, key=lambda one: one.behind)
                message = child.listen()
                if isinstance(message, _End):
                    running.remove(child)
                    self._ended |= {*child.partitions}
                    for name, outcomes in message.outcomes.items():
                        self._outcomes.update({(name, outcome): count for outcome, count in outcomes.items()})
                    yield ()
                else:
                    for name, timestamp in message.next.items():
                        self._next[message.partition, name] = timestamp
                    first = child.partitions[0]
                    self._held |= {(first, name): held for name, held in message.held.items()}
                    self._source.done = sum(one.read for one in children)
                    self.events = sum(one.events for one in children)
                    self.elsewhere = sum(one.resident for one in running)
                    yield message.partials
        finally:
            for child in children:
                child.stop()

    def next(self, partition: int, name: str) -> int:
        """See ``Counting.next``."""
        return self._next[partition, name]

    def ended(self, partition: int) -> bool:
        """See ``Counting.ended``."""
        return partition in self._ended

    def close(self, partition: int, name: str) -> Partial:
        """See ``Counting.close``. Whatever had an event was closed by the child."""
        timestamp = self._next[partition, name]
        self._next[partition, name] = timestamp + 1
        return Partial(name, timestamp, partition, INSTANCE, _NONE, _NONE)

    def last_open(self, name: str) -> int:
        """See ``Counting.last_open``."""
        return 0

    def held(self, name: str) -> Held:
        """See ``Counting.held``."""
        return sum((held for (_, of), held in self._held.items() if of == name), NOTHING)

    def outcomes(self, name: str) -> Counter[str]:
        """See ``Counting.outcomes``; of children that have ended."""
        return Counter({outcome: count for (of, outcome), count in self._outcomes.items() if of == name})


class _Child:
    """A child as its parent sees it."""

    def __init__(self, partitions: Sequence[int]) -> None:
        self.partitions = partitions
        self.read = self.events = self.resident = 0
        self._appended, self._heard = NO_APPEND_TIME, 0
        self._connection, theirs = Pipe()
        with theirs:
            # In a session of its own, so that Ctrl-C is for the parent alone, which ends its children.
            self._process = Popen(
                [sys.executable, "-P", "-c", f"import {__name__} as child; child.main({theirs.fileno()})"],
                stdin=DEVNULL,
                stdout=DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    def begin(self, scope: Scope, share: Share) -> None:
        """Tell it what to do."""
        # One that has ended already is found out when it is listened to.
        with suppress(ConnectionError):
            self._connection.send((scope, share))

    @property
    def behind(self) -> tuple[int, int]:
        """The smaller, the further behind it is; where there are no append times they take turns."""
        return self._appended, self._heard

    def listen(self) -> _Step | _End:
        """What it says next. Raises EventveilError if it failed."""
        try:
            message: _Step | _End | _Failure = self._connection.recv()
        except (EOFError, ConnectionError):
            listed = ", ".join(map(str, self.partitions))
            raise EventveilError(
                f"the process that counted partitions {listed} ended with status {self._process.wait()}; "
                "if it was killed because memory ran out, --processes 1 takes less"
            ) from None
        if isinstance(message, _Failure):
            raise EventveilError(message.told)
        self._heard += 1
        if isinstance(message, _Step):
            self._appended = max(self._appended, message.appended)
            self.read, self.events, self.resident = message.read, message.events, message.resident
        return message

    def stop(self) -> None:
        """End it, whatever it does."""
        self._connection.close()
        self._process.kill()
        self._process.wait()


def count(connection: Connection) -> None:
    """Be a child: count what the parent sends, and tell it."""
    scope, share = connection.recv()
    Thread(target=_end_with_parent, args=[connection], daemon=True).start()
    allocator.settle()
    try:
        for message in _messages(scope, share):
            connection.send(message)
    except (EventveilError, KafkaException) as error:
        connection.send(_Failure(str(error)))


def _end_with_parent(connection: Connection) -> None:
    try:
        connection.recv()
    except (EOFError, OSError):
        os._exit(1)


def _messages(scope: Scope, share: Share) -> Iterator[_Step | _End]:
    counting = OwnCounting(scope, share.source, share.partitions)

    def step(partition: int, partials: Sequence[Partial], appended: int) -> _Step:
        following = {name: counting.next(partition, name) for name in scope.streams}
        held = {name: counting.held(name) for name in scope.streams}
        read, events = share.source.done, counting.events
        return _Step(partition, partials, following, appended, read, events, held, resident())

    for chunk in share.source.chunks():
        appended = max(chunk.append_times, default=NO_APPEND_TIME)
        yield from (step(chunk.partition, partials, appended) for partials in counting.observe(chunk))
        if all(map(counting.past, share.partitions)):
            break
    for partition in share.partitions:
        for name in scope.streams:
            last = counting.last_open(name)
            while (timestamp := counting.next(partition, name)) <= last and not scope.past(name, timestamp):
                yield step(partition, [counting.close(partition, name)], NO_APPEND_TIME)
    yield _End({name: counting.outcomes(name) for name in scope.streams})


def main(descriptor: int) -> None:
    """Be a child, whose parent is at the other end of the socket."""
    count(Connection(descriptor))
