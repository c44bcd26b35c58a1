"""What a replay costs by how much there is in a timestamp: ``python -m benchmarks.throughput.replays``.

Run it in two checkouts to compare them. Events are in memory or in a file, generated and not counted in.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from eventveil.model.partitioners import murmur2_partition
from eventveil.model.topology import Stream
from eventveil.replay.inputs import Input
from eventveil.replay.run import replay
from tests.unit.replay.history import HOUR, ORIGIN, Recorded, event, stream, topology, write_lines

RUNS, PARTITIONS = 3, 8
#: Time, user and value of an event.
Made = tuple[int, str, bytes]


def events(count: int, hours: int, users: int, columns: Sequence[str]) -> list[Made]:
    """Events in order of time."""
    chance = random.Random(1)
    times = sorted(ORIGIN + chance.randrange(hours * HOUR) for _ in range(count))
    users_of = [(time, f"user {chance.randrange(users)}", chance.choice(columns)) for time in times]
    return [(time, user, event(user, column, time)) for time, user, column in users_of]


def from_file(folder: Path, made: Sequence[Made]) -> Input:
    """An input with the events in a file."""
    return write_lines(folder / "events.jsonl", (value for _, _, value in made))


def from_topic(folder: Path, made: Sequence[Made]) -> Input:
    """The same in a topic with several partitions."""
    found: dict[int, list[tuple[int, bytes | None]]] = {number: [] for number in range(PARTITIONS)}
    for at, user, value in made:
        found[murmur2_partition(user.encode(), PARTITIONS)].append((at, value))
    return Recorded(found, 100)


def main() -> None:
    """Print processor time by shape, the median of several runs, and what was released."""
    plain, wide = stream(), stream()
    wide = replace(wide, counts=replace(wide.counts, labels=tuple(f"column {n}" for n in range(2000))))
    shapes: list[tuple[str, Callable[[Path, Sequence[Made]], Input], Stream, tuple[int, int, int]]] = [
        ("file, 6,000 events a timestamp", from_file, plain, (600_000, 100, 5_000)),
        ("file, 100 events and 2,000 columns a timestamp", from_file, wide, (100_000, 1_000, 5_000)),
        ("file, an event in 10 timestamps", from_file, plain, (2_000, 20_000, 50)),
        ("topic of 8, an event in 2 timestamps", from_topic, plain, (5_000, 10_000, 500)),
    ]
    for name, make, of, shape in shapes:
        taken, released = list[float](), hashlib.sha256()
        made = events(*shape, of.counts.labels)
        for _ in range(RUNS):
            with TemporaryDirectory() as folder:
                source = make(Path(folder), made)
                begun, released = time.process_time(), hashlib.sha256()
                for one in replay(topology(of), source, seed=1):
                    released.update(one.record)
                taken.append(time.process_time() - begun)
        print(f"{name}: {median(taken):.2f} s, {released.hexdigest()[:12]}", flush=True)


if __name__ == "__main__":
    main()
