"""DSAT: publishes when far from the last release, by a threshold that adapts (Li et al., CIKM 2015).

**As printed** (Algorithm 3) the distance gets noise of scale 2C/epsilon_1 at *every* timestamp, as a sparse
vector would, but the threshold gets none: w tests can spend w/(2C) epsilon_1, at w = 120 and C = 12 five
times epsilon_1.

**Sound version.** Half of epsilon is for tests, epsilon/(2w) a timestamp, noise drawn afresh. The other half
is for at most C publications in any w timestamps, epsilon/(2C) each. The distance is the mean over columns of
|count - last release|: a user changes its sum by at most 1. The threshold goes up or down by ``STEP`` a
timestamp if there were more, or fewer, publications than C in the last w timestamps; it depends on published
things alone. C is a tenth of the window.
"""

from __future__ import annotations

from collections import deque
from fractions import Fraction

import numpy as np

from benchmarks.utility.contenders import Counts, Noise, Reals

STEP = 0.1


def dsat(counts: Counts, epsilon: Fraction, window: int, noise: Noise) -> Reals:
    """See ``Peer``."""
    most = max(1, window // 10)
    test, scale = 2 * window / epsilon, 2 * most / epsilon
    threshold, last = float(scale), np.zeros(counts.shape[1])
    released, published = np.empty(counts.shape), deque[int]()
    for timestamp, row in enumerate(counts):
        if published and published[0] <= timestamp - window:
            published.popleft()
        distance = (np.abs(row - last).sum() + int(noise.discrete_laplace(test, 1)[0])) / len(row)
        if len(published) < most and (distance >= threshold or timestamp == 0):
            last = (row + noise.discrete_laplace(scale, len(row))).astype(float)
            published.append(timestamp)
        busy = min(timestamp + 1, window) * most / window
        threshold *= 1 + STEP * (1 if len(published) > busy else -1)
        released[timestamp] = last
    return released
