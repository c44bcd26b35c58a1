"""The error of the value mechanisms stays within the bands that the benchmark measures in full."""

from __future__ import annotations

from fractions import Fraction

import pytest

from benchmarks.utility.streams import heavy_tail
from benchmarks.utility.values import PLAIN, PRUNED, TOPS, WHOLE, ZEROS, compare, local

pytestmark = pytest.mark.slow


def test_pak_with_the_clamp_loses_by_three_orders_of_magnitude_on_a_heavy_tail() -> None:
    clamped, sixteen, two = (
        "PAK with the clamp",
        "no smoother, fan-out 16",
        "no smoother, fan-out 2: PAK's tree",
    )
    case = compare(WHOLE, heavy_tail(), "0.05", range(4, 6), (TOPS, clamped, sixteen, two))
    assert min(case.ratios(clamped, TOPS)) >= 1000
    assert min(case.ratios(ZEROS, TOPS)) > 3
    assert 1 < max(case.ratios(sixteen, TOPS)) < max(case.ratios(two, TOPS))


def test_the_prune_saves_local_thresholds_from_the_empty_end() -> None:
    errors = local(heavy_tail(2**15, 2**15), Fraction(1), 0)
    plain, with_prune = errors[PLAIN], errors[PRUNED]
    assert with_prune[1] < 700 < plain[1]
    assert plain[0] > 5 * with_prune[0]
