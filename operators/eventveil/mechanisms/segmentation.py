"""The Partition program: a window of counts as few groups, each given by its mean.

A group of the counts at i..j costs its squared errors around their mean, rounded down to an integer, plus
``fixed`` for the noise of one mean. ``partition`` finds at most ``parts`` groups that cost at most
(1 + delta)^(parts - 1) times the least possible; with the default delta of 1 / (2 parts) less than e^(1/2).
It works on released counts only, so it is free post-processing.

**Source.** X. Zhang, X. Meng, "Streaming Histogram Publication Method with Differential Privacy", Ruan Jian
Xue Bao 27(2), 2016, Algorithm 2, after S. Guha, N. Koudas, K. Shim, "Data-Streams and Histograms", STOC 2001.
Changed: Formula (8) lacks the factor 1 / (j - i + 1) of the squared sum. Partitioning raw counts, as its line
1 does for the first window, reveals where they change; this one never sees them. Groups may be fewer than
``parts``, or the cost of noise, the same for each, would decide nothing.

**Why the factor holds.** Let C(i, l) be the least cost of the first i counts in at most l groups: it does not
fall with i. A(i, l), what the program finds, is computed from A(b, l - 1) for a few endpoints b: the last of
each run of positions in which A(., l - 1) stays within 1 + delta of its first, a. If the best last group
begins after x, which is in a run a..b, b >= x, then A(b, l - 1) <= (1 + delta) A(a, l - 1) <= (1 + delta)^(l
- 1) C(a, l - 1) and C(a, l - 1) <= C(x, l - 1), and the last group is no costlier from b on than from x on.
So A(i, l) <= (1 + delta)^(l - 1) C(i, l), by induction from A(i, 1) = C(i, 1).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Groups = tuple[tuple[int, int], ...]
Integers = NDArray[Any]  # int64, or Python integers as objects


class Costs:
    """The cost of every group of consecutive counts, from prefix sums."""

    def __init__(self, counts: Sequence[int], fixed: int) -> None:
        centred = [count - counts[0] for count in counts]
        size, largest = len(counts), max(map(abs, centred))
        fits = (size * largest + 1) ** 2 + fixed * size < 2**62
        self.dtype = np.dtype(np.int64 if fits else object)
        values = np.array([0, *centred], self.dtype)
        self._sums, self._squares = np.cumsum(values), np.cumsum(values * values)
        self._fixed = fixed

    def of(self, starts: Integers, end: int) -> Integers:
        """The costs of the groups behind the first ``starts`` counts, up to and with the ``end``-th."""
        sizes = end - starts
        sums = self._sums[end] - self._sums[starts]
        squares = self._squares[end] - self._squares[starts]
        costs: Integers = (sizes * squares - sums * sums) // sizes + self._fixed
        return costs


class _Level:
    """The costs A(., l) at the endpoints of runs: only the last position of each run is a candidate."""

    def __init__(self, growth: Fraction) -> None:
        self._growth = growth
        self._first = 0  # the cost at the beginning of the last run
        self._ends: list[int] = []
        self._costs: list[int] = []

    def add(self, end: int, cost: int) -> None:
        """Take note of A(end, l); ``end`` grows from call to call."""
        if self._ends and cost * self._growth.denominator <= self._first * self._growth.numerator:
            self._ends[-1], self._costs[-1] = end, cost
        else:
            self._first = cost
            self._ends.append(end)
            self._costs.append(cost)

    def extended(self, costs: Costs, end: int) -> Iterator[tuple[int, int]]:
        """Cost and beginning of the best last group ..end behind a candidate, if there is one."""
        if self._ends:
            starts = np.array(self._ends)
            totals = np.array(self._costs, costs.dtype) + costs.of(starts, end)
            index = int(np.argmin(totals))
            yield int(totals[index]), self._ends[index]


def partition(counts: Sequence[int], parts: int, delta: Fraction, fixed: int) -> Groups:
    """At most ``parts`` groups of consecutive counts, each as (length, total).

    ``fixed`` is at least 1, ``delta`` at least 0 and ``counts`` not empty.
    """
    costs, size = Costs(counts, fixed), len(counts)
    levels = [_Level(1 + delta) for _ in range(parts)]
    # Where the last group of the best partition of the first i counts begins, in at most l + 1 groups.
    begins = np.zeros((parts, size + 1), np.int64)
    for end in range(1, size + 1):
        best = (int(costs.of(np.zeros(1, np.int64), end)[0]), 0)
        found = [best]
        for number in range(1, parts):
            best = min([best, *levels[number - 1].extended(costs, end)])
            begins[number, end] = best[1]
            found.append(best)
        for level, (cost, _) in zip(levels, found, strict=True):
            level.add(end, cost)
    return _groups(counts, begins)


def _groups(counts: Sequence[int], begins: NDArray[np.int64]) -> Groups:
    groups: list[tuple[int, int]] = []
    end = len(counts)
    for begin_of in begins[::-1]:
        begin = int(begin_of[end])
        groups.append((end - begin, sum(counts[begin:end])))
        end = begin
        if end == 0:
            break
    return tuple(reversed(groups))
