"""How often 95 % intervals hold the truth, of counts and of totals over days, weeks and groups of columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.reading.runs import Run

SPANS = {"count": None, "day": "1d", "week": "1w"}
_IN_A_GROUP = 10
_LEAST = 20
"""This many intervals at least make a share."""


@dataclass(frozen=True)
class Coverage:
    """Of one run and one way to sum up: the share of intervals that hold the truth, how many there were, and
    the mean squared error over the one that was expected."""

    stream: str
    real: bool
    kind: str
    epsilon: str
    window: int
    what: str
    share: float
    intervals: int
    ratio: float


def coverages(run: Run) -> list[Coverage]:
    """Of counts, days and weeks, of columns and of groups of ten and all of them."""
    found = []
    for what, every in SPANS.items():
        found.append(_coverage(run, what, every, None))
        if len(run.releases.columns) > 1:
            found.append(_coverage(run, f"groups, {what}", every, _groups(len(run.releases.columns))))
    return [one for one in found if one.intervals >= _LEAST]


def _groups(columns: int) -> dict[str, list[str]]:
    """Columns in the order of a fixed draw, ten at a time, and all of them."""
    order = [str(column) for column in np.random.default_rng(3).permutation(columns)]
    tens = range(0, columns - _IN_A_GROUP + 1, _IN_A_GROUP) if columns > 2 * _IN_A_GROUP else ()
    return {**{str(at): order[at : at + _IN_A_GROUP] for at in tens}, "all": order}


def _coverage(run: Run, what: str, every: str | None, groups: dict[str, list[str]] | None) -> Coverage:
    sums = run.releases.totals(every, groups=groups)
    truth = _truth(run, sums.starts, sums.ends, groups)
    known = ~np.isnan(sums.low)
    share = ((sums.low <= truth) & (truth <= sums.high))[known].mean() if known.any() else np.nan
    squares = ((sums.values - truth)[known] ** 2).mean() if known.any() else np.nan
    ratio = squares / (sums.errors[known] ** 2).mean() if known.any() else np.nan
    terms = (run.kind, run.epsilon, run.window)
    return Coverage(run.stream.name, run.is_real, *terms, what, float(share), int(known.sum()), float(ratio))


def _truth(
    run: Run,
    starts: NDArray[np.datetime64],
    ends: NDArray[np.datetime64],
    groups: dict[str, list[str]] | None,
) -> NDArray[np.float64]:
    """True sums over the spans, by brute force: another way than the reader's."""
    times, counts = run.releases.starts, run.stream.counts
    sums = np.array(
        [
            counts[np.searchsorted(times, start) : np.searchsorted(times, end)].sum(axis=0)
            for start, end in zip(starts, ends, strict=True)
        ]
    )
    if groups is None:
        return sums.astype(float)
    return np.array([sums[:, [*map(int, ones)]].sum(axis=1) for ones in groups.values()], float).T
