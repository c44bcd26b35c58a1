"""Totals: every timestamp is released, and noise cancels in sums over blocks of timestamps.

**Guarantee.** Event-level epsilon-differential privacy; neighbours and assumptions as in
``eventveil.mechanisms.event_level`` and ``eventveil.mechanisms.publishing``. With ``noise: gaussian``
``eventveil.mechanisms.nested_gaussian`` has the guarantee, the algorithm and the proof; what follows is about
Laplace noise.

**Algorithm.** A timestamp's counts are released with the noise n of its place in nested blocks, such as a
timestamp, a day and a week (``blocks``; ``eventveil.mechanisms.nested`` has n). Each of the h levels of
blocks has discrete Laplace draws of scale h k / epsilon, k being the sensitivity, one for each block and
column. Releases of a block add up to its true total and a noise of the level, however long it is. That is the
tree mechanism of Dwork, Naor, Pitassi, Rothblum (STOC 2010) and Chan, Shi, Song (TISSEC 2011) with a fan-out
for each level, read as a factorization of the counts that are released (Denisov et al., NeurIPS 2022), with
the estimate of least squares (Hay et al., PVLDB 2010) for the factor on the reader's side. Changed: discrete
noise, integers throughout, any sensitivity, no root and so no horizon.

**Proof.** Let one user's events differ at timestamp s, so that counts differ by d(j) in column j, with
|d(1)| + |d(2)| + ... <= k. All that is random are the draws z, which do not depend on counts; so what is
released up to any time is a function f(x, z). Fix the draws z for the counts x. For the counts x + d take
z - d in the h blocks that hold s, in each column its own d(j), and z everywhere else. By the shift of
``nested``, the noise of timestamp s falls by d and no other changes: f(x + d, z - d) = f(x, z). This is one
to one, and the probability of z - d is at most e^(h k / (h k / epsilon)) = e^epsilon times that of z. Summed
over all z with the same outputs: any output is at most e^epsilon times as likely with x as with x + d. Users
may answer to releases: given the outputs, x is the same function of them on both sides, so the same holds.
The ledger is charged all units for s when its counts come, before anything is released of them.

**Draws ahead.** Those of a block's parts are drawn when it begins, before its later timestamps are charged:
they touch no counts until then. They are part ``noise`` of the state, which is as private as the events:
with the releases it gives away true counts.

**Limits.** Draws beyond a limit C (``nested.largest_draw``) are cut off. Of a single count that would be
post-processing; here it is not. So scales are refused unless C is 2^20 of them: a draw beyond has a
probability below e^(-2^20), less than that the hardware miscounts.

**Choice.** docs/mechanisms/totals.md compares with other trees and factorizations, by exact variance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from eventveil.mechanisms import gaussian, nested_gaussian
from eventveil.mechanisms.arithmetic import Floats
from eventveil.mechanisms.base import RELEASE_LIMIT, Counts, Guarantee, Nesting, Options, Release
from eventveil.mechanisms.movement import noise_variance
from eventveil.mechanisms.nested import NestedNoise, fanouts_of, largest_draw, powers
from eventveil.mechanisms.nested_gaussian import NestedGaussian
from eventveil.mechanisms.publishing import PublishingMechanism, read_only, state_numbers
from eventveil.model.errors import UnfitSetting
from eventveil.model.topology import Level, MechanismSettings, Option
from eventveil.privacy.ledger import Ledger, Spend

DEFAULT_BLOCKS = (12, 144)
"""Where a timeline has no day or week in whole timestamps; the best of its form for spans around 100."""
LARGEST_FANOUT = 1024
LONGEST_BLOCK = 2**20


class Totals(PublishingMechanism):
    """Releases c + n, where n cancels in sums over blocks."""

    kind: ClassVar[str] = "totals"
    summary: ClassVar[str] = "noise that cancels in sums over blocks of timestamps, such as days and weeks"
    options: ClassVar[frozenset[str]] = frozenset({"blocks"}) | gaussian.OPTIONS
    level: ClassVar[Level] = "event"
    raw: ClassVar[frozenset[str]] = frozenset({"noise"})
    draws_ahead: ClassVar[bool] = True
    added: ClassVar[frozenset[str]] = frozenset()
    columns_apart: ClassVar[bool] = True

    @property
    def notes(self) -> tuple[str, ...]:
        """What sums over blocks err by, beside single timestamps."""
        deviation, single = self._of_draw**0.5, float(np.sqrt(self._variance_now()[0]))
        alone = self._variance(self.units) ** 0.5
        blocks = " or ".join(map(str, self._lengths[1:]))
        return (
            f"The sum over a block of {blocks} timestamps, counted from the first, has a standard"
            f" deviation of at most {deviation:.3g}, a single timestamp {single:.3g}; with time-unit a "
            f"timestamp has {alone:.3g}, and a sum of n root n times that.",
        )

    def _promise(self) -> Guarantee:
        return replace(super()._promise(), combines=True)

    def _configure(self, options: Mapping[str, Option]) -> None:
        if self._window != 1:
            raise UnfitSetting("window", "epsilon covers one timestamp at event level")
        self._lengths = _lengths(options)
        if self._gaussian is None:
            self._node_scale = len(self._lengths) * self._scale(self.units)
            if largest_draw(fanouts_of(self._lengths)) < self._node_scale * 2**20:
                raise ValueError(f"epsilon {self._epsilon} is too small for blocks of {self._lengths[-1]}")
            self._of_draw = noise_variance(float(self._node_scale))
            self._nested: NestedNoise | NestedGaussian = NestedNoise(self._lengths, self._columns)
        else:
            self._node_scale = self._gaussian.sigma(nested_gaussian.planned(self._lengths).draw)
            if self._node_scale > nested_gaussian.LARGEST_DEVIATION:
                raise ValueError(f"epsilon {self._epsilon} is too small for integers of 64 bits")
            self._of_draw = self._gaussian.variance(self._node_scale)
            self._nested = NestedGaussian(self._lengths, self._columns)

    def _allot(self, counts: Counts) -> int:
        return self.units

    def _publish(self, counts: Counts, units: int) -> None:
        self._ledger.charge_publish(units)
        place = self._timestamp - 1
        if isinstance(self._nested, NestedGaussian):
            released = self._looked(self._nested, place, counts)
        else:
            noise = self._nested.take(place, self._drawn)
            released = np.clip(counts + noise, -RELEASE_LIMIT, RELEASE_LIMIT)
        self._last = read_only(released)

    def _drawn(self, size: int) -> Counts:
        return self._noise_of(self._node_scale, size)

    def _looked(self, nested: NestedGaussian, place: int, counts: Counts) -> Counts:
        assert self._gaussian is not None
        sigma = self._gaussian.sigma(nested.part(place))
        noisy = nested.look(place, counts) + self._noise_of(sigma, self._columns)
        return nested.released(place, counts, noisy)

    def _release(self, *, fresh: bool) -> Release:
        at = (self._timestamp - 1) % self._lengths[-1] + 1
        nesting = Nesting(self._lengths[1:], at, self._node_scale)
        return replace(super()._release(fresh=fresh), nesting=nesting)

    def _variance_now(self) -> Floats:
        """The same for all timestamps, since each has one block of each level."""
        one = np.zeros(self._lengths[-1])
        one[0] = 1.0
        return np.array([powers(one, fanouts_of(self._lengths)).variance(self._of_draw)])

    @classmethod
    def squares(cls, periods: int, options: Options) -> int:
        """See ``Mechanism.squares``: noise of timestamps is correlated within the longest block."""
        return nested_gaussian.squares(_lengths(options), periods)

    @classmethod
    def can_spend(cls, spend: Spend, window: int, units: int, columns: int, options: Options) -> bool:
        """See ``Mechanism.can_spend``: nothing else than all of it."""
        return spend == Spend(0, units)

    def _scales(self) -> tuple[Fraction, Fraction]:
        return self._node_scale, self._node_scale

    def _error_state(self) -> dict[str, Any]:
        """None: the error is always the same."""
        return {}

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), "blocks": list(self._lengths[1:])}

    def _extra_state(self) -> dict[str, Any]:
        return {"noise": self._nested.snapshot()}

    def _restore_extra(self, values: Mapping[str, Any], timestamp: int, ledger: Ledger) -> None:
        self._nested = self._nested.restored(values["noise"], timestamp)

    @classmethod
    def numbers(cls, settings: MechanismSettings, columns: int) -> tuple[int, int]:
        """See ``Mechanism.numbers``: the draws of blocks to come, or noise of those that are over."""
        nested = NestedNoise if settings.delta is None else NestedGaussian
        return state_numbers(nested.bytes_of(_lengths(settings.options), columns)), 0


def _lengths(options: Options) -> tuple[int, ...]:
    """1, and the lengths of the blocks. Raises UnfitSetting."""
    longest = nested_gaussian.LONGEST_BLOCK if options.get("noise") == "gaussian" else LONGEST_BLOCK
    text = options.get("blocks", ",".join(map(str, DEFAULT_BLOCKS)))
    words = text.split(",") if isinstance(text, str) else []
    lengths = (1, *(int(word) if word.isdecimal() else 0 for word in words))
    pairs = list(pairwise(lengths))
    if not pairs or any(
        long <= short or long % short or long // short > LARGEST_FANOUT or long > longest
        for short, long in pairs
    ):
        raise UnfitSetting(
            "blocks",
            f"found [{', '.join(words)}], expected lengths in timestamps, each a multiple of the one before,"
            f" at most {LARGEST_FANOUT} times as long, and at most {longest}, such as [24, 168]",
        )
    return lengths
