"""The error of the mechanisms on real flights stays within the bands that the benchmark measures in full."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.utility.streams import departures
from benchmarks.utility.w_event import CONTENDERS, SAMPLE, UNIFORM

pytestmark = pytest.mark.slow

HIGHEST = {SAMPLE: 0.06, "BD": 0.20, "BD, factor 2": 0.20, "BA": 0.25, "BA, factor 2": 0.25}
"""The largest error, over Uniform's, that counts as good."""


def test_errors_on_the_flights_of_2013_stay_within_their_bands() -> None:
    counts = departures(1)[:1000]
    assert counts.sum() > 30_000
    errors = {
        contender.label: np.mean([contender.error(counts, Fraction(1), 40, seed) for seed in range(20)])
        for contender in CONTENDERS
        if contender.label in {UNIFORM, *HIGHEST}
    }
    assert 39 < errors[UNIFORM] < 41  # the mean of |noise| at scale 40
    for label, highest in HIGHEST.items():
        assert 0.5 * counts.mean() <= errors[label] <= highest * errors[UNIFORM], label
