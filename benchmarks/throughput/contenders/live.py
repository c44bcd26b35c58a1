"""A that keeps up: it reads events as they come, until the time that its second argument says."""

from __future__ import annotations

import sys
import time

import orjson

from benchmarks.throughput.contenders.common import Measured, Task, consumer


def main() -> None:
    """Count the events one by one."""
    task, until = Task.given(), float(sys.argv[2])
    measured = Measured(task)
    source = consumer(task)
    counts, users, start, interval = measured.counts, measured.users, task.start, task.interval
    measured.begin()
    while time.time() < until:
        for message in source.consume(10_000, 0.1):
            event = orjson.loads(message.value())
            timestamp = (event["time"] - start) // interval
            if event["user"] not in users[timestamp]:
                users[timestamp].add(event["user"])
                counts[timestamp][event["column"]] += 1
    measured.finish()


if __name__ == "__main__":
    main()
