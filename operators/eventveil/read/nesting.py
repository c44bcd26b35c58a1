"""What noise that cancels in sums over blocks of timestamps leaves in a sum (``totals``).

``eventveil.mechanisms.nested`` has the blocks, and the variance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eventveil.mechanisms.movement import noise_variance
from eventveil.mechanisms.nested import Powers, fanouts_of, powers
from eventveil.read.intervals import LAPLACE

_ROUNDING = 1 / 12
"""What it adds to the variance of Gaussian noise."""


class NestedBlocks(NamedTuple):
    """``lengths`` of nested blocks in timestamps; ``begin``: a timestamp at which a longest one begins, from
    0 to its length; ``scale``: of the Laplace draw of each block, or its standard deviation if it
    ``is_normal``."""

    lengths: tuple[int, ...]
    begin: int
    scale: float
    is_normal: bool = False

    @property
    def of_draw(self) -> float:
        """The variance of a draw."""
        return self.scale**2 + _ROUNDING if self.is_normal else noise_variance(self.scale)

    @property
    def kurtosis(self) -> float:
        """Of a draw, in excess of a normal number's."""
        return 0.0 if self.is_normal else LAPLACE


class Noise(NamedTuple):
    """Of a sum of releases of one column: the variance and the fourth cumulant of its noise."""

    variance: float
    fourth: float


def noise_of(some: Mapping[NestedBlocks, NDArray[np.int64]]) -> Noise:
    """Of a sum over timestamps, ascending, by the blocks that they have. Longest blocks are independent."""
    variance = fourth = 0.0
    for blocks, timestamps in some.items():
        of_draw = blocks.of_draw
        for found in _of_longest(blocks, timestamps):
            variance += found.variance(of_draw)
            fourth += blocks.kurtosis * of_draw**2 * found.fourths
    return Noise(variance, fourth)


def nested(lengths: tuple[int, ...]) -> bool:
    """Whether each is a multiple of the one before, and more."""
    return all(long > short and long % short == 0 for short, long in pairwise((1, *lengths)))


def of_columns(rollups: tuple[int, ...], columns: int, places: Sequence[int]) -> Noise:
    """The noise of the sum over some columns: what its variance, and its fourth cumulant, have of those that
    independent noise of the same columns had."""
    fanouts = fanouts_of((1, *rollups))
    variance = fourth = 0.0
    weights = np.zeros(columns)
    weights[places] = 1.0
    for block in weights.reshape(-1, rollups[-1]):
        if block.any():
            found = powers(block, fanouts)
            variance, fourth = variance + found.squares, fourth + found.fourths
    one = _of_run((1, *rollups), 0, 1)
    return Noise(variance / (len(places) * one.squares), fourth / (len(places) * one.fourths))


def kurtosis_of_one(blocks: NestedBlocks) -> float:
    """The excess kurtosis of the noise of a single timestamp."""
    found = _of_run((1, *blocks.lengths), 0, 1)
    return blocks.kurtosis * found.fourths / found.squares**2


def _of_longest(blocks: NestedBlocks, timestamps: NDArray[np.int64]) -> list[Powers]:
    """Of each longest block that some timestamps, in ascending order, lie in."""
    lengths, longest = (1, *blocks.lengths), blocks.lengths[-1]
    numbers, places = np.divmod(timestamps - blocks.begin, longest)
    found: list[Powers] = []
    if not len(places):
        return found
    for some in np.split(places, np.flatnonzero(np.diff(numbers)) + 1):
        first, end = int(some[0]), int(some[-1]) + 1
        is_run = end - first == len(some)
        found.append(_of_run(lengths, first, end) if is_run else _of_places(lengths, some))
    return found


@lru_cache(maxsize=2**12)
def _of_run(lengths: tuple[int, ...], first: int, end: int) -> Powers:
    return _of_places(lengths, np.arange(first, end))


def _of_places(lengths: tuple[int, ...], places: NDArray[np.int64]) -> Powers:
    weights = np.zeros(lengths[-1])
    weights[places] = 1.0
    return powers(weights, fanouts_of(lengths))
