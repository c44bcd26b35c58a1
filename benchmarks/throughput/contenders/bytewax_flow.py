"""Bytewax: a data flow whose map step decodes and counts each event."""

from __future__ import annotations

from typing import Any

import bytewax.operators as op
import orjson
from bytewax.connectors.kafka import KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

from benchmarks.throughput.contenders.common import Measured, Task


class _Nowhere(StatelessSinkPartition[Any]):
    def write_batch(self, items: list[Any]) -> None:
        """Forget them."""


class _Discard(DynamicSink[Any]):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Nowhere:
        """See Bytewax."""
        return _Nowhere()


def main() -> None:
    """Count the events one by one."""
    task = Task.given()
    measured = Measured(task)

    def count(message: Any) -> None:
        event = orjson.loads(message.value)
        measured.add(event["user"], event["column"], event["time"])

    flow = Dataflow("bench")
    source = KafkaSource([task.bootstrap], [task.topic], tail=False, batch_size=10_000)
    op.output("out", op.map("count", op.input("in", flow, source), count), _Discard())
    measured.begin()
    run_main(flow)


if __name__ == "__main__":
    main()
