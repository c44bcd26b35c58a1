"""``python -m benchmarks.throughput.ingest``: decoding and counting, without Kafka, against A's loop.

A is what one would write by hand: ``orjson.loads``, a set of (user, timestamp), a dict of counts. Everybody
reads the same values in chunks of the same size, and has to come to the same counts. CPU time of the process,
the best of several rounds in turn.
"""

from __future__ import annotations

import argparse
import time
from array import array
from collections.abc import Callable, Sequence
from fractions import Fraction
from random import Random

import orjson

from operators.aggregation import PartitionAggregator
from operators.bulk import BulkReader, fields_of
from operators.counting import CounterState
from operators.records import Chunk
from operators.topology.model import Counts, MechanismSettings, Sink, Source, Stream, Timeline

INTERVAL = 60_000
Counted = dict[tuple[int, int], int]


def make_stream(columns: int) -> Stream:
    """A stream whose events are {"user", "column", "time"}, a minute per timestamp."""
    return Stream(
        "bench",
        Source("raw", "/user", "/column", "/time"),
        Timeline(INTERVAL, 0, lateness=2**50),
        Counts(tuple(f"c{column}" for column in range(columns))),
        MechanismSettings("uniform", Fraction(1), "1", 1),
        Sink("sanitized"),
        "dead",
    )


def make_values(number: int, users: int, columns: int, timestamps: int, wide: bool) -> list[bytes]:
    """Events in order of time. ``wide`` ones have six more fields, which nobody asks for."""
    chance = Random(1)
    more = b',"id":"%032x","page":{"section":"news","tags":["a"]},"amount":12.5,"ok":true' if wide else b""
    return [
        b'{"user":"u%d","column":"c%d","time":%d'
        % (chance.randrange(users), chance.randrange(columns), index * timestamps * INTERVAL // number)
        + (more % chance.getrandbits(128) if wide else b"")
        + b"}"
        for index in range(number)
    ]


def by_hand(chunks: Sequence[Sequence[bytes]]) -> Counted:
    """A's loop."""
    seen: set[tuple[str, int]] = set()
    counts: dict[tuple[int, str], int] = {}
    for chunk in chunks:
        for value in chunk:
            event = orjson.loads(value)
            timestamp = event["time"] // INTERVAL + 1
            if (event["user"], timestamp) not in seen:
                seen.add((event["user"], timestamp))
                key = timestamp, event["column"]
                counts[key] = counts.get(key, 0) + 1
    return {(timestamp, int(column[1:])): count for (timestamp, column), count in counts.items()}


def ingest(stream: Stream, chunks: Sequence[Sequence[bytes]], timestamps: int) -> Counted:
    """Decode, place, bound and count, as the worker does with a chunk of records."""
    aggregator = PartitionAggregator(1, {stream.name: (stream, CounterState("bench", 0, 1, 1, 0, 0))})
    position = 0
    for values in chunks:
        after = position + len(values)
        offsets, times = array("q", range(position, after)), array("q", [2**45]) * len(values)
        keys = [None] * len(values)
        aggregator.observe(Chunk("raw", 0, 0, position, offsets, times, keys, values, after))
        position = after
    counter = aggregator.counters[stream.name]
    closed = [counter.close() for _ in range(timestamps)]
    return {
        (partial.timestamp, column): count
        for partial in closed
        for column, count in zip(partial.columns.tolist(), partial.counts.tolist(), strict=True)
    }


def decode(stream: Stream, chunks: Sequence[Sequence[bytes]]) -> None:
    """Decode only."""
    reader = BulkReader(fields_of([(stream.source, stream.counts)]), stream.source.max_bytes)
    for values in chunks:
        reader.read(values)


def parse_only(chunks: Sequence[Sequence[bytes]]) -> None:
    """What orjson alone costs."""
    for chunk in chunks:
        for value in chunk:
            orjson.loads(value)


def measure(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The least CPU seconds of each; rounds in turn, so that a busy machine is unfair to all alike."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, run in contenders.items():
            began = time.process_time()
            run()
            spent = time.process_time() - began
            best[name] = min(best.get(name, spent), spent)
    return best


def main() -> None:
    """Print a table; status 1 if anybody counted wrongly."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput.ingest", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=1000)
    parser.add_argument("--timestamps", type=int, default=20)
    parser.add_argument("--chunk", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--wide", action="store_true", help="events with six more fields")
    options = parser.parse_args()
    stream = make_stream(options.columns)
    values = make_values(options.events, options.users, options.columns, options.timestamps, options.wide)
    chunks = [values[start : start + options.chunk] for start in range(0, len(values), options.chunk)]
    if ingest(stream, chunks, options.timestamps) != by_hand(chunks):
        raise SystemExit("the counts differ")
    spent = measure(
        {
            "A's loop: orjson, set, dict": lambda: by_hand(chunks),
            "orjson alone": lambda: parse_only(chunks),
            "bulk decoding": lambda: decode(stream, chunks),
            "decode, place, bound, count": lambda: ingest(stream, chunks, options.timestamps),
        },
        options.rounds,
    )
    base = spent["A's loop: orjson, set, dict"]
    print(f"{options.events:,} events of {len(values[0])} bytes, chunks of {options.chunk}; the counts agree")
    for name, seconds in spent.items():
        print(f"{name:30} {seconds / options.events * 1e6:6.2f} us/event  {seconds / base:5.2f} of A's loop")


if __name__ == "__main__":
    main()
