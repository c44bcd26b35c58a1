"""The exact privacy loss of ``totals``, whose draws are ahead of the counts and in several releases each.

Everything random is in the draws. Let the same outputs come from counts x with draws z, and from neighbouring
counts x + d with draws z + a, for every z and an a that does not depend on z. Then any output is at most
e^(sum of |a| / scale) times as likely with x as with x + d. So the loss is bounded by the cheapest such a;
it is searched for among all there are, without knowledge of which draw is for what.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import exp, log
from typing import Any

import numpy as np
import orjson
import pytest

from eventveil.mechanisms.base import Counts, Mechanism
from eventveil.mechanisms.contract.subject import outcome
from eventveil.mechanisms.registry import KINDS
from eventveil.model.topology import MechanismSettings

EPSILON = Fraction(3, 2)
OTHERS = (0, 2, 1, 0, 1, 3)
Public = list[Mapping[str, object]]
Draws = tuple[int, ...]


class Given:
    """Draws in the order in which they are asked for; ``scales``: of each."""

    def __init__(self, draws: Sequence[int]) -> None:
        self._draws, self.scales = list(draws), list[Fraction]()

    def rounded_normal(self, sigma: Fraction, size: int) -> Counts:
        return self.discrete_laplace(sigma, size)

    def discrete_laplace(self, scale: Fraction, size: int) -> Counts:
        first = len(self.scales)
        self.scales += [scale] * size
        some = self._draws[first : first + size]
        return np.array(some + [0] * (size - len(some)), np.int64)


def run(
    blocks: str | MechanismSettings,
    counts: Sequence[Counts],
    draws: Draws,
    sensitivity: int = 1,
    epsilon: Fraction = EPSILON,
) -> tuple[Public, Given]:
    """Everything public of each timestamp, and what was drawn."""
    noise = Given(draws)
    settings = blocks if isinstance(blocks, MechanismSettings) else in_blocks(blocks, epsilon)
    kind: type[Mechanism] = KINDS[settings.kind]
    mechanism = kind(settings, len(counts[0]), sensitivity, noise)
    seen: Public = []
    for one in counts:
        told = outcome(mechanism.step(one))
        state: dict[str, Any] = orjson.loads(mechanism.snapshot())
        seen.append(told | {name: part for name, part in state.items() if name not in kind.raw})
    return seen, noise


def in_blocks(blocks: str, epsilon: Fraction) -> MechanismSettings:
    return MechanismSettings("totals", epsilon, str(epsilon), 1, options={"blocks": blocks})


def stream(length: int, columns: int) -> list[Counts]:
    return [np.resize(np.roll(OTHERS, -i), columns).astype(np.int64) for i in range(length)]


def some_draws(count: int) -> Iterator[Draws]:
    """Small ones that leave every remainder, and far ones."""
    random = np.random.default_rng(3)
    for limit in (1, 2, 5, 10**6):
        for _ in range(10):
            yield tuple(random.integers(-limit, limit + 1, count).tolist())


def loss_of(
    blocks: str | MechanismSettings,
    length: int,
    at: int,
    visit: Sequence[int],
    sensitivity: int = 1,
    power: int = 1,
    *,
    both_ways: bool = False,
) -> float:
    """The loss of a user who adds ``visit`` at timestamp ``at``, from 0; infinite if no change hides that.

    ``power``: 2 for normal draws, of which the squares of what changes add up, to mu squared. ``both_ways``:
    draws that hide the user may be larger too.
    """
    without = stream(length, len(visit))
    present = [one + np.array(visit) * (i == at) for i, one in enumerate(without)]
    scales = run(blocks, without, (), sensitivity)[1].scales
    steps = sorted({0, *(-one for one in visit), -sum(visit)})
    if both_ways or power == 2:  # a look at the parts of a block moves either way, and by their difference
        most = sum(map(abs, visit))
        steps = [*range(-most, most + 1)]
    changes = [
        change for change in itertools.product(steps, repeat=len(scales)) if sum(map(bool, change)) <= 8
    ]
    for draws in some_draws(len(scales)):
        expected = run(blocks, without, draws, sensitivity)[0]
        changes = [
            one for one in changes if run(blocks, present, _sum(draws, one), sensitivity)[0] == expected
        ]
        if not changes:
            return float("inf")
    return float(min(_price(change, scales, power) for change in changes))


def _sum(one: Draws, other: Draws) -> Draws:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _price(change: Iterable[int], scales: Iterable[Fraction], power: int) -> Fraction:
    return sum(((abs(one) / scale) ** power for one, scale in zip(change, scales, strict=True)), Fraction(0))


@pytest.mark.parametrize(
    ("blocks", "length", "at"),
    [*(("2", 4, at) for at in range(4)), ("3", 3, 1), ("2,4", 4, 0), ("2,4", 4, 2)],
)
def test_one_timestamp_of_a_user_costs_epsilon_and_no_more(blocks: str, length: int, at: int) -> None:
    assert loss_of(blocks, length, at, (1,)) == pytest.approx(float(EPSILON), abs=1e-12)


def test_two_contributions_are_covered_by_a_sensitivity_of_two() -> None:
    for visit in ((1, 1), (2, 0)):
        assert loss_of("2", 2, 1, visit, sensitivity=2) == pytest.approx(float(EPSILON), abs=1e-12)
        assert loss_of("2", 2, 1, visit, sensitivity=1) == pytest.approx(2 * float(EPSILON), abs=1e-12)


def likelihoods(counts: Sequence[int], reach: int, epsilon: Fraction) -> dict[tuple[int, ...], float]:
    """The probability of the releases of a block of two, summed over all draws within reach."""
    made = [np.array([one]) for one in counts]
    scale = float(run("2", made, (), epsilon=epsilon)[1].scales[0])
    ratio = exp(-1 / scale)
    mass = {z: (1 - ratio) / (1 + ratio) * ratio ** abs(z) for z in range(-reach, reach + 1)}
    found: dict[tuple[int, ...], float] = {}
    for draws in itertools.product(mass, repeat=3):
        released = tuple(one["counts"][0] for one in run("2", made, draws, epsilon=epsilon)[0])  # type: ignore[index]
        found[released] = found.get(released, 0.0) + mass[draws[0]] * mass[draws[1]] * mass[draws[2]]
    return found


def test_no_release_is_more_likely_by_more_than_e_to_epsilon_in_a_small_world_counted_out() -> None:
    """Independently of how the draws change: the likelihoods themselves, near the counts."""
    epsilon = Fraction(4)  # of draws that are nearly all within reach
    plain, present = (likelihoods(counts, 5, epsilon) for counts in ((1, 0), (2, 0)))
    losses = [abs(log(plain[one] / present[one])) for one in itertools.product(range(-1, 4), range(-2, 3))]
    assert 0.6 * epsilon < max(losses) <= epsilon
