"""The other side of local reports: the distribution of values, a threshold.

**Guarantee.** None of its own: functions of reports that are private already (post-processing).

**Source.** Wang et al. (CCS 2021), Section 4.1, Equations 8 and 22; expectation maximisation for Square Wave:
Li et al. (SIGMOD 2020), without their smoothing, which pushes mass to the ends.

**Changed.** Equation 8 with r^2/6 throughout, as derived in the text (r^2/24 is a misprint). The prune looks
for the first value from the median on whose next five estimates are below 0.01 %, and zeroes all above; from
the first cell on, as printed, it wipes out whatever does not begin at 0 (flights take 20 minutes at least).
Reports outside the public grid are refused: they can be forged, so they are for the caller to count.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import exp

import numpy as np
from numpy.typing import NDArray

from eventveil.local.reports import ROUNDING_ONLY, SquareWave

Density = NDArray[np.float64]
RARE = 1e-4
RUN = 5


def distribution(mechanism: SquareWave, counts: NDArray[np.int64], rounds: int = 2000) -> Density:
    """The most likely share of each cell, given how often each report came: shape (cells,), sum 1.

    Expectation maximisation, until the log-likelihood per report gains less than 1e-9 or ``rounds`` are over.
    Raises ValueError for another shape, negative counts or no report at all.
    """
    wave = mechanism.wave
    if counts.shape != (wave.outputs,) or counts.min() < 0 or not counts.sum():
        raise ValueError(f"there should be {wave.outputs} counts, not all of them 0")
    observed = counts / counts.sum()
    rest, lift = float(1 / wave.total), float((wave.weight - 1) / wave.total)
    density = np.full(wave.inputs, 1 / wave.inputs)
    before = -np.inf
    for _ in range(rounds):
        expected = rest + lift * _spread(density, wave.window)  # the density sums to 1
        likelihood = float(observed @ np.log(expected))
        if likelihood - before < 1e-9:
            break
        before = likelihood
        surprise = observed / expected
        density = density * (rest * surprise.sum() + lift * _windows(surprise, wave.window))
        density /= density.sum()
    return density


def pruned(density: Density) -> Density:
    """SW-W: nothing above the first value, from the median on, that is followed by RUN shares below RARE."""
    rare = np.convolve(density < RARE, np.ones(RUN), mode="valid") == RUN
    median = int(np.searchsorted(np.cumsum(density), density.sum() / 2))
    starts = median + np.flatnonzero(rare[median + 1 :])  # cell w is followed by the run from w + 1
    kept = density.copy()
    if len(starts):
        kept[starts[0] + 1 :] = 0
    return kept


def threshold(
    density: Density, maximum: int, epsilon: Fraction, longest: int, among: Sequence[int] = ()
) -> int:
    """The threshold in 1..maximum with the least expected squared error of a range query (Equation 8).

    ``epsilon`` is that of the Hybrid reports to come, ``longest`` the longest range r. The threshold is one
    of those ``among`` which to choose, by default the upper end of a cell.
    """
    cells = len(density)
    upper = np.minimum(-(-(maximum + 1) * np.arange(1, cells + 1) // cells) - 1, maximum).astype(float)
    middles = (upper + np.concatenate([[-1.0], upper[:-1]]) + 1) / 2
    thetas = np.array(among, float) if among else np.maximum(upper, 1)
    excess = np.array([density @ np.maximum(middles - theta, 0) for theta in thetas])
    errors = longest / 3 * worst_variance(epsilon) * thetas**2 / 4 + longest**2 / 6 * excess**2
    return int(thetas[int(np.argmin(errors))])


def worst_variance(epsilon: Fraction) -> float:
    """Variance of a Hybrid estimate at worst, for values in -1..1 (Equation 22)."""
    e = float(epsilon)
    rounding = ((exp(e) + 1) / (exp(e) - 1)) ** 2
    if epsilon <= ROUNDING_ONLY:
        return rounding
    return exp(-e / 2) * (rounding + (exp(e / 2) + 3) / (3 * (exp(e / 2) - 1)))


def _spread(density: Density, window: int) -> Density:
    """For each output, the share of the inputs whose window holds it."""
    return _windows(np.pad(density, window - 1), window)


def _windows(values: Density, window: int) -> Density:
    """Sums of ``window`` neighbours."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray(sums[window:] - sums[:-window])
