"""What could be had without any noise: how far a forecast errs that knows every true count of the past.

*The past* is smoothed, column by column, with the rate out of ``RATES`` that errs least on the stream as a
whole, in hindsight; what it expects is rounded as ``seasonal`` rounds Poisson numbers. *A constant* is the
median of each column over the whole stream, *a day* and *a week* that of each of their phases: all that a
static forecast, or one with a season, could ever say. None of it is private; a mechanism has noisy counts of
a few timestamps instead. Where these hardly err less than Zero, not much can be won by any mechanism.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.utility.contenders import Counts, Reals
from benchmarks.utility.measuring import Case, Scope
from benchmarks.utility.real import REAL, WITHOUT_PACKAGES, RealStream

PART = "bounds"
PAST, CONSTANT, DAY, WEEK = "all of the past", "a constant", "a day", "a week"
LABELS = (PAST, CONSTANT, DAY, WEEK)
RATES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
QUICK_TIMESTAMPS = 60


def measure(scope: Scope) -> Iterator[Case]:
    """A case for each real stream: MAE over the mean count, which is that of Zero."""
    for make in WITHOUT_PACKAGES if scope.quick else REAL:
        stream = make().first(QUICK_TIMESTAMPS) if scope.quick else make()
        yield Case(PART, stream.name, "none", {}, {label: [one] for label, one in errors(stream).items()})


def errors(stream: RealStream) -> dict[str, float]:
    """The MAE over the mean count, by label; a day only where timestamps are parts of it."""
    counts = stream.counts
    found = {PAST: min(_error(_smoothed(counts, rate), counts) for rate in RATES)}
    for label, period in ((CONSTANT, 1), (DAY, stream.day), (WEEK, stream.week)):
        if label == CONSTANT or period > 1:
            found[label] = _error(_medians(counts, period), counts)
    return found


def _error(expected: Reals, counts: Counts) -> float:
    return float(np.abs(expected - counts).mean() / counts.mean())


def _smoothed(counts: Counts, rate: float) -> Reals:
    """What is expected of each timestamp from those before it: first their mean, then a smoothed one."""
    level, expected = np.zeros(counts.shape[1]), np.empty(counts.shape)
    for timestamp, row in enumerate(counts):
        expected[timestamp] = level
        level += max(rate, 1 / (timestamp + 1)) * (row - level)
    return np.floor(expected + 1 / 3)


def _medians(counts: Counts, period: int) -> Reals:
    phases = np.arange(len(counts)) % period
    seen = range(min(period, len(counts)))
    medians: Reals = np.array([np.median(counts[phases == phase], axis=0) for phase in seen])
    return medians[phases]
