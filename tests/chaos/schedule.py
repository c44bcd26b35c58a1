"""Which fault comes next: dealt from shuffled decks, so that a run has some of each kind. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from operators.faults import FAULT_POINTS

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


def faults(seed: int, workers: int) -> Iterator[Fault]:
    """The faults of a run, without end; the same for the same seed."""
    chance = random.Random(seed)
    points, open_points = _dealt(chance, FAULT_POINTS), _dealt(chance, _OPEN)
    deck = [kind for kind, copies in KINDS.items() for _ in range(copies)]
    first = chance.sample(_FIRST, len(_FIRST))
    for number, kind in enumerate(chain(first, _dealt(chance, deck))):
        yield Fault(
            kind=kind,
            worker=chance.randrange(workers),
            point=next(open_points if kind == "outlive-transaction" else points),
            share=chance.uniform(0, 1),
            turns=4 if number < len(first) else 40,
            pause=chance.uniform(0.2, 1.5),
        )


def _dealt(chance: random.Random, cards: Sequence[str]) -> Iterator[str]:
    """All cards in random order, again and again."""
    while True:
        yield from chance.sample(cards, len(cards))
