"""Builders for the tests of the pure core: a small stream with round numbers, its events, chunks, states.

The default timeline: timestamp t is [1000 + 10 (t - 1), 1000 + 10 t), its deadline 5 ms after its end, its
due time 3 ms after the deadline. So timestamp 1 is [1000, 1010), late from 1015, due at 1018.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import orjson
from numpy.typing import NDArray

from eventveil.counting.counter import CounterState, Partial
from eventveil.model.records import Chunk
from eventveil.model.topology import (
    Counts,
    Kafka,
    MechanismSettings,
    Sink,
    SinkFormat,
    Source,
    Stream,
    Timeline,
    TopicSettings,
    Topology,
)
from eventveil.tasks.aggregate import PartitionAggregator

INSTANCE = "0123456789abcdef"
#: Of two partitions under murmur2; the hashes of these strings are among the Java client's own test vectors.
USER_OF_PARTITION = ("foobar", "a-little-bit-longer-string")


def stream(
    name: str = "visits",
    *,
    form: Literal["object", "array"] = "object",
    sink_format: SinkFormat = "json",
    **changes: Any,
) -> Stream:
    """A stream; ``changes`` are fields of its source, timeline, counts or mechanism settings."""
    defaults: dict[str, Any] = {
        "topic": "raw",
        "user": "/user",
        "column": "/column",
        "time": "/time",
        "interval": 10,
        "origin": 1000,
        "lateness": 5,
        "max_ahead": 7,
        "clock_skew": 3,
        "labels": ("a", "b"),
        "kind": "uniform",
        "epsilon": Fraction(1),
        "epsilon_text": "1.0",
        "window": 2,
    }
    fields = {**defaults, **changes}

    def part(of: Any) -> Any:
        return of(**{key: fields.pop(key) for key in list(fields) if key in of.__dataclass_fields__})

    parts = {
        "source": part(Source),
        "timeline": part(Timeline),
        "counts": part(Counts),
        "mechanism": part(MechanismSettings),
    }
    assert not fields, f"no such fields: {sorted(fields)}"
    sink = Sink(f"{name}.sanitized", form, format=sink_format)
    return Stream(name=name, sink=sink, dead_letter=f"{name}.dead", **parts)


def topology(*streams: Stream, **settings: Any) -> Topology:
    return Topology(
        "test.yaml", 1, "app", Kafka("localhost:9092"), TopicSettings(**settings), streams or (stream(),)
    )


def event(user: Any = "u", column: Any = "a", time: Any = 1000) -> bytes:
    return orjson.dumps({"user": user, "column": column, "time": time})


def chunk(
    records: Iterable[tuple[int, bytes | None]] = (),
    *,
    start: int = 0,
    offsets: Sequence[int] | None = None,
    next_offset: int | None = None,
    topic: str = "raw",
    partition: int = 0,
    key: bytes | None = b"key",
) -> Chunk:
    """Records are (append time, value); their offsets follow on ``start`` unless they are given."""
    records = list(records)
    offsets = list(range(start, start + len(records))) if offsets is None else offsets
    after = offsets[-1] + 1 if offsets else start
    return Chunk(
        topic=topic,
        partition=partition,
        generation=1,
        start=start,
        offsets=offsets,
        append_times=[append_time for append_time, _ in records],
        keys=[key] * len(records),
        values=[value for _, value in records],
        next_offset=after if next_offset is None else next_offset,
    )


def counter_state(**changes: Any) -> CounterState:
    fields = {"instance": INSTANCE, "partition": 0, "first": 1, "next": 1, "resume": 0, "judged": 0}
    return CounterState(**{**fields, **changes})


def aggregator(
    *streams: Stream, partitions: int = 1, states: Mapping[str, CounterState] | None = None
) -> PartitionAggregator:
    states = states or {}
    chosen = streams or (stream(),)
    return PartitionAggregator(
        partitions, {one.name: (one, states.get(one.name, counter_state())) for one in chosen}
    )


def partial(timestamp: int = 1, counts: Mapping[int, int] | None = None, **changes: Any) -> Partial:
    """A partial count; ``counts`` by column index."""
    counts = counts or {}
    fields = {"stream": "visits", "timestamp": timestamp, "partition": 0, "instance": INSTANCE}
    columns = np.array(sorted(counts), dtype=np.int64)
    values = np.array([counts[column] for column in sorted(counts)], dtype=np.int64)
    return Partial(**{**fields, "columns": columns, "counts": values, **changes})


def sparse(one: Partial) -> dict[int, int]:
    """The counts of a partial by column index."""
    return dict(zip(one.columns.tolist(), one.counts.tolist(), strict=True))


class ZeroNoise:
    """No noise: what is released is what was counted."""

    def discrete_laplace(self, scale: Fraction, size: int) -> NDArray[np.int64]:
        return np.zeros(size, np.int64)
