"""Random histories of operations, and every answer that a log gives to one.

A history has producers of a few identities. Each may stop between any two steps and act again at any later
one, as a process does that was paused: whether it was fenced meanwhile is for the log to say. A producer that
is never heard of again has crashed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from confluent_kafka import KafkaException

from eventveil.kafka.writer import Appended
from eventveil.model.records import Outgoing, TopicPartition
from tests.conformance.logs import BOTH, SECONDS, Log

#: How many are compared with a broker's.
HISTORIES = 24
#: Of each history.
PARTITIONS, IDENTITIES, STEPS = 3, 2, 30
LASTS = 120.0


class Step(NamedTuple):
    """A method of ``_Player`` and its arguments."""

    name: str
    arguments: tuple[Any, ...] = ()


def history(seed: int, steps: int = STEPS) -> list[Step]:
    """The same steps for the same seed."""
    rnd = random.Random(seed)
    made, producers = [], 0
    for _ in range(steps):
        kinds = ("initialise", "write", "add", "commit", "abort", "append", "read", "trim")
        (name,) = rnd.choices(kinds, (3, 9, 2, 5, 2, 2, 2, 1))
        if name == "initialise" or producers == 0:
            made.append(Step("initialise", (rnd.randrange(IDENTITIES),)))
            producers += 1
            continue
        # Mostly one of the last producers, else one that is fenced, or was at rest for long.
        producer = producers - 1 - min(int(rnd.expovariate(0.9)), producers - 1)
        places = tuple(rnd.sample(range(PARTITIONS), rnd.choice((1, 1, 2))))
        arguments: dict[str, tuple[Any, ...]] = {
            "write": (producer, places, rnd.randint(1, 3)),
            "add": (producer, places),
            "commit": (producer,),
            "abort": (producer,),
            "append": (places, rnd.randint(1, 2)),
            "read": (places[0], rnd.random()),
            "trim": (places[0], rnd.random()),
        }
        made.append(Step(name, arguments[name]))
    return made


def answers(log: Log, topic: str, first: int, prefix: str, steps: Sequence[Step]) -> Iterator[object]:
    """What the log answers to each step, where its partitions end then, and what they hold in the end.

    The history has the partitions of ``topic`` from ``first`` on to itself, and the identities that begin
    with ``prefix``.
    """
    player = _Player(log, [(topic, first + one) for one in range(PARTITIONS)], prefix)
    for step in steps:
        act: Callable[..., object] = getattr(player, step.name)
        try:
            answer = act(*step.arguments)
        except KafkaException as error:
            answer = error.args[0].name()
        yield step, answer, player.bounds()
    for one in range(PARTITIONS):
        yield one, player.read(one, 0.0)


class _Player:
    def __init__(self, log: Log, places: Sequence[TopicPartition], prefix: str) -> None:
        self._log, self._places, self._prefix = log, places, prefix
        self._producers: list[Any] = []
        self._written = 0

    def initialise(self, identity: int) -> None:
        writer = self._log.writer(f"{self._prefix}-{identity}", LASTS)
        writer.initialise(SECONDS)
        writer.begin(SECONDS)
        self._producers.append(writer)

    def write(self, producer: int, places: Sequence[int], count: int) -> object:
        return self._spots(self._producers[producer].write(self._new(places, count)))

    def add(self, producer: int, places: Sequence[int]) -> None:
        self._producers[producer].add([self._places[one] for one in places])

    def commit(self, producer: int) -> None:
        self._producers[producer].commit(SECONDS)
        self._producers[producer].begin(SECONDS)

    def abort(self, producer: int) -> None:
        self._producers[producer].abort(SECONDS)
        self._producers[producer].begin(SECONDS)

    def append(self, places: Sequence[int], count: int) -> object:
        return self._spots(self._log.append(self._new(places, count)))

    def trim(self, place: int, share: float) -> None:
        spot = self._places[place]
        first, end = self._log.start(spot), self._log.end(spot)
        self._log.delete_before(spot, first + int(share * (end - first)))

    def read(self, place: int, share: float) -> object:
        """What both readers see from somewhere on; a share of 0 is the beginning."""
        spot, found = self._places[place], []
        first = self._log.start(spot)
        for isolation in BOTH:
            start = first + int(share * (self._log.end(spot, isolation) - first))
            found.append([(one.offset, one.value) for one in self._log.records(spot, start, isolation)])
        return first, found

    def bounds(self) -> list[list[int]]:
        topic, first = self._places[0]
        return self._log.bounds(topic, range(first, first + PARTITIONS))

    def _new(self, places: Sequence[int], count: int) -> list[Outgoing]:
        made = []
        for number in range(count):
            for one in places:
                topic, partition = self._places[one]
                self._written += 1
                made.append(Outgoing(topic, b"%d" % self._written, b"%d" % number, partition))
        return made

    def _spots(self, appended: Sequence[Appended]) -> list[tuple[int, int]]:
        """Where each record lies; how they were batched is the writer's affair."""
        first = self._places[0][1]
        return sorted(
            (one.partition - first, offset)
            for one in appended
            for offset in range(one.offset, one.offset + one.count)
        )
