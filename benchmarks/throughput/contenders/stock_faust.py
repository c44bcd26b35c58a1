"""A stock Faust agent, with a Record model or with raw bytes and orjson (second argument: record, bytes)."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import faust
import orjson

from benchmarks.throughput.contenders.common import Measured, Task


class Event(faust.Record):
    """An event."""

    user: str
    column: str
    time: int


def main() -> None:
    """Count the events one by one, as the documentation of Faust would."""
    task, kind = Task.given(), sys.argv[2]
    measured = Measured(task)
    app = faust.App(
        f"{task.topic}-{os.getpid()}",
        broker=f"kafka://{task.bootstrap}",
        store="memory://",
        datadir=str(Path(task.out).with_suffix(".faust")),
        web_enabled=False,
        topic_disable_leader=True,
        consumer_auto_offset_reset="earliest",
    )

    async def count_records(events: Any) -> None:
        async for event in events:
            measured.add(event.user, event.column, event.time)

    async def count_bytes(values: Any) -> None:
        async for value in values:
            event = orjson.loads(value)
            measured.add(event["user"], event["column"], event["time"])

    if kind == "record":
        app.agent(app.topic(task.topic, value_type=Event))(count_records)
    else:
        app.agent(app.topic(task.topic, value_serializer="raw"))(count_bytes)
    worker = faust.Worker(app, loglevel="ERROR", quiet=True, redirect_stdouts=False)
    worker.execute_from_commandline()


if __name__ == "__main__":
    main()
