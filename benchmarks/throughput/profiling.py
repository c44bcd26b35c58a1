"""Where a worker's microseconds go: ``python -m benchmarks.throughput.profiling --events 1000000``.

py-spy looks 100 times a second which function holds the interpreter while a worker catches up. Shares are of
these looks; librdkafka and other code outside the interpreter do not show, and make up the rest of the CPU.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import click

from benchmarks.throughput.events import Workload, produce
from benchmarks.throughput.product import run_workers
from tests.kafka.broker import local_broker
from tests.worker.process import WorkerProcess

_SHOWN = 16


@click.command()
@click.option("--events", type=click.IntRange(100_000), default=1_000_000, show_default=True)
def main(events: int) -> None:
    """Print the functions that take most."""
    with tempfile.TemporaryDirectory(prefix="eventveil-bench-") as folder, local_broker() as broker:
        raw = Path(folder) / "samples"
        spies: list[subprocess.Popen[bytes]] = []
        feed = produce(broker.bootstrap, Workload(events))
        run = run_workers([feed], watch=lambda worker: spies.append(look_at(worker, raw)))
        for spy in spies:
            spy.wait()  # it writes when the worker has ended
        looks = raw.read_text().splitlines()
    click.echo(f"{run.cpu / events * 1e6:.2f} us of CPU an event, counts right: {run.correct}")
    for label, of in (("itself", self_time), ("with what it calls", whole_time)):
        found = of(looks)
        total = sum(self_time(looks).values())
        click.echo(f"\n| {label} | share |\n| --- | --: |")
        for function, number in found.most_common(_SHOWN):
            click.echo(f"| {function} | {number / total:.0%} |")


def look_at(worker: WorkerProcess, raw: Path) -> subprocess.Popen[bytes]:
    """Look at a worker from now on until it ends."""
    spy = str(Path(sys.executable).with_name("py-spy"))
    command = [spy, "record", "--gil", "--nonblocking", "--rate", "100", "--format", "raw"]
    command += ["--pid", str(worker.process.pid), "--duration", "600", "--output", str(raw)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def self_time(looks: list[str]) -> Counter[str]:
    """How often each function was at work itself; a look is ``outer;inner;innermost COUNT``."""
    found: Counter[str] = Counter()
    for look in looks:
        stack, _, number = look.rpartition(" ")
        found[_function(stack.split(";")[-1])] += int(number)
    return found


def whole_time(looks: list[str]) -> Counter[str]:
    """How often each function of Eventveil was at work, or something that it had called."""
    found: Counter[str] = Counter()
    for look in looks:
        stack, _, number = look.rpartition(" ")
        for function in {_function(frame) for frame in stack.split(";") if "eventveil/" in frame}:
            found[function] += int(number)
    return found


def _function(frame: str) -> str:
    """``name (file)``, without the line."""
    name, _, place = frame.rpartition(" (")
    parts = place.rpartition(":")[0].split("/")
    return f"{name} ({'/'.join(parts[-2:])})"


if __name__ == "__main__":
    main()
