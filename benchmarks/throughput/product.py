"""``eventveil run`` and ``eventveil replay`` as contenders: their own commands, unchanged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Consumer, TopicPartition
from numpy.typing import NDArray

from benchmarks.throughput.events import FIELDS, MALFORMED, Feed
from benchmarks.throughput.measuring import Run, cpu_of, peak_memory
from eventveil.counting.counter import Partial
from tests.kafka.topics import read, unique
from tests.worker.process import WorkerProcess

COMMAND = str(Path(sys.executable).with_name("eventveil"))
SKEW = 100
_PATIENCE = 1200
MECHANISM = {"kind": "budget-absorption", "epsilon": 1, "window": 100}


class Deployment:
    """An application of its own over feeds: topology file, internal topics, sink.

    ``rekeyed``: with ``repartition: true``, as if the events were keyed by something else than the user.
    """

    def __init__(self, feeds: list[Feed], folder: Path, *, rekeyed: bool = False, **timeline: Any) -> None:
        self.feeds, self.folder, self._rekeyed = feeds, folder, rekeyed
        self.bootstrap, self.name = feeds[0].bootstrap, unique("bench")
        self.path = folder / f"{self.name}.yaml"
        streams = {f"s{number}": self._stream(number, feed, timeline) for number, feed in enumerate(feeds)}
        document = {
            "version": 1,
            "name": self.name,
            "kafka": {"bootstrap": self.bootstrap},
            "topics": {"replication": 1, "min_insync": 1, "partials": min(4, len(feeds))},
            "streams": streams,
        }
        self.path.write_text(json.dumps(document, indent=1))

    def _stream(self, number: int, feed: Feed, timeline: dict[str, Any]) -> dict[str, Any]:
        columns = self.folder / f"columns-{feed.workload.columns}.txt"
        columns.write_text("".join(f"c{column}\n" for column in range(feed.workload.columns)))
        start = datetime.fromtimestamp(feed.start / 1000, UTC).isoformat(timespec="milliseconds")
        user, column, at = FIELDS[feed.workload.kind]
        return {
            "source": {
                "topic": feed.topic, "user": user, "column": column, "time": at,
                **({"repartition": True} if self._rekeyed else {"partitioner": "crc32"}),
            },
            "timeline": {
                "interval": f"{feed.workload.interval}ms", "origin": start, "start": start,
                "lateness": f"{feed.lateness}ms", "max_ahead": "1h", "clock_skew": f"{SKEW}ms", **timeline,
            },
            "counts": {"columns": {"file": columns.name}},
            "mechanism": MECHANISM,
            "sink": {"topic": f"{self.name}.s{number}", "counts": "array"},
            "dead_letter": f"{self.name}.dead",
        }  # fmt: skip

    def create(self) -> None:
        """Create its topics."""
        command(COMMAND, "topics", str(self.path), "--create")

    @property
    def partitions(self) -> int:
        """How many are owned once everything is."""
        of_sources = sum(feed.workload.partitions for feed in self.feeds)
        return of_sources * (1 + self._rekeyed) + min(4, len(self.feeds))

    def worker(self, number: int = 0, *arguments: str) -> WorkerProcess:
        """A worker, not started."""
        log = self.folder / f"{self.name}-{number}.log"
        return WorkerProcess("eventveil", self.path, log, *(arguments or ("--metrics", "off")))

    def counts(self) -> list[NDArray[np.int64]]:
        """The true counts of each stream that the workers handed on, summed over the source's partitions."""
        shapes = [(feed.workload.timestamps, feed.workload.columns) for feed in self.feeds]
        found = [np.zeros(shape, np.int64) for shape in shapes]
        for partition in range(min(4, len(self.feeds))):
            for message in read(self.bootstrap, f"{self.name}-partials", partition=partition):
                partial = Partial.decode(message.value() or b"", "partials")
                counts = found[int(partial.stream.removeprefix("s"))]
                if partial.timestamp <= len(counts):
                    np.add.at(counts[partial.timestamp - 1], partial.columns, partial.counts)
        return found

    def refused(self) -> int:
        """How many events are dead letters."""
        return len(read(self.bootstrap, f"{self.name}.dead"))


class Sinks:
    """Waits for the releases of a deployment."""

    def __init__(self, deployment: Deployment) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": deployment.bootstrap,
                "group.id": unique("sinks"),
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,
            }
        )
        names = [f"{deployment.name}.s{number}" for number in range(len(deployment.feeds))]
        self._consumer.assign([TopicPartition(name, 0, 0) for name in names])
        self._last = {
            name: feed.workload.timestamps for name, feed in zip(names, deployment.feeds, strict=True)
        }
        self._left = sum(self._last.values())

    def all_released(self, seconds: float) -> bool:
        """Wait so long at most; whether every stream has released its window."""
        for message in self._consumer.consume(1000, seconds):
            if message.error() is None:
                timestamp = json.loads(message.value() or b"")["timestamp"]
                self._left -= timestamp <= self._last[message.topic() or ""]
        return self._left <= 0


def run_workers(
    feeds: list[Feed],
    workers: int = 1,
    watch: Callable[[WorkerProcess], None] | None = None,
    show: Callable[[], object] | None = None,
) -> Run:
    """Let workers catch up with feeds whose timestamps are all due.

    Measured from the first partition of a source that one owns, so without the start of the interpreter,
    until the last release is in its sink; ``watch`` is called with each worker at its beginning. With
    ``show``, which shows the events that were hidden until then, measured from when all partitions are owned.
    """
    with tempfile.TemporaryDirectory(prefix="eventveil-bench-") as folder, ExitStack() as running:
        deployment = Deployment(feeds, Path(folder))
        deployment.create()
        sinks = Sinks(deployment)
        for feed in feeds:
            feed.wait_until_due(SKEW)
        processes = [running.enter_context(deployment.worker(number)) for number in range(workers)]
        deadline = time.monotonic() + _PATIENCE
        begun = dict.fromkeys(processes, 0.0)
        clock = 0.0
        needed = 1 if show is None else deployment.partitions
        while not sinks.all_released(0.02):
            for process in processes:
                if not begun[process] and process.log.read_text().count(" owns ") >= needed:
                    begun[process] = cpu_of(process.process.pid)
                    clock = clock or time.monotonic()
                    if watch is not None:
                        watch(process)
                    if show is not None:
                        show()
                if not process.running or time.monotonic() > deadline:
                    raise RuntimeError(f"a worker did not finish:\n{process.log.read_text()[-2000:]}")
        wall = time.monotonic() - clock
        cpu = sum(cpu_of(process.process.pid) - begun[process] for process in processes)
        memory = sum(peak_memory(process.process.pid) for process in processes)
        correct = all(
            np.array_equal(counts, feed.workload.truth())
            for counts, feed in zip(deployment.counts(), feeds, strict=True)
        )
        refused = sum(feed.workload.events for feed in feeds if feed.workload.kind in MALFORMED)
        correct &= deployment.refused() == refused
    return Run(cpu, wall, correct, memory)


def run_replay(feed: Feed, *, from_file: bool) -> Run:
    """Replay a feed from its topic or from a file of its events.

    The command's start-up is measured alone, with one event a timestamp, and taken off.
    """
    few = replace(feed.workload, events=feed.workload.timestamps)
    idle = _replay(replace(feed, workload=few), from_file=True)
    whole = _replay(feed, from_file)
    return Run(whole.cpu - idle.cpu, whole.wall - idle.wall, whole.correct and idle.correct)


def _replay(feed: Feed, from_file: bool) -> Run:
    with tempfile.TemporaryDirectory(prefix="eventveil-bench-") as folder:
        deployment = Deployment([feed], Path(folder))
        source, truth = Path(folder) / "events.jsonl", Path(folder) / "truth.jsonl"
        if from_file:
            feed.write(source)
        end = datetime.fromtimestamp((feed.start + feed.workload.window) / 1000, UTC).isoformat()
        begun, before = time.monotonic(), os.times()
        command(
            COMMAND, "replay", str(deployment.path), "--truth", str(truth), "--to", end,
            "--output", str(Path(folder) / "out.jsonl"),
            "--input", str(source) if from_file else f"topic:{feed.topic}",
        )  # fmt: skip
        after, wall = os.times(), time.monotonic() - begun
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        counts = [json.loads(line)["counts"] for line in truth.read_text().splitlines()]
        return Run(cpu, wall, np.array_equal(np.array(counts, np.int64), feed.workload.truth()))


def command(*arguments: str) -> str:
    """Run a command to its end; what it printed. Raises RuntimeError with what it said when it fails."""
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(f"{arguments[1]} failed:\n{done.stderr[-2000:]}")
    return done.stdout
