"""Intervals of totals hold the truth about as often as they say, for releases of real mechanisms."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from benchmarks.reading.coverage import Coverage, coverages
from benchmarks.reading.runs import run, site
from benchmarks.utility.real import RealStream
from benchmarks.utility.streams import departures, slow_drift


@cache
def airports() -> RealStream:
    large = np.argsort(-departures(1).sum(axis=0), kind="stable")[:12]
    return RealStream("12 destinations", departures(1)[:840, large], 1)


@cache
def drift() -> RealStream:
    return RealStream("slow drift", slow_drift().counts[:1008, :6], 1)


#: Made when a test needs them: a year of flights takes half a gigabyte, in every process that collects tests.
EVERY_STREAM = pytest.mark.parametrize("stream", [airports, drift], ids=["12 destinations", "slow drift"])
MakeStream = Callable[[], RealStream]


def covered(stream: MakeStream, kind: str) -> dict[str, Coverage]:
    return {one.what: one for one in coverages(run(stream(), True, kind, "1", 24, seed=5))}


@EVERY_STREAM
def test_totals_of_independent_noise_cover_as_often_as_they_say(stream: MakeStream) -> None:
    found = covered(stream, "uniform")
    assert 0.94 < found["count"].share < 0.96
    assert 0.92 < found["day"].share < 0.98
    assert 0.8 < found["day"].ratio < 1.2
    assert 0.92 < found["groups, count"].share < 0.98


@EVERY_STREAM
def test_totals_of_repeated_releases_cover_between_90_and_99_percent(stream: MakeStream) -> None:
    found = covered(stream, "budget-absorption")
    assert 0.9 <= found["day"].share <= 0.99


@EVERY_STREAM
def test_totals_of_predictions_cover_at_least_90_percent(stream: MakeStream) -> None:
    found = covered(stream, "seasonal")
    assert found["day"].share >= 0.9
    assert found["week"].share >= 0.9


@pytest.mark.parametrize("window", [24, 120])
def test_totals_of_all_columns_cover_where_columns_share_a_day_and_a_week(window: int) -> None:
    """Three weeks of ``eventveil generate site``: predictions are wrong in the same direction in all columns.

    With the same correlation for all streams, 87 % of hours are covered at a window of 120.
    """
    stream = RealStream("site", site(21), 1)
    found = [covered_sums(stream, window, seed) for seed in (1, 2, 3, 4)]
    for least, most, shares in zip((0.9, 0.9, 0.9), (0.99, 0.99, 1.0), zip(*found, strict=True), strict=True):
        assert least <= np.mean(shares) <= most


def covered_sums(stream: RealStream, window: int, seed: int) -> list[float]:
    """What intervals of hours, quarters of a day and days of all columns together cover."""
    releases = run(stream, False, "seasonal", "1", window, seed).releases
    truth = stream.counts.sum(axis=1)
    shares = []
    for every, hours in ((None, 1), ("6h", 6), ("1d", 24)):
        sums, true = releases.totals(every, groups=lambda _: "all"), truth.reshape(-1, hours).sum(axis=1)
        known = ~np.isnan(sums.low[:, 0])
        shares.append(float(((sums.low[:, 0] <= true) & (true <= sums.high[:, 0]))[known].mean()))
    return shares


def test_without_the_rule_totals_of_repeats_would_not_cover() -> None:
    """Adding up squares as if the repeats were drawn anew: what the rule is for."""
    releases = run(airports(), True, "budget-absorption", "1", 24, seed=5).releases
    days = releases.counts.reshape(-1, 24, 12).sum(axis=1)
    truth = airports().counts.reshape(-1, 24, 12).sum(axis=1)
    naive = np.sqrt((releases.errors.reshape(-1, 24, 12) ** 2).sum(axis=1))
    assert np.mean(np.abs(days - truth) <= 1.96 * naive) < 0.9
