"""The exact distribution of a random report: every random decision is followed both ways."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from fractions import Fraction

import pytest

from eventveil.local import reports, sampling

Masses = dict[int, Fraction]


class Script:
    """Takes the decisions it is told, then the first of each; remembers what else could have been decided."""

    def __init__(self, decisions: list[int]) -> None:
        self._decisions = decisions
        self.taken: list[int] = []
        self.open: list[list[int]] = []
        self.probability = Fraction(1)

    def choose(self, probabilities: Mapping[int, Fraction]) -> int:
        """One of the keys."""
        possible = [each for each, probability in probabilities.items() if probability]
        index = len(self.taken)
        choice = self._decisions[index] if index < len(self._decisions) else possible[0]
        if index >= len(self._decisions):
            self.open += [[*self.taken, each] for each in possible[1:]]
        self.taken.append(choice)
        self.probability *= probabilities[choice]
        return choice

    def below(self, bound: int) -> int:
        return self.choose({each: Fraction(1, bound) for each in range(bound)})


def follow_probabilities(patch: pytest.MonkeyPatch) -> None:
    """Let ``happens`` branch by its probability instead of by a large uniform integer."""

    def branch(probability: Fraction, script: Script) -> bool:
        return bool(script.choose({0: 1 - probability, 1: probability}))

    for module in (sampling, reports):
        patch.setattr(module, "happens", branch)


def masses(report: Callable[[Script], int]) -> Masses:
    """The probability of every report, exactly."""
    found: dict[int, Fraction] = defaultdict(Fraction)
    waiting: list[list[int]] = [[]]
    while waiting:
        script = Script(waiting.pop())
        found[report(script)] += script.probability
        waiting += script.open
    return dict(found)
