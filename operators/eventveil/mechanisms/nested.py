"""Noise that cancels in sums: the consistent noise of nested blocks of timestamps, in integers.

**Structure.** *Nodes* are blocks of consecutive timestamps: of one timestamp at the lowest of h levels, of
``lengths[l]`` of them at level l, each length a multiple of the one below. Node v has a draw z(v). Blocks of
the highest level lie side by side without end; there is nothing above them, so no length of the stream has to
be known.

**Consistent noise.** A node's noise n(v) is z(v) at the highest level. Below it, let u have the k children
v_1..v_k, and rest(u) = n(u) - z(v_1) - ... - z(v_k). The noise of the first j children together is

    N_j(u) = z(v_1) + ... + z(v_j) + round(j rest(u) / k),        n(v_j) = N_j(u) - N_(j-1)(u),

so children add up to their parent, exactly. Without the rounding (halves up) this is the estimate of least
squares of Hay et al. (PVLDB 2010), from the top down: n(v_j) = z(v_j) + (n(u) - sum of z) / k. What their
pass from the bottom up would add is a part of 1 / (k + 1) of a block's variance, and is left out: it would
need the draws of a whole highest block at once, where these need k of each level.

**Shift.** Add an integer a to z(v) of one node of each level, each inside the other. Then n of these nodes
rises by a, and that of all others stays: at the highest level by definition; below, rest(u) stays, for n(u)
and the sum of z rise alike, so N_j rises by a from the child on that rose. The proof of
``eventveil.mechanisms.totals`` rests on this and on nothing else of this module.

**Variance.** Let timestamp i have the weight w(i) in a sum, and every draw the variance s^2. The weight of a
node is the mean over its children's. A draw below the highest level then counts with its node's weight minus
that of the parent, one at the highest level with the weight itself; ``squares`` adds that up.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.base import Counts
from eventveil.mechanisms.packing import data_of

Floats = NDArray[np.float64]
Draw = Callable[[int], Counts]

_ROUNDING = 1 / 6
"""The most that rounding adds to the variance of a sum at each level but the highest: two ends of 1/12."""
_WIDTHS = (1, 2, 4, 8)


class Powers(NamedTuple):
    """Sums over draws of the square and the fourth power of what each counts with; ``roundings`` levels."""

    squares: float
    fourths: float
    roundings: int

    def variance(self, of_draw: float) -> float:
        """Of the sum, rounding included, if each draw has this variance."""
        return self.squares * of_draw + self.roundings * _ROUNDING


def powers(weights: Floats, fanouts: tuple[int, ...]) -> Powers:
    """How the draws of a highest block count in a sum; ``weights``: of each of its timestamps."""
    squares = fourths = 0.0
    roundings = 0
    for fanout in fanouts:
        children = weights.reshape(-1, fanout)
        weights = children.mean(axis=1)
        own = children - weights[:, np.newaxis]
        squares, fourths = squares + float((own**2).sum()), fourths + float((own**4).sum())
        roundings += bool(own.any())
    return Powers(squares + float((weights**2).sum()), fourths + float((weights**4).sum()), roundings)


def fanouts_of(lengths: tuple[int, ...]) -> tuple[int, ...]:
    """How many blocks of each length make up one of the next; ``lengths`` begin with 1."""
    return tuple(long // short for short, long in pairwise(lengths))


def largest_draw(fanouts: tuple[int, ...]) -> int:
    """Draws beyond this are cut off, so that nothing overflows.

    With C for it, a node's noise is at most 2C + 1 and a k-th of its parent's, so at most 4C + 2, and rest at
    most (k + 5) C: twice k times that stays below 2^62.
    """
    widest = max(fanouts)
    return int(2**60 // (widest * (widest + 5)))


def consistent(draw: Draw, lengths: tuple[int, ...], size: int) -> Counts:
    """The noise of ``size`` nodes of the lowest level at once, all of their blocks being whole; int64."""
    fanouts = fanouts_of(lengths)
    limit = largest_draw(fanouts)
    noise: Counts = np.clip(draw(size // lengths[-1]), -limit, limit)
    for fanout in reversed(fanouts):
        children = np.clip(draw(len(noise) * fanout), -limit, limit).reshape(-1, fanout)
        rest = (noise - children.sum(axis=1))[:, np.newaxis]
        parts = (2 * np.arange(fanout + 1) * rest + fanout) // (2 * fanout)
        noise = (children + np.diff(parts, axis=1)).ravel()
    return noise


class NestedNoise:
    """The noise of one timestamp after the other, of every column; all state is noise that is to be used."""

    def __init__(self, lengths: tuple[int, ...], columns: int) -> None:
        self._lengths, self._fanouts, self._columns = lengths, fanouts_of(lengths), columns
        self._limit = largest_draw(self._fanouts)
        nothing = np.zeros(0, np.int64), np.zeros((0, columns), np.int64)
        # Of each level but the highest: rest of the open parent, and the draws of children that come.
        self._open: list[tuple[Counts, Counts]] = [nothing for _ in self._fanouts]

    def take(self, place: int, draw: Draw) -> Counts:
        """The noise of timestamp ``place``, from 0 on, int64 (columns,); ``draw`` gives that many draws."""
        value = np.zeros(0, np.int64)
        for level in reversed(range(len(self._fanouts))):
            if place % self._lengths[level + 1] == 0:
                is_highest = level + 2 == len(self._lengths)
                self._begin(level, self._drawn(draw, 1)[0] if is_highest else value, draw)
            if place % self._lengths[level] == 0:
                value = self._next_child(level, place)
        return value

    def _begin(self, level: int, parent: Counts, draw: Draw) -> None:
        children = self._drawn(draw, self._fanouts[level])
        self._open[level] = parent - children.sum(axis=0), children

    def _next_child(self, level: int, place: int) -> Counts:
        rest, waiting = self._open[level]
        fanout = self._fanouts[level]
        j = place // self._lengths[level] % fanout
        self._open[level] = rest, waiting[1:]
        noise: Counts = waiting[0] + _part(rest, j + 1, fanout) - _part(rest, j, fanout)
        return noise

    def _drawn(self, draw: Draw, nodes: int) -> Counts:
        draws: Counts = np.clip(draw(nodes * self._columns), -self._limit, self._limit)
        return draws.reshape(nodes, self._columns)

    def snapshot(self) -> list[list[str]]:
        """The whole state, for JSON."""
        return [[encoded(rest), encoded(waiting)] for rest, waiting in self._open]

    def restored(self, state: object, used: int) -> NestedNoise:
        """One that continues from ``snapshot()`` after ``used`` timestamps. ValueError if that cannot be."""
        if not isinstance(state, list) or len(state) != len(self._fanouts):
            raise ValueError(f"noise should be of {len(self._fanouts)} levels")
        found = NestedNoise(self._lengths, self._columns)
        found._open = [self._restored_level(level, one, used) for level, one in enumerate(state)]
        return found

    def _restored_level(self, level: int, state: object, used: int) -> tuple[Counts, Counts]:
        if not isinstance(state, list) or len(state) != 2:
            raise ValueError("noise of a level should be what is left of a block, and its draws")
        fanout = self._fanouts[level]
        waiting = fanout - 1 - (used - 1) // self._lengths[level] % fanout if used else 0
        rest = decoded(state[0], self._columns if used else 0, (fanout + 5) * self._limit)
        draws = decoded(state[1], waiting * self._columns, self._limit)
        return rest, draws.reshape(waiting, self._columns)

    @staticmethod
    def bytes_of(lengths: tuple[int, ...], columns: int) -> int:
        """The most that ``snapshot()`` takes as JSON: rest, and all children but one."""
        return sum(4 * -(-8 * fanout * columns // 3) + 64 for fanout in fanouts_of(lengths))


def _part(rest: Counts, j: int, fanout: int) -> Counts:
    """j / fanout of rest, halves up."""
    part: Counts = (2 * j * rest + fanout) // (2 * fanout)
    return part


def encoded(numbers: Counts) -> str:
    """As base64 text, each of as few bytes as the largest needs: noise is small, and there is much of it."""
    size = int(np.abs(numbers).max(initial=0))
    width = next(width for width in _WIDTHS if size < 1 << (8 * width - 1))
    return base64.b64encode(np.ascontiguousarray(numbers, f"<i{width}").data).decode()


def decoded(text: object, count: int, limit: int) -> Counts:
    """``count`` numbers within +-limit; ValueError if the text has no such."""
    data = data_of(text, "noise")
    if not count and not data:
        return np.zeros(0, np.int64)
    width = next((width for width in _WIDTHS if len(data) == width * count), None)
    if width is None:
        raise ValueError(f"noise should be {count} numbers, not {len(data)} bytes")
    numbers = np.frombuffer(data, f"<i{width}").astype(np.int64)
    if np.any(numbers > limit) or np.any(numbers < -limit):
        raise ValueError(f"noise should lie within +-{limit}")
    return numbers
