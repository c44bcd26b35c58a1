"""Gaussian noise that cancels in sums over nested blocks, drawn when it is needed: ``totals`` with a delta.

**Guarantee.** Event-level mu-GDP, mu the largest that (epsilon, delta) allows; so (epsilon,
delta)-differential privacy. Neighbours as in ``eventveil.mechanisms.event_level``, whose users may react to
releases; assumptions as in ``eventveil.mechanisms.publishing``. Somebody who is there at n timestamps of one
longest block is protected by n mu, not by root(n) mu: see *Longer*.

**Algorithm.** The noise of a longest block is to be that of ``eventveil.mechanisms.nested`` without its
rounding, with normal draws of variance V: n = B z. Given the noise of earlier timestamps, that of the next
one is normal: its mean is -g_0 D_0 - g_1 D_1 - ..., D_l the noise so far of the parts of level l that are
over in the open block above them, with constants g >= 0 of the timestamp's place, and its variance is r V. So
no draw is made ahead and little is remembered. Read the other way, the timestamp's *look* is

    y = x + g_0 X_0 + g_1 X_1 + ... + sigma Z,    sigma^2 = r V,

X_l the true counts of those parts, R_l what was released of them, and y - g_0 R_0 - g_1 R_1 - ... is
released, rounded: D_l = R_l - X_l. That is a factorization of running totals (S. Denisov, B. McMahan, K.
Rush, A. Smith, A. Thakurta, NeurIPS 2022) whose lower triangular factor C has the rows of the looks. Changed:
weights g are whole multiples of 2^-16, g^ = 2^16 g, and a look is drawn on that grid, so that y is exact:

    2^16 y = 2^16 x + sum g^_l X_l + round(2^16 sigma Z).

**Proof.** Let a user's events differ at timestamp s only, by d, |d|^2 <= S of
``eventveil.privacy.gaussian``. Given what was seen before, the look at s differs by 2^16 d. A look at a later
place p of the same longest block has the counts of s in one of its X_l, l the level at which s and p part,
and differs by g^_l(p) d; all others do not differ. Looks are whole numbers plus round(sigma Z), which is
round(number + sigma Z). So all looks together are post-processing of what the theorem of
``eventveil.privacy.gaussian`` is about, whatever d, s and other users' events are as functions of what was
seen. They cost S times the sum of (g^ / sigma)^2, g^ = 2^16 at s itself. ``planned`` adds that up for each
s in whole numbers, from the rounded weights and from the sigmas that are drawn with, and makes the largest of
these sums mu^2. R_l, rounding and clamping are functions of what was seen: they cannot break this, not even
where an integer of 64 bits would overflow, because the sum y - sum g_l R_l is then taken modulo 2^64. The
ledger is charged all units for s before the first look at it.

Noise that would be cut off at 2^62 is 2^16 standard deviations away, and as likely as e^(-2^31). The law of
the noise, and so what readers are told of its size, holds up to 2^-16 and the rounding of releases; the proof
does not rest on it.

**Price.** A user moves one node of each level. Before rounding the sum is (1 + sum of (1 - 1/f)) S / V over
the fan-outs f below the longest block, since the noise of f parts is told by f - 1 contrasts and their sum:
so V = (1 + sum of (1 - 1/f)) S / mu^2, where draws of one's own for each node would cost 1 instead of 1 -
1/f.

**Longer.** C has no negative entry, and each visit moves the looks of its longest block by a vector of length
mu at most. So visits at n timestamps of one block are n mu together, mu squared n^2 times as large, and those
of different blocks add up in mu squared: ``squares`` bounds it. Under `substitute` visits v and v' have the
length of C v - C v', whose square is at most that of C v and C v' together.

**Restart.** A look is drawn and released in one transaction with the state after it. If that was not
committed, nobody has seen it, and it is drawn anew.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.base import RELEASE_LIMIT, Counts
from eventveil.mechanisms.nested import decoded, encoded, fanouts_of

Floats = NDArray[np.float64]

BITS = 16
"""Looks are whole multiples of 2^-BITS."""
LONGEST_BLOCK = 2**14
"""The costs of all of its timestamps are added up when a mechanism is made."""
LARGEST_DEVIATION = 2**30
"""Of a draw, in counts: noise of 2^10 times that leaves room in 64 bits."""
_INVERSE_BITS = 40
_HALF = 1 << (BITS - 1)
_LIMIT = 2**62


class Plan(NamedTuple):
    """The looks of a longest block, by place.

    ``weights``: g^ of each level below the longest block, int64 (places, levels). ``parts``: what a look may
    cost of mu squared. ``draw``: the same of a look of the variance that all nodes have.
    """

    weights: NDArray[np.int64]
    parts: tuple[Fraction, ...]
    draw: Fraction


@lru_cache(maxsize=8)
def planned(lengths: tuple[int, ...]) -> Plan:
    """The looks for blocks of these lengths, which begin with 1; see the module."""
    law, variance = _law(lengths)
    weights = np.rint(law * 2**BITS).astype(np.int64)
    inverses = np.ceil(2**_INVERSE_BITS / variance).astype(np.int64).tolist()
    most = max(_costs(lengths, weights.tolist(), inverses))
    parts = tuple(Fraction(one, most) for one in inverses)
    return Plan(weights, parts, Fraction(4**BITS << _INVERSE_BITS, most))


def _law(lengths: tuple[int, ...]) -> tuple[Floats, Floats]:
    """The noise at each place, given all before it: weights g, the lowest level first, and r.

    (places, levels) and (places,), in floating point: what this costs is added up afterwards, exactly.

    From the top down, V = 1. A node has f children with noise z + (n - sum of z) / f, n that of the node, of
    which all before it says the mean m, a sum of -g D over higher levels, and the variance v. So children
    have the mean m / f, and a covariance of 1 where they are the same, plus b = (v / f - 1) / f everywhere.
    Given j of them, of the sum D, the next one has the mean m / f (1 + j a) - a D, a = -b / (1 + j b), and
    the variance (1 + (j + 1) b) / (1 + j b).
    """
    places, levels = np.arange(lengths[-1]), len(lengths) - 1
    weights, variance = np.zeros((len(places), levels)), np.ones(len(places))
    for level, fanout in reversed([*enumerate(fanouts_of(lengths))]):
        j, b = places // lengths[level] % fanout, (variance / fanout - 1) / fanout
        own = -b / (1 + j * b)
        weights *= ((1 + j * own) / fanout)[:, np.newaxis]
        weights[:, level] = own
        variance = (1 + (j + 1) * b) / (1 + j * b)
    return weights, variance


def _costs(lengths: tuple[int, ...], weights: list[list[int]], inverses: list[int]) -> list[int]:
    """Of each place, what all looks that its counts are in cost: the sum of their g^ squared over variance.

    In units of 2^-40 / V.
    """
    places = range(lengths[-1])
    found = [4**BITS * inverses[place] for place in places]
    for level, (length, longer) in enumerate(pairwise(lengths)):
        told = (weights[place][level] ** 2 * inverses[place] for place in places)
        until = [0, *accumulate(told)]
        for place in places:
            part_ends, block_ends = ((place // one + 1) * one for one in (length, longer))
            found[place] += until[block_ends] - until[part_ends]
    return found


def squares(lengths: tuple[int, ...], timestamps: int) -> int:
    """How many times mu squared it costs somebody to be there at this many consecutive timestamps."""
    return timestamps * min(timestamps, lengths[-1])


class NestedGaussian:
    """The looks at one timestamp after the other, of every column; the state is what releases erred by."""

    def __init__(self, lengths: tuple[int, ...], columns: int) -> None:
        self._lengths, self._columns = lengths, columns
        self._plan = planned(lengths)
        # D_l: of each level below the longest block.
        self._sums = np.zeros((len(lengths) - 1, columns), np.int64)

    def part(self, place: int) -> Fraction:
        """What the look at timestamp ``place``, from 0 on, may cost of mu squared."""
        return self._plan.parts[place % self._lengths[-1]]

    def look(self, place: int, counts: Counts) -> Counts:
        """What the noise of a look is to be added to, less what was released: multiples of 2^-BITS."""
        weights = self._plan.weights[place % self._lengths[-1]]
        look: Counts = (counts << BITS) - weights @ self._sums
        return look

    def released(self, place: int, counts: Counts, noisy: Counts) -> Counts:
        """The counts that are released after this noisy look, which are remembered."""
        released: Counts = np.clip((noisy + _HALF) >> BITS, -RELEASE_LIMIT, RELEASE_LIMIT)
        self._sums[0] += released - counts
        for level, longer in enumerate(self._lengths[1:]):
            if (place + 1) % longer == 0:
                if level + 1 < len(self._sums):
                    self._sums[level + 1] += self._sums[level]
                self._sums[level] = 0
        return released

    def snapshot(self) -> list[str]:
        """The whole state, for JSON."""
        return [encoded(one) for one in self._sums]

    def restored(self, state: object, used: int) -> NestedGaussian:
        """One that continues from ``snapshot()`` after ``used`` timestamps. ValueError if that cannot be."""
        if not isinstance(state, list) or len(state) != len(self._sums):
            raise ValueError(f"noise should be of {len(self._sums)} levels")
        found = NestedGaussian(self._lengths, self._columns)
        for level, one in enumerate(state):
            found._sums[level] = decoded(one, self._columns, _LIMIT)
            begun = used % self._lengths[level + 1] >= self._lengths[level]
            if not begun and found._sums[level].any():
                raise ValueError(f"nothing is over yet in the open block of {self._lengths[level + 1]}")
        return found

    @staticmethod
    def bytes_of(lengths: tuple[int, ...], columns: int) -> int:
        """The most that ``snapshot()`` takes as JSON."""
        return (len(lengths) - 1) * (4 * -(-8 * columns // 3) + 64)
