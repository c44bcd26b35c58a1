"""Produces events at a steady rate, as they happen: ``python -m benchmarks.throughput.pace '{...}'``."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.throughput.events import Truth, Workload, heads, producer_of, send

_SLICE = 0.02
_POOL = 1_000_000


@dataclass(frozen=True)
class Pace:
    """``rate`` events a second for this many timestamps from ``start`` on (epoch milliseconds).

    ``out`` takes the truth and how many events there were: fewer than the rate says if it was too much.
    """

    bootstrap: str
    topic: str
    rate: float
    start: int
    timestamps: int
    columns: int
    users: int
    out: str


def main() -> None:
    """Produce, and write down the truth."""
    pace = Pace(**json.loads(sys.argv[1]))
    failed: list[object] = []
    producer, choose = producer_of(pace.bootstrap, failed), np.random.default_rng(5)
    # Made beforehand and over and over again: what is measured shares the machine with this process.
    users, columns = choose.integers(0, pace.users, _POOL), choose.integers(0, pace.columns, _POOL)
    pool = list(heads(users, columns))
    workload = Workload(columns=pace.columns, users=pace.users)
    truth = Truth(workload, pace.timestamps)
    sent, end = 0, pace.start / 1000 + pace.timestamps * workload.interval / 1000
    # Each slice has an event at least, unless there are none at all.
    seconds = max(_SLICE, 1 / pace.rate) if pace.rate else _SLICE
    count = round(pace.rate * seconds)
    early = pace.start / 1000 - time.time()
    if early < 0:
        sys.exit(f"the events were made {-early:.1f} s after they should have begun: the machine is busy")
    time.sleep(early)
    following = time.time()
    while (now := time.time()) < end:
        first = sent % (_POOL - count)
        chosen = slice(first, first + count)
        tail = b"%d}" % int(now * 1000)
        for key, head in pool[chosen]:
            send(producer, pace.topic, key, head + tail)
        producer.poll(0)
        truth.add(users[chosen], columns[chosen], np.full(count, int(now * 1000) - pace.start))
        sent += count
        following = max(following + seconds, time.time() - 1)
        time.sleep(max(0.0, following - time.time()))
    assert producer.flush(30) == 0
    assert not failed, failed[0]
    np.savez(Path(pace.out), counts=truth.counts, sent=sent)


if __name__ == "__main__":
    main()
