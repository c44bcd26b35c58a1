"""Levels that add up: against the estimate of least variance, worked out as one system of equations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eventveil import read
from tests.unit.read.making import HOUR, ORIGIN, releases

LEAVES = ("a|x|1", "a|x|2", "a|y|1", "b|x|1", "b|x|2", "b|x|3")
MIDDLE = ("a|x", "a|y", "b|x")
TOP = ("a", "b")
#: Rows: what each column of all levels is of the leaves.
SUMS = np.array([[leaf.startswith(name) for leaf in LEAVES] for name in (*TOP, *MIDDLE, *LEAVES)], float)


def level(columns: tuple[str, ...], counts: Any, errors: Any, **more: Any) -> read.Releases:
    made = releases(counts, errors, **more)
    return replace(made, columns=columns, stream="/".join(columns[:1]))


def split(values: np.ndarray) -> list[np.ndarray]:
    return np.split(values, [len(TOP), len(TOP) + len(MIDDLE)], axis=1)


def test_three_levels_are_the_linear_unbiased_estimate_of_least_variance() -> None:
    random = np.random.default_rng(1)
    errors = random.uniform(1, 50, (30, len(SUMS)))
    counts = np.rint(SUMS @ random.uniform(500, 900, len(LEAVES)) + random.normal(0, errors))
    made = [level(*one) for one in zip((TOP, MIDDLE, LEAVES), split(counts), split(errors), strict=True)]
    found = read.consistent(*made)
    for row in range(len(counts)):
        weights = SUMS.T / errors[row] ** 2
        covariance = np.linalg.inv(weights @ SUMS)
        leaves = covariance @ weights @ counts[row]
        expected = split((SUMS @ leaves)[np.newaxis])
        deviations = split(np.sqrt(np.diag(SUMS @ covariance @ SUMS.T))[np.newaxis])
        for one, values, own in zip(found, expected, deviations, strict=True):
            assert one.counts[row] == pytest.approx(values[0])
            assert one.errors[row] == pytest.approx(own[0])


def test_errors_are_those_of_the_new_counts_where_columns_err_together() -> None:
    """Of a kind that filters: correlation as `totals` has it."""
    random, draws, count = np.random.default_rng(2), 20_000, 50
    covariance = 25.0 * (0.9 * np.eye(4) + 0.1)
    fine = random.multivariate_normal(np.full(4, count), covariance, draws)
    coarse = random.normal(4 * count, 8, (draws, 1))
    # So large that nothing of an error is a scatter of its own, and counts as good as not rounded.
    parts = [
        level(columns, np.rint(1e6 + 1e3 * values), 1e3 * error, kind="seasonal")
        for columns, values, error in ((("all",), coarse, 8.0), (("a", "b", "c", "d"), fine, 5.0))
    ]
    top, leaves = read.consistent(*(replace(one, counts=one.counts - 10**6) for one in parts))
    assert np.allclose(leaves.counts.sum(axis=1), top.counts[:, 0])
    for one, truth in ((top, 4e3 * count), (leaves, 1e3 * count)):
        root = np.sqrt(((one.counts - truth) ** 2).mean(axis=0))
        assert root == pytest.approx(one.errors.mean(axis=0), rel=0.02)
    assert top.errors.mean() < 0.85 * 8e3
    assert leaves.errors.mean() < 0.95 * 5e3


def test_nothing_becomes_negative_where_nothing_was() -> None:
    top, leaves = read.consistent(
        level(("a",), [[4], [4]], 1.0),
        level(("a|x", "a|y", "a|z"), [[9, 0, 0], [9, 0, -2]], [[3.0, 3.0, 3.0]] * 2),
    )
    assert np.allclose(leaves.counts.sum(axis=1), top.counts[:, 0])
    assert (leaves.counts[0] >= 0).all()
    assert leaves.counts[1, 2] < -2


def test_a_level_that_knows_nothing_yet_follows_the_other() -> None:
    nan = np.nan
    top, leaves = read.consistent(
        level(("a",), [[10], [10], [0]], [[2.0], [nan], [nan]]),
        level(("a|x", "a|y"), [[0, 0], [3, 4], [0, 2]], [[nan, nan], [1.0, 1.0], [nan, nan]]),
    )
    assert top.counts[:, 0].tolist() == [10, 7, 2]
    assert leaves.counts.tolist() == [[5, 5], [3, 4], [0, 2]]
    assert np.isnan(leaves.errors[[0, 2]]).all()
    assert leaves.errors[1].tolist() == [1.0, 1.0]


def test_a_parent_of_found_columns_has_a_rest_that_is_not_negative() -> None:
    nan = np.nan
    fine = level(("other", "a|x", "b|x"), [[9, 0, 0]] * 3, 1.0, kind="seasonal")
    counts = np.array([[9, 4, nan], [9, 8, 3], [9, 30, 3]])
    fine = replace(fine, counts=counts, errors=np.where(np.isnan(counts), nan, 2.0))
    top, leaves = read.consistent(level(("other", "a", "b"), [[1, 20, 5]] * 3, 1.0), fine)
    assert leaves.columns == ("a|x", "b|x", "a|other", "b|other", "other")
    assert np.array_equal(leaves.counts[:2], [[4, nan, 16, 5, 1], [8, 3, 12, 2, 1]], equal_nan=True)
    assert leaves.errors[0, 2] == pytest.approx(np.hypot(1, 2))
    assert leaves.counts[2, 0] == top.counts[2, 1] == pytest.approx((20 * 4 + 30) / 5)
    assert leaves.counts[2, 2] == 0
    assert top.counts[:, 0].tolist() == [1, 1, 1]
    assert np.nansum(leaves.counts, axis=1) == pytest.approx(top.counts.sum(axis=1))


def test_what_is_in_no_column_counts_once_at_every_level() -> None:
    """Listed sections, and pages and links that are found in the data; some events are of no section."""
    middle = level(("other", "a|x", "b|x"), [[9, 4, 3]] * 2, 1.0)
    fine = level(("other", "a|x|1"), [[12, 4]] * 2, 1.0)
    levels = read.consistent(level(("other", "a", "b"), [[1, 20, 5]] * 2, 1.0), middle, fine)
    assert [one.columns for one in levels] == [
        ("other", "a", "b"),
        ("a|x", "b|x", "a|other", "b|other", "other"),
        ("a|x|1", "a|x|other", "b|x|other", "a|other", "b|other", "other"),
    ]
    for one in levels:
        assert one.counts.sum(axis=1) == pytest.approx(levels[0].counts.sum(axis=1))
    # Where the level above lists all, what is in no column of the finer one is in the rests.
    _, pages = read.consistent(level(("a", "b"), [[20, 5]] * 2, 1.0), middle)
    assert pages.columns == ("a|x", "b|x", "a|other", "b|other")
    assert pages.counts.sum(axis=1).tolist() == [25, 25]
    # Below a column that stands for all, it is a column like any other.
    top, whole = read.consistent(level(("all",), [[20]] * 2, 1.0), level(("other", "a"), [[9, 5]] * 2, 1.0))
    assert whole.columns == ("other", "a")
    assert whole.counts.sum(axis=1) == pytest.approx(top.counts.sum(axis=1))


def test_times_that_a_level_does_not_have_or_counted_without_a_partition_are_left_out() -> None:
    coarse = level(("a",), [[1], [2], [3]], 1.0, timestamps=[1, 2, 4])
    fine = level(("a|x",), [[1], [2], [3]], 1.0, timestamps=[2, 3, 4])
    fine = replace(fine, missing=((), (), (1,)))
    for one in read.consistent(coarse, fine):
        assert one.timestamps.tolist() == [2]


def test_levels_that_do_not_fit_are_refused_with_the_reason() -> None:
    coarse, fine = level(("a", "b"), [[1, 2]], 1.0), level(("a|x", "b|y"), [[1, 2]], 1.0)
    with pytest.raises(read.ReadingError, match="found 1"):
        read.consistent(coarse)
    with pytest.raises(read.ReadingError, match="3600000 ms long"):
        read.consistent(level(("a",), [[1]], 1.0, interval=2 * HOUR), fine)
    with pytest.raises(read.ReadingError, match="no timestamp in common"):
        read.consistent(coarse, level(("a|x",), [[1]], 1.0, first=ORIGIN + 9 * HOUR))
    with pytest.raises(read.ReadingError, match="sums over timestamps"):
        read.consistent(coarse, level(("a|x",), [[1]], 1.0, kind="time-unit", span=3))
    with pytest.raises(read.ReadingError, match="no column c, of which"):
        read.consistent(coarse, fine, parent=lambda _: "c")
    with pytest.raises(read.ReadingError, match="none of its columns"):
        read.consistent(coarse, level(("x", "y"), [[1, 2]], 1.0))
    with pytest.raises(read.ReadingError, match="Give `rest` another name"):
        read.consistent(coarse, level(("x", "a|other"), [[1, 2]], 1.0))
