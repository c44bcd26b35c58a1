"""The error of the mechanisms on real flights stays within the bands that the benchmark measures in full."""

from __future__ import annotations

from fractions import Fraction

from benchmarks.utility.flights import CONTENDERS, UNIFORM, ratios
from benchmarks.utility.streams import departures


def test_errors_on_the_flights_of_2013_stay_within_their_bands() -> None:
    counts = departures(1)[:1000]
    assert counts.sum() > 30_000
    table = ratios(CONTENDERS, counts, Fraction(1), 40, range(20))
    assert 39 < table[UNIFORM.label] < 41  # the mean of |noise| at scale 40
    for contender in CONTENDERS:
        assert contender.target is not None
        assert table[contender.label] <= contender.target, contender.label
        assert table[contender.label] >= 0.5 * table["Zero"], contender.label
