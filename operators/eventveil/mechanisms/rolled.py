"""Roll-ups: noise that cancels in sums over blocks of columns, such as the countries of a section.

**Guarantee.** That of the kind, for the same charges; neighbours and assumptions as there.

**Source.** Consistent hierarchies of Hay, Rastogi, Miklau, Suciu (PVLDB 2010), here across columns. Changed:
integers, from the top down (``eventveil.mechanisms.nested``), and only the lowest level is released: counts
of a block add up to its own noisy total, so that every level is consistent by itself.

**Proof.** A publication of c + n, for a charge of u of N units, is (u epsilon / N)-private: each of the h
levels has draws z of scale h b, where b = k N / (u epsilon) is the scale without roll-ups. Let one user
change the counts of that timestamp by d, at most k in L1. To each column j belong h nodes, one of each level.
Take z - d(j) in these, for each column: by the shift of ``nested`` n becomes n - d, and c + d + n - d is what
was released. All draws together change by at most h k in L1, so the probability by at most
e^(h k / (h b)) = e^(u epsilon / N). Draws of other timestamps are independent. Draws beyond ``largest_draw``
are cut off, so scales are refused unless that is 2^20 of them, as in ``eventveil.mechanisms.totals``.

*With Gaussian noise* it is drawn as ``eventveil.mechanisms.contrasts`` says, which has the proof that what is
released is post-processing of looks, and what they cost: S / V, S = S_0 + S_1 (1 - 1/f_0) + S_2 (1 - 1/f_1) +
..., f_l blocks of level l being one of the next. S_l is S(k, min(k, p m)) of ``eventveil.privacy.gaussian``
for blocks of m columns, p being the events of a user that count in one column: k^2 for each level if all may.
What a user adds to a block of m columns is at most p m and at most k, and all blocks of a level have at most
k, so the squares of a level add up to S_l at most. (Events that fill one column after the other, from the
first on, reach all S_l at once.) Under `substitute` the change is that of v less that of v', both of entries
>= 0, so its squares are at most the sum of both, and k^2 where one block has all columns. So a charge of u of
N units has V = S N / (u mu^2).

*Rounding.* Halves are rounded up, so a timestamp's noise has a mean of up to about 1/3, different in each
column. The noise of every second timestamp is negated: draws are as likely as their negatives.

**When.** With Laplace noise a single count has h^2 times the variance, less a bit. A block of m columns has
h^2 times that of one column where it had m times: it pays from h^2 columns in a block on, 4 with one level of
roll-ups, 9 with two. With Gaussian noise h^2 is S over S_0, less than h: from 2 columns on, or from 3, and
from more where p is below k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from eventveil.mechanisms.base import Chosen, Counts, Guarantee, Release
from eventveil.mechanisms.publishing import PublishingMechanism
from eventveil.model.errors import UnfitSetting
from eventveil.model.topology import Option

if TYPE_CHECKING:
    from eventveil.mechanisms.nested import Powers


class RolledUp(PublishingMechanism):
    """A mechanism whose every draw is for all columns, with the option ``rollups``."""

    def _configure(self, options: Mapping[str, Option]) -> None:
        self._rolled = _lengths(options, self._columns)
        super()._configure(options)
        if len(self._rolled) > 1:
            from eventveil.mechanisms import contrasts  # most streams have no roll-ups
            from eventveil.mechanisms.nested import fanouts_of, largest_draw

            widest = self._scales()[1]
            if self._gaussian is not None:
                fits = contrasts.fits(widest, self._rolled)
            else:
                fits = largest_draw(fanouts_of(self._rolled)) >= widest * 2**20
            if not fits:
                raise ValueError(f"epsilon {self._epsilon} is too small for blocks of {self._rolled[-1]}")

    @property
    def notes(self) -> tuple[str, ...]:
        """What roll-ups change, beside what the kind says."""
        if len(self._rolled) == 1:
            return super().notes
        block = len(self._rolled) if self._gaussian is None else float(self._levels()) ** 0.5
        single = block * self._single() ** 0.5
        # A Laplace draw has root(2) times its scale.
        of_draw = float(self.guarantee.best_scale) * (2**0.5 if self._gaussian is None else 1)
        deviation = of_draw * self._single() ** 0.5
        blocks = " or ".join(map(str, self._rolled[1:]))
        return (
            *super().notes,
            f"Roll-ups: the sum over a block of {blocks} columns, counted from the first, has {block:.3g}"
            " times the error of a single count without them, however many columns it has; a single count has"
            f" {single:.3g} times that error, a standard deviation of {deviation:.3g}. Releases of a block"
            " add up to its total.",
        )

    def _promise(self) -> Guarantee:
        return replace(super()._promise(), combines=len(self._rolled) > 1)

    def grow(self, levels: Sequence[float], variance: float) -> None:
        """See ``Mechanism.grow``: not with roll-ups, whose blocks are of the columns that were listed."""
        if self.grows and len(self._rolled) > 1:
            raise ValueError("roll-ups take no further columns")
        super().grow(levels, variance)

    def shrink(self, kept: Chosen) -> None:
        """See ``Mechanism.shrink``: not with roll-ups, as ``grow``."""
        if self.grows and len(self._rolled) > 1:
            raise ValueError("roll-ups keep all of their columns")
        super().shrink(kept)

    def _single(self) -> float:
        """The variance of a single count over that of a draw, rounding left out."""
        return self._powers().squares

    def _levels(self) -> Fraction:
        """With Gaussian noise, what all levels together cost, over what columns alone do."""
        from eventveil.mechanisms.contrasts import price

        assert self._gaussian is not None
        of_levels = [*map(self._gaussian.squared_sensitivity_of, self._rolled)]
        if len(self._rolled) > 1 and self._rolled[-1] == self._columns:
            of_levels[-1] //= self._gaussian.histories
        return price(of_levels, self._rolled) / self._gaussian.squared_sensitivity

    def _powers(self) -> Powers:
        """What a single count holds of the draws."""
        from eventveil.mechanisms.nested import fanouts_of, powers

        one = np.zeros(self._rolled[-1])
        one[0] = 1.0
        return powers(one, fanouts_of(self._rolled))

    def _scale(self, units: int) -> Fraction:
        if self._gaussian is not None:
            return self._deviation(units, 1)
        return len(self._rolled) * super()._scale(units)

    def _deviation(self, units: int, times: int) -> Fraction:
        """Of a Gaussian draw of that many times the variance of a highest block's."""
        assert self._gaussian is not None
        return self._gaussian.sigma(Fraction(units, self.units) / (self._levels() * times))

    def _draw(self, units: int, size: int) -> Counts:
        scale = self._scale(units)
        if len(self._rolled) == 1:
            return self._noise_of(scale, size)
        from eventveil.mechanisms import contrasts, nested

        if self._gaussian is None:
            noise = nested.consistent(lambda nodes: self._noise_of(scale, nodes), self._rolled, size)
        else:
            noise = contrasts.consistent(
                lambda times, nodes: self._noise_of(self._deviation(units, times), nodes), self._rolled, size
            )
        # Halves are rounded up: as often they are to be rounded down, or sums over time would drift.
        return noise if self._timestamp % 2 else -noise

    def _variance(self, units: int) -> float:
        if len(self._rolled) == 1:
            return super()._variance(units)
        return self._powers().variance(super()._variance(units))

    def _release(self, *, fresh: bool) -> Release:
        release = super()._release(fresh=fresh)
        if len(self._rolled) == 1:
            return release
        return replace(release, noise_scale=None, rollups=self._rolled[1:])

    def _identity(self) -> dict[str, Any]:
        rolled = {"rollups": list(self._rolled[1:])} if len(self._rolled) > 1 else {}
        return {**super()._identity(), **rolled}


def _lengths(options: Mapping[str, Option], columns: int) -> tuple[int, ...]:
    """1, and the columns of each block; 1 alone without roll-ups. Raises UnfitSetting."""
    text = options.get("rollups", "")
    words = text.split(",") if isinstance(text, str) and text else []
    lengths = (1, *(int(word) if word.isdecimal() else 0 for word in words))
    if any(long <= short or long % short for short, long in pairwise(lengths)) or columns % lengths[-1]:
        raise UnfitSetting(
            "rollups",
            f"found {text}, expected numbers of columns, each a multiple of the one before, that divide all"
            f" {columns}, such as [3, 600] for {{product: [sections, 200 countries, 3 devices]}}",
        )
    return lengths
