"""Contenders in Java and Rust, built into ``.cache`` when ``make bench`` first asks for them.

Each gets its task as JSON, writes its counts as int64 to ``out``, and prints what they took, from the moment
at which it begins to read (Kafka Streams and Flink: from their first event), without the start of its engine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.throughput.events import Feed
from benchmarks.throughput.measuring import ROOT, Run, task_of
from tests.kafka.jars import BrokerError, jars_of
from tests.kafka.topics import create_topic, unique

HERE = Path(__file__).with_name("contenders")
_CACHE = ROOT / ".cache" / "contenders"
_SECONDS = 900
_JAVA = (
    "java", "-Xmx3g", "-XX:-UsePerfData",
    "--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED",
)  # fmt: skip


class NotHere(Exception):
    """A contender that cannot be built on this machine, and why."""


@dataclass(frozen=True)
class Foreign:
    """A contender: its name, how to get its command, which may raise NotHere, and the kinds that it reads."""

    name: str
    command: Callable[[], Sequence[str]]
    kinds: tuple[str, ...] = ("friendly", "messy")
    emits: bool = False

    def run(self, feed: Feed) -> Run:
        """Count a feed once. Raises NotHere, or RuntimeError with the end of what it said when it fails."""
        command = self.command()
        with tempfile.TemporaryDirectory(prefix="eventveil-bench-") as folder:
            out = Path(folder) / "counts"
            task, sizes = task_of(feed, str(out), range(feed.workload.partitions))
            emit = [create_topic(feed.bootstrap, unique("emit")), *map(str, sizes)] if self.emits else []
            done = _ended([*command, json.dumps(task), *emit])
            told = json.loads(done.splitlines()[-1])
            counts = np.fromfile(out, np.int64).reshape(feed.workload.timestamps, feed.workload.columns)
        return Run(told["cpu"], told["wall"], np.array_equal(counts, feed.workload.truth()))


def _ended(command: Sequence[str]) -> str:
    """What a command printed."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)[:200]} failed:\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def rust() -> list[str]:
    """The loop in Rust."""
    if shutil.which("cargo") is None:
        raise NotHere("cargo is missing")
    target = _CACHE / "rust"
    command = ["cargo", "build", "--quiet", "--release", "--locked", "--target-dir", str(target)]
    try:
        _ended([*command, "--manifest-path", str(HERE / "rust" / "Cargo.toml")])
    except RuntimeError as error:
        raise NotHere(str(error)) from None
    return [str(target / "release" / "contender")]


def java(folder: str, program: str) -> list[str]:
    """A program in a folder of its own, by the jars that the folder's pom.xml names."""
    if shutil.which("javac") is None:
        raise NotHere("javac is missing: install a JDK of Java 17 or newer")
    try:
        jars = jars_of(HERE / folder / "pom.xml")
    except BrokerError as error:
        raise NotHere(str(error)) from None
    classes = _CACHE / folder
    sources = [str(path) for path in (*(HERE / folder).glob("*.java"), HERE / "Task.java")]
    _ended(["javac", "-d", str(classes), "-cp", f"{jars}/*", *sources])
    return [*_JAVA, "-cp", os.pathsep.join((f"{jars}/*", str(classes))), program]


FOREIGN = (
    Foreign("Rust loop: librdkafka, sonic-rs", rust, ("friendly", "messy", "nested")),
    Foreign("Java consumer, Jackson", partial(java, "java", "Loop")),
    Foreign("Kafka Streams, exactly once", partial(java, "java", "Streams"), emits=True),
    Foreign("Flink, exactly once", partial(java, "flink", "Flink")),
)
