"""The demo's topology: ``topologies/flights.yaml`` with shorter hours, and a stream that counts days."""

from __future__ import annotations

import copy
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.demo.flights import BEGIN, Flight
from eventveil.timeline import format_rfc3339

ORIGINAL = Path(__file__).parents[2] / "topologies" / "flights.yaml"
HOURLY, DAILY = "destinations", "destinations-daily"
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

    @property
    def days(self) -> int:
        """The whole days in it."""
        return self.hours // 24

    def instant(self, flight: Flight) -> int:
        """When the flight happens in the demo, in epoch milliseconds."""
        return self.origin + int(flight.time * self.interval)


def write_topology(path: Path, name: str, timetable: Timetable) -> None:
    """Write the topology, and the file of its columns beside it.

    All topics and the consumer group begin with ``name``. Where Kafka is comes from KAFKA_BOOTSTRAP.
    """
    document = _derive(yaml.safe_load(ORIGINAL.read_text(encoding="utf-8")), name, timetable)
    columns = document["streams"][HOURLY]["counts"]["columns"]["file"]
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
    hourly = document["streams"][HOURLY]
    hourly["source"]["topic"] = f"{name}.events"
    hourly["dead_letter"] = f"{name}.dead"
    begin = format_rfc3339(timetable.origin)
    hourly["timeline"] = {
        "interval": f"{interval}ms",
        "origin": begin,
        "start": begin,
        # A busy laptop may hold an event up for a moment.
        "lateness": "2s",
        "max_ahead": "1s",
        "clock_skew": "200ms",
    }
    hourly["mechanism"] |= {"kind": "budget-absorption", "epsilon": 1.0, "window": 40}
    hourly["sink"]["topic"] = f"{name}.hourly"
    daily = copy.deepcopy(hourly)
    daily["timeline"]["interval"] = f"{24 * interval}ms"
    daily["mechanism"] = {"kind": "uniform", "epsilon": 1.0, "window": 7}
    daily["sink"]["topic"] = f"{name}.daily"
    document["streams"] = {HOURLY: hourly, DAILY: daily}
    # Five days, as in the original: they can meet 121 hours, which is four windows, and 6 days, which is one.
    document["budget"] = {"epsilon": 5, "span": f"{5 * 24 * interval}ms"}
    return document
