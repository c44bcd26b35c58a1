"""Generated events that look like the traffic of a web site, to try things out on nobody's data.

Users come in sessions of several views, often several in an hour. How many sessions begin follows the hour
and the day of the week, how large a column is follows its rank (Zipf), and every column has a favourite hour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eventveil.topology.periods import DAY, HOUR

#: What the first columns are called; later ones have numbers.
SECTIONS = ("home", "search", "product", "basket", "account", "offers", "help", "stores")
#: Sessions that begin in each hour of a day and on each day of a week from Monday on, relative to each other.
_HOURS = (3, 2, 1, 1, 1, 2, 5, 9, 12, 14, 15, 15, 16, 15, 14, 14, 15, 17, 20, 23, 24, 20, 13, 7)
_WEEKDAYS = (1.0, 0.95, 0.95, 1.0, 1.1, 1.3, 1.25)
#: Day 0 of the epoch was a Thursday.
_THURSDAY = 3
_VIEWS, _PAUSE = 4.0, 60_000.0  # of a session: its mean number of views, the mean time between two (ms)
_OWN_HOUR = 0.3  # how far the hour moves a column's part of all views
_SPREAD = 1.0  # of users' activity: the standard deviation of its logarithm
_LINES = 65_536


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is to be generated: ``events`` over ``days`` from ``start`` (epoch ms) on, by ``users`` users.

    The column of rank k has a part of all views in proportion to k^-skew.
    """

    start: int
    days: int
    events: int
    columns: int
    users: int
    skew: float = 1.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Events:
    """Events in order of time: numbers of users and columns from 0 on, times in epoch milliseconds."""

    users: NDArray[np.int64]
    columns: NDArray[np.int64]
    times: NDArray[np.int64]


def labels(columns: int) -> tuple[str, ...]:
    """Names of this number of columns."""
    return SECTIONS[:columns] + tuple(f"section-{rank}" for rank in range(len(SECTIONS) + 1, columns + 1))


def draw(traffic: Traffic) -> Events:
    """Draw the events. The same traffic gives the same events with the same version of numpy."""
    random = np.random.default_rng(traffic.seed)
    views = _sessions(traffic.events, random)
    starts = _starts(traffic, len(views), random)
    sessions = np.repeat(np.arange(len(views)), views)
    times = np.maximum(_within(views, starts, random), traffic.start)
    # A session that would extend beyond the end is moved back as far as necessary.
    last = times[np.cumsum(views) - 1]
    over = np.maximum(last - (traffic.start + traffic.days * DAY - 1), 0)
    times = np.maximum(times - over[sessions], traffic.start)
    users = _users(traffic.users, len(views), random)[sessions]
    columns = _columns(traffic, times, random)
    order = np.argsort(times, kind="stable")
    return Events(users[order], columns[order], times[order])


def _sessions(events: int, random: np.random.Generator) -> NDArray[np.int64]:
    """The number of views of each session, together ``events``."""
    drawn = random.geometric(1 / _VIEWS, events)
    total = np.cumsum(drawn)
    number = int(np.searchsorted(total, events)) + 1
    views = drawn[:number].astype(np.int64)
    views[-1] -= int(total[number - 1]) - events
    return views


def _starts(traffic: Traffic, sessions: int, random: np.random.Generator) -> NDArray[np.int64]:
    hours = traffic.start // HOUR + np.arange(traffic.days * 24)
    weekdays = (hours // 24 + _THURSDAY) % 7
    weights = np.array(_HOURS)[hours % 24] * np.array(_WEEKDAYS)[weekdays]
    begun = np.searchsorted(np.cumsum(weights) / weights.sum(), random.random(sessions), side="right")
    starts: NDArray[np.int64] = traffic.start + begun * HOUR + random.integers(0, HOUR, sessions)
    return starts


def _within(
    views: NDArray[np.int64], starts: NDArray[np.int64], random: np.random.Generator
) -> NDArray[np.int64]:
    """The time of every view: a session's first is at its start, the others follow after pauses."""
    pauses = random.exponential(_PAUSE, int(views.sum())).astype(np.int64)
    first = np.cumsum(views) - views
    pauses[first] = 0
    passed = np.cumsum(pauses)
    times: NDArray[np.int64] = passed - np.repeat(passed[first] - starts, views)
    return times


def _users(users: int, sessions: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Whose session each is: some come often."""
    activity = np.cumsum(np.exp(_SPREAD * random.standard_normal(users)))
    found: NDArray[np.int64] = np.searchsorted(activity / activity[-1], random.random(sessions), side="right")
    return found


def _columns(traffic: Traffic, times: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    ranks = np.arange(1, traffic.columns + 1)
    favourite = random.integers(0, 24, traffic.columns)
    phase = 2 * np.pi * (np.arange(24)[:, None] - favourite) / 24
    shares = ranks**-traffic.skew * (1 + _OWN_HOUR * np.cos(phase))
    # One ascending line for all hours: hour h has the numbers from h to h + 1.
    parts = np.cumsum(shares, axis=1) / shares.sum(axis=1, keepdims=True)
    parts[:, -1] = 1
    hours = times // HOUR % 24
    line = (np.arange(24)[:, None] + parts).ravel()
    found = np.searchsorted(line, hours + random.random(len(times)), side="right")
    chosen: NDArray[np.int64] = (found - hours * traffic.columns).clip(0, traffic.columns - 1)
    return chosen


def user_names(users: int) -> list[str]:
    """A name for each number."""
    return [f"u-{number:06}" for number in range(users)]


def json_lines(events: Events, users: Sequence[str], columns: Sequence[str]) -> Iterator[bytes]:
    """The events as lines of JSON, many at a time; no name may need escaping in JSON."""
    for first in range(0, len(events.times), _LINES):
        part = slice(first, first + _LINES)
        times = np.datetime_as_string(events.times[part].astype("datetime64[ms]")).tolist()
        numbers = zip(events.users[part].tolist(), events.columns[part].tolist(), times, strict=True)
        yield "".join(
            f'{{"user":"{users[user]}","column":"{columns[column]}","time":"{time}Z"}}\n'
            for user, column, time in numbers
        ).encode()
