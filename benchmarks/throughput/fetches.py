"""``python -m benchmarks.throughput.fetches``: from the bytes of a fetch to counts, without Kafka.

The same record batches go through the worker's unpacking and counting twice: walked through by aiokafka, an
object for every record, and read in arrays. Both have to come to the same counts. CPU time of the process,
the best of several rounds in turn.
"""

from __future__ import annotations

import argparse
import time
from array import array
from types import SimpleNamespace

from aiokafka.consumer.fetcher import READ_UNCOMMITTED
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from benchmarks.throughput.events import Workload
from benchmarks.throughput.ingest import Counted, make_stream
from eventveil.counting.counter import CounterState
from eventveil.model.records import Chunk
from eventveil.tasks.aggregate import PartitionAggregator
from eventveil.worker.faust import fetches
from eventveil.worker.faust.fetches import Fetch

_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_KINDS = {"walked through": MemoryRecords, "in arrays": Fetch}


def fetched(workload: Workload, records: int, codec: int) -> bytes:
    """The workload as record batches of this many records."""
    made: list[bytes] = []
    events = [*workload.lines(0)]
    for first in range(0, len(events), records):
        builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, 0, 2**30)
        for offset, (key, value) in enumerate(events[first : first + records]):
            builder.append(offset, first, key, value, [])
        batch = builder.build()
        batch[:8] = first.to_bytes(8, "big")
        made.append(bytes(batch))
    return b"".join(made)


def spent(data: bytes, kind: type, workload: Workload) -> tuple[float, float, Counted]:
    """Seconds for unpacking and for counting, and the counts."""
    stream = make_stream(workload.columns, interval=workload.interval)
    aggregator = PartitionAggregator(1, {stream.name: (stream, CounterState("bench", 0, 1, 1, 0, 0))})
    source = SimpleNamespace(
        _records=kind(data), _check_crcs=True, _isolation_level=READ_UNCOMMITTED, next_fetch_offset=0
    )
    blocks, unpacking, counting, end = fetches._unpack(source), 0.0, 0.0, 0
    while True:
        begun = time.process_time()
        block = next(blocks, None)
        unpacked = time.process_time()
        unpacking += unpacked - begun
        if block is None:
            break
        times = array("q", [2**45]) * len(block.offsets)
        start, end = end, int(source.next_fetch_offset)
        aggregator.process(Chunk("raw", 0, 0, start, block.offsets, times, block.keys, block.values, end))
        counting += time.process_time() - unpacked
    closed = [aggregator.counters[stream.name].close() for _ in range(workload.timestamps)]
    found = {
        (partial.timestamp, column): count
        for partial in closed
        for column, count in zip(partial.columns.tolist(), partial.counts.tolist(), strict=True)
    }
    return unpacking, counting, found


def main() -> None:
    """Print a table; status 1 if the counts differ."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput.fetches", description=__doc__)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--users", type=int, default=13_000)
    parser.add_argument("--records", type=int, default=12_000, help="in a batch")
    parser.add_argument("--codec", choices=_CODECS, default="none")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    workload = Workload(options.events, options.users, partitions=1)
    data = fetched(workload, options.records, _CODECS[options.codec])
    best: dict[str, tuple[float, float]] = {}
    for _ in range(options.rounds):
        counts = []
        for name, kind in _KINDS.items():
            *seconds, found = spent(data, kind, workload)
            best[name] = min(best.get(name, (9e9, 9e9)), (seconds[0], seconds[1]), key=sum)
            counts.append(found)
        if counts[0] != counts[1] or not counts[0]:
            raise SystemExit("the counts differ")
    print(f"{options.events:,} events in batches of {options.records:,}; the counts agree")
    for name, (unpacking, counting) in best.items():
        each = 1e6 / options.events
        print(f"{name:16} unpacking {unpacking * each:.2f}, counting {counting * each:.2f} us/event")


if __name__ == "__main__":
    main()
