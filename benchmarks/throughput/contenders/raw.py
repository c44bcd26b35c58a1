"""A: confluent-kafka, orjson and dictionaries."""

from __future__ import annotations

import orjson

from benchmarks.throughput.contenders.common import Measured, Task, consumer


def main() -> None:
    """Count the events one by one."""
    task = Task.given()
    measured = Measured(task)
    source, left, loads = consumer(task), task.events, orjson.loads
    counts, users, start, interval = measured.counts, measured.users, task.start, task.interval
    measured.begin()
    while left:
        messages = source.consume(10_000, 1.0)
        for message in messages:
            event = loads(message.value())
            timestamp = (event["time"] - start) // interval
            seen, user = users[timestamp], event["user"]
            if user not in seen:
                seen.add(user)
                counts[timestamp][event["column"]] += 1
        left -= len(messages)
    measured.finish()


if __name__ == "__main__":
    main()
