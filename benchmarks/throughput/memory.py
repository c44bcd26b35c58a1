"""``python -m benchmarks.throughput.memory``: what open timestamps take, on Linux.

Every user contributes to every timestamp, one timestamp after the other, and none is closed: the first
timestamp brings the users and their contributions, each further one contributions alone. ``--rekeyed``: as
events that came from twelve partitions by the re-keying stage.
"""

from __future__ import annotations

import argparse
import gc
from pathlib import Path

from benchmarks.throughput.ingest import INTERVAL, make_chunk, make_stream
from eventveil.counting.counter import CounterState
from eventveil.tasks.aggregate import PartitionAggregator

_CHUNK = 8192


def resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    kilobytes = next(
        line.split()[1]
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmRSS")
    )
    return int(kilobytes) * 1024


def contribute(aggregator: PartitionAggregator, users: int, timestamp: int, rekeyed: bool) -> None:
    """One event of every user at a timestamp."""
    for first in range(0, users, _CHUNK):
        count = min(_CHUNK, users - first)
        time = (timestamp - 1) * INTERVAL
        values = [b'{"user":"user%d","column":"c7","time":%d}' % (first + one, time) for one in range(count)]
        start = aggregator.position
        aggregator.process(make_chunk(start, values, range(start, start + count) if rekeyed else None))


def main() -> None:
    """Print bytes per user and per contribution."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput.memory", description=__doc__)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--timestamps", type=int, default=10)
    parser.add_argument("--rekeyed", action="store_true", help="re-keyed events")
    options = parser.parse_args()
    stream = make_stream(1000, options.rekeyed)
    aggregator = PartitionAggregator(1, {stream.name: (stream, CounterState("bench", 0, 1, 1, 0, 0))})
    contribute(aggregator, 1000, 1, options.rekeyed)
    empty = resident()
    contribute(aggregator, options.users, 1, options.rekeyed)
    first = resident()
    for timestamp in range(2, options.timestamps + 1):
        contribute(aggregator, options.users, timestamp, options.rekeyed)
    last = resident()
    held = aggregator.counters[stream.name].contributions
    if held != options.users * options.timestamps:
        raise SystemExit(f"{held} contributions are open instead of {options.users * options.timestamps}")
    print(f"{held:,} open contributions of {options.users:,} users: {(last - empty) / 2**20:,.0f} MiB")
    print(f"{(first - empty) / options.users:.1f} bytes for a user and the first contribution")
    if options.timestamps > 1:
        print(f"{(last - first) / (held - options.users):.1f} bytes for each further contribution")


if __name__ == "__main__":
    main()
