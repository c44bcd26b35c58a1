"""Noise that cancels in sums: exact where it has to be, of the variance that is told, and small in state."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import orjson
import pytest

from eventveil.mechanisms.base import Counts, Mechanism
from eventveil.mechanisms.movement import noise_variance
from eventveil.mechanisms.nested import NestedNoise, fanouts_of, largest_draw, powers
from eventveil.mechanisms.registry import build
from eventveil.model.topology import MechanismSettings
from eventveil.privacy.noise import NoiseSource, SeededNoise


def make(blocks: str, *, columns: int = 2, epsilon: Fraction = Fraction(1), seed: int = 1) -> Mechanism:
    settings = MechanismSettings("totals", epsilon, str(epsilon), 1, options={"blocks": blocks})
    return build(settings, columns, 1, SeededNoise(seed))


def noise_of(blocks: str, length: int, columns: int) -> Counts:
    """(length, columns): what was added to counts of 0."""
    mechanism = make(blocks, columns=columns)
    return np.array([mechanism.step(np.zeros(columns, np.int64)).counts for _ in range(length)])


def test_blocks_add_up_to_their_own_draw_and_timestamps_to_blocks_exactly() -> None:
    draws = iter(range(1, 10**6, 7))

    def draw(size: int) -> Counts:
        asked.append([next(draws) * (-1) ** i for i in range(size)])
        return np.array(asked[-1], np.int64)

    asked: list[list[int]] = []
    nested = NestedNoise((1, 5, 15), 1)
    noise = [int(nested.take(place, draw)[0]) for place in range(45)]
    highest = [one[0] for one in asked if len(one) == 1]
    assert [sum(noise[at : at + 15]) for at in (0, 15, 30)] == highest
    assert [len(one) for one in asked] == [1, 3, 5, 5, 5] * 3  # each node once, none before its parent begins


@pytest.mark.parametrize(("blocks", "first", "end"), [
    ("24", 0, 1), ("24", 0, 24), ("24", 7, 31), ("6,24", 0, 24), ("6,24", 3, 20), ("6,24", 0, 60),
    ("2", 1, 3),
])  # fmt: skip
def test_a_sum_has_the_variance_that_is_told(blocks: str, first: int, end: int) -> None:
    columns, lengths = 4000, (1, *map(int, blocks.split(",")))
    found = noise_of(blocks, end, columns)[first:].sum(axis=0).var()
    told = sum(
        powers(weights, fanouts_of(lengths)).variance(noise_variance(float(len(lengths))))
        for weights in _weights(first, end, lengths[-1])
    )
    assert 0.9 < found / told < 1.08  # five deviations of one from 4,000; rounding is told at its worst


def _weights(first: int, end: int, longest: int) -> Iterator[np.ndarray[Any, np.dtype[np.float64]]]:
    """Those of each longest block."""
    for begin in range(first // longest * longest, end, longest):
        places = np.arange(begin, begin + longest)
        yield ((places >= first) & (places < end)).astype(np.float64)


@pytest.mark.parametrize(("blocks", "bias"), [("3,9", 0.0), ("2", 0.25), ("24", 1 / 48)])
def test_rounding_biases_sums_by_a_quarter_at_most_and_that_only_in_halves(blocks: str, bias: float) -> None:
    columns = 40_000
    sums = noise_of(blocks, 8, columns).cumsum(axis=0)
    assert np.abs(sums.mean(axis=1)).max() < bias + 6 * sums.std() / columns**0.5


def test_state_shrinks_as_noise_is_used_and_holds_none_that_was_used() -> None:
    mechanism = make("24", columns=1000)
    sizes = []
    for _ in range(25):
        mechanism.step(np.zeros(1000, np.int64))
        sizes.append(len(orjson.loads(mechanism.snapshot())["noise"][0][1]))
    assert sizes[:24] == sorted(sizes[:24], reverse=True)
    assert (sizes[23], sizes[24]) == (0, sizes[0])


@pytest.mark.parametrize("noise", [
    [], [["", ""]], [["AA==", "AA=="], ["AA==", 3]], [["AA==", "!"], ["AA==", "AA=="]],
    [["AAAA", "AA=="], ["AA==", "AA=="]], [["AA==", "AA=="], ["AA=="]], "noise",
])  # fmt: skip
def test_noise_of_another_place_or_shape_is_refused_and_changes_nothing(noise: object) -> None:
    mechanism = make("2,4", columns=1)
    mechanism.step(np.zeros(1, np.int64))
    before = mechanism.snapshot()
    damaged = orjson.dumps({**orjson.loads(before), "noise": noise})
    with pytest.raises(ValueError, match="noise"):
        mechanism.restore(damaged)
    assert mechanism.snapshot() == before


def test_noise_beyond_the_limit_of_draws_is_refused() -> None:
    mechanism = make("2", columns=1)
    mechanism.step(np.zeros(1, np.int64))
    state = orjson.loads(mechanism.snapshot())
    state["noise"][0][1] = "/////////38="  # 2**63 - 1
    with pytest.raises(ValueError, match="lie within"):
        mechanism.restore(orjson.dumps(state))


@pytest.mark.parametrize("blocks", ["2", "1024", "24,168", "1024,1048576"])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_draws_overflow_nowhere(blocks: str, sign: int) -> None:
    lengths = (1, *map(int, blocks.split(",")))
    limit = largest_draw(fanouts_of(lengths))
    turns = [sign]

    def draw(size: int) -> Counts:
        turns[0] = -turns[0]
        return np.full(size, turns[0] * 2**62, np.int64)

    nested = NestedNoise(lengths, 1)
    with np.errstate(over="raise"):
        found = [int(nested.take(place, draw)[0]) for place in range(50)]
    assert max(map(abs, found)) <= 4 * limit + 2
    if lengths == (1, 2):
        assert found[0] + found[1] == -sign * limit


def test_an_epsilon_whose_noise_could_be_cut_off_is_refused() -> None:
    make("24,168", epsilon=Fraction(1, 10**7))
    with pytest.raises(ValueError, match="too small for blocks of 168"):
        make("24,168", epsilon=Fraction(1, 10**9))


def test_a_hundred_thousand_columns_of_days_and_weeks_take_forty_bytes_each() -> None:
    columns = 100_000
    mechanism = make("24,168", columns=columns)
    mechanism.step(np.zeros(columns, np.int64))
    assert len(mechanism.snapshot()) < 45 * columns


def test_check_says_what_sums_and_single_timestamps_err_by() -> None:
    (note,) = make("24,168").notes
    assert "a block of 24 or 168 timestamps, counted from the first, has a standard deviation" in note
    assert "a standard deviation of at most 4.22" in note
    assert "a single timestamp 4.18; with time-unit a timestamp has 1.36" in note


def test_the_noise_of_one_column_does_not_depend_on_another() -> None:
    source: NoiseSource = SeededNoise(3)
    both = np.array([source.discrete_laplace(Fraction(3), 50) for _ in range(2)])
    rows = iter(range(50))
    mixed = NestedNoise((1, 4), 2)
    single = NestedNoise((1, 4), 1)
    one = [mixed.take(at, lambda size: _pair(both, rows, size // 2)).tolist() for at in range(12)]
    rows = iter(range(50))
    alone = [single.take(at, lambda size: _pair(both[:1], rows, size)).tolist() for at in range(12)]
    assert [values[0] for values in one] == [values[0] for values in alone]


def _pair(both: Counts, rows: Iterator[int], nodes: int) -> Counts:
    return np.array([both[:, next(rows)] for _ in range(nodes)]).ravel()
