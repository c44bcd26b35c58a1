"""Gaussian noise for a publication, from the settings ``noise: gaussian`` and ``delta``.

**Guarantee.** mu-GDP for the timestamps that epsilon covers, mu the largest that (epsilon, delta) allows; so
(epsilon, delta)-differential privacy. Neighbours, assumptions and levels are those of the same kind with
Laplace noise.

**Proof.** ``eventveil.privacy.gaussian``, theorem (a filter): a publication of u of N units has noise of at
least sigma^2 = k^2 N / (u mu^2), k bounding the change in L2, so it costs mu_i^2 <= (u / N) mu^2. The ledger
lets no window, which all timestamps at which neighbours differ lie in, spend more than N. Released is count
+ round(sigma Z), Z exactly normal: that is round(count + sigma Z), post-processing of what the theorem is
about. The kind draws nothing else from the counts, and decides by what was released; which is why only some
may have such noise.

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

LARGEST_DELTA = Fraction(1, 10_000)
"""A larger one promises nothing worth the name: a hundred of a million users could be published."""
OPTIONS = frozenset({"noise", "delta"})
_ROUNDING = 1 / 12


@dataclass(frozen=True, slots=True)
class GaussianNoise:
    """What a spend means: ``mu_squared`` is what all units together are, ``squared_sensitivity`` in L2."""

    delta: Fraction
    mu_squared: Fraction
    squared_sensitivity: int

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

    All of it may be in one column, so the L2 norm is as large. By `substitute` the L1 norm is that of two
    events' worth of counts, v and v', whose difference has |v|^2 + |v'|^2 at most in L2 squared. Raises
    UnfitSetting.
    """
    from eventveil.privacy import gaussian

    delta = settings.delta or Fraction(0)
    if not gaussian.LEAST_DELTA <= delta <= LARGEST_DELTA:
        raise UnfitSetting("delta", f"found {delta}, expected {gaussian.LEAST_DELTA} to {LARGEST_DELTA}")
    square = sensitivity * sensitivity
    square = -(-square // 2) if settings.adjacency == "substitute" else square
    return GaussianNoise(delta, gaussian.mu_squared(settings.epsilon, delta), square)
