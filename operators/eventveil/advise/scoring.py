"""How far totals are off, in parts of the true ones: all events, also those that bounding leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eventveil.advise.tally import Counts

Floats = NDArray[np.float64]
#: Large columns are the largest one in this many, and small ones the smaller half.
TENTH = 10
#: An error of more than this part of a count leaves nothing to read.
HOPELESS = 0.5


@dataclass(frozen=True, slots=True)
class Score:
    """The errors of a choice; all are parts of true totals, the mean over units and runs.

    ``columns``: of each column the mean absolute error. ``worst``: what 95 % of the errors stay below.
    ``pooled``: all absolute errors over all events. NaN for columns without events.
    """

    columns: Floats
    worst: Floats
    pooled: float
    runs: int


def score(totals: Counts, sums: Sequence[Counts]) -> Score:
    """``totals`` are all events, ``sums`` the releases of each run.

    All have the shape (units, columns).
    """
    off, size = np.stack(sums).astype(np.float64) - totals, totals.sum(axis=0).astype(np.float64)
    every = float(size.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        # A column of which there is nothing has no error in percent.
        size[size == 0] = np.nan
        mean = size / len(totals)
        return Score(
            columns=np.abs(off).sum(axis=1).mean(axis=0) / size,
            worst=np.quantile(np.abs(off).reshape(-1, off.shape[2]), 0.95, axis=0) / mean,
            pooled=float(np.abs(off).sum() / len(sums) / every) if every else 0.0,
            runs=len(sums),
        )


@dataclass(frozen=True, slots=True)
class Sizes:
    """Columns by size: indices of the largest tenth (at least one), the smaller half, and those between."""

    large: NDArray[np.int64]
    middle: NDArray[np.int64]
    small: NDArray[np.int64]


def sizes(totals: Counts) -> Sizes:
    """Which columns are large, middle and small."""
    order = np.argsort(-totals.sum(axis=0), kind="stable")
    large = -(-len(order) // TENTH)
    half = max(large, -(-len(order) // 2))
    return Sizes(order[:large], order[large:half], order[half:])


def pooled(score: Score, totals: Counts, chosen: NDArray[np.int64]) -> float:
    """The error of some columns together: absolute errors over events. NaN if there are no events."""
    size = totals.sum(axis=0)[chosen].astype(np.float64)
    errors = np.nan_to_num(score.columns[chosen]) * size
    return float(errors.sum() / size.sum()) if size.sum() else float("nan")


def within(score: Score, limit: float) -> int:
    """How many columns have an error of at most that part of their count."""
    return int(np.count_nonzero(score.columns <= limit))
