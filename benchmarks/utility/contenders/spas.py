"""SPAS: a sparse vector picks timestamps, their number is predicted from what was released (Li et al., 2025).

**As printed** an eighth of epsilon is for the threshold of a sparse vector, one for its tests, the rest for
at most c publications in a window. The noise of the threshold is drawn once and kept. If two streams differ
in one window, it must differ between them to explain the tests of that window, and then every publication
that follows, in any window, tells of it again: epsilon / (16 c) each, epsilon / 16 a window, without end.

**Sound version.** A sparse vector ends with a publication; the next one draws its threshold anew. It costs
every window that it meets, from its first test to its last: one begins only if those that ended in the w - 1
timestamps before, and itself, cost a quarter of epsilon at most. With c publications in a window these are
c + 1, so each has 1/(c + 1) of it, by half for the threshold. A publication spends 1/c of the rest; if the
window does not have that left, nothing is tested.

As printed: the distance is compared with what a publication is expected to err by; c is the square root of 3
times the mean squared step between the releases of the last window, times the epsilon of publications, over
6; in the first window c publications have equal distances. The distance is the sum over columns of
|count - last release|, which a user changes by at most 1.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from benchmarks.utility.contenders import Counts, Noise, Reals

TESTS, PUBLICATIONS = Fraction(1, 4), Fraction(3, 4)
FIRST, LARGER, AT_WINDOW = 5, 15, 120
"""How many publications the first window has: ``FIRST``, and more for a large epsilon or a short window."""


@dataclass
class Spent:
    """What was spent of a share in the last ``window`` timestamps: when a spend ended, and how much."""

    window: int
    spends: deque[tuple[int, Fraction]] = field(default_factory=deque)

    def left(self, share: Fraction, timestamp: int) -> Fraction:
        """What is left of the share for a spend that begins now."""
        while self.spends and self.spends[0][0] <= timestamp - self.window:
            self.spends.popleft()
        return share - sum((spend for _, spend in self.spends), Fraction())


@dataclass
class SparseVector:
    """One run: a noisy threshold, and tests until one is above it. It costs ``epsilon``, by half each."""

    epsilon: Fraction
    bar: int
    noise: Noise

    def above(self, distance: int) -> bool:
        """Whether a number that a user changes by at most 1 is above the threshold; if so, the run ends."""
        return distance + int(self.noise.discrete_laplace(4 / self.epsilon, 1)[0]) > self.bar


def spas(counts: Counts, epsilon: Fraction, window: int, noise: Noise) -> Reals:
    """See ``Peer``."""
    columns = counts.shape[1]
    most = min(window, int(FIRST + LARGER * epsilon * AT_WINDOW / window))
    tests, publications = Spent(window), Spent(window)
    vector: SparseVector | None = None
    last, released = np.zeros(columns, np.int64), np.empty(counts.shape)
    for timestamp, row in enumerate(counts):
        cost = PUBLICATIONS * epsilon / most
        if publications.left(PUBLICATIONS * epsilon, timestamp) < cost:
            due = False
        elif timestamp < window:
            due = timestamp % (window // most) == 0
        else:
            vector = vector or _begun(most, tests.left(TESTS * epsilon, timestamp), epsilon, columns, noise)
            due = vector is not None and vector.above(int(np.abs(row - last).sum()))
        if due:
            if vector:
                tests.spends.append((timestamp, vector.epsilon))
                vector = None
            publications.spends.append((timestamp, cost))
            last = row + noise.discrete_laplace(1 / cost, columns)
        released[timestamp] = last
        if due and timestamp >= window:
            most = _predicted(released[timestamp - window + 1 : timestamp + 1], epsilon)
    return released


def _begun(most: int, left: Fraction, epsilon: Fraction, columns: int, noise: Noise) -> SparseVector | None:
    """A new run, if the window has enough left for it."""
    cost = TESTS * epsilon / (most + 1)
    if left < cost:
        return None
    expected = columns * most / (PUBLICATIONS * epsilon)  # what a publication errs by, all columns together
    return SparseVector(cost, int(expected) + int(noise.discrete_laplace(2 / cost, 1)[0]), noise)


def _predicted(released: Reals, epsilon: Fraction) -> int:
    """How many publications a window is worth; ``released``: the last window."""
    steps = np.diff(released, axis=0)
    mean = float(np.square(steps).mean()) if len(steps) else 0.0
    return min(len(released), max(1, int(float(PUBLICATIONS * epsilon) * (3 * mean) ** 0.5 / 6)))
