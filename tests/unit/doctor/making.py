"""Samples of a made-up shop, keyed and hashed as different clients do it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from eventveil.doctor.sample import SampledRecord, SourceSample
from eventveil.model.partitioners import RECOGNIZED
from eventveil.model.topology import Topology
from eventveil.topology.loading import load_text

PARTITIONS = 20
NOW = 1_767_300_000_000
FILE = """# a comment that stays
version: 1
name: shop
kafka:
  bootstrap: localhost:9092
streams:
  views:
    source:
      topic: shop.views
      user: /customer   # who
      column: /section
      time: /at
      partitioner: murmur2
    timeline: {interval: 1h, origin: 2026-01-01T00:00:00Z, lateness: 5m, max_ahead: 1m}
    counts:
      columns: [home, search, other]
    mechanism: {kind: uniform, epsilon: 1, window: 24}
    sink:
      topic: shop.counts
    dead_letter: shop.dead
"""


def topology(text: str = FILE, folder: Path = Path()) -> Topology:
    return load_text(str(folder / "shop.yaml"), text, {})


def event(number: int) -> dict[str, Any]:
    """The event of one of 200 customers."""
    return {"customer": f"c-{number % 200}", "section": ("home", "search")[number % 2], "at": NOW - number}


def nested(number: int) -> dict[str, Any]:
    """The same in an envelope."""
    one = event(number)
    return {"data": {"customer": one["customer"], "section": one["section"]}, "time": one["at"]}


def sample(
    partitioner: str = "murmur2",
    number: int = 600,
    *,
    made: Callable[[int], dict[str, Any]] = event,
    key: Callable[[dict[str, Any]], str] = lambda one: str(one.get("customer")),
    appended: bool = True,
    partitions: int = PARTITIONS,
) -> SourceSample:
    """The events of ``made``, each in the partition that the partitioner gives its key."""
    records = []
    for at in range(number):
        one = made(at)
        name = key(one).encode()
        partition = at + at // 200 if partitioner == "random" else RECOGNIZED[partitioner](name, partitions)
        records.append(
            SampledRecord(partition % partitions, at, json.dumps(one).encode(), name, (), NOW - at, appended)
        )
    return SourceSample("shop.views", partitions, records, number)


def framed(
    found: SourceSample, write: Callable[[dict[str, Any]], bytes] | None = None, schema: int = 7
) -> SourceSample:
    """Its values behind the prefix of a schema registry; ``write`` gives the bytes that follow, or JSON."""

    def value(record: SampledRecord) -> bytes:
        body = record.value or b""
        return b"\0" + schema.to_bytes(4, "big") + (write(json.loads(body)) if write else body)

    return replace(found, records=[one._replace(value=value(one)) for one in found.records])
