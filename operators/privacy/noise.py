"""Exact discrete Laplace noise: integers only, from a source of random bytes.

The discrete Laplace distribution of scale b > 0 gives the integer x the probability
``(e^(1/b) - 1) / (e^(1/b) + 1) * e^(-|x|/b)``. For rational b it is sampled without any floating-point
number by Algorithm 2 of C. Canonne, G. Kamath and T. Steinke, "The Discrete Gaussian for Differential
Privacy" (NeurIPS 2020), here on whole arrays at a time. Floating-point Laplace noise is not an option: its
gaps reveal the value it should hide (I. Mironov, CCS 2012).

What differs from the printed algorithm, and why the distribution stays the same:

* Bernoulli(u / (t j)) is drawn as Bernoulli(1 / j) and, independently, Bernoulli(u / t): the probabilities
  multiply, and no product t*j can leave the integer range.
* Draws come in batches. Candidates are independent and identically distributed, and those that are kept
  are kept by their own value alone, in order, so the first ``size`` of them have the right distribution.
* Large numerators or denominators use arrays of Python integers in the same code.
* A magnitude above ``SATURATION`` is returned as ``SATURATION``. Whoever clamps, or compares with a
  threshold, below half of that sees no difference; see ``operators.mechanisms.base``.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

SATURATION = 2**62
_MACHINE_LIMIT = 2**56  # numerators and denominators up to here are computed in int64
_INT64_MAX = 2**63 - 1
_TRIALS = 2**20  # Bernoulli trials at a time

Integers = NDArray[Any]  # int64, or Python integers as objects


class NoiseSource(Protocol):
    """Where a mechanism gets its noise."""

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """Independent draws: int64 of shape (size,), within +-SATURATION.

        Raises ValueError unless ``scale`` > 0 and ``size`` >= 0.
        """


class _ByteNoise(ABC):
    """Discrete Laplace noise from uniformly random bytes."""

    @abstractmethod
    def _bytes(self, count: int) -> bytes:
        """The next ``count`` random bytes."""

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        """See ``NoiseSource``."""
        if scale <= 0:
            raise ValueError(f"scale should be positive, not {scale}")
        if size < 0:
            raise ValueError(f"size should not be negative, not {size}")
        sampler = _Sampler(self._bytes, Fraction(scale))
        draws = np.empty(size, np.int64)
        filled = 0
        while filled < size:
            batch = sampler.candidates(size - filled)[: size - filled]
            draws[filled : filled + len(batch)] = batch
            filled += len(batch)
        return draws

    def binomial(self, trials: NDArray[np.int64], rate: Fraction) -> NDArray[np.int64]:
        """How many of so many independent trials succeed, each exactly with probability ``rate``.

        Takes time in proportion to the trials. Raises ValueError unless 0 <= ``rate`` <= 1, its denominator
        is below 2^56 and no number of trials is negative.
        """
        if not 0 <= rate <= 1 or rate.denominator > _MACHINE_LIMIT or np.any(trials < 0):
            raise ValueError(f"{trials.tolist()[:3]} trials at rate {rate} cannot be drawn")
        sampler = _Sampler(self._bytes, Fraction(1))
        return np.array([sampler.successes(int(number), rate) for number in trials], np.int64)


class SystemNoise(_ByteNoise):
    """Noise from the operating system's cryptographic generator: the only source for live data."""

    def _bytes(self, count: int) -> bytes:
        return os.urandom(count)


class SeededNoise(_ByteNoise):
    """Reproducible noise for replay and tests; whoever knows the seed can remove it.

    The n-th request for bytes is answered by SHAKE-256 (FIPS 202) of the seed and n, so the same seed gives
    the same noise on every machine.
    """

    def __init__(self, seed: int) -> None:
        self._key = f"eventveil noise {seed}:".encode()
        self._requests = 0

    def _bytes(self, count: int) -> bytes:
        self._requests += 1
        return hashlib.shake_256(self._key + str(self._requests).encode()).digest(count)


class _Sampler:
    """Algorithm 2 for one scale ``numerator / denominator``; names follow the paper."""

    def __init__(self, read: Callable[[int], bytes], scale: Fraction) -> None:
        self._read = read
        self._numerator, self._denominator = scale.numerator, scale.denominator
        self._wide = max(self._numerator, self._denominator) > _MACHINE_LIMIT

    def candidates(self, wanted: int) -> NDArray[np.int64]:
        """Some draws: 0 or more, usually about ``wanted``."""
        u = self._below(self._numerator, wanted + wanted * 3 // 4 + 64)
        u = u[self._accepts(u)]
        x = self._multiple(self._geometric(len(u))) + u
        magnitude = _saturated(x // self._denominator)
        negative = self._bits(len(magnitude))
        # Zero has two signs; one of them is thrown away, or it would come out twice as often.
        kept = ~(negative & (magnitude == 0))
        signed: NDArray[np.int64] = np.where(negative, -magnitude, magnitude)[kept]
        return signed

    def successes(self, trials: int, rate: Fraction) -> int:
        """How many of the trials succeed, each with probability ``rate``."""
        found = 0
        while trials > 0:
            batch = min(trials, _TRIALS)
            found += int((self._below_machine(rate.denominator, batch) < rate.numerator).sum())
            trials -= batch
        return found

    def _accepts(self, u: Integers) -> NDArray[np.bool_]:
        """Bernoulli(exp(-u/numerator)) for each u in 0..numerator-1 (Algorithm 1).

        The first j at which Bernoulli(u / (numerator j)) fails is odd with exactly that probability.
        """
        accepted = np.ones(len(u), np.bool_)
        j = 1
        running = np.flatnonzero(self._below(self._numerator, len(u)) < u)
        while len(running):
            accepted[running] = j % 2 == 0  # they got past j, and would fail at j + 1
            j += 1
            running = running[self._one_in(j, len(running))]
            running = running[self._below(self._numerator, len(running)) < u[running]]
        return accepted

    def _geometric(self, size: int) -> NDArray[np.int64]:
        """How often Bernoulli(exp(-1)) succeeds before it fails, ``size`` times."""
        successes = np.zeros(size, np.int64)
        running = np.flatnonzero(self._succeeds_with_inverse_e(size))
        while len(running):
            successes[running] += 1
            running = running[self._succeeds_with_inverse_e(len(running))]
        return successes

    def _succeeds_with_inverse_e(self, size: int) -> NDArray[np.bool_]:
        """Bernoulli(exp(-1)), ``size`` times: as ``_accepts`` with u = numerator, where j = 1 never fails."""
        succeeded = np.zeros(size, np.bool_)
        j = 2
        running = np.flatnonzero(self._one_in(j, size))
        while len(running):
            succeeded[running] = j % 2 == 0
            j += 1
            running = running[self._one_in(j, len(running))]
        return succeeded

    def _multiple(self, v: NDArray[np.int64]) -> Integers:
        """Numerator times v, in Python integers unless it fits int64 with another numerator added."""
        if self._wide or (len(v) and (int(v.max()) + 1) * self._numerator > _INT64_MAX):
            return v.astype(object) * self._numerator
        return v * self._numerator

    def _one_in(self, j: int, size: int) -> NDArray[np.bool_]:
        """Bernoulli(1/j), ``size`` times, for j >= 2."""
        return self._bits(size) if j == 2 else self._below_machine(j, size) == 0

    def _bits(self, size: int) -> NDArray[np.bool_]:
        """Fair coins."""
        octets = np.frombuffer(self._read((size + 7) // 8), np.uint8)
        coins: NDArray[np.bool_] = np.unpackbits(octets, count=size).view(np.bool_)
        return coins

    def _below(self, bound: int, size: int) -> Integers:
        """Uniform integers in 0..bound-1, in the representation of this scale."""
        return self._below_wide(bound, size) if self._wide else self._below_machine(bound, size)

    def _below_machine(self, bound: int, size: int) -> NDArray[np.int64]:
        """Uniform integers in 0..bound-1 for bound <= _MACHINE_LIMIT, by rejection."""
        if bound == 1:
            return np.zeros(size, np.int64)
        width = next(width for width in (1, 2, 4, 8) if bound <= 1 << (8 * width))
        kind = np.dtype(f"<u{width}")
        whole = (1 << (8 * width)) // bound * bound
        uniform = np.empty(size, np.int64)
        filled = 0
        while filled < size:
            count = size - filled
            words = np.frombuffer(self._read(width * count), kind)
            if whole < 1 << (8 * width):
                words = words[words < whole]
            if whole > bound:
                words = words % kind.type(bound)
            uniform[filled : filled + len(words)] = words
            filled += len(words)
        return uniform

    def _below_wide(self, bound: int, size: int) -> Integers:
        """Uniform Python integers in 0..bound-1, by rejection; at most every second one is rejected."""
        bits = (bound - 1).bit_length()
        width = max(1, (bits + 7) // 8)
        excess = 8 * width - bits
        uniform = np.empty(size, object)
        filled = 0
        while filled < size:
            octets = self._read(width * (size - filled))
            for start in range(0, len(octets), width):
                value = int.from_bytes(octets[start : start + width], "little") >> excess
                if value < bound:
                    uniform[filled] = value
                    filled += 1
        return uniform


def _saturated(magnitude: Integers) -> NDArray[np.int64]:
    """Not negative integers as int64, larger ones as SATURATION."""
    return np.minimum(magnitude, SATURATION).astype(np.int64)
