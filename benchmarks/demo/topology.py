"""The demo's topology: ``topologies/flights.yaml`` with shorter hours, and a stream of the airports left.

Both streams have the recommended kind, the same hours and the same budget. What differs is how many aircraft
a column has: a dozen an hour at each of three airports, less than one an hour to most of the destinations.
"""

from __future__ import annotations

import copy
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.demo.flights import BEGIN, Flight
from eventveil.model.timeline import format_rfc3339

ORIGINAL = Path(__file__).parents[2] / "topologies" / "flights.yaml"
AIRPORTS, DESTINATIONS = "airports", "destinations"
LEFT = ["EWR", "JFK", "LGA"]
"""The columns of the first stream, public: New York has these three."""
_HEADER = """\
# The topology of one run of the demo, derived from topologies/flights.yaml: an hour of {year} takes
# {interval} ms, so {hours} hours pass in {minutes:.1f} minutes. Try `eventveil check` on this file.
"""


@dataclass(frozen=True, slots=True)
class Timetable:
    """How flights are mapped onto now: hour 0 begins at ``origin`` (epoch ms), each takes ``interval`` ms."""

    origin: int
    interval: int
    hours: int

    def instant(self, flight: Flight) -> int:
        """When the flight happens in the demo, in epoch milliseconds."""
        return self.origin + int(flight.time * self.interval)


def write_topology(path: Path, name: str, timetable: Timetable) -> None:
    """Write the topology, and the file of its columns beside it.

    All topics and the consumer group begin with ``name``. Where Kafka is comes from KAFKA_BOOTSTRAP.
    """
    document = _derive(yaml.safe_load(ORIGINAL.read_text(encoding="utf-8")), name, timetable)
    columns = document["streams"][DESTINATIONS]["counts"]["columns"]["file"]
    shutil.copyfile(ORIGINAL.parent / columns, path.parent / columns)
    minutes = timetable.hours * timetable.interval / 60_000
    header = _HEADER.format(
        year=BEGIN.year, interval=timetable.interval, hours=timetable.hours, minutes=minutes
    )
    text = yaml.safe_dump(document, sort_keys=False, width=110)
    path.write_text(header + text, encoding="utf-8")


def _derive(document: dict[str, Any], name: str, timetable: Timetable) -> dict[str, Any]:
    interval = timetable.interval
    document["name"] = name
    # Small enough for a single broker.
    document["topics"] = {"replication": 1, "min_insync": 1, "partitions": 3, "partials": 2}
    destinations = document["streams"][DESTINATIONS]
    destinations["source"]["topic"] = f"{name}.events"
    destinations["dead_letter"] = f"{name}.dead"
    begin = format_rfc3339(timetable.origin)
    destinations["timeline"] = {
        "interval": f"{interval}ms",
        "origin": begin,
        "start": begin,
        # A busy laptop may hold an event up for some moments.
        "lateness": "5s",
        "max_ahead": "1s",
        "clock_skew": "200ms",
    }
    # A day and a week: with true hours Eventveil would derive them.
    destinations["mechanism"] = {"kind": "seasonal", "epsilon": 1.0, "window": 24, "periods": [24, 168]}
    destinations["sink"]["topic"] = f"{name}.destinations"
    airports = copy.deepcopy(destinations)
    airports["source"]["column"] = "/origin"
    airports["counts"]["columns"] = LEFT
    airports["sink"]["topic"] = f"{name}.airports"
    document["streams"] = {AIRPORTS: airports, DESTINATIONS: destinations}
    # A day can meet two windows of each stream.
    document["budget"] = {"epsilon": 4, "span": f"{24 * interval}ms"}
    return document
