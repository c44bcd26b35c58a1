"""A season as harmonics: which frequencies a period has, and what they are at a timestamp.

The first period, a day say, has its harmonics, up to twelve. The second one, a week, has its first three,
and those that let the harmonics of the first vary with it: one and two of its own to either side of the first
harmonic of the day.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from eventveil.mechanisms.arithmetic import Floats, turn
from eventveil.model.errors import UnfitSetting

HARMONICS = 12
LONGEST_PERIOD = 1_000_000
MOST_PERIODS = 2
_SHORT = 12
"""A period up to this long has its alternation too: the frequency of one half."""


@dataclass(frozen=True)
class Harmonics:
    """The terms of a season: a constant, then a cosine and a sine for each of ``frequencies``.

    Models are nested: the first has ``sizes[0]`` terms, the second, with the second period, all. ``weights``
    are the variances that each term is expected to have, for a level of 1 and an amplitude of 1.
    """

    frequencies: tuple[Fraction, ...]
    weights: tuple[float, ...]
    sizes: tuple[int, ...]

    def at(self, timestamp: int) -> Floats:
        """The terms at a timestamp, shape (terms,)."""
        terms = [1.0]
        for frequency in self.frequencies:
            whole = frequency.denominator
            terms += turn(frequency.numerator * timestamp % whole, whole)
        return np.array(terms)

    @property
    def terms(self) -> int:
        """How many."""
        return self.sizes[-1]


def of_periods(periods: tuple[int, ...]) -> Harmonics:
    """The harmonics of one or two periods, the shorter first."""
    own = _of_first(periods[0])
    sets = [own]
    if len(periods) > 1:
        beside = _of_second(periods[0], periods[1])
        sets.append({**own, **{one: weight for one, weight in beside.items() if one not in own}})
    frequencies = tuple(sets[-1])
    weights = tuple(weight for one in frequencies for weight in [sets[-1][one]] * 2)
    return Harmonics(frequencies, weights, tuple(1 + 2 * len(one) for one in sets))


def _of_first(period: int) -> dict[Fraction, float]:
    own = {}
    for k in range(1, min(period // 2, HARMONICS) + 1):
        if 2 * k < period or period <= _SHORT:
            own[Fraction(k, period)] = 1 / (k * float(np.sqrt(k)))
    return own


def _of_second(first: int, second: int) -> dict[Fraction, float]:
    ratio = second // first
    numerators = {1: 0.1, 2: 0.1, 3: 0.1, ratio - 1: 0.1, ratio + 1: 0.1, ratio - 2: 0.05, ratio + 2: 0.05}
    beside: dict[Fraction, float] = {}
    for numerator, weight in numerators.items():
        if 0 < 2 * numerator < second:
            beside.setdefault(Fraction(numerator, second), weight)
    return beside


def periods_of(options: Mapping[str, object]) -> tuple[int, ...]:
    """The periods of an option such as "24,168", in timestamps; none if it is left out.

    UnfitSetting unless they are at most two whole numbers from 2 on, the shorter first.
    """
    text = options.get("periods", "")
    words = text.split(",") if isinstance(text, str) and text else []
    numbers = tuple(int(word) for word in words if word.isdecimal() and len(word) < 8)
    fit = isinstance(text, str) and ",".join(map(str, numbers)) == text and len(numbers) <= MOST_PERIODS
    if not fit or list(numbers) != sorted(set(numbers)) or not _in_range(numbers):
        raise UnfitSetting(
            "periods",
            f"found {text}, expected at most {MOST_PERIODS} different whole numbers of timestamps from 2 to"
            f" {LONGEST_PERIOD}, the shorter first",
        )
    return numbers


def _in_range(periods: Iterable[int]) -> bool:
    return all(2 <= period <= LONGEST_PERIOD for period in periods)
