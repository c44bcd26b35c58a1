"""What must hold for a value stream, as functions that raise AssertionError; mutations must make them fail.

The exact privacy loss of a hierarchy by coupling: for values V and V' that differ at one position, and any
noise N, there is noise N' with which V' gives the very same readings. N' differs from N in the nodes above
that position alone, so its density is e^(sum of |N - N'| / scale) times smaller at most, with the scales that
the code asked for. A sum of at most epsilon for every N is epsilon-differential privacy; a sum of exactly
epsilon says that no budget is left unused.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import product
from math import exp

import numpy as np
from numpy.typing import NDArray

from eventveil.privacy.noise import NoiseSource, SeededNoise
from eventveil.values import threshold
from eventveil.values.pak import Pak, PakSettings
from eventveil.values.stream import Readings, ValueStream
from eventveil.values.threshold import NoisyMaximum
from eventveil.values.tops import Tops, TopsSettings
from tests.unit.values.noises import Constant, Playback, Recording

EPSILON = Fraction(3, 2)
THETA = 10


def tops(noise: NoiseSource, **changes: object) -> Tops:
    """Fan-out 3, 27 values a chunk, one value held back and one candidate: the threshold is THETA."""
    settings = {"epsilon": EPSILON, "maximum": 50, "held": 1, "chunk": 27, "fanout": 3, "thresholds": [THETA]}
    return Tops(TopsSettings(**{**settings, **changes}), noise)  # type: ignore[arg-type]


def pak(noise: NoiseSource) -> Pak:
    """A binary tree of 16 values; THETA is all that values can be."""
    return Pak(PakSettings(EPSILON, Fraction(1, 1000), THETA, held=1, chunk=16), noise)


STREAMS = [
    (lambda noise, options=options: tops(noise, **options))
    for options in (
        {"smoothed": 0},
        {"smoothed": 1},
        {"smoothed": 2},
        {"smoothed": 0, "consistent": False},
        {"smoothed": 1, "consistent": False},
        {"smoothed": 1, "smoother": "mean"},
    )
]


def privacy_loss(make: object, values: list[int], position: int, other: int) -> float:
    """The privacy loss of replacing one value of the first chunk; asserts that readings can be equal at all.

    ``position`` counts from the first value that is released.
    """
    source = Recording(11)
    stream: ValueStream = make(source)  # type: ignore[operator]
    held = [0] * stream.shape.held
    readings = stream.step(np.array(held + values, np.int64)).values
    bottom, ceiling = stream.shape, stream.threshold
    assert ceiling is not None
    replaced = [*values[:position], other, *values[position + 1 :]]
    change = min(max(other, 0), ceiling) - min(max(values[position], 0), ceiling)
    leaf = position // bottom.node
    answers, loss, tree, seen = [], Fraction(0), -1, 0
    for index, (scale, draws) in enumerate(source.calls):
        answer = draws.copy()
        if index > 0:  # the first draw is the threshold's
            if not bottom.consistent:
                place = leaf // bottom.fanout ** (index - 1)
            else:
                if len(draws) >= seen or tree < 0:
                    tree, largest = tree + 1, len(draws)
                seen = len(draws)
                inside = leaf - tree * largest
                place = inside * len(draws) // largest if 0 <= inside < largest else len(draws)
            if place < len(answer):
                answer[place] -= change
                loss += abs(change) / scale
        answers.append(answer)
    again = make(Playback(answers))  # type: ignore[operator]
    assert (again.step(np.array(held + replaced, np.int64)).values == readings).all()
    return float(loss)


def loses_exactly_epsilon(make: object) -> None:
    """Over all positions of a chunk and the furthest values there are, also outside of the public range."""
    chunk = make(Constant()).shape.chunk  # type: ignore[operator]
    values = [(7 * i) % 23 - 5 for i in range(chunk)]
    losses = []
    for position, (one, other) in product(
        range(0, chunk, 2), [(0, THETA), (-(2**20), 2**20), (3, 4), (THETA, 0)]
    ):
        values[position] = one
        losses.append(privacy_loss(make, values, position, other))
    assert max(losses) <= float(EPSILON) + 1e-12, f"loses {max(losses)}"
    assert max(losses) >= float(EPSILON) - 1e-12, f"leaves budget unused: {max(losses)}"


def winner_masses(queries: NDArray[np.int64], kind: NoisyMaximum, reach: int = 16) -> NDArray[np.float64]:
    """The probability of each index, by trying all noise up to ``reach`` at the scale asked for."""
    asked = Constant()
    threshold.noisy_maximum(queries, EPSILON, kind, asked)
    assert asked.scale is not None
    ratio = exp(-1 / asked.scale)
    support = np.arange(-reach, reach + 1) if kind == "laplace" else np.arange(reach + 1)
    masses = dict(zip(support.tolist(), (ratio ** np.abs(support)).tolist(), strict=True))
    whole = sum(masses.values()) ** len(queries)
    won = np.zeros(len(queries))
    for draws in product(support.tolist(), repeat=len(queries)):
        size = len(draws) if kind == "laplace" else 2 * len(draws) + 8
        answer = np.array((list(draws) * size)[:size], np.int64)
        winner = threshold.noisy_maximum(queries, EPSILON, kind, Playback([answer]))
        won[winner] += np.prod([masses[draw] for draw in draws]) / whole
    return won


def threshold_loses_at_most_epsilon(kind: NoisyMaximum, reach: int = 12) -> None:
    """For every pair of neighbouring streams of two values in 0..2 and three candidates, far apart and close.

    With RESOLUTION 1, as a caller sets it, so that all noise can be tried.
    """
    assert threshold.RESOLUTION == 1
    worst = 0.0
    for cost in (0, 5 << 64):
        masses = {
            values: winner_masses(threshold.scores(np.array(values), [1, 2], cost), kind, reach)
            for values in product(range(3), repeat=2)
        }
        for one, other in product(masses, masses):
            if (one[0] == other[0]) != (one[1] == other[1]):
                worst = max(worst, float((masses[one] / masses[other]).max()))
    assert worst <= exp(EPSILON) * 1.0001, f"ratio {worst}"
    assert worst > exp(EPSILON) * 0.5, f"ratio {worst} only"


def follows_the_truth_without_noise() -> None:
    """Nothing is random but the noise handed in: with none, every node's sum is exact."""
    values = [int(value) for value in np.random.default_rng(3).integers(-3, 60, 81)]
    for make in (*STREAMS, pak):
        stream: ValueStream = make(Constant(0))
        readings = stream.step(np.array([0, *values], np.int64)).values[1:]
        ceiling, size = stream.threshold, stream.shape.node
        assert ceiling is not None
        assert readings.dtype == np.int64
        chunk = stream.shape.chunk
        for start in range(0, len(values) // chunk * chunk, chunk):
            ends = np.arange(start, start + chunk // size * size).reshape(-1, size)
            exact = np.clip(np.array(values)[ends], 0, ceiling).sum(axis=1)
            assert (readings[ends].sum(axis=1) == exact).all()


def predicts_values_and_not_sums() -> None:
    """Without noise, a constant stream is read as it is once a node is known."""
    readings = tops(Constant(0), smoothed=1).step(np.full(28, 6, np.int64)).values[1:]
    assert readings[:3].tolist() == [5, 5, 8]  # half the threshold, then what the node lacked
    assert (readings[3:] == 6).all()


def draws_new_noise_for_every_chunk() -> None:
    """Zeros in two chunks give different readings; equal ones would happen once in millions of seeds."""
    readings = tops(SeededNoise(1), smoothed=0).step(np.zeros(55, np.int64)).values
    assert (readings[1:28] != readings[28:]).any()


def cuts_off_few_values() -> None:
    """Without noise the threshold is the candidate with the best score, by a count of its own."""
    values = [1] * 700 + [20] * 280 + [900] * 20
    stream = Tops(TopsSettings(Fraction(1), 1000, held=1000, chunk=16**3, excess=Fraction(60)), Constant(0))
    stream.step(np.array(values, np.int64))
    per_step = 3 * 1000 / (60 * 16**3) * (2 * 15 * 27) ** 0.5
    best = max(range(1, 1001), key=lambda theta: -per_step * theta - sum(v >= theta for v in values))
    assert best == 21
    assert stream.threshold == best


def joined(parts: Iterable[Readings]) -> tuple[list[int], list[bool]]:
    """Readings and marks of several batches."""
    parts = list(parts)
    return [int(v) for part in parts for v in part.values], [bool(h) for part in parts for h in part.held]
