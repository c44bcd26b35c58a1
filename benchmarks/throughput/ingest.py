"""``python -m benchmarks.throughput.ingest``: decoding and counting, without Kafka, against A's loop.

A is what one would write by hand: ``orjson.loads``, a set of (user, timestamp), a dict of counts. Everybody
reads the same values in chunks of the same size, and has to come to the same counts. CPU time of the process,
the best of several rounds in turn. ``--rekeyed``: events that came from twelve partitions by the re-keying
stage, some of which are behind others; those count that were appended first.
"""

from __future__ import annotations

import argparse
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from random import Random

import orjson

from eventveil.counting.counter import CounterState
from eventveil.decoding.bulk import BulkReader, fields_of
from eventveil.model.records import Chunk, Headers
from eventveil.model.topology import Counts, MechanismSettings, Sink, Source, Stream, Timeline
from eventveil.tasks.aggregate import PartitionAggregator

INTERVAL = 60_000
_PARTITIONS = 12
#: This many events more is each partition behind the one before it.
_BEHIND = 500
Counted = dict[tuple[int, int], int]


def make_stream(columns: int, rekeyed: bool = False, interval: int = INTERVAL) -> Stream:
    """A stream whose events are {"user", "column", "time"}, a minute per timestamp."""
    stream = Stream(
        "bench",
        Source("raw", "/user", "/column", "/time"),
        Timeline(interval, 0, lateness=2**50),
        Counts(tuple(f"c{column}" for column in range(columns))),
        MechanismSettings("uniform", Fraction(1), "1", 1),
        Sink("sanitized"),
        "dead",
    )
    return replace(stream, source=replace(stream.source, raw="raw", topic="re-keyed")) if rekeyed else stream


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


def make_chunk(start: int, values: Sequence[bytes], origins: Sequence[int] | None = None) -> Chunk:
    """Values as they are fetched from offset ``start`` on, re-keyed if ``origins`` are given.

    Those are the places of the events in the order in which they were appended.
    """
    end = start + len(values)
    headers = () if origins is None else [_headers(origin) for origin in origins]
    offsets, times = array("q", range(start, end)), array("q", [2**45]) * len(values)
    return Chunk("raw", 0, 0, start, offsets, times, [None] * len(values), values, end, headers)


def _headers(origin: int) -> Headers:
    return [
        ("eventveil.partition", b"%d" % (origin % _PARTITIONS)),
        ("eventveil.offset", b"%d" % (origin // _PARTITIONS)),
        ("eventveil.timestamp", b"%d" % (2**40 + origin)),
    ]


def rekeyed_chunks(values: Sequence[bytes], size: int) -> Iterator[Chunk]:
    """The same events as they come out of the re-keying stage."""
    order = sorted(range(len(values)), key=lambda index: index + index % _PARTITIONS * _BEHIND)
    for start, end in pairwise([*range(0, len(values), size), len(values)]):
        yield make_chunk(start, [values[index] for index in order[start:end]], order[start:end])


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


def ingest(stream: Stream, chunks: Sequence[Chunk], timestamps: int) -> Counted:
    """Decode, place, bound and count, as the worker does with a chunk of records."""
    aggregator = PartitionAggregator(1, {stream.name: (stream, CounterState("bench", 0, 1, 1, 0, 0))})
    for chunk in chunks:
        aggregator.process(chunk)
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
    parser.add_argument(
        "--rekeyed", action="store_true", help="re-keyed events too; takes 300 bytes for each"
    )
    options = parser.parse_args()
    stream = make_stream(options.columns)
    values = make_values(options.events, options.users, options.columns, options.timestamps, options.wide)
    chunks = [values[start : start + options.chunk] for start in range(0, len(values), options.chunk)]
    plain = [make_chunk(place * options.chunk, chunk) for place, chunk in enumerate(chunks)]
    contenders: dict[str, Callable[[], object]] = {
        "A's loop: orjson, set, dict": lambda: by_hand(chunks),
        "orjson alone": lambda: parse_only(chunks),
        "bulk decoding": lambda: decode(stream, chunks),
        "decode, place, bound, count": lambda: ingest(stream, plain, options.timestamps),
    }
    ours = [contenders["decode, place, bound, count"]]
    if options.rekeyed:
        rekeyed = make_stream(options.columns, rekeyed=True)
        passed_on = list(rekeyed_chunks(values, options.chunk))
        ours.append(lambda: ingest(rekeyed, passed_on, options.timestamps))
        contenders["the same, re-keyed"] = ours[-1]
    truth = by_hand(chunks)
    if any(one() != truth for one in ours):
        raise SystemExit("the counts differ")
    spent = measure(contenders, options.rounds)
    base = spent["A's loop: orjson, set, dict"]
    print(f"{options.events:,} events of {len(values[0])} bytes, chunks of {options.chunk}; the counts agree")
    for name, seconds in spent.items():
        print(f"{name:30} {seconds / options.events * 1e6:6.2f} us/event  {seconds / base:5.2f} of A's loop")


if __name__ == "__main__":
    main()
