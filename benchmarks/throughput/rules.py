"""``python -m benchmarks.throughput.rules``: what the rules of a source cost, each beside single fields.

The events are those of a web shop, nested as CloudEvents are. A source with single fields is read in arrays;
one with any further rule is judged event by event. Processor time of decoding and counting a chunk of 65,536
events, the median of five rounds in turn. Everybody has to count the same events.
"""

from __future__ import annotations

import statistics
import time
from array import array
from dataclasses import replace
from itertools import cycle, islice
from random import Random

from benchmarks.throughput.ingest import make_stream
from eventveil.counting.counter import CounterState
from eventveil.model.fields import joined
from eventveil.model.records import Chunk
from eventveil.model.topology import Condition, Counts, NameMap, Stream
from eventveil.tasks.aggregate import PartitionAggregator

CHUNK = 65_536
_SECTIONS, _COUNTRIES = [f"s{one}" for one in range(20)], ["AT", "CH", "DE"]
_TYPE = b"com.example.shop.viewed"


def make_records() -> tuple[list[bytes], list[bytes]]:
    """Values and keys of a chunk."""
    chance = Random(1)
    values, keys = [], []
    for number in range(CHUNK):
        user, section, country = (
            chance.randrange(20_000), chance.choice(_SECTIONS), chance.choice(_COUNTRIES),
        )  # fmt: skip
        keys.append(b"u%d" % user)
        values.append(
            b'{"specversion":"1.0","type":"%s","source":"/web","id":"%032x","time":"2026-03-01T10:%02d:%02d.%03dZ",'
            b'"at":%d,"data":{"user":{"id":"u%d"},"session":"s-%d","section":"%s","page":"/%s/%d","country":"%s"}}'
            % (
                _TYPE, chance.getrandbits(128), number // 2000, number % 60, number % 1000, number * 1000,
                user, number % 9000, section.encode(), section.encode(), number, country.encode(),
            )
        )  # fmt: skip
    return values, keys


def streams() -> dict[str, Stream]:
    """A stream for each rule, and one with all of them."""
    plain = make_stream(1, interval=86_400_000)
    source = replace(plain.source, user="/data/user/id", column="/data/section", time="/time")
    one = replace(plain, source=source, counts=Counts(tuple(_SECTIONS)))
    passing = (Condition("/type", "in", (_TYPE.decode(),)),)
    header = (Condition("$headers/ce_type", "in", (_TYPE.decode(),)),)
    names = (NameMap("/data/page", (), tuple((f"/{name}/", name) for name in _SECTIONS)),)
    several = joined(["/data/user/id", "/data/session"])
    pair = joined(["/data/page", "/data/country"])
    pairs = Counts(tuple(f"{name}|{country}" for name in _SECTIONS for country in _COUNTRIES))

    def ruled(**changes: object) -> Stream:
        return replace(one, source=replace(source, **changes))  # type: ignore[arg-type]

    return {
        "single fields": one,
        "user_type: either": ruled(user_type="either"),
        "a list of users": ruled(user=several),
        "user: $key": ruled(user="$key"),
        "column: $headers/NAME": ruled(column="$headers/section"),
        "time_unit: us": ruled(time="/at", time_unit="us"),
        "time: $time": ruled(time="$time"),
        "filter on a field": ruled(filter=passing),
        "filter on a header": ruled(filter=header),
        "a map with 20 prefixes": ruled(column="/data/page", maps=names),
        "a zone": ruled(time_zone="Europe/Berlin"),
        "all of them": replace(
            ruled(
                user=several, user_type="either", column=pair, filter=passing + header, maps=names,
                time_zone="Europe/Berlin",
            ),
            counts=pairs,
        ),
    }  # fmt: skip


def judge(stream: Stream, chunk: Chunk) -> int:
    """Count a chunk as the worker does; the number of events that were judged to be on time."""
    aggregator = PartitionAggregator(1, {stream.name: (stream, CounterState("bench", 0, 1, 1, 0, 0))})
    while aggregator.position < chunk.next_offset:
        aggregator.process(chunk)
    outcomes = aggregator.counters[stream.name].outcomes
    return outcomes["counted"] + outcomes["bounded"]


def main() -> None:
    """Print the table."""
    values, keys = make_records()
    times = array("q", [2**45]) * CHUNK
    sections = ([("ce_type", _TYPE), ("section", name.encode())] for name in _SECTIONS)
    headers = [*islice(cycle(sections), CHUNK)]
    chunk = Chunk("raw", 0, 0, 0, range(CHUNK), times, keys, values, CHUNK, headers)
    every = streams()
    seconds: dict[str, list[float]] = {name: [] for name in every}
    for _ in range(5):
        for name, stream in every.items():
            began = time.process_time()
            right = judge(stream, chunk) == CHUNK
            seconds[name].append(time.process_time() - began)
            if not right:
                raise SystemExit(f"{name} counted wrong")
    for name, found in seconds.items():
        print(f"{name:24} {statistics.median(found) / CHUNK * 1e6:6.2f} us/event")


if __name__ == "__main__":
    main()
