"""Which fault comes next: dealt from shuffled decks, so that a run has some of each kind. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from tests.chaos.points import FAULT_POINTS

#: How often each kind is in a deck. A deck takes about four minutes.
KINDS = {
    "kill-at-point": 12,
    "freeze-at-point": 8,
    "kill": 3,
    "broker-kill": 2,
    "broker-pause": 1,
    "network-cut": 2,
    "network-delay": 2,
    "rebalance-storm": 1,
    "outlive-transaction": 1,
    "aborted-partials": 2,
    "clock-back": 1,
    "clock-forward": 1,
    "downtime": 1,
    "restart": 1,
}
#: A run of less than a deck begins with one of each that takes little time.
_FIRST = (
    "kill-at-point", "freeze-at-point", "outlive-transaction", "broker-kill", "network-cut",
    "aborted-partials", "rebalance-storm", "network-delay", "clock-back", "clock-forward", "downtime",
)  # fmt: skip
#: Where an open transaction can be held for longer than the broker lets it.
_OPEN = tuple(point for point in FAULT_POINTS if point.endswith((":produced", ":before-commit")))


#: What happens to the brokers of a cluster, beside what happens to workers.
CLUSTER_KINDS = {
    "leader-kill": 3,
    "two-kill": 1,
    "controller-kill": 1,
    "rolling-restart": 1,
    "leader-pause": 2,
    "cut-from-controller": 3,
    "cut-from-brokers": 2,
    "cut-from-clients": 2,
    "cut-from-all": 2,
    "transaction-coordinator-moved": 1,
    "group-coordinator-moved": 1,
    "unclean-moment": 1,
    "disk-full": 1,
    "log-lost": 1,
}
#: A short run begins with these.
_FIRST_OF_CLUSTER = ("cut-from-all", "leader-kill", "cut-from-controller")
_ONE_BROKER = ("broker-kill", "broker-pause")


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing to happen: its kind, the worker and the point it happens to.

    ``share`` in 0..1 says how much of what the kind can be (how long, how late), ``turns`` how many turns a
    storm has, ``pause`` how many seconds pass before the next fault.
    """

    kind: str
    worker: int
    point: str
    share: float
    turns: int
    pause: float


@dataclass(frozen=True, slots=True)
class ClusterFault:
    """One thing to happen to a cluster: its kind, and, in 0..1, its ``place`` and its ``share`` of time.

    ``way`` in 0..2 says which way a cut goes.
    """

    kind: str
    place: float
    share: float
    way: int


def faults(seed: int, workers: int, brokers: int = 1) -> Iterator[Fault]:
    """The faults of workers, and of a single broker, without end; the same for the same seed."""
    chance = random.Random(seed)
    points, open_points = _dealt(chance, FAULT_POINTS), _dealt(chance, _OPEN)
    apart = () if brokers == 1 else _ONE_BROKER
    deck = [kind for kind, copies in KINDS.items() for _ in range(copies) if kind not in apart]
    first = [kind for kind in chance.sample(_FIRST, len(_FIRST)) if kind not in apart]
    for number, kind in enumerate(chain(first, _dealt(chance, deck))):
        yield Fault(
            kind=kind,
            worker=chance.randrange(workers),
            point=next(open_points if kind == "outlive-transaction" else points),
            share=chance.uniform(0, 1),
            turns=4 if number < len(first) else 40,
            pause=chance.uniform(0.2, 1.5),
        )


def cluster_faults(seed: int) -> Iterator[ClusterFault]:
    """The faults of a cluster, without end; the same for the same seed."""
    chance = random.Random(seed + 1)
    deck = [kind for kind, copies in CLUSTER_KINDS.items() for _ in range(copies)]
    first = chance.sample(_FIRST_OF_CLUSTER, len(_FIRST_OF_CLUSTER))
    for kind in chain(first, _dealt(chance, deck)):
        yield ClusterFault(kind, chance.random(), chance.uniform(0, 1), chance.randrange(3))


def _dealt(chance: random.Random, cards: Sequence[str]) -> Iterator[str]:
    """All cards in random order, again and again."""
    while True:
        yield from chance.sample(cards, len(cards))
