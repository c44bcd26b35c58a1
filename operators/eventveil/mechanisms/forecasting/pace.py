"""When to publish, and with which part of the budget: the interval with the least expected error.

*Intervals.* A window over one of ``PARTS``, or up to half as much again: the first one that falls on at least
twelve phases of every period (all, if there are fewer) and, if it is longer than half of the first period,
moves on by a fifth to four fifths of it each time. An interval of a day would always fall on midnight; one of
25 hours crawls through a night for six days, one of 29 does not. Where no periods are declared, those of
``COMMON`` are avoided nevertheless.

*Expected error.* Counts that move by a variance q a timestamp and are published every I timestamps, with
noise of variance R and scatter S, leave a filter uncertain by v before and u after a publication. The error
is that of the filtered publication, and of the prediction at the I - 1 timestamps that follow. What a season
has to learn counts as movement: K (R + S) I over the timestamps that are remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

import numpy as np

from eventveil.mechanisms.arithmetic import Floats, total

PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 40, 60, 120, 240)
COMMON = (7, 24, 60)
PHASES = 12
FIRST_PARTS, LEAST_FIRST, FIRST_SCALE = 12, 2, 40.0
"""The first publication has a twelfth of the budget, or more, so that the scale of its noise is at most 40;
but not more than half: there is another look if it shows nothing."""
SEASON_COEFFICIENTS = 6
"""How many numbers an own season has to learn, beside the level."""


@dataclass(frozen=True, slots=True)
class PaceOutlook:
    """Of every column that matters: ``drift`` and ``scatter`` as variances, the weight of own ``seasons``.

    ``memory``: how many timestamps seasons learn from.
    """

    drift: Floats
    scatter: Floats
    seasons: Floats
    memory: int


@lru_cache(maxsize=16)
def intervals(window: int, periods: tuple[int, ...]) -> Mapping[int, int]:
    """By interval, the longest first, how many publications a window can hold.

    Each of these may spend the budget divided by that number.
    """
    found = {}
    for parts in (*PARTS, window):
        if parts <= window:
            interval = _good(-(-window // parts), periods or COMMON, bool(periods))
            found[interval] = -(-window // interval)
    return dict(sorted(found.items(), reverse=True))


def latest(least: int) -> int:
    """The longest interval that ``unaliased`` may take in place of ``least``."""
    return 3 * least // 2 + 2


def unaliased(least: int, periods: tuple[int, ...]) -> int:
    """An interval of ``least`` timestamps or up to half as much again that falls on all phases of periods.

    ``least`` if there are none.
    """
    return _good(least, periods, declared=True) if periods else least


def first(choices: Mapping[int, int], window: int, scale: float) -> int:
    """The interval to begin with; ``scale``: that of noise for the whole budget."""
    parts = min(FIRST_PARTS, max(LEAST_FIRST, FIRST_SCALE / scale), window)
    return min(choices, key=lambda interval: abs(choices[interval] - parts))


def expected_error(interval: int, noise: float, outlook: PaceOutlook) -> float:
    """Root mean square error, summed over columns, mean over the timestamps between publications."""
    scatter, seen = outlook.scatter, noise + outlook.scatter
    moved = outlook.drift * interval
    learned = (1 + SEASON_COEFFICIENTS * outlook.seasons) * seen * (interval / outlook.memory)
    before = (moved + np.sqrt(moved * moved + 4 * moved * seen)) / 2 + learned
    after = before * seen / (before + seen)
    now = np.sqrt((before + scatter) * noise / (before + seen))
    later = np.sqrt(after + outlook.drift * ((interval - 1) / 2) + scatter)
    return float(total(now + (interval - 1) * later)) / interval


def _good(least: int, periods: tuple[int, ...], declared: bool) -> int:
    """The first interval from ``least`` on, up to half as much again, that aliases with no period."""
    for interval in range(least, latest(least) + 1):
        phases = all(period // gcd(interval, period) >= min(period, PHASES) for period in periods)
        if phases and (not declared or _moves_on(interval, periods[0])):
            return interval
    return least


def _moves_on(interval: int, period: int) -> bool:
    return 2 * interval <= period or period <= 5 * (interval % period) <= 4 * period
