"""Streams that no design is fitted to: written down before the first one was measured on them.

Each has 2000 timestamps and 40 columns of Poisson counts. *Static*: levels around 100 that never change.
*Random walk*: around 100, 3 % a timestamp. *Daily season*: around 50, a season of 24 with an amplitude of 0.9
and a phase of its own for each column. *Rare spikes*: levels around 5; once in 500 timestamps 200 more, for
one timestamp. *Regime changes*: once in 200 timestamps all columns take new levels around 100.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.utility.streams import DRAWN_TIMESTAMPS, CountStream, around, poisson, still, walk

COLUMNS = 40


def static() -> CountStream:
    """Nothing changes."""
    draw = np.random.default_rng(11)
    return poisson("static", draw, still(around(draw, 100, COLUMNS)))


def random_walk() -> CountStream:
    """Everything changes a little, always."""
    draw = np.random.default_rng(12)
    return poisson("random walk", draw, walk(draw, around(draw, 100, COLUMNS), 0.03))


def daily_season() -> CountStream:
    """A season that nobody declared."""
    draw = np.random.default_rng(13)
    level, phase = around(draw, 50, COLUMNS), draw.uniform(0, 1, COLUMNS)
    hours = np.arange(DRAWN_TIMESTAMPS)[:, np.newaxis] / 24
    return poisson("daily season", draw, level * (1 + 0.9 * np.sin(2 * np.pi * (hours + phase))))


def rare_spikes() -> CountStream:
    """A spike is over before anything can follow it."""
    draw = np.random.default_rng(14)
    levels = still(around(draw, 5, COLUMNS))
    return poisson("rare spikes", draw, levels + 200 * (draw.random(levels.shape) < 1 / 500))


def regime_changes() -> CountStream:
    """All columns jump together, and then stay."""
    draw = np.random.default_rng(15)
    starts = np.cumsum(draw.random(DRAWN_TIMESTAMPS) < 1 / 200)
    regimes = np.array([around(draw, 100, COLUMNS) for _ in range(int(starts[-1]) + 1)])
    return poisson("regime changes", draw, regimes[starts])


UNSEEN: tuple[Callable[[], CountStream], ...] = (
    static,
    random_walk,
    daily_season,
    rare_spikes,
    regime_changes,
)
