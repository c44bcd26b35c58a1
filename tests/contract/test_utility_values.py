"""The error of the value mechanisms stays within the bands that the benchmark measures in full."""

from __future__ import annotations

from fractions import Fraction

from benchmarks.utility.values import heavy_tail, local, table

EPSILON = Fraction(1, 20)


def test_pak_with_the_clamp_loses_by_three_orders_of_magnitude_on_a_heavy_tail() -> None:
    parts = ("PAK with the clamp", "no smoother, fan-out 16", "no smoother, fan-out 2: PAK's tree")
    rows = table(heavy_tail(), EPSILON, range(4, 6), parts)
    assert min(rows["PAK with the clamp"][0]) >= 1000
    assert min(rows["zeros"][0]) > 3
    assert 1 < max(rows["no smoother, fan-out 16"][0]) < max(rows["no smoother, fan-out 2: PAK's tree"][0])


def test_the_prune_saves_local_thresholds_from_the_empty_end() -> None:
    errors = local(heavy_tail(2**15, 2**15), Fraction(1), 0)
    plain, with_prune = errors["Square Wave"], errors["Square Wave with the prune"]
    assert with_prune[1] < 700 < plain[1]
    assert plain[0] > 5 * with_prune[0]
