"""``python -m benchmarks.throughput.fetches``: from the bytes of a fetch to counts, without Kafka.

The same record batches go through the worker's checksums, unpacking and counting twice, by the compiled
kernel and in plain Python. A's loop is what one would write by hand: ``orjson.loads``, a set of (user,
timestamp), a dict of counts; it gets the values as objects, so its consumer, checksums and codecs are not in
its figure. All have to come to the same counts. CPU time of the process, the best of several rounds in turn.

Kinds: ``friendly`` events differ in strings and integers only; ``messy`` ones have a price, null or a string,
a flag and tags (220 bytes); ``nested`` ones have their fields inside of objects (440 bytes), and two headers.
``--rekeyed``: the way of a source with ``repartition: true``, from the bytes of a fetch to those of another
topic of four partitions, and from these to counts.
"""

from __future__ import annotations

import argparse
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import orjson
from aiokafka.consumer.fetcher import READ_UNCOMMITTED
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from benchmarks.throughput.events import Workload
from benchmarks.throughput.ingest import Counted, make_stream
from eventveil.counting.counter import CounterState
from eventveil.kafka.outgoing import Producer, batches, by_partition
from eventveil.model.records import Chunk, TopicPartition, parts_of
from eventveil.model.topology import Stream
from eventveil.process import kernel
from eventveil.tasks.aggregate import PartitionAggregator
from eventveil.tasks.repartition import Rekeyer, RekeyerState
from eventveil.worker.faust import fetches
from eventveil.worker.faust.fetches import Fetch

#: Of re-keyed events, and who writes them.
_PARTITIONS, _PRODUCER = 4, Producer(1, 1)
_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_AGENT = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101"
_HEADERS = [("type", b"viewed"), ("trace", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")]


def _friendly(user: str, column: str, at: int, chance: Random) -> Any:
    return {"user": user, "column": column, "time": at}


def _messy(user: str, column: str, at: int, chance: Random) -> Any:
    return {
        "id": f"{chance.getrandbits(128):032x}",
        "user": user,
        "column": column,
        "time": at,
        "price": round(chance.random() * 100, 2),
        "campaign": chance.choice((None, None, "spring")),
        "member": chance.random() < 0.5,
        "tags": chance.sample(("new", "sale", "gift", "late"), chance.randrange(3)),
        "agent": _AGENT,
    }


def _nested(user: str, column: str, at: int, chance: Random) -> Any:
    return {
        "meta": {"id": f"{chance.getrandbits(128):032x}", "app": {"name": "shop", "version": "4.2.1"}},
        "who": {"user": user, "session": f"{chance.getrandbits(128):032x}", "member": chance.random() < 0.5},
        "page": {"section": column, "title": "Winter shoes é", "path": ["shop", chance.randrange(99)]},
        "at": at,
        "basket": [{"sku": chance.randrange(10**6), "price": chance.random() * 100} for _ in range(2)],
        "campaign": chance.choice((None, "spring")),
        "agent": _AGENT,
    }  # fmt: skip


#: How an event of a kind is made, and where it has user, column and time.
KINDS: dict[str, tuple[Callable[[str, str, int, Random], Any], tuple[str, str, str]]] = {
    "friendly": (_friendly, ("/user", "/column", "/time")),
    "messy": (_messy, ("/user", "/column", "/time")),
    "nested": (_nested, ("/who/user", "/page/section", "/at")),
}


def values_of(kind: str, workload: Workload) -> list[tuple[bytes, bytes]]:
    """Keys and values of the events of a kind."""
    make, chance = KINDS[kind][0], Random(1)
    return [
        (key, orjson.dumps(make(event["user"], event["column"], event["time"], chance)))
        for key, value in workload.lines(0)
        for event in (orjson.loads(value),)
    ]


def fetched(events: list[tuple[bytes, bytes]], records: int, codec: int, headers: Any) -> bytes:
    """Events as record batches of this many records."""
    made: list[bytes] = []
    for first in range(0, len(events), records):
        builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, 0, 2**30)
        for offset, (key, value) in enumerate(events[first : first + records]):
            builder.append(offset, first, key, value, headers)
        batch = builder.build()
        batch[:8] = first.to_bytes(8, "big")
        made.append(bytes(batch))
    return b"".join(made)


def by_hand(kind: str, values: list[bytes], interval: int) -> Counted:
    """A's loop."""
    seen: set[tuple[str, int]] = set()
    counts: dict[tuple[int, str], int] = {}
    nested = kind == "nested"
    for value in values:
        event = orjson.loads(value)
        if nested:
            user, column, at = event["who"]["user"], event["page"]["section"], event["at"]
        else:
            user, column, at = event["user"], event["column"], event["time"]
        timestamp = at // interval + 1
        if (user, timestamp) not in seen:
            seen.add((user, timestamp))
            counts[timestamp, column] = counts.get((timestamp, column), 0) + 1
    return {(timestamp, int(column[1:])): count for (timestamp, column), count in counts.items()}


def stream_of(kind: str, workload: Workload) -> Stream:
    """The stream that counts events of a kind."""
    stream = make_stream(workload.columns, interval=workload.interval)
    user, column, at = KINDS[kind][1]
    return replace(stream, source=replace(stream.source, user=user, column=column, time=at))


def _chunks(data: bytes) -> Iterator[tuple[float, Chunk]]:
    """What a worker makes of the bytes of a fetch; with each chunk the seconds for unpacking it."""
    source = SimpleNamespace(
        _records=Fetch(data), _check_crcs=True, _isolation_level=READ_UNCOMMITTED, next_fetch_offset=0
    )
    blocks, end = fetches._unpack(source, own_times=False), 0
    while True:
        begun = time.process_time()
        block = next(blocks, None)
        unpacked = time.process_time()
        if block is None:
            return
        times = array("q", [2**45]) * len(block.offsets)
        start, end = end, int(source.next_fetch_offset)
        yield (
            unpacked - begun,
            Chunk("raw", 0, 0, start, block.offsets, times, block.keys, block.values, end, block.headers),
        )


def spent(
    data: bytes, stream: Stream, workload: Workload, partitions: int = 1, here: int = 0
) -> tuple[float, float, Counter[tuple[int, int]]]:
    """Seconds for unpacking and for counting, and the counts; ``data`` is of one of several partitions."""
    state = CounterState("bench", here, 1, 1, 0, 0)
    aggregator = PartitionAggregator(partitions, {stream.name: (stream, state)})
    unpacking = counting = 0.0
    for seconds, chunk in _chunks(data):
        unpacking += seconds
        begun = time.process_time()
        while aggregator.position < chunk.next_offset:
            aggregator.process(chunk)
        counting += time.process_time() - begun
    closed = [aggregator.counters[stream.name].close() for _ in range(workload.timestamps)]
    found = {
        (partial.timestamp, column): count
        for partial in closed
        for column, count in zip(partial.columns.tolist(), partial.counts.tolist(), strict=True)
    }
    return unpacking, counting, Counter(found)


def spent_rekeyed(
    data: bytes, stream: Stream, workload: Workload
) -> tuple[float, float, Counter[tuple[int, int]]]:
    """Seconds for re-keying, from bytes to bytes, and for the rest of the way; and the counts.

    Sockets, brokers and the rebalancing of a group are in neither.
    """
    source = replace(stream.source, raw="raw", topic="re-keyed")
    rekeyed, first = replace(stream, source=source), time.process_time()
    state, log = RekeyerState("bench", 0, 0), TopicPartition("log", 0)
    stage = Rekeyer(source, [stream.timeline], _PARTITIONS, state, log)
    written, offsets = [bytearray() for _ in range(_PARTITIONS)], [0] * _PARTITIONS
    for _, chunk in _chunks(data):
        stage.process(chunk)
        done = stage.next(0)
        assert done is not None
        for (topic, partition), records in by_partition([*parts_of(done.records)], _count_of).items():
            if topic == source.topic:
                for batch in batches(records, _PRODUCER, 0)[0]:
                    written[partition] += offsets[partition].to_bytes(8, "big") + batch.content[8:]
                    offsets[partition] += batch.count
        stage.committed(done)
    passed_on, rest, counts = time.process_time() - first, 0.0, Counter[tuple[int, int]]()
    for partition, content in enumerate(written):
        unpacking, counting, found = spent(bytes(content), rekeyed, workload, _PARTITIONS, partition)
        rest += unpacking + counting
        counts += found
    return passed_on, rest, counts


def _count_of(_: str) -> int:
    return _PARTITIONS


@contextmanager
def _without() -> Iterator[None]:
    native, kernel.NATIVE = kernel.NATIVE, None
    try:
        yield
    finally:
        kernel.NATIVE = native


def measured(
    kind: str, workload: Workload, records: int, codec: int, rounds: int, rekeyed: bool = False
) -> dict[str, tuple[float, float]]:
    """Seconds for unpacking and for counting, by who did it; or for re-keying and for the rest.

    Raises SystemExit if the counts differ.
    """
    way = spent_rekeyed if rekeyed else spent
    events = values_of(kind, workload)
    values, stream = [value for _, value in events], stream_of(kind, workload)
    data = fetched(events, records, codec, _HEADERS if kind == "nested" else [])
    best: dict[str, tuple[float, float]] = {}
    for _ in range(rounds):
        began = time.process_time()
        counts = [by_hand(kind, values, workload.interval)]
        seconds = {"A's loop": (0.0, time.process_time() - began)}
        if kernel.NATIVE is not None:
            *of_kernel, found = way(data, stream, workload)
            seconds["with the kernel"] = (of_kernel[0], of_kernel[1])
            counts.append(found)
        with _without():
            *plain, found = way(data, stream, workload)
        seconds["in plain Python"] = (plain[0], plain[1])
        counts.append(found)
        if any(one != counts[0] for one in counts) or not counts[0]:
            raise SystemExit("the counts differ")
        best = {name: min(best.get(name, one), one, key=sum) for name, one in seconds.items()}
    return best


def main() -> None:
    """Print a table; status 1 if the counts differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput.fetches", description=__doc__)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--users", type=int, default=13_000)
    parser.add_argument("--records", type=int, default=12_000, help="in a batch")
    parser.add_argument("--codec", choices=_CODECS, default="none")
    parser.add_argument("--kind", choices=KINDS, action="append", help="these; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rekeyed", action="store_true", help="keys are not the users")
    options = parser.parse_args()
    workload = Workload(options.events, options.users, partitions=1)
    print(f"{options.events:,} events in batches of {options.records:,}, codec {options.codec}; counts agree")
    parts = ("re-keying", "the rest") if options.rekeyed else ("unpacking", "counting")
    print(f"| events | | {parts[0]}, µs/event | {parts[1]}, µs/event | both over A's loop |")
    print("| --- | --- | --: | --: | --: |")
    for kind in options.kind or KINDS:
        best = measured(
            kind, workload, options.records, _CODECS[options.codec], options.rounds, options.rekeyed
        )
        each, loop = 1e6 / options.events, sum(best["A's loop"])
        for name, (unpacking, counting) in best.items():
            ratio = (unpacking + counting) / loop
            print(f"| {kind} | {name} | {unpacking * each:.2f} | {counting * each:.2f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
