"""RescueDP: a PID controller samples, small columns are grouped, Kalman filters (Wang et al., INFOCOM 2016).

**As printed** every column has its own schedule and its own budget in each window: a user who changes column
spends one after the other, up to 19.9 epsilon in 40 timestamps.

**Sound version.** One schedule for all columns: a publication spends ``SHARE`` of what the window has left,
so that a window spends less than epsilon. The interval is the printed controller's, fed with the mean
innovation of the filters over their standard deviation. Columns whose filter expects less than the noise are
one group, whose sum is published with the same noise (a user is in one column at a timestamp) and divided
equally. Filters are scalar; counts move by a variance of ``DRIFT`` times the level a timestamp.
"""

from __future__ import annotations

from collections import deque
from fractions import Fraction

import numpy as np

from benchmarks.utility.contenders import Counts, Noise, Reals

SHARE = Fraction(1, 4)
FINEST = 2**10
"""A publication's share of epsilon is a whole number of these parts."""
DRIFT = 0.1
GAIN, SET_POINT = 5.0, 1.0


def rescue(counts: Counts, epsilon: Fraction, window: int, noise: Noise) -> Reals:
    """See ``Peer``."""
    columns = counts.shape[1]
    level, variance = np.zeros(columns), np.full(columns, 1e12)
    spent, interval, due = deque[tuple[int, int]](), 1.0, 0
    released = np.empty(counts.shape)
    for timestamp, row in enumerate(counts):
        while spent and spent[0][0] <= timestamp - window:
            spent.popleft()
        variance = variance + DRIFT * np.maximum(level, 1)
        part = int((FINEST - sum(units for _, units in spent)) * SHARE)
        if timestamp >= due and part > 0:
            spent.append((timestamp, part))
            scale = Fraction(FINEST, part) / epsilon
            noisy, noises = _in_groups(row, level, scale, noise)
            innovation = np.abs(noisy - level) / np.sqrt(variance + noises)
            gain = variance / (variance + noises)
            level, variance = level + gain * (noisy - level), (1 - gain) * variance
            interval = float(np.clip(interval + GAIN * (SET_POINT - innovation.mean()), 1, window))
            due = timestamp + round(interval)
        released[timestamp] = level
    return released


def _in_groups(row: Counts, level: Reals, scale: Fraction, noise: Noise) -> tuple[Reals, Reals]:
    """Noisy counts and the variances of their noise; small columns get the mean of their noisy sum."""
    small, variance = level < float(scale), 2 * float(scale) ** 2
    noisy = (row + noise.discrete_laplace(scale, len(row))).astype(float)
    noises = np.full(len(row), variance)
    if small.any():
        members = int(small.sum())
        noisy[small] = (row[small].sum() + int(noise.discrete_laplace(scale, 1)[0])) / members
        noises[small] = variance / members**2
    return noisy, noises
