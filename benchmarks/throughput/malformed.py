"""``python -m benchmarks.throughput.malformed``: what a chunk of malformed events costs, and holds up.

A full chunk has 65,536 events, or 8 MB of them. A producer that fills one with events that cannot count
should not take much more of the worker than with good ones: ``costs`` compares the processor time of judging
them, dead letters included, with that of a chunk of good events in the same process. And nobody should be
able to move a boundary: ``delays`` has the thread that asks for boundaries, in real time, beside a thread
that judges such chunks without a pause.
"""

from __future__ import annotations

import gc
import statistics
import threading
import time
from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.throughput.ingest import make_chunk, make_stream
from eventveil.counting.counter import CounterState
from eventveil.decoding.bulk import Packed
from eventveil.kafka.outgoing import Producer, batches, by_partition, portions
from eventveil.model.records import Chunk, Records, TopicPartition, parts_of
from eventveil.model.topology import Stream, Timeline
from eventveil.process.clock import SYSTEM_CLOCK, PartitionClock, wall_clock
from eventveil.tasks.aggregate import PartitionAggregator
from eventveil.worker.ends import EndWatch, PartitionEnds

CHUNK = 65_536
#: The times of good events; the origin is 0, and the first timestamp has a minute.
_TIME, _FAR = 30_000, 10**12
#: How often a boundary is asked for, in milliseconds.
_INTERVAL = 50
_MEGABYTE = 1_000_000
_PRODUCER = Producer(1, 0)
GOOD = "good"


def kinds() -> dict[str, list[bytes]]:
    """A chunk of good events, and chunks of each kind of malformed ones."""

    def each(text: str) -> list[bytes]:
        return [text.replace("#", str(number)).encode() for number in range(CHUNK)]

    def large(item: str) -> list[bytes]:
        inner = item * (_MEGABYTE // len(item)) + "0"
        return [f'{{"user":"u","column":"zzz","time":{_TIME},"x":[{inner}]}}'.encode()] * 8

    event = f'{{"user":"u#","column":"c1","time":{_TIME}'
    return {
        GOOD: [text.replace(b"u65", b"u5") for text in each(event + "}")],
        "no JSON, 8 bytes": [b'{"user":'] * CHUNK,
        "no JSON, each different": each('{"user":"u#"'),
        "unknown column": each(f'{{"user":"u#","column":"zzz","time":{_TIME}}}'),
        "unknown columns, each different": each(f'{{"user":"u#","column":"z#","time":{_TIME}}}'),
        "unreadable time": each('{"user":"u#","column":"c1","time":"x"}'),
        "too far ahead": each(f'{{"user":"u#","column":"c1","time":{_FAR}}}'),
        "120 bytes, deep": each(
            f'{{"user":"m","column":"zzz","time":{_TIME},"x":' + "[" * 38 + "]" * 38 + "}"
        ),
        "lists, 8 MB in all": each(f'{{"user":"m","column":"zzz","time":{_TIME},"x":[' + "0," * 30 + "0]}"),
        "8 MB of one-megabyte lists": large("0,"),
        "8 MB of one-megabyte {}": large("{},"),
    }


def _stream() -> Stream:
    one = make_stream(2)
    rules = Timeline(60_000, 0, lateness=5_000, max_ahead=3_600_000, clock_skew=1_000)
    return replace(one, timeline=rules, source=replace(one.source, append_time="boundary"))


def fetched(values: Sequence[bytes]) -> Chunk:
    """A chunk of values as it is fetched: they lie one after the other."""
    lengths = np.array([*map(len, values)], np.int64)
    packed = Packed(b"".join(values), np.cumsum(lengths) - lengths, lengths)
    none = np.zeros(len(values), np.int64)
    return replace(make_chunk(0, values), values=packed, keys=Packed(b"", none, none - 1))


def judge(stream: Stream, chunk: Chunk) -> int:
    """Judge a chunk as the worker does, in as many turns as it takes; the number of dead letters.

    They are made and packed into batches, and not sent.
    """
    aggregator = PartitionAggregator(1, {stream.name: (stream, CounterState("bench", 0, 1, 1, 0, 0))})
    letters = 0
    while aggregator.position < chunk.next_offset:
        aggregator.process(chunk)
        if batch := aggregator.dead_letter_batch():
            letters += _packed(batch.dead_letters)
            aggregator.durable(batch)
    return letters


def _packed(letters: Records) -> int:
    number = 0
    for portion in portions(parts_of(letters)):
        for records in by_partition(portion, lambda _: 1).values():
            made, _ = batches(records, _PRODUCER, 0)
            number += sum(batch.count for batch in made)
    return number


def costs(rounds: int, names: Container[str] | None = None) -> Iterator[tuple[str, list[float], bool]]:
    """By kind: seconds of processor time for a chunk, one a round, and whether all of it was judged right.

    Of all kinds, or of those in ``names``.

    Each round takes all kinds in turn, so that a busy machine is unfair to all alike.
    """
    stream = _stream()
    chunks = {name: fetched(values) for name, values in kinds().items() if names is None or name in names}
    seconds: dict[str, list[float]] = {name: [] for name in chunks}
    right = dict.fromkeys(chunks, True)
    for _ in range(rounds):
        for name, chunk in chunks.items():
            began = time.process_time()
            letters = judge(stream, chunk)
            seconds[name].append(time.process_time() - began)
            right[name] &= letters == (0 if name == GOOD else len(chunk.values))
    for name in chunks:
        yield name, seconds[name], right[name]


class _Cluster:
    """Answers at once, and notes when it was asked."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def ask_end(self, place: tuple[str, int], seconds: float) -> Future[Any]:
        """See ``eventveil.worker.ends.EndsOfCluster``."""
        self.asked.append(wall_clock())
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(offset=0, leader_epoch=None))
        return answer

    def renew(self) -> None:
        """See ``eventveil.worker.ends.EndsOfCluster``."""


def delays(work: Callable[[], object] | None, seconds: float) -> list[int]:
    """By how many milliseconds a boundary was asked for too late, while ``work`` goes on and on."""
    cluster, working = _Cluster(), True

    def keep_working() -> None:
        while working and work is not None:
            work()

    def fail(error: BaseException) -> None:
        raise error

    origin = wall_clock()
    rules = Timeline(_INTERVAL, origin, lateness=0, max_ahead=1000, clock_skew=0)
    watch, thread = EndWatch(cluster, fail), threading.Thread(target=keep_working)
    followed = PartitionEnds(
        TopicPartition("raw", 0), [(rules, 0)], PartitionClock(SYSTEM_CLOCK, 0), lambda: 0
    )
    thread.start()
    watch.start()
    watch.follow(followed)
    time.sleep(seconds)
    watch.stop()
    working = False
    thread.join()
    found, due = [], origin + _INTERVAL
    for asked in cluster.asked:
        found.append(asked - due)
        due = origin + ((asked - origin) // _INTERVAL + 1) * _INTERVAL
    return found


def main() -> None:
    """Print both tables."""
    base = 0.0
    for name, seconds, right in costs(5):
        middle = statistics.median(seconds)
        base = base or middle
        told = "" if right else ", WRONG"
        print(f"{name:32} {middle / CHUNK * 1e6:6.2f} us/event  {middle / base:5.2f} of a good chunk{told}")
    print("\nHow late a boundary is asked for while such chunks are judged, in ms:")
    stream, chunks = _stream(), {name: fetched(values) for name, values in kinds().items()}
    # As the worker does.
    gc.collect()
    gc.freeze()
    idle = delays(None, 4)
    print(f"{'nothing':32} median {statistics.median(idle):4.0f}  most {max(idle):4d}")
    for name, chunk in chunks.items():
        found = delays(lambda chunk=chunk: judge(stream, chunk), 4)  # type: ignore[misc]
        print(f"{name:32} median {statistics.median(found):4.0f}  most {max(found):4d}")


if __name__ == "__main__":
    main()
