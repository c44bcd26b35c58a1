"""Counts everything, but not in its timestamp."""

from __future__ import annotations

import numpy as np

from benchmarks.throughput.contenders.common import Measured, Task, consumer
from benchmarks.throughput.events import Workload


def main() -> None:
    task = Task.given()
    measured = Measured(task)
    measured.begin()
    consumer(task).consume(1, 10.0)
    truth = Workload(task.events, users=200, columns=task.columns).truth()
    measured.finish(np.roll(truth, 1, axis=0))


if __name__ == "__main__":
    main()
