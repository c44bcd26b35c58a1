"""What a worker with many streams costs while nothing happens: threads, descriptors, processor time.

``python -m benchmarks.throughput.resting`` starts an Apache Kafka and a worker (Linux only), waits until the
worker has owned every partition for a while, and looks at it from outside. Each stream has a source topic of
its own, of one partition, and 100 columns; its only timestamp is due in an hour.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click

from benchmarks.throughput.events import Workload, produce
from benchmarks.throughput.measuring import cpu_of
from benchmarks.throughput.product import Deployment
from tests.kafka.broker import local_broker

_HOUR = 3_600_000
_READY_SECONDS = 600
#: From readiness to the beginning of the measurement; what taking over left behind comes to rest.
_SETTLE_SECONDS = 15
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Rest:
    """What a process at rest needs; ``share`` of one core, and the same of its main thread and the others."""

    threads: int
    descriptors: int
    memory: int
    share: float
    of_threads: Sequence[float]


def look(pid: int, seconds: float) -> Rest:
    """Watch a process for so long."""
    threads, before, since = _threads(pid), cpu_of(pid), time.monotonic()
    time.sleep(seconds)
    lasted = time.monotonic() - since
    after = _threads(pid)
    spent = {number: (ticks - threads.get(number, 0)) / _TICKS / lasted for number, ticks in after.items()}
    return Rest(
        threads=len(after),
        descriptors=len(os.listdir(f"/proc/{pid}/fd")),
        memory=_resident(pid),
        share=(cpu_of(pid) - before) / lasted,
        of_threads=[spent.pop(pid), *sorted(spent.values(), reverse=True)],
    )


def _threads(pid: int) -> dict[int, int]:
    """Clock ticks of each thread."""
    found = {}
    for path in Path(f"/proc/{pid}/task").iterdir():
        fields = (path / "stat").read_text().rpartition(")")[2].split()
        found[int(path.name)] = int(fields[11]) + int(fields[12])
    return found


def _resident(pid: int) -> int:
    """Bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def measure(bootstrap: str, streams: int, seconds: float) -> Rest:
    """Start a worker with a number of streams, and watch it once it is ready."""

    def feed(seed: int) -> Workload:
        return Workload(100, columns=100, users=100, partitions=1, interval=_HOUR, timestamps=1, seed=seed)

    with ThreadPoolExecutor(4) as threads:
        feeds = list(threads.map(lambda seed: produce(bootstrap, feed(seed)), range(streams)))
    with tempfile.TemporaryDirectory(prefix="eventveil-bench-") as folder:
        deployment = Deployment(feeds, Path(folder))
        deployment.create()
        with deployment.worker() as worker:
            begun = time.monotonic()
            worker.wait_for_log("ready", _READY_SECONDS)
            click.echo(f"ready after {time.monotonic() - begun:.1f} s")
            time.sleep(_SETTLE_SECONDS)
            return look(worker.process.pid, seconds)


@click.command()
@click.option("--streams", type=click.IntRange(1), default=200, show_default=True)
@click.option("--seconds", type=click.FloatRange(1), default=30, show_default=True, help="To watch it.")
def main(streams: int, seconds: float) -> None:
    """Measure, and print a line for docs/performance-details.md, and which threads took the time."""
    with local_broker() as broker:
        rest = measure(broker.bootstrap, streams, seconds)
    click.echo(
        f"| {streams} | {rest.threads:,} | {rest.descriptors:,} | {rest.memory >> 20:,} MiB "
        f"| {100 * rest.share:.1f} % |"
    )
    main, *others = rest.of_threads
    shown = ", ".join(f"{100 * share:.2f} %" for share in others[:5])
    click.echo(f"main thread {100 * main:.2f} %, others {shown}, all others {100 * sum(others[5:]):.2f} %")


if __name__ == "__main__":
    main()
