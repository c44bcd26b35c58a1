"""Exact noise: integers only, from a source of random bytes.

*Rounded normal* noise is that of ``normal``, which has the proof.

The *discrete Laplace* distribution of scale b > 0 gives the integer x the probability
``(e^(1/b) - 1) / (e^(1/b) + 1) * e^(-|x|/b)``. A draw is a geometric number of ratio e^(-1/b) with a fair
sign, thrown away if it is a negative zero, as in Algorithm 2 of C. Canonne, G. Kamath and T. Steinke, "The
Discrete Gaussian for Differential Privacy" (NeurIPS 2020). The geometric numbers are exact for every rational
b, on whole arrays at a time; ``exponential`` says how, and why. Floating-point Laplace noise is not an
option: its gaps reveal the value it should hide (I. Mironov, CCS 2012).

* Draws come in batches. Candidates are independent and identically distributed, and those that are kept
  are kept by their own value alone, in order, so the first ``size`` of them have the right distribution.
  The others are forgotten.
* A magnitude above ``SATURATION`` is returned as ``SATURATION``. Code that clamps, or compares with a
  threshold, below half of that sees no difference; see ``eventveil.mechanisms.base``.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from math import isqrt
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from eventveil.privacy.exponential import SATURATION as SATURATION
from eventveil.privacy.exponential import Read, geometric

_BATCH = 2**13  # draws at a time: what is computed of them stays in the processor's cache
_TRIALS = 2**20  # Bernoulli trials at a time
_RATE_LIMIT = 2**56  # of denominators of rates


class NoiseSource(Protocol):
    """Where a mechanism gets its noise."""

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Independent draws: int64 of shape (size,), within +-SATURATION.

        Raises ValueError unless ``scale`` > 0 and ``size`` >= 0.
        """


@runtime_checkable
class NormalSource(Protocol):
    """Where a mechanism gets Gaussian noise, if its source has some."""

    def rounded_normal(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        """Independent draws of round(sigma Z), Z standard normal: int64, shape (size,), within +-SATURATION.

        Raises ValueError unless ``sigma`` > 0 and ``size`` >= 0.
        """


class _ByteNoise(ABC):
    """Noise from uniformly random bytes."""

    @abstractmethod
    def _bytes(self, count: int) -> bytes:
        """The next ``count`` random bytes."""

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """See ``NoiseSource``."""
        return self._drawn(_candidates, scale, size)

    def rounded_normal(self, sigma: Fraction, size: int) -> NDArray[np.int64]:
        """See ``NormalSource``."""
        return self._drawn(_normal_candidates, sigma, size)

    def _drawn(
        self, candidates: Callable[[Read, Fraction, int], NDArray[np.int64]], scale: Fraction, size: int
    ) -> NDArray[np.int64]:
        """The first ``size`` of what batches of candidates keep."""
        if scale <= 0:
            raise ValueError(f"scale should be positive, not {scale}")
        if size < 0:
            raise ValueError(f"size should not be negative, not {size}")
        draws = np.empty(size, np.int64)
        filled = 0
        while filled < size:
            wanted = min(size - filled, _BATCH)
            batch = candidates(self._bytes, Fraction(scale), wanted)[:wanted]
            draws[filled : filled + len(batch)] = batch
            filled += len(batch)
        return draws

    def binomial(self, trials: NDArray[np.int64], rate: Fraction) -> NDArray[np.int64]:
        """How many of ``trials`` independent trials succeed, each exactly with probability ``rate``.

        Takes time in proportion to the trials. Raises ValueError unless 0 <= ``rate`` <= 1, its denominator
        is below 2^56 and no number of trials is negative.
        """
        if not 0 <= rate <= 1 or rate.denominator > _RATE_LIMIT or np.any(trials < 0):
            raise ValueError(f"{trials.tolist()[:3]} trials at rate {rate} cannot be drawn")
        return np.array([_successes(self._bytes, int(number), rate) for number in trials], np.int64)


class SystemNoise(_ByteNoise):
    """Noise from the operating system's cryptographic generator: the only source for live data."""

    def _bytes(self, count: int) -> bytes:
        return os.urandom(count)


class SeededNoise(_ByteNoise):
    """Reproducible noise for replay and tests; a reader who knows the seed can remove it.

    The n-th request for bytes is answered by SHAKE-256 (FIPS 202) of the seed and n, so the same seed gives
    the same noise on every machine.
    """

    def __init__(self, seed: int) -> None:
        self._key = f"eventveil noise {seed}:".encode()
        self._requests = 0

    @classmethod
    def of(cls, words: str) -> SeededNoise:
        """That of a seed of 256 bits, which is the SHA-256 digest of the words."""
        return cls(int.from_bytes(hashlib.sha256(words.encode()).digest(), "big"))

    def _bytes(self, count: int) -> bytes:
        self._requests += 1
        return hashlib.shake_256(self._key + str(self._requests).encode()).digest(count)


def _candidates(read: Read, scale: Fraction, wanted: int) -> NDArray[np.int64]:
    """Some draws, usually about ``wanted``; 0 or more."""
    # For each that is kept, tanh(1 / (2 scale)) are thrown away on average; this is a little more.
    n, d = scale.numerator**2, scale.denominator**2
    surplus = min(wanted, int(wanted * (60 * n + d) / (scale * (120 * n + 12 * d))))
    magnitude = geometric(read, scale, wanted + surplus + isqrt(surplus) + 1)
    negative = _coins(read, len(magnitude))
    # Zero has two signs; one of them is thrown away, or it would come out twice as often.
    kept = ~negative | (magnitude != 0)
    signed: NDArray[np.int64] = np.where(negative, -magnitude, magnitude)[kept]
    return signed


def _normal_candidates(read: Read, sigma: Fraction, wanted: int) -> NDArray[np.int64]:
    """Some draws, usually about ``wanted``: a little more than 1 of 50 is thrown away."""
    from eventveil.privacy.normal import rounded_normal  # few streams have such noise

    return rounded_normal(read, sigma, wanted + wanted // 32 + 1)


def _coins(read: Read, size: int) -> NDArray[np.bool_]:
    """Fair coins."""
    octets = np.frombuffer(read((size + 7) // 8), np.uint8)
    coins: NDArray[np.bool_] = np.unpackbits(octets, count=size).view(np.bool_)
    return coins


def _successes(read: Read, trials: int, rate: Fraction) -> int:
    """How many of the trials succeed, each with probability ``rate``."""
    found = 0
    while trials > 0:
        batch = min(trials, _TRIALS)
        found += int((_below(read, rate.denominator, batch) < rate.numerator).sum())
        trials -= batch
    return found


def _below(read: Read, bound: int, size: int) -> NDArray[np.int64]:
    """Uniform integers in 0..bound-1 for bound <= _RATE_LIMIT, by rejection."""
    if bound == 1:
        return np.zeros(size, np.int64)
    width = next(width for width in (1, 2, 4, 8) if bound <= 1 << (8 * width))
    kind = np.dtype(f"<u{width}")
    whole = (1 << (8 * width)) // bound * bound
    uniform = np.empty(size, np.int64)
    filled = 0
    while filled < size:
        count = size - filled
        words = np.frombuffer(read(width * count), kind)
        if whole < 1 << (8 * width):
            words = words[words < whole]
        if whole > bound:
            words = words % kind.type(bound)
        uniform[filled : filled + len(words)] = words
        filled += len(words)
    return uniform
