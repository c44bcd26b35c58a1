"""Totals and averages, and what they err by."""

from __future__ import annotations

import math

import numpy as np
import pytest

from eventveil.read import ReadingError
from tests.unit.read.making import HOUR, ORIGIN, releases

DAY = 24


def test_totals_and_averages_of_days_are_sums_of_counts() -> None:
    counts = np.arange(96).reshape(48, 2)
    found = releases(counts, 2.0, scales=[1.0] * 48)
    total, average = found.totals("1d"), found.averages("1d")
    assert total.groups == ("c0", "c1")
    assert total.values.tolist() == [counts[:24].sum(axis=0).tolist(), counts[24:].sum(axis=0).tolist()]
    assert np.allclose(average.values, total.values / 24)
    assert np.allclose(average.errors, total.errors / 24)
    assert np.allclose(average.high - average.low, (total.high - total.low) / 24)


def test_fresh_noise_adds_up_as_the_square_root() -> None:
    total = releases(np.ones((DAY, 1)), 2.0, scales=[1.4] * DAY).totals("1d")
    assert total.errors[0, 0] == pytest.approx(2 * math.sqrt(24))


def test_repeated_noise_adds_up_linearly() -> None:
    fresh = np.arange(DAY) % 8 == 0
    scales = np.where(fresh, 1.4, np.nan)
    total = releases(np.ones((DAY, 1)), 2.0, fresh=fresh, scales=scales, kind="sample").totals("1d")
    assert total.errors[0, 0] == pytest.approx(2 * 8 * math.sqrt(3))


def test_a_stretch_that_began_the_day_before_is_not_cut_into_two_draws_of_a_day() -> None:
    fresh = np.arange(2 * DAY) % DAY == 12
    scales = np.where(fresh, 0.7, np.nan)
    found = releases(np.ones((2 * DAY, 1)), 1.0, fresh=fresh, scales=scales, kind="sample")
    total = found.totals("1d")
    assert total.errors[1, 0] == pytest.approx(math.hypot(12, 12))


def test_what_counts_have_moved_by_is_half_new_at_each_timestamp() -> None:
    fresh, errors = np.arange(DAY) == 0, np.full((DAY, 1), math.sqrt(4 + 6))
    errors[0] = 2.0
    scales = np.where(fresh, 1.4, np.nan)
    total = releases(np.ones((DAY, 1)), errors, fresh=fresh, scales=scales, kind="sample").totals("1d")
    assert total.errors[0, 0] == pytest.approx(math.sqrt((2 + 23 * math.sqrt(4 + 3)) ** 2 + 23 * 3))


def test_counts_that_were_clipped_are_too_large_every_time() -> None:
    draw, scale, days = np.random.default_rng(4), 20.0, 60
    noisy = np.rint(draw.laplace(0, scale, (days * DAY, 1))).astype(int)
    clipped = releases(np.maximum(noisy, 0), scale * math.sqrt(2)).totals("1d")
    assert np.mean((clipped.low <= 0) & (clipped.high >= 0)) >= 0.9
    plain = releases(noisy, scale * math.sqrt(2), scales=np.full(days * DAY, scale)).totals("1d")
    assert 0.85 < np.mean((plain.low <= 0) & (plain.high >= 0)) < 1
    assert clipped.errors[0, 0] > plain.errors[0, 0]


def test_a_record_that_says_it_was_clipped_is_believed_whatever_its_counts_are() -> None:
    said = releases([[5]] * DAY, 20.0, minimum=0).totals("1d")
    scales = np.full(
        DAY, 14.0
    )  # a clipped record has none; here it shows that the word of the record decides
    with_scales = releases([[5]] * DAY, 20.0, minimum=0, scales=scales).totals("1d")
    assert with_scales.errors[0, 0] == said.errors[0, 0]
    assert releases([[5]] * DAY, 20.0, scales=scales).totals("1d").errors[0, 0] < said.errors[0, 0]


def test_what_counts_have_moved_by_may_be_the_same_in_all_columns_and_their_noise_is_not() -> None:
    fresh = np.arange(DAY) == 0
    errors = np.where(fresh, 2.0, 20.0)[:, np.newaxis]
    repeated = releases(np.ones((DAY, 4)), errors, fresh=fresh, scales=np.where(fresh, 1.4, np.nan))
    drawn = releases(np.ones((DAY, 4)), 20.0, scales=[14.0] * DAY)
    for found, more in ((repeated, True), (drawn, False)):
        one, all_of_them = found.totals("1d", groups={"one": ["c0"], "all": found.columns}).errors[0]
        assert (all_of_them > 2.2 * one) == more


def test_a_column_that_is_released_as_empty_errs_in_the_same_direction_every_time() -> None:
    found = releases(np.zeros((7 * DAY, 1)), 2.0, kind="seasonal", fresh=np.arange(7 * DAY) % 8 == 0)
    mean = (np.sqrt(17) - 1) / 2  # of Poisson numbers whose mean square is 2^2
    size = 7 * DAY
    assert found.totals("all").errors[0, 0] == pytest.approx(np.hypot(size * mean, np.sqrt(size * mean)))


def test_what_moves_one_column_may_move_another_where_counts_are_estimates() -> None:
    found = releases(np.full((DAY, 4), 9), 5.0, kind="seasonal")
    one, all_of_them = found.totals("1d", groups={"one": ["c0"], "all": found.columns}).errors[0]
    assert 2 * one < all_of_them < 4 * one


def test_what_is_filtered_errs_by_more_than_independent_stretches() -> None:
    fresh = np.arange(DAY) % 8 == 0
    counts, scales = np.ones((DAY, 1)), np.where(fresh, 1.4, np.nan)
    noisy, filtered = (
        releases(counts, 2.0, fresh=fresh, scales=scales, kind=kind).totals("1d")
        for kind in ("sample", "seasonal")
    )
    assert noisy.errors[0, 0] < filtered.errors[0, 0] <= 2 * DAY


def test_a_kind_that_is_not_known_gets_the_worst_case() -> None:
    total = releases(np.zeros((DAY, 1)), 2.0, kind="shop.kinds:Own").totals("1d")
    assert total.errors[0, 0] == pytest.approx(2 * DAY)


def test_the_noise_of_columns_is_independent() -> None:
    found = releases(np.ones((DAY, 9)), 2.0, scales=[1.4] * DAY)
    groups = {"some": [f"c{at}" for at in range(4)], "all": list(found.columns)}
    total = found.totals(groups=groups)
    assert total.values[0].tolist() == [4, 9]
    assert total.errors[0].tolist() == pytest.approx([4, 6])


def test_groups_can_be_a_function_of_the_column() -> None:
    found = releases([[1, 2, 4]], 1.0)
    total = found.totals(groups=lambda column: {"c0": "a", "c2": "a"}.get(column))
    assert total.groups == ("a",)
    assert total.values.tolist() == [[5]]


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ({"a": ["c0", "c7"]}, "no column c7"),
        ({"a": ["c0", "c0"]}, "a column twice"),
        ({"a": []}, "no column"),
        ({"a": "c0"}, "a text"),
        ({}, "no group"),
    ],
)
def test_groups_that_cannot_be_are_refused(groups: dict[str, list[str]], words: str) -> None:
    with pytest.raises(ReadingError, match=words):
        releases([[1, 2, 4]], 1.0).totals(groups=groups)


def test_a_day_with_a_gap_has_no_total_unless_it_may_be_partial() -> None:
    timestamps = [*range(1, 25), *range(26, 49)]
    found = releases(np.ones((47, 1)), 1.0, timestamps=timestamps)
    total = found.totals("1d")
    assert total.complete.tolist() == [True, False]
    assert total.timestamps.tolist() == [24, 23]
    assert total.values[0, 0] == 24
    assert np.isnan([total.values[1, 0], total.errors[1, 0], total.low[1, 0], total.high[1, 0]]).all()
    assert found.totals("1d", partial=True).values[:, 0].tolist() == [24, 23]
    assert found.averages("1d", partial=True).values[:, 0].tolist() == [1, 1]


def test_all_of_releases_with_a_gap_is_not_complete() -> None:
    found = releases(np.ones((3, 1)), 1.0, timestamps=[1, 2, 4])
    assert np.isnan(found.totals("all").values).all()


def test_an_error_that_is_not_known_leaves_the_total_and_takes_its_interval() -> None:
    errors = np.ones((48, 1))
    errors[3] = np.nan
    total = releases(np.ones((48, 1)), errors, kind="seasonal").totals("1d")
    assert total.values[:, 0].tolist() == [24, 24]
    assert np.isnan(total.errors[:, 0]).tolist() == [True, False]
    assert np.isnan(total.low[:, 0]).tolist() == [True, False]


def test_overlapping_sums_are_not_added_up() -> None:
    span = 6
    truth = np.arange(1, 49)
    sums = np.convolve(truth, np.ones(span, int))[:48].reshape(-1, 1)
    found = releases(sums, 3.0, kind="time-unit", span=span)
    total = found.totals("1d")
    assert total.values[:, 0].tolist() == [truth[:24].sum(), truth[24:].sum()]
    assert total.errors[0, 0] == pytest.approx(3 * 2)
    for every in (None, "4h", "9h"):
        with pytest.raises(ReadingError, match="overlap do not add up"):
            found.totals(every)
    with pytest.raises(ReadingError, match="not partial"):
        found.totals("1d", partial=True)


def test_an_interval_of_one_laplace_number_is_exact_and_of_many_is_normal() -> None:
    scale = 1 / 0.05
    ratio = math.exp(-1 / scale)
    deviation = math.sqrt(2 * ratio) / (1 - ratio)
    found = releases(np.zeros((DAY, 1)), deviation, scales=[scale] * DAY)
    one = found.totals(level=0.99).high[0, 0]
    assert one == pytest.approx(scale * math.log(100), rel=0.01)
    assert found.bounds(0.99)[1][0, 0] == one
    day = found.totals("1d", level=0.99).high[0, 0] / (deviation * math.sqrt(24))
    assert 2.576 < day < 2.576 + 0.7 / 20
    repeated = releases(
        np.zeros((DAY, 1)), deviation, scales=[scale, *[np.nan] * 23], fresh=[True, *[False] * 23],
        kind="sample",
    )  # fmt: skip
    assert repeated.totals("1d", level=0.99).high[0, 0] == pytest.approx(24 * one)


def test_a_level_that_is_none_is_refused() -> None:
    with pytest.raises(ReadingError, match="not a share between 0 and 1"):
        releases([[1]], 1.0).bounds(95)


def test_timestamps_that_lack_a_partition_are_told() -> None:
    found = releases(np.ones((48, 1)), 1.0)
    object.__setattr__(found, "missing", ((), (3,), *((),) * 46))
    assert found.totals("1d").without_partition.tolist() == [1, 0]


def test_spans_in_a_time_zone_are_those_of_its_days() -> None:
    found = releases(np.ones((72, 1)), 1.0, first=ORIGIN + 27 * DAY * HOUR - HOUR)
    total = found.totals("1d", zone="Europe/Berlin")
    assert total.timestamps.tolist() == [24, 23, 24, 1]
    assert total.complete.tolist() == [True, True, True, False]


def test_what_is_wrong_in_a_season_changes_its_sign_and_does_not_last() -> None:
    def growth(counts: np.ndarray) -> float:
        fresh = np.arange(28 * DAY) % 8 == 0
        found = releases(counts, 30.0, kind="seasonal", fresh=fresh)
        return float(found.totals("all").errors[0, 0] / found.totals("1d").errors[:, 0].mean() / np.sqrt(28))

    hours = np.arange(28 * DAY)[:, np.newaxis]
    flat, season = np.full((28 * DAY, 1), 100), np.where(hours % DAY < 12, 1, 199)
    assert growth(season) < 1.6 < 2 < growth(flat)
