r"""What a release is worth to one who reads cells, and to one who adds them up: measures side by side.

All but the two shares are relative to the true mean, so that streams can be compared: 0.1 is ten percent.

| measure | |
| --- | --- |
| MAE | mean of \|release - count\| over timestamps and columns, over the mean count |
| RMSE | root of the mean square, over the mean count |
| total | mean of \|sum over the columns of release - count\|, over the mean total |
| bias | sum over everything of release - count, over the true sum: signed |
| day, week | MAE of a column's sums over full days and weeks, over the mean of these sums |
| largest | MAE over the largest tenth of the columns, over their mean |
| zero | share of the columns that are released as 0 throughout, though the truth is not |
"""

from __future__ import annotations

import numpy as np

from benchmarks.utility.contenders import Counts, Reals

MEASURES = ("MAE", "RMSE", "total", "bias", "day", "week", "largest", "zero")


def measured(released: Counts | Reals, counts: Counts, day: int, week: int) -> dict[str, float]:
    """All measures of one run; ``day`` and ``week`` in timestamps."""
    off = released - counts
    mean, totals = float(counts.mean()), off.sum(axis=1)
    largest = np.argsort(-counts.sum(axis=0), kind="stable")[: -(-counts.shape[1] // 10)]
    silent = (released == 0).all(axis=0) & counts.any(axis=0)
    return {
        "MAE": float(np.abs(off).mean()) / mean,
        "RMSE": float(np.sqrt(np.square(off, dtype=np.float64).mean())) / mean,
        "total": float(np.abs(totals).mean()) / (mean * counts.shape[1]),
        "bias": float(totals.sum()) / float(counts.sum()),
        "day": _sums(off, day) / (mean * day),
        "week": _sums(off, week) / (mean * week),
        "largest": float(np.abs(off[:, largest]).mean() / counts[:, largest].mean()),
        "zero": float(silent.mean()),
    }


def _sums(off: Counts | Reals, span: int) -> float:
    """Mean of \\|sum\\| over each column's full spans."""
    full = len(off) // span * span
    if not full:
        return float("nan")
    return float(np.abs(np.add.reduceat(off[:full], np.arange(0, full, span), axis=0)).mean())
