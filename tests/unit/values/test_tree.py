"""Noise trees against dense linear algebra and against their own nodes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from eventveil.privacy.noise import SeededNoise
from eventveil.values.tree import (
    LEAF_LIMIT,
    ConsistentTree,
    PrefixTree,
    TreeNoise,
    consistent,
    height,
    smoothed_levels,
)
from tests.unit.values.noises import Constant, Recording

TREES = [(2, 1), (2, 2), (2, 5), (3, 3), (4, 3), (16, 2), (16, 3)]


def nodes_of(fanout: int, levels: int, seed: int) -> list[NDArray[np.int64]]:
    noise = SeededNoise(seed)
    return [noise.discrete_laplace(Fraction(50), fanout ** (levels - 1 - level)) for level in range(levels)]


def least_squares(nodes: list[NDArray[np.int64]], fanout: int) -> NDArray[np.float64]:
    """The leaves that fit all nodes best, by a dense solver."""
    leaves = len(nodes[0])
    rows = [
        (np.arange(leaves) // fanout**level == node).astype(float)
        for level, noise in enumerate(nodes)
        for node in range(len(noise))
    ]
    return np.linalg.lstsq(np.array(rows), np.concatenate(nodes).astype(float), rcond=None)[0]


@pytest.mark.parametrize(("fanout", "levels"), TREES)
def test_consistent_noise_is_the_least_squares_solution(fanout: int, levels: int) -> None:
    for seed in range(5):
        nodes = nodes_of(fanout, levels, seed)
        exact = least_squares(nodes, fanout).cumsum()
        assert np.abs(consistent(nodes, fanout).cumsum() - exact).max() <= 0.5 + 1e-6


@pytest.mark.parametrize(("fanout", "levels"), TREES)
def test_consistency_in_advance_is_consistency_of_the_noisy_sums(fanout: int, levels: int) -> None:
    truth = np.random.default_rng(7).integers(0, 1000, fanout ** (levels - 1))
    sums = [truth.reshape(-1, fanout**level).sum(axis=1) for level in range(levels)]
    noise = nodes_of(fanout, levels, 8)
    offline = consistent([total + each for total, each in zip(sums, noise, strict=True)], fanout)
    assert (offline == truth + consistent(noise, fanout)).all()


def test_consistency_is_exact_for_noise_beyond_machine_integers() -> None:
    nodes = [np.array([3 * 2**70, 0], object), np.array([0], object)]
    assert consistent(nodes, 2).tolist() == [2**61, -(2**61)]  # 2**71 and -2**70, clamped


@pytest.mark.parametrize(
    ("fanout", "chunk", "expected"),
    [
        (16, 2**20, 5),
        (16, 2**20 + 1, 6),
        (16, 2**20 - 1, 5),
        (2, 2, 1),
        (2, 3, 2),
        (10, 1000, 3),
        (5, 125, 3),
        (7, 2, 1),
    ],
)
def test_the_height_is_counted_in_integers(fanout: int, chunk: int, expected: int) -> None:
    assert height(fanout, chunk) == expected


@pytest.mark.parametrize(("epsilon", "expected"), [("1/100", 3), ("1/20", 2), ("1", 1), ("1000", 0)])
def test_equation_7_chooses_the_levels_without_noise(epsilon: str, expected: int) -> None:
    assert smoothed_levels(Fraction(epsilon), 16, 2**20) == expected
    errors = [15 * (5 - s) ** 3 * 2 / float(Fraction(epsilon)) ** 2 + 16 ** (2 * s) / 36 for s in range(5)]
    assert int(np.argmin(errors)) == expected


def test_a_tree_is_never_larger_than_what_fits_into_a_record() -> None:
    smoothed = smoothed_levels(Fraction(10**6), 2, 2**20)
    assert 2 ** (20 - smoothed - 1) == LEAF_LIMIT


@pytest.mark.parametrize("kind", [ConsistentTree, PrefixTree])
@pytest.mark.parametrize("batches", [[1] * 27, [27], [5, 0, 9, 13], [26, 1]])
def test_leaves_come_one_after_another_however_they_are_asked_for(
    kind: type[TreeNoise], batches: list[int]
) -> None:
    source = Recording(3)
    tree = kind(source, Fraction(10), 3, 3)
    leaves = np.concatenate([tree.take(count) for count in batches])
    assert {scale for scale, _ in source.calls} == {Fraction(10)}
    if kind is ConsistentTree:
        assert [len(draws) for _, draws in source.calls] == [9, 3, 1] * 3
        trees = [[draws for _, draws in source.calls[3 * i : 3 * i + 3]] for i in range(3)]
        assert (leaves == np.concatenate([consistent(nodes, 3) for nodes in trees])).all()
    else:
        levels = [np.concatenate([draws for _, draws in source.calls[level::3]]) for level in range(3)]
        assert list(map(len, levels)) == [27, 9, 3]
        assert leaves.cumsum().tolist() == [prefix(end, levels) for end in range(1, 28)]


def prefix(end: int, levels: list[NDArray[np.int64]]) -> int:
    """The noise of the fewest nodes that make up the first ``end`` leaves, fan-out 3."""
    total = sum(int(noise) for noise in levels[2][: end // 9])
    total += sum(int(noise) for noise in levels[1][end // 9 * 3 : end // 3])
    return total + sum(int(noise) for noise in levels[0][end // 3 * 3 : end])


@pytest.mark.parametrize("kind", [ConsistentTree, PrefixTree])
def test_a_restored_tree_goes_on_with_the_same_noise(kind: type[TreeNoise]) -> None:
    one = kind(Recording(1), Fraction(10), 3, 3)
    one.take(4)
    other = kind(Constant(), Fraction(10), 3, 3)
    other.restore(one.snapshot())
    if kind is ConsistentTree:
        assert (other.take(5) == one.take(5)).all()  # drawn before, so no source is asked
    else:
        assert int(other.take(5).sum()) == -sum(one.snapshot()["open"])  # what is open goes when nodes close


@pytest.mark.parametrize("kind", [ConsistentTree, PrefixTree])
@pytest.mark.parametrize("state", [None, [1.5], [True], {"taken": -1, "open": [0, 0, 0]}, [0] * 10, [2**62]])
def test_what_is_no_noise_is_refused(kind: type[TreeNoise], state: object) -> None:
    with pytest.raises(ValueError, match=r"noise of a tree|taken should"):
        kind(Constant(), Fraction(10), 3, 3).restore(state)
