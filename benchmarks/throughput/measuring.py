"""One run of a contender: a process of its own, its processor time, and whether its counts are the truth."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.throughput.events import Feed
from tests.kafka.topics import end_offset

ROOT = Path(__file__).parents[2]
BASELINE = "A: confluent-kafka, orjson, dict"
TWO_READERS = "A, two processes at once"
_START_SECONDS = 3  # for several processes to be ready to begin


@dataclass(frozen=True)
class Run:
    """Seconds of processor time (all threads and processes) and of the clock; were the counts right?

    ``memory`` is the most bytes that were resident at once, 0 where nobody asked;
    ``events`` is how many there were, 0 if as many as were asked for.
    """

    cpu: float
    wall: float
    correct: bool
    memory: int = 0
    events: int = 0


@dataclass(frozen=True)
class Result:
    """A line of ``latest.json``; medians over ``runs``, each of which has both figures and ``correct``."""

    name: str
    cpu_us_per_event: float
    events_per_second: float
    ratio_to_a: float | None
    correct: bool
    runs: list[dict[str, Any]]
    details: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, name: str, events: int, runs: Sequence[Run], a: float | None = None, **details: Any
    ) -> Result:
        """``a`` is the processor time of A an event, in microseconds, in the same session."""
        single = [
            {
                "cpu_us_per_event": round(run.cpu / (run.events or events) * 1e6, 4),
                "events_per_second": round((run.events or events) / run.wall) if run.wall > 0 else 0,
                "correct": run.correct,
                **({"memory_mib": run.memory >> 20} if run.memory else {}),
            }
            for run in runs
        ]
        cpu = statistics.median(one["cpu_us_per_event"] for one in single)
        return cls(
            name=name,
            cpu_us_per_event=cpu,
            events_per_second=statistics.median(one["events_per_second"] for one in single),
            ratio_to_a=None if a is None else round(cpu / a, 3),
            correct=all(run.correct for run in runs),
            runs=single,
            details={"events": events, **details},
        )


def run_client(
    module: str, feed: Feed, *arguments: str, python: str = sys.executable, processes: int = 1
) -> Run:
    """Run one of ``contenders``, or any module that keeps to ``contenders.common``.

    Several ``processes`` share the partitions and begin at the same moment; their counts are added up. Raises
    RuntimeError with the end of what one of them said when it fails.
    """
    partitions = range(feed.workload.partitions)
    begin = time.time() + (_START_SECONDS if processes > 1 else 0)
    with tempfile.TemporaryDirectory(prefix="eventveil-bench-") as folder, ThreadPoolExecutor() as threads:

        def run_one(number: int) -> dict[str, Any]:
            out = Path(folder) / f"counts-{number}.npz"
            task, _ = task_of(feed, str(out), partitions[number::processes], begin)
            return _run_to_its_end([python, "-m", module, json.dumps(task), *arguments], out)

        found = list(threads.map(run_one, range(processes)))
    correct = np.array_equal(sum(one["counts"] for one in found), feed.workload.truth())
    return Run(sum(float(one["cpu"]) for one in found), max(float(one["wall"]) for one in found), correct)


def task_of(
    feed: Feed, out: str, partitions: Sequence[int], begin: float = 0.0
) -> tuple[dict[str, Any], list[int]]:
    """What a contender has to count, see ``contenders.common.Task``, and the ends of its partitions."""
    sizes = [end_offset(feed.bootstrap, feed.topic, partition=partition) for partition in partitions]
    task = {
        "bootstrap": feed.bootstrap,
        "topic": feed.topic,
        "partitions": list(partitions),
        "events": sum(sizes),
        "begin": begin,
        "start": feed.start,
        "interval": feed.workload.interval,
        "timestamps": feed.workload.timestamps,
        "columns": feed.workload.columns,
        "kind": feed.workload.kind,
        "out": out,
    }
    return task, sizes


def _run_to_its_end(command: Sequence[str], out: Path) -> dict[str, Any]:
    """What a contender has written down."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(f"{command[2]} failed:\n{done.stderr[-2000:]}")
    with np.load(out) as found:
        return dict(found)


def cpu_of(pid: int) -> float:
    """Seconds of processor time of a running process, all its threads and its ended children (Linux only)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def peak_memory(pid: int) -> int:
    """The most bytes that a running process has had in memory (Linux only)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def repeat(times: int, run: Callable[[], Run]) -> list[Run]:
    """Run it this many times."""
    return [run() for _ in range(times)]


def save(path: Path, results: Sequence[Result]) -> None:
    """Put results into the file; those of other names in it stay."""
    path.parent.mkdir(parents=True, exist_ok=True)
    old = json.loads(path.read_text()) if path.exists() else []
    names = {result.name for result in results}
    kept = [entry for entry in old if entry["name"] not in names]
    path.write_text(json.dumps(kept + [asdict(result) for result in results], indent=1) + "\n")
