"""Gaussian noise that cancels in sums over nested blocks of columns, drawn from the highest blocks down.

**Guarantee.** Of what is released of one timestamp, against neighbours whose counts of it differ by d: the
mu squared below. Neighbours and assumptions are those of the kind (``eventveil.mechanisms.rolled``).

**Source.** The law is that of consistent hierarchies (Hay, Rastogi, Miklau, Suciu, PVLDB 2010), as
``eventveil.mechanisms.nested`` has them, here with normal draws of variance V: a block has noise N, and its f
parts have z + (N - sum of z) / f, z independent. Changed: the draws. Given N, the noise A of the first a of s
parts has the mean a N / s and the variance V a b / s, b = s - a.

**Algorithm.** A highest block with the count X is *looked* at once: X + round(sigma Z), sigma^2 >= V, is
released. A block of s parts is divided into its first a and its other b parts, with the counts X_A and X_B.
The look is the whole number

    y = b X_A - a X_B + round(sigma Z),    sigma^2 >= V a b s,

and with R, what was released of the block, the first part is released as R_A = (a R + y) / s, rounded, and
the second one as R - R_A, until every part is a single one. In differences from the counts, N = R - X and w
the noise of y, that is N_A = (a N + w) / s, rounded, for a X + b X_A - a X_B = s X_A: so the noise can be
drawn without the counts.

**Proof.** All that is released is computed from looks: sums and roundings of them. A look is a whole number
plus round(sigma Z), so the theorem of ``eventveil.privacy.gaussian`` counts its change squared over sigma^2.
Let a user change the counts by d, and a part's sum by d_A and d_B. A division costs at most

    (b d_A - a d_B)^2 / (V a b s) = (d_A^2 / a + d_B^2 / b - (d_A + d_B)^2 / s) / V,

and those of a block of f parts add up to their squares less 1/f of the square of their sum. With S_l the sum
of squares of d over the blocks of level l (0: columns) and f_l blocks of level l in one above, all looks cost

    (S_0 + S_1 (1 - 1/f_0) + S_2 (1 - 1/f_1) + ...) / V.

No weight is negative, so what bounds each S_l bounds this. Draws beyond ``largest`` are cut off; scales are
refused unless that is MOST_DEVIATIONS standard deviations, which is as likely as e^(-2^19).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import isqrt

import numpy as np

from eventveil.mechanisms.base import Counts
from eventveil.mechanisms.nested import fanouts_of

#: Gives that many draws of round(root(k) sigma Z) for k; sigma^2 is the variance of a highest block.
Draw = Callable[[int, int], Counts]
MOST_DEVIATIONS = 2**10
"""In standard deviations, how far from 0 a draw is at least that is cut off."""


def price(squares: Sequence[int], lengths: tuple[int, ...]) -> Fraction:
    """What all looks cost at V = 1, for a bound of the squares of each level, columns first."""
    shares = (1 - Fraction(1, fanout) for fanout in fanouts_of(lengths))
    return squares[0] + sum(
        (one * share for one, share in zip(squares[1:], shares, strict=True)), Fraction(0)
    )


def largest(lengths: tuple[int, ...]) -> int:
    """Draws of a highest block beyond this are cut off, and others in proportion, so that nothing overflows.

    With C for it and f the largest fan-out, noise is at most (root(f) + 2) C and what is computed at most
    4 f root(f) C.
    """
    widest = max(fanouts_of(lengths))
    return int(2**59 // (widest * (isqrt(widest) + 1)))


def fits(sigma: Fraction, lengths: tuple[int, ...]) -> bool:
    """Whether draws of this standard deviation are hardly ever cut off."""
    return sigma * MOST_DEVIATIONS <= largest(lengths)


def consistent(draw: Draw, lengths: tuple[int, ...], size: int) -> Counts:
    """The noise of ``size`` columns at once, all of their blocks being whole; int64."""
    limit = largest(lengths)

    def within(times: int, number: int) -> Counts:
        most = isqrt(times * limit * limit)
        return np.clip(draw(times, number), -most, most)

    noise = within(1, size // lengths[-1])
    for fanout in reversed(fanouts_of(lengths)):
        noise = _divided(noise, fanout, within)
    return noise


def _divided(noise: Counts, fanout: int, draw: Draw) -> Counts:
    """The noise of the parts of blocks: all blocks are divided in halves at once, again and again."""
    parts, sizes = noise[:, np.newaxis], np.array([fanout])
    while sizes.max() > 1:
        first = np.zeros_like(parts)
        for size in np.unique(sizes[sizes > 1]).tolist():
            alike, a = sizes == size, size // 2
            drawn = draw(a * (size - a) * size, len(noise) * int(alike.sum()))
            whole = a * parts[:, alike] + drawn.reshape(len(noise), -1)
            first[:, alike] = (2 * whole + size) // (2 * size)
        parts = np.stack([first, parts - first], axis=2).reshape(len(noise), -1)
        sizes = np.stack([sizes // 2, sizes - sizes // 2], axis=1).ravel()
        parts, sizes = parts[:, sizes > 0], sizes[sizes > 0]
    return parts.ravel()
