"""PAK: a high quantile by smooth sensitivity as threshold, then a binary hierarchy. For comparison.

**Guarantee.** Event-level (epsilon, delta)-differential privacy, **not pure**: never add its epsilon to that
of pure mechanisms as if they were equal. k values together are (k epsilon, delta (e^(k epsilon) - 1) /
(e^epsilon - 1))-private. Neighbours and assumptions as in ``eventveil.values.stream``.

**Source.** V. Perrier, H. J. Asghar, D. Kaafar, "Private Continual Release of Real-Valued Data Streams" (NDSS
2019), as described in Wang et al. (CCS 2021), Section 3.1 and Appendices A and B; K. Nissim,
S. Raskhodnikova, A. Smith, "Smooth Sensitivity and Sampling in Private Data Analysis" (STOC 2007).

**Proof.** For the p-quantile x of m sorted values, the largest change after k replaced values is
A_k = max_{t=0..k+1} (x_{P+t} - x_{P+t-k-1}), and A_k(V) <= A_{k+1}(V') for neighbours. Let L >= ln(2/delta),
e^beta = 1 + epsilon / (2 (L + epsilon)), and S = max_k A_k w_k with w_{k+1} >= e^-beta w_k: then
S(V) <= e^beta S(V'). Released is theta = f + Z, f = x + ceil(kappa S g / a), Z discrete Laplace of scale
b = (kappa S + 1) / a, a = epsilon/2, g = ln(1 / (2 failure)), kappa = 1 / (1 - (e^beta - 1) g / a).
*Shift*: f changes by at most S (1 + kappa (e^beta - 1) g / a) + 1 = kappa S + 1 = a b: a factor of
e^(epsilon/2).
*Dilation* of the scale from b by e^lambda, |lambda| <= beta: the normaliser tanh(1/(2b)) changes by at most
e^beta <= e^(epsilon/2) when the scale grows, and the exponent helps; when it shrinks, the exponent costs
|z|/b (e^beta - 1) <= epsilon/2 unless |z|/b > L + epsilon, with probability below 2 e^-(L + epsilon) <=
delta e^-epsilon. Together P(V) <= e^epsilon P(V') + delta. The hierarchy is ``eventveil.values.tree``, on
disjoint values.

**Changed.** t runs to k + 1 (a narrower range is not smooth). The printed beta <= epsilon / (-2 ln delta)
gives no room for the order of shift and dilation; ours is a little smaller. Noise is discrete, kappa S + 1
pays for rounding f. Sums of ranges are differences of noisy prefix sums, so that every value gives a reading.
``clamp`` cuts the threshold at the largest possible value; without it, as in the paper's comparison, it
usually lies above.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, log
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from eventveil.privacy.noise import NoiseSource
from eventveil.values.draws import laplace
from eventveil.values.stream import SCALE_LIMIT, PublicSettings, ValueGuarantee, ValueStream
from eventveil.values.tree import height

_WEIGHT = 2**64
_ABOVE = Fraction(2**40 + 1, 2**40)  # lifts a float's value above its error


@dataclass(frozen=True, slots=True)
class PakSettings:
    """See ``PublicSettings``. ``failure``: how often the threshold may be below the quantile."""

    epsilon: Fraction
    delta: Fraction
    maximum: int
    held: int = 2**16
    chunk: int = 2**20
    quantile: Fraction = Fraction(99575, 100_000)
    failure: Fraction = Fraction(6, 1000)
    clamp: bool = True
    fanout: int = 2


class Pak(ValueStream):
    """Holds back, takes a quantile from above, then releases every value."""

    kind: ClassVar[str] = "pak"
    summary: ClassVar[str] = "for comparison with tops: a quantile as threshold, (epsilon, delta) only"

    def __init__(self, settings: PakSettings, noise: NoiseSource) -> None:
        levels = height(settings.fanout, settings.chunk)
        shape = PublicSettings(
            settings.epsilon, settings.maximum, settings.held, settings.chunk, settings.fanout, 0, False
        )
        super().__init__(shape, noise)
        self._own = settings
        if not (
            0 < settings.delta < 1 and 0 < settings.quantile < 1 and 0 < settings.failure < Fraction(1, 2)
        ):
            raise ValueError("delta and quantile should lie between 0 and 1, failure between 0 and 1/2")
        self._growth = 1 + settings.epsilon / (2 * (_log_of(2 / settings.delta) + settings.epsilon))
        self._gap = _log_of(1 / (2 * settings.failure))
        room = 1 - (self._growth - 1) * self._gap * 2 / settings.epsilon
        if room <= 0:
            raise ValueError(f"delta {settings.delta} is too large for a failure of {settings.failure}")
        self._kappa = 1 / room
        # Without the clamp a threshold is some thousand times ``maximum`` at worst.
        self._ceiling = settings.maximum if settings.clamp else int(SCALE_LIMIT * settings.epsilon) // levels
        self.guarantee = ValueGuarantee("event", settings.epsilon, settings.delta)

    def _estimate(self, held: NDArray[np.int64]) -> int:
        quantile, sensitivity = self._quantile(held)
        raised = quantile + ceil(2 * self._kappa * sensitivity * self._gap / self.shape.epsilon)
        scale = 2 * (self._kappa * sensitivity + 1) / self.shape.epsilon
        noisy = raised + int(laplace(self._noise, scale, 1)[0])
        return min(max(noisy, 1), self._ceiling)

    def _quantile(self, held: NDArray[np.int64]) -> tuple[int, Fraction]:
        """The quantile of the values and its smooth sensitivity."""
        rank = ceil(self._own.quantile * len(held))
        quantile = int(np.sort(held)[rank - 1])
        return quantile, smooth_sensitivity(held, rank, self.shape.maximum, self._growth)

    def settings(self) -> dict[str, Any]:
        """See ``ValueStream``."""
        own = {name: str(getattr(self._own, name)) for name in ("delta", "quantile", "failure", "clamp")}
        return {**super().settings(), **own}


def smooth_sensitivity(values: NDArray[np.int64], rank: int, maximum: int, growth: Fraction) -> Fraction:
    """A bound on how far the value of ``rank`` (from 1) can move that neighbours share up to ``growth``."""
    count = len(values)
    # x_i is 0 for i < 1 and the maximum for i > count; A_k is the maximum from k = count on.
    padding = np.zeros(count + 1, np.int64)
    padded = np.concatenate([padding, np.sort(values), padding + maximum])
    at = count + rank  # where x_rank stands
    weight, largest = _WEIGHT, 0
    for k in range(count + 1):
        if weight * maximum <= largest:
            break
        reach = np.arange(k + 2)
        upper = padded[np.minimum(at + reach, len(padded) - 1)]
        change = int((upper - padded[np.maximum(at + reach - k - 1, 0)]).max())
        largest = max(largest, weight * change)
        weight = ceil(weight / growth)
    return Fraction(largest, _WEIGHT)


def _log_of(value: Fraction) -> Fraction:
    """The natural logarithm, from above."""
    return Fraction(log(value)) * _ABOVE if value > 1 else Fraction(0)
