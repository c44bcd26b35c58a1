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
    nested = task.kind == "nested"
    measured.begin()
    while left:
        messages = source.consume(10_000, 1.0)
        for message in messages:
            event = loads(message.value())
            if nested:
                user, column, at = event["who"]["user"], event["page"]["section"], event["at"]
            else:
                user, column, at = event["user"], event["column"], event["time"]
            timestamp = (at - start) // interval
            seen = users[timestamp]
            if user not in seen:
                seen.add(user)
                counts[timestamp][column] += 1
        left -= len(messages)
    measured.finish()


if __name__ == "__main__":
    main()
