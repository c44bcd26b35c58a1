"""Made-up history: topologies, events, an input in memory, and the truth by brute force.

``brute_force`` shares no code with the program.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from json.encoder import encode_basestring_ascii as quoted
from pathlib import Path
from typing import Any

from eventveil.mechanisms.registry import KINDS
from eventveil.model.records import Chunk
from eventveil.model.topology import (
    Counts,
    Kafka,
    MechanismSettings,
    Sink,
    Source,
    Stream,
    Timeline,
    TopicSettings,
    Topology,
)
from eventveil.replay.inputs import FileInput, Input
from eventveil.replay.releasing import Released
from eventveil.replay.run import Replay, replay
from tests.unit.support import ZeroNoise

HOUR = 3_600_000
ORIGIN = 1_356_998_400_000  # 2013-01-01T00:00:00Z
COLUMNS = ("ATL", "BOS", "ORD")


def zero_noise(_: Stream) -> ZeroNoise:
    return ZeroNoise()


def stream(name: str = "destinations", kind: str = "uniform", interval: int = HOUR, **changes: Any) -> Stream:
    """``changes`` of the timeline (lateness, max_ahead, clock_skew), of the counts (contributions, unknown,
    unknown_column), and ``topic``."""
    rules = Timeline(interval, ORIGIN)
    level = KINDS[kind].level
    counts = Counts(COLUMNS[:1] if level == "user" else COLUMNS)
    for setting in set(changes) - {"topic"}:
        if hasattr(rules, setting):
            rules = replace(rules, **{setting: changes[setting]})
        else:
            counts = replace(counts, **{setting: changes[setting]})
    return Stream(
        name=name,
        source=Source(changes.get("topic", "events"), "/user", "/to", "/at"),
        timeline=rules,
        counts=counts,
        mechanism=MechanismSettings(kind, Fraction(1), "1", {"w-event": 3, "event": 1, "user": 6}[level]),
        sink=Sink(f"{name}.counts"),
        dead_letter="dead",
    )


def topology(*streams: Stream) -> Topology:
    return Topology("t.yaml", 1, "app", Kafka("nowhere:1"), TopicSettings(), streams or (stream(),))


def event(user: str, to: str, at: int) -> bytes:
    """What ``json.dumps`` makes of it, at a sixth of its cost: some tests have a million of them."""
    return f'{{"user": {quoted(user)}, "to": {quoted(to)}, "at": {at}}}'.encode()


def random_events(count: int, hours: int, seed: int, users: int = 20) -> list[bytes]:
    """Valid events in random order of time."""
    chance = random.Random(seed)
    return [
        event(
            f"user {chance.randrange(users)}", chance.choice(COLUMNS), ORIGIN + chance.randrange(hours * HOUR)
        )
        for _ in range(count)
    ]


def brute_force(values: Iterable[bytes], interval: int = HOUR, bound: int = 1) -> dict[int, Counter[str]]:
    """Counts by timestamp of events that are valid and never late."""
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    admitted: Counter[tuple[int, str]] = Counter()
    for value in values:
        fields = json.loads(value)
        timestamp = 1 + (fields["at"] - ORIGIN) // interval
        admitted[timestamp, fields["user"]] += 1
        if admitted[timestamp, fields["user"]] <= bound:
            counts[timestamp][fields["to"]] += 1
    return dict(counts)


def write_lines(path: Path, values: Iterable[bytes]) -> FileInput:
    path.write_bytes(b"".join(value + b"\n" for value in values))
    return FileInput(str(path))


class Recorded(Input):
    """Partitions of a topic, as lists of (append time, value), delivered in turn, ``size`` at a time."""

    def __init__(
        self,
        partitions: Mapping[int, Sequence[tuple[int, bytes | None]]],
        size: int = 3,
        topic: str = "events",
    ) -> None:
        super().__init__(topic)
        self._partitions, self._size = partitions, size
        self._reached = dict.fromkeys(partitions, 0)
        self.delivered = 0

    def rules(self, stream: Stream, last: int | None) -> Stream:
        return stream

    def begin(self, earliest: int, longest: int) -> Mapping[int, int]:
        return dict(self._reached)

    def chunks(self) -> Iterator[Chunk]:
        while open_partitions := [one for one in self._partitions if not self.ended(one)]:
            for partition in open_partitions:
                start = self._reached[partition]
                records = self._partitions[partition][start : start + self._size]
                after = start + len(records)
                self._reached[partition] = after
                self.delivered += 1
                yield Chunk(
                    "events", partition, 0, start, range(start, after), [append for append, _ in records],
                    [None] * len(records), [value for _, value in records], after,
                )  # fmt: skip

    def ended(self, partition: int) -> bool:
        return self._reached[partition] == len(self._partitions[partition])


def counts_of(releases: Iterable[Released]) -> dict[tuple[str, int], dict[str, int]]:
    """Columns that are not zero in the records, by (stream, timestamp)."""
    found = {}
    for released in releases:
        record = json.loads(released.record)
        counts = {column: count for column, count in record["counts"].items() if count}
        truth = dict(zip(COLUMNS, released.counts.tolist(), strict=True))
        assert counts == {column: count for column, count in truth.items() if count}
        found[record["stream"], record["timestamp"]] = counts
    return found


def replay_file(path: Path, values: Iterable[bytes], *streams: Stream, **options: Any) -> Replay:
    """A replay over a file, with zero noise unless the options say otherwise."""
    if "seed" not in options:
        options.setdefault("noise", zero_noise)
    return replay(topology(*streams), write_lines(path / "events.jsonl", values), **options)
