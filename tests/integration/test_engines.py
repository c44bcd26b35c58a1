"""An engine that counts, and Eventveil behind it, both killed: what is released is what the events say."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.chaos.verifier import java_partition
from tests.kafka.jars import jars_of
from tests.kafka.topics import create_topic, read
from tests.worker.application import ORIGIN, Application
from tests.worker.process import ROOT, WorkerProcess
from tests.worker.waiting import until

EXAMPLE = ROOT / "examples" / "kafka-streams"
PAGES = ["home", "shop", "help", "nowhere"]
PARTITIONS, WINDOW = 2, 1000
_STAMPED = {"message.timestamp.type": "LogAppendTime"}
#: Less than a second of one core for each start, and no /tmp/hsperfdata.
JAVA = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Xmx256m"]

pytestmark = pytest.mark.skipif(shutil.which("javac") is None, reason="javac is missing")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of the example, compiled once; it takes a file of properties."""
    return [*compiled(EXAMPLE / "UniqueUsers.java", tmp_path_factory.mktemp("engine")), "UniqueUsers"]


def compiled(source: Path, folder: Path) -> list[str]:
    """Java with the class of an example, compiled into a folder, and the jars that its pom.xml names.

    RocksDB unpacks a library of 15 MB into Java's temporary folder, and leaves it there when it is killed.
    """
    jars, classes, temporary = jars_of(source.with_name("pom.xml")), folder / "classes", folder / "tmp"
    temporary.mkdir()
    subprocess.run(["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), str(source)], check=True)
    return [*JAVA, f"-Djava.io.tmpdir={temporary}", "-cp", f"{classes}:{jars}/*"]


def counting(kafka: str, folder: Path) -> Application:
    """An application behind the engine, with all topics."""
    application = Application(kafka, folder, interval=WINDOW, lateness=500, partitions=PARTITIONS)
    stream = application.document["streams"]["places"]
    stream["source"] = {
        "topic": application.source,
        "counts": "trusted",
        "column": "/page",
        "time": "/start",
        "count": "/users",
        "watermark": "/complete_until",
    }
    stream["counts"] = {"columns": PAGES[:-1], "unknown": "ignore"}
    application.write()
    application.create()
    for topic in ("events", "visits"):
        create_topic(kafka, f"{application.name}.{topic}", PARTITIONS, _STAMPED)
    return application


def properties(application: Application, folder: Path) -> Path:
    name = application.name
    settings = {
        "bootstrap.servers": application.bootstrap,
        "application.id": f"{name}-engine",
        "state.dir": str(folder / "engine"),
        "events": f"{name}.events",
        "visits": f"{name}.visits",
        "counts": application.source,
        "partitions": str(PARTITIONS),
        "window.ms": str(WINDOW),
        # So that what was killed is soon forgotten.
        "consumer.session.timeout.ms": "6000",
        "transaction.timeout.ms": "6000",
    }
    path = folder / "engine.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path


class Engine:
    """The engine as a process that can be killed."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command, self._log = command, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
        self._process.wait(30)


@contextmanager
def running(command: list[str], log: Path) -> Iterator[Engine]:
    engine = Engine(command, log)
    engine.start()
    try:
        yield engine
    finally:
        engine.kill()


def begin(application: Application) -> int:
    """Wait for the first timestamp that is whole for everybody; its start."""
    begun = (time.time_ns() // 1_000_000 // application.interval + 1) * application.interval
    time.sleep(max(0.0, begun / 1000 - time.time()))
    return begun


def visit(application: Application, seconds: float, rnd: random.Random) -> None:
    """Users look at pages for a while, some of them several times in a window, and at several."""
    producer = Producer({"bootstrap.servers": application.bootstrap, "partitioner": "murmur2_random"})
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(5):
            user = f"user-{rnd.randrange(40)}"
            value = json.dumps({"user": user, "page": rnd.choice(PAGES)})
            producer.produce(f"{application.name}.events", value, user)
        producer.flush(30)
        time.sleep(0.02)


def truth(application: Application) -> dict[int, Counter[str]]:
    """Users by window and page: each counts in the page that came first."""
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    seen = set()
    for partition in range(PARTITIONS):
        for message in read(application.bootstrap, f"{application.name}.events", partition=partition):
            event, time_ = json.loads(message.value() or b""), message.timestamp()[1]
            window = time_ - time_ % WINDOW
            if "user" in event and (event["user"], window) not in seen:
                assert java_partition(event["user"], PARTITIONS) == partition
                seen.add((event["user"], window))
                counts[window][event["page"]] += 1
    return counts


def released(application: Application) -> dict[int, Counter[str]]:
    """The counts of the sink, except for zeros, by the start of their timestamp, each released once."""
    found: dict[int, Counter[str]] = {}
    for records in application.releases().values():
        (record,) = records
        release = json.loads(record)
        start = ORIGIN + (release["timestamp"] - 1) * application.interval
        found[start] = Counter({page: count for page, count in release["counts"].items() if count})
    return found


def wait_until_released(application: Application, start: int) -> None:
    until(lambda: max(released(application), default=0) >= start)


def test_kafka_streams_counts_exactly_once_through_kills_of_both(
    kafka: str, engine: list[str], tmp_path: Path
) -> None:
    application, rnd = counting(kafka, tmp_path), random.Random(15)
    command = [*engine, str(properties(application, tmp_path))]
    worker = WorkerProcess("tests.worker.silent", application.path, tmp_path / "worker.log", "2")
    with running(command, tmp_path / "engine.log") as one, worker:
        begun, deadline = begin(application), time.monotonic() + 180
        while len(released(application)) < 4:
            visit(application, 0.7, rnd)
            assert time.monotonic() < deadline, (tmp_path / "engine.log").read_text()[-3000:]
        # In the midst of a window, of which it has counted a part.
        one.kill()
        visit(application, 2, rnd)
        one.start()
        worker.kill()
        worker.start()
        visit(application, 3, rnd)
        last = max(truth(application))
        wait_until_released(application, last)
        one.kill()
    expected, found = truth(application), released(application)
    for counts in expected.values():
        del counts["nowhere"]
    starts = [start for start in found if begun <= start <= last]
    assert len(starts) == (last - begun) // WINDOW + 1 > 5, "each timestamp has its release"
    assert {start: found[start] for start in starts} == {start: +expected[start] for start in starts}
    assert sum(sum(found[start].values()) for start in starts) > 100
    # Nothing that the engine had begun and not committed was taken, and nothing came too late.
    assert read(kafka, application.dead) == []
    assert application.command("ledger", str(application.path))
