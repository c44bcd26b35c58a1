"""Quix Streams: a streaming data frame whose function counts each event."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from quixstreams import Application

from benchmarks.throughput.contenders.common import Measured, Task


def main() -> None:
    """Count the events one by one, deserialized by Quix."""
    task = Task.given()
    measured = Measured(task)
    app = Application(
        broker_address=task.bootstrap,
        consumer_group=f"{task.topic}-{os.getpid()}",
        auto_offset_reset="earliest",
        state_dir=Path(task.out).with_suffix(".quix"),
        loglevel="ERROR",
        consumer_extra_config={"fetch.queue.backoff.ms": 5, "queued.min.messages": 100_000},
    )

    def count(event: dict[str, Any]) -> None:
        measured.add(event["user"], event["column"], event["time"])

    app.dataframe(app.topic(task.topic, value_deserializer="json")).update(count)
    measured.begin()
    app.run()


if __name__ == "__main__":
    main()
