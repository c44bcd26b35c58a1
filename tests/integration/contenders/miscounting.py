"""Counts the first event twice."""

from __future__ import annotations

import orjson

from benchmarks.throughput.contenders.common import Measured, Task, consumer


def main() -> None:
    task = Task.given()
    measured = Measured(task)
    source = consumer(task)
    measured.begin()
    while True:
        for message in source.consume(1000, 1.0):
            event = orjson.loads(message.value())
            if event["time"] == task.start:
                measured.counts[0][event["column"]] += 1
            measured.add(event["user"], event["column"], event["time"])


if __name__ == "__main__":
    main()
