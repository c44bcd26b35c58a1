"""Noise for the sums of consecutive values: a hierarchy whose leaves carry everything that is released.

**Guarantee.** A chunk of values in 0..theta, released as leaf sums plus leaf noise, is epsilon-differentially
private. *Neighbours*: one value replaced in its place. *Assumptions*: positions and settings are public.

**Source.** Hierarchies: Chan, Shi, Song (TISSEC 2011), Dwork et al. (STOC 2010). Fan-out 16, consistency in
advance and the missing lowest levels: Wang et al. (CCS 2021), Sections 3.4, 3.5, Appendix C; consistency
itself: Hay et al. (PVLDB 2010).

**Proof.** Node x of a hierarchy of L levels is the sum T(x) of the leaves below it, plus independent
discrete Laplace noise N(x) of scale theta L / epsilon. Replacing one value changes one node per level, each
by at most theta: the density of all noisy nodes changes by at most e^(L theta / (theta L / epsilon)) =
e^epsilon. What is released is a function of the noisy nodes T + N alone. *Consistent*: the least squares fit
of leaves to the noisy nodes is linear, and reproduces T, so at leaf i it is T(i) + n(i) with n the fit to N
alone (Theorem 3.1 of Wang et al.). Prefix sums are rounded to integers: floor(T + x + 1/2) = T + floor(x +
1/2) for integer T, so rounding the noise in advance is rounding the result. *Prefix*: the sum of the first t
leaves is estimated by the fewest noisy nodes that make it up, and leaf t by the difference of two such
estimates.

**Changed.** The printed tree has h = ceil(log_b r) levels and b^h leaves but also one root, which would be
level h + 1; there are exactly h levels here, so the top level has b nodes and no node above. Each of them and
what is below is a tree of its own, drawn when its first leaf ends: "a new tree for every chunk" holds, and
no more than one tree of b^(L-1) leaves is ever kept. Equations 10 and 11 are computed exactly: with
g_l = (b^l - 1)/(b - 1), the numbers y_l = g_l H_l are integers, y_l = b^(l-1) N + (sum of the children's y).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eventveil.privacy.noise import NoiseSource
from eventveil.values.draws import Integers, laplace

LEAF_LIMIT = 2**16
"""Leaves of one tree of consistent noise, so that it fits into one Kafka record of the default size."""

NOISE_LIMIT = 2**61
"""Leaf noise is clamped to +-NOISE_LIMIT; sums and releases are clamped far below, so nothing changes."""


def height(fanout: int, chunk: int) -> int:
    """The smallest h with fanout**h >= chunk, in integers; ValueError below 2 of either."""
    if fanout < 2 or chunk < 2:
        raise ValueError(f"fanout and chunk should be at least 2, not {fanout} and {chunk}")
    h = 1
    while fanout**h < chunk:
        h += 1
    return h


def smoothed_levels(epsilon: Fraction, fanout: int, chunk: int) -> int:
    """How many of the lowest levels get no noise of their own: s of Equation 7, exactly.

    theta is a common factor of both terms, so s is public. At least one level is left, and no more than
    LEAF_LIMIT leaves.
    """
    if epsilon <= 0:
        raise ValueError(f"epsilon should be above 0, not {epsilon}")
    h = height(fanout, chunk)
    fitting = [s for s in range(h) if fanout ** (h - s - 1) <= LEAF_LIMIT]
    return min(fitting, key=lambda s: (_error(epsilon, fanout, h - s, s), s))


def _error(epsilon: Fraction, fanout: int, levels: int, s: int) -> Fraction:
    return 2 * (fanout - 1) * levels**3 / epsilon**2 + Fraction(fanout ** (2 * s), 36)


class TreeNoise(ABC):
    """The noise of one chunk, leaf after leaf: ``scale`` of a node, ``levels`` that have noise."""

    def __init__(self, noise: NoiseSource, scale: Fraction, fanout: int, levels: int) -> None:
        self._noise, self._scale, self._fanout, self._levels = noise, scale, fanout, levels

    @abstractmethod
    def take(self, count: int) -> NDArray[np.int64]:
        """The noise of the next ``count`` leaves, within +-NOISE_LIMIT."""

    @abstractmethod
    def snapshot(self) -> Any:
        """Everything that was drawn and will be used, as JSON."""

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Continue from ``snapshot()``; ValueError if it is none."""


class ConsistentTree(TreeNoise):
    """Least squares noise, drawn for a whole tree before its first leaf is used."""

    def __init__(self, noise: NoiseSource, scale: Fraction, fanout: int, levels: int) -> None:
        super().__init__(noise, scale, fanout, levels)
        self._leaves: NDArray[np.int64] = np.empty(0, np.int64)

    def take(self, count: int) -> NDArray[np.int64]:
        """See ``TreeNoise``."""
        parts = []
        while count:
            if not len(self._leaves):
                self._leaves = self._tree()
            parts.append(self._leaves[:count])
            self._leaves = self._leaves[count:]
            count -= len(parts[-1])
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def snapshot(self) -> list[int]:
        """See ``TreeNoise``."""
        return list(map(int, self._leaves))

    def restore(self, state: Any) -> None:
        """See ``TreeNoise``."""
        most = self._fanout ** (self._levels - 1)
        self._leaves = _integers(state, most)

    def _tree(self) -> NDArray[np.int64]:
        # From the leaves up: level 1 has fanout**(levels - 1) nodes, the top level one.
        sizes = [self._fanout ** (self._levels - level) for level in range(1, self._levels + 1)]
        return consistent([laplace(self._noise, self._scale, size) for size in sizes], self._fanout)


def consistent(nodes: list[Integers], fanout: int) -> NDArray[np.int64]:
    """Leaves that fit the noise of all nodes best (Equations 10 and 11), in integers.

    ``nodes`` holds a level each, leaves first, the single top node last. The sum of any consecutive leaves is
    within 1 of the exact fit.
    """
    gains = [(fanout**level - 1) // (fanout - 1) for level in range(1, len(nodes) + 1)]
    weighted = [nodes[0].astype(object)]
    for level in range(1, len(nodes)):
        children = weighted[-1].reshape(-1, fanout).sum(axis=1)
        weighted.append(fanout**level * nodes[level].astype(object) + children)
    numerators, denominator = weighted[-1], gains[-1]
    for level in range(len(nodes) - 2, -1, -1):
        common = lcm(denominator, gains[level])
        own, above = common // gains[level], common // denominator
        siblings = weighted[level].reshape(-1, fanout).sum(axis=1)
        shares = numerators * above - siblings * own
        numerators = weighted[level] * (fanout * own) + np.repeat(shares, fanout)
        denominator = fanout * common
    prefix = (2 * np.add.accumulate(numerators) + denominator) // (2 * denominator)
    return _clamped(np.diff(prefix, prepend=0))


class PrefixTree(TreeNoise):
    """Noisy nodes without consistency: a node's noise is drawn when the node is complete."""

    def __init__(self, noise: NoiseSource, scale: Fraction, fanout: int, levels: int) -> None:
        super().__init__(noise, scale, fanout, levels)
        self._taken = 0
        self._open = [0] * levels  # noise of the complete nodes under the open parent, leaves first

    def take(self, count: int) -> NDArray[np.int64]:
        """See ``TreeNoise``."""
        before = sum(self._open)
        ends = np.arange(self._taken + 1, self._taken + count + 1)
        prefix: Integers = np.zeros(count, object)
        for level in range(self._levels):
            size = self._fanout**level
            first = self._taken // size  # nodes of this level that were complete before
            drawn = laplace(self._noise, self._scale, (self._taken + count) // size - first)
            sums = np.concatenate([[self._open[level]], drawn]).astype(object).cumsum()
            done = ends // size
            # A node counts while its parent is open; above the top level nothing closes.
            closed = ends // (size * self._fanout) * self._fanout if level + 1 < self._levels else 0 * ends
            kept = sums[done - first] - np.where(closed > first, sums[np.maximum(closed - first, 0)], 0)
            prefix += kept
            if count:
                self._open[level] = int(kept[-1])
        self._taken += count
        return _clamped(np.diff(prefix, prepend=before))

    def snapshot(self) -> dict[str, Any]:
        """See ``TreeNoise``."""
        return {"taken": self._taken, "open": self._open}

    def restore(self, state: Any) -> None:
        """See ``TreeNoise``."""
        if not isinstance(state, dict) or set(state) != {"taken", "open"}:
            raise ValueError("the noise of a tree should have taken and open")
        if type(state["taken"]) is not int or state["taken"] < 0:
            raise ValueError("taken should be a number of leaves")
        noise = _integers(state["open"], self._levels)
        if len(noise) != self._levels:
            raise ValueError(f"the noise should have {self._levels} levels")
        self._taken, self._open = state["taken"], noise.tolist()


def _clamped(noise: Integers) -> NDArray[np.int64]:
    return np.clip(noise, -NOISE_LIMIT, NOISE_LIMIT).astype(np.int64)


def _integers(state: Any, most: int) -> NDArray[np.int64]:
    if not isinstance(state, list) or len(state) > most or any(type(each) is not int for each in state):
        raise ValueError(f"the noise of a tree should be at most {most} integers")
    if any(abs(each) > NOISE_LIMIT for each in state):
        raise ValueError("the noise of a tree lies within +-2**61")
    return np.array(state, np.int64)
