"""The Partition program against the exact one."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from eventveil.mechanisms.segmentation import Groups, partition

COUNTS = st.lists(st.one_of(st.integers(-9, 9), st.integers(-(2**40), 2**40)), min_size=1, max_size=24)


def group_cost(counts: list[int], fixed: int) -> int:
    """By Formula (6), with the factor that Formula (8) lacks; squared errors rounded down."""
    mean = Fraction(sum(counts), len(counts))
    return int(sum((count - mean) ** 2 for count in counts)) + fixed


def least_cost(counts: list[int], parts: int, fixed: int) -> int:
    """Every way to cut, by the recurrence of Formula (7) without approximation."""
    size = len(counts)
    costs = [[group_cost(counts[i:j], fixed) if i < j else 0 for j in range(size + 1)] for i in range(size)]
    best: list[int | float] = [0, *[float("inf")] * size]
    least: list[int | float] = list(best)
    for _ in range(parts):
        best = [0] + [min(best[i] + costs[i][j] for i in range(j)) for j in range(1, size + 1)]
        least = [min(one, other) for one, other in zip(least, best, strict=True)]
    return int(least[size])


def cost_of(counts: list[int], groups: Groups, fixed: int) -> int:
    """What the groups cost; they must follow each other and hold what they say."""
    total, start = 0, 0
    for length, group_total in groups:
        group = counts[start : start + length]
        assert length == len(group) >= 1
        assert group_total == sum(group)
        total, start = total + group_cost(group, fixed), start + length
    assert start == len(counts)
    return total


@given(counts=COUNTS, parts=st.integers(1, 6), fixed=st.integers(1, 1000))
def test_without_tolerance_the_partition_is_the_best(counts: list[int], parts: int, fixed: int) -> None:
    groups = partition(counts, parts, Fraction(0), fixed)
    assert len(groups) <= parts
    assert cost_of(counts, groups, fixed) == least_cost(counts, parts, fixed)


@given(
    counts=COUNTS,
    parts=st.integers(1, 6),
    fixed=st.integers(1, 50),
    delta=st.fractions(Fraction(1, 20), 3, max_denominator=20),
)
def test_the_partition_is_never_worse_than_the_promised_factor(
    counts: list[int], parts: int, fixed: int, delta: Fraction
) -> None:
    groups = partition(counts, parts, delta, fixed)
    assert len(groups) <= parts
    least = least_cost(counts, parts, fixed)
    assert least <= cost_of(counts, groups, fixed) <= (1 + delta) ** (parts - 1) * least


def test_steps_are_found_and_a_costly_mean_makes_fewer_groups() -> None:
    counts = [1, 1, 4, 2, 6, 2, 2]  # Section 2.3, whose three groups have a squared error of 8; 6 is possible
    assert cost_of(counts, ((2, 2), (3, 12), (2, 4)), 0) == 8
    assert partition(counts, 3, Fraction(0), 1) == ((4, 8), (1, 6), (2, 4))
    assert partition(counts, 3, Fraction(0), 100) == ((7, 18),)


def test_the_tolerance_saves_work_and_costs_no_more_than_it_says() -> None:
    counts = [(i * i) % 97 for i in range(200)]
    exact = cost_of(counts, partition(counts, 20, Fraction(0), 2), 2)
    rough = cost_of(counts, partition(counts, 20, Fraction(1, 40), 2), 2)
    assert exact <= rough <= exact * Fraction(41, 40) ** 19
