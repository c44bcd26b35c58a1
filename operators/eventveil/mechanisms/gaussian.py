"""Gaussian noise for a publication, from the settings ``noise: gaussian`` and ``delta``.

**Guarantee.** mu-GDP for the timestamps that epsilon covers, mu the largest that (epsilon, delta) allows; so
(epsilon, delta)-differential privacy. Neighbours, assumptions and levels are those of the same kind with
Laplace noise.

**Proof.** ``eventveil.privacy.gaussian``, theorem (a filter): a publication of u of N units has noise of at
least sigma^2 = S N / (u mu^2), S bounding the square of the change in L2, so it costs mu_i^2 <= (u / N) mu^2.
The ledger lets no window, which all timestamps at which neighbours differ lie in, spend more than N. Released
is count + round(sigma Z), Z exactly normal: that is round(count + sigma Z), post-processing of what the
theorem is about. The kind draws nothing else from the counts, and decides by what was released; which is why
only some may have such noise.

**Source.** Our own accounting, after Dong, Roth and Su (JRSS B 2022) and Smith and Thakurta (2022). Changed
from Kellaris et al. (PVLDB 2014): mu squared instead of epsilon adds up over a window.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from eventveil.model.errors import UnfitSetting
from eventveil.model.topology import MechanismSettings
from eventveil.privacy.noise import NoiseSource, NormalSource

OPTIONS = frozenset({"noise", "delta"})
_ROUNDING = 1 / 12


@dataclass(frozen=True, slots=True)
class GaussianNoise:
    """What a spend means: ``mu_squared`` is what all units together are.

    ``contributions`` bound what one history of a user adds to the counts of a timestamp, ``per_column`` what
    one column has of it; neighbours differ by as many ``histories``, 2 by `substitute`.
    """

    delta: Fraction
    mu_squared: Fraction
    contributions: int
    per_column: int
    histories: int = 1

    @property
    def squared_sensitivity(self) -> int:
        """By how much the counts of neighbours differ at a timestamp, in L2 squared."""
        return self.squared_sensitivity_of(1)

    def squared_sensitivity_of(self, columns: int) -> int:
        """The same of their sums over blocks of this many columns.

        A block has at most ``columns`` times ``per_column`` of a user's events, and all blocks together have
        ``contributions``: that is the same question with larger columns.
        """
        from eventveil.privacy import gaussian  # few streams have such noise

        in_one = min(self.contributions, columns * self.per_column)
        return self.histories * gaussian.largest_square(self.contributions, in_one)

    def sigma(self, part: Fraction) -> Fraction:
        """The standard deviation that a publication needs which costs this part of all units."""
        from eventveil.privacy import gaussian  # few streams have such noise

        return gaussian.noise(self.squared_sensitivity, part * self.mu_squared)

    def draw(self, source: NoiseSource, sigma: Fraction, size: int) -> NDArray[np.int64]:
        """Noise. Raises ValueError if the source has no Gaussian one."""
        if not isinstance(source, NormalSource):
            raise ValueError("this noise source has no Gaussian noise")
        return source.rounded_normal(sigma, size)

    def variance(self, sigma: Fraction) -> float:
        """Of rounded noise."""
        return float(sigma) * float(sigma) + _ROUNDING


def gaussian_of(settings: MechanismSettings, sensitivity: int) -> GaussianNoise:
    """The noise of a mechanism with ``noise: gaussian``, whose counts one user changes by this in L1.

    By `substitute` that is what two histories of a user add, each half of it; else it is one. Without
    ``per_column`` all of a history may be in one column. Raises UnfitSetting.
    """
    from eventveil.privacy import gaussian

    delta = settings.delta or Fraction(0)
    if not gaussian.LEAST_DELTA <= delta <= gaussian.LARGEST_DELTA:
        expected = f"{gaussian.LEAST_DELTA} to {gaussian.LARGEST_DELTA}"
        raise UnfitSetting("delta", f"found {delta}, expected {expected}")
    histories = 2 if settings.adjacency == "substitute" else 1
    contributions = -(-sensitivity // histories)
    per_column = contributions if settings.per_column is None else settings.per_column
    if not 1 <= per_column <= contributions:
        raise UnfitSetting("per_column", f"found {per_column}, expected 1 to {contributions}")
    mu_squared = gaussian.mu_squared(settings.epsilon, delta)
    return GaussianNoise(delta, mu_squared, contributions, per_column, histories)
