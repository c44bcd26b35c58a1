"""A worker that keeps up: how soon after its deadline a release is there, and how soon another takes over."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack, suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, TopicPartition

from benchmarks.throughput.events import Feed, Workload, produce
from benchmarks.throughput.measuring import ROOT, Run, cpu_of, task_of
from benchmarks.throughput.pace import Pace
from benchmarks.throughput.product import Deployment
from tests.kafka.topics import LOG_APPEND_TIME, create_topic, unique
from tests.worker.process import WorkerProcess

_START_SECONDS = 20  # for a worker to own everything before the first timestamp begins


def latency(
    bootstrap: str, workload: Workload, rate: float, beside: list[Run] | None = None, *, rekeyed: bool = False
) -> tuple[Run, list[float]]:
    """Events at a rate; milliseconds from the deadline of each timestamp to its release in a reader's hands.

    The deadline is the end of the timestamp and ``lateness``; ``clock_skew`` is part of what is measured.
    With a list ``beside``, A reads the same events at the same time, and its run is added to the list.
    ``rekeyed``: see ``Deployment``.
    """
    timestamps = workload.timestamps
    topic = create_topic(bootstrap, unique("live"), workload.partitions, LOG_APPEND_TIME)
    start = (int(time.time()) + _START_SECONDS) * 1000
    feed = Feed(workload, bootstrap, topic, start)
    with tempfile.TemporaryDirectory(prefix="eventveil-bench-") as name:
        deployment, out = Deployment([feed], Path(name), rekeyed=rekeyed), Path(name) / "truth.npz"
        with ExitStack() as ending:
            # First: it makes its events before it sends them, which takes as long as a worker to start.
            pace = Pace(bootstrap, topic, rate, start, timestamps, workload.columns, workload.users, str(out))
            feeder = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.throughput.pace", json.dumps(asdict(pace))], cwd=ROOT
            )
            ending.callback(feeder.kill)
            deployment.create()
            worker = ending.enter_context(deployment.worker())
            worker.wait_for_log(" owns ")
            reader = None if beside is None else _reader(feed, Path(name) / "a.npz", ending)
            time.sleep(max(0.0, start / 1000 - time.time()))
            if worker.log.read_text().count(" owns ") < deployment.partitions:
                raise RuntimeError("the worker does not own everything yet: the machine is busy")
            begun, clock = cpu_of(worker.process.pid), time.monotonic()
            delays = _delays(deployment, timestamps)
            cpu, wall = cpu_of(worker.process.pid) - begun, time.monotonic() - clock
            if feeder.wait(60) or (reader is not None and reader.wait(60)):
                raise RuntimeError("the producer or the reader failed")
        with np.load(out) as truth:
            correct = np.array_equal(deployment.counts()[0], truth["counts"])
            sent = int(truth["sent"])
            if beside is not None:
                with np.load(Path(name) / "a.npz") as found:
                    right = np.array_equal(found["counts"], truth["counts"])
                    beside.append(Run(float(found["cpu"]), float(found["wall"]), right, events=sent))
    return Run(cpu, wall, correct, events=sent), delays


def _reader(feed: Feed, out: Path, ending: ExitStack) -> subprocess.Popen[bytes]:
    """A, which keeps up until a second after the last timestamp."""
    task, _ = task_of(feed, str(out), range(feed.workload.partitions), feed.start / 1000)
    until = (feed.start + feed.workload.window) / 1000 + 1
    command = [sys.executable, "-m", "benchmarks.throughput.contenders.live", json.dumps(task), str(until)]
    started = subprocess.Popen(command, cwd=ROOT)
    ending.callback(started.kill)
    return started


def _delays(deployment: Deployment, timestamps: int) -> list[float]:
    feed, delays = deployment.feeds[0], list[float]()
    reader = Consumer(
        {
            "bootstrap.servers": deployment.bootstrap,
            "group.id": unique("sink"),
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
    )
    reader.assign([TopicPartition(f"{deployment.name}.s0", 0, 0)])
    end = feed.deadline(timestamps) / 1000 + 60
    while len(delays) < timestamps:
        for message in reader.consume(1, 0.1):
            if message.error() is None:
                now = time.time() * 1000
                delays.append(now - feed.deadline(json.loads(message.value() or b"")["timestamp"]))
        if time.time() > end:
            raise RuntimeError(f"only {len(delays)} of {timestamps} timestamps were released")
    reader.close()
    return delays[:timestamps]


def take_over(bootstrap: str, workload: Workload) -> tuple[float, float, int]:
    """Seconds from its assignment until a worker owns everything, and until it holds what a killed one held.

    All events are in open timestamps; the third number is how many contributions that makes.
    """
    feed = produce(bootstrap, workload)
    expected = int(workload.truth().sum())
    with tempfile.TemporaryDirectory(prefix="eventveil-bench-") as name:
        deployment = Deployment([feed], Path(name), lateness="1h")
        deployment.create()
        with deployment.worker(0, "--metrics", "127.0.0.1:0", "--raw-metrics") as first:
            _wait_for_contributions(first, expected)
            first.signal(signal.SIGKILL)
            first.wait()
        with deployment.worker(1, "--metrics", "127.0.0.1:0", "--raw-metrics") as second:
            held = _wait_for_contributions(second, expected)
            times = [
                datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").timestamp()
                for line in second.log.read_text().splitlines()
                if " owns " in line or " assigned " in line
            ]
    return max(times) - min(times), held - min(times), expected


def _wait_for_contributions(worker: WorkerProcess, expected: int, seconds: float = 180) -> float:
    """When the worker held this many open contributions, in seconds since the epoch."""
    address = re.search(
        r"metrics and health on (\S+?),? ", worker.wait_for_log("metrics and health on") + " "
    )
    assert address is not None
    deadline = time.time() + seconds
    while time.time() < deadline:
        with suppress(OSError), urllib.request.urlopen(f"{address[1]}/metrics", timeout=10) as answer:
            found = re.search(r"^eventveil_open_contributions\S* (\S+)$", answer.read().decode(), re.M)
            if found and float(found[1]) >= expected:
                return time.time()
        time.sleep(0.05)
    raise RuntimeError(
        f"the worker does not hold {expected} contributions:\n{worker.log.read_text()[-2000:]}"
    )
