"""One worker through very many timestamps, and what it takes: memory, changelogs, time to restore."""

from __future__ import annotations

import json
import re
import signal
import statistics
import threading
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from eventveil.kafka.log import read_partition
from eventveil.model.timeline import first_whole_timestamp, start_of
from eventveil.topology.loading import load
from tests.kafka.broker import LocalBroker
from tests.kafka.topics import read, read_to_end, unique
from tests.worker.accelerated import accelerated
from tests.worker.application import COLUMNS, Application
from tests.worker.process import WorkerProcess

INTERVAL = 250
PARTITIONS, PARTIALS = 3, 2
#: Every this many timestamps have events, of as many users.
_TRAFFIC_EVERY, _USERS = 10, 5
#: Events are written so long, in seconds, before the fast clock reaches their timestamp.
_LEAD_SECONDS = 3.0
#: Milliseconds that the worker's clock may be ahead of the broker's, as long as both run as fast.
_CLOCK_SKEW = 100
_SAMPLE_SECONDS = 0.5
#: Minutes instead of hours: small segments, cleaned as soon as they are closed.
_COMPACTION = {
    "segment.bytes": str(1024 * 1024),
    "segment.ms": "5000",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "5000",
    # Of the markers of transactions too, which a day of by default outnumbers everything else.
    "delete.retention.ms": "1000",
}
_LOG_TIME = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3})")


@dataclass(frozen=True, slots=True)
class Sample:
    """After ``seconds``: timestamps released, resident memory and size of both changelogs, in bytes."""

    seconds: float
    released: int
    memory: int
    changelogs: int


@dataclass(frozen=True, slots=True)
class Restart:
    """A graceful stop after ``released`` timestamps, and the start that followed.

    ``records`` counts what is left in both changelogs. ``seconds`` is from the start of the process to owning
    everything, ``take_over`` the part after the group's assignment.
    """

    released: int
    records: int
    seconds: float
    take_over: float


class LongRun(AbstractContextManager["LongRun"]):
    """A stream that begins ``behind`` timestamps ago, and a clock that passes ``rate`` of them a second.

    With ``rate`` None the clock is that of the wall, and nobody sends events: what is to be done is to catch
    up. Otherwise every tenth timestamp has events.
    """

    def __init__(
        self,
        broker: LocalBroker,
        folder: Path,
        *,
        mechanism: dict[str, object],
        behind: int = 0,
        rate: float | None = None,
    ) -> None:
        self._data, self._folder = broker.directory / "data", folder
        self._speed = 1.0 if rate is None else rate * INTERVAL / 1000
        self.application = application = Application(
            broker.bootstrap, folder, interval=INTERVAL, partitions=PARTITIONS, mechanism=mechanism
        )
        self._anchor = int(time.time() * 1000)
        start = datetime.fromtimestamp((self._anchor - behind * INTERVAL) / 1000, UTC)
        timeline = application.document["streams"]["places"]["timeline"]
        # The broker appends by the wall's clock, of which the fast one is months ahead in the end. A request
        # of a millisecond takes as many of the fast clock as that is faster.
        skew = f"{round(_CLOCK_SKEW * self._speed)}ms"
        begin = start.isoformat(timespec="milliseconds")
        timeline |= {"start": begin, "max_ahead": "365d", "clock_skew": skew}
        application.write()
        application.create()
        for topic in self._changelogs:
            application.alter(topic, _COMPACTION)
        topology = load(str(application.path), {})
        self._kafka, self._timeline = topology.kafka, topology.streams[0].timeline
        self.first = first_whole_timestamp(self._timeline, self._anchor)
        self.samples: list[Sample] = []
        self.restarts: list[Restart] = []
        self._traffic = rate is not None
        self._begun = 0.0
        self._done = threading.Event()
        self._threads: list[threading.Thread] = []
        self._starts = 0
        self._worker: WorkerProcess
        self._sink = _Tail(broker.bootstrap, application.sink)

    @property
    def _changelogs(self) -> list[str]:
        return [f"{self.application.name}-{role}-changelog" for role in ("counting", "ledger")]

    def _places(self) -> list[tuple[str, int]]:
        """The partitions of the changelogs."""
        return [
            (topic, partition)
            for topic, partitions in zip(self._changelogs, (PARTITIONS, PARTIALS), strict=True)
            for partition in range(partitions)
        ]

    def _folder_of(self, topic: str, partition: int) -> Path:
        return self._data / f"{topic}-{partition}"

    def _make_worker(self) -> WorkerProcess:
        self._starts += 1
        log = self._folder / f"{self.application.name}-{self._starts}.log"
        arguments = str(self._anchor), str(self._speed)
        return WorkerProcess("tests.worker.accelerated", self.application.path, log, *arguments)

    def __enter__(self) -> LongRun:
        self._begun = time.monotonic()
        works = [self._sample, self._produce] if self._traffic else [self._sample]
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]
        self.start()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()
        self._worker.__exit__(*error)

    def start(self) -> tuple[float, float]:
        """Start a worker; seconds until it owns everything, and how many of them the take-over took."""
        begun = time.monotonic()
        self._worker = self._make_worker()
        self._worker.start()
        log = ""
        while log.count(" owns ") < PARTITIONS + 1:  # the one stream is in one partition of the partials
            log = self._worker.wait_for_log(" owns ")
            time.sleep(0.02)
        seconds = time.monotonic() - begun
        times = [
            datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S,%f")
            for line in log.splitlines()
            if (" owns " in line or " assigned " in line) and (match := _LOG_TIME.match(line))
        ]
        return seconds, (max(times) - min(times)).total_seconds()

    @property
    def released(self) -> int:
        """How many timestamps are released."""
        return self._sink.last() - self.first + 1

    def run_until(self, count: int, seconds: float) -> float:
        """Wait until ``count`` timestamps are released; the seconds since the worker was first started."""
        deadline = time.monotonic() + seconds
        while (released := self.released) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"only {released} of {count} timestamps after {seconds} s")
            if not self._worker.running:
                raise RuntimeError(f"the worker has ended:\n{self._worker.log.read_text()[-2000:]}")
            time.sleep(0.1)
        return time.monotonic() - self._begun

    def stop(self) -> None:
        """Stop the worker gracefully."""
        self._worker.signal(signal.SIGTERM)
        self._worker.wait()

    def restart(self) -> Restart:
        """Stop the worker gracefully and start another one."""
        self.stop()
        released = self.released
        records = sum(
            len(read(self.application.bootstrap, topic, partition=partition))
            for topic, partition in self._places()
        )
        seconds, take_over = self.start()
        self.restarts.append(Restart(released, records, seconds, take_over))
        return self.restarts[-1]

    def live_bytes(self) -> int:
        """Bytes of all that the changelogs have to keep, however much of the rest is cleaned away by now."""
        return sum(
            live_bytes((message.key(), message.value()) for message in records)
            for topic, partition in self._places()
            for records, _ in [read_to_end(self.application.bootstrap, topic, "read_committed", partition)]
        )

    def closed_bytes(self) -> int:
        """Bytes on disk of the changelogs' closed segments: brokers clean no other."""
        return sum(
            sum(map(_size, sorted(self._folder_of(topic, partition).glob("*.log"))[:-1]))
            for topic, partition in self._places()
        )

    def wait_until_cleaned(self, most: int, seconds: float) -> None:
        """Wait until the closed segments have at most ``most`` bytes. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while (found := self.closed_bytes()) > most:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{found} bytes in the closed segments of the changelogs, not {most}")
            time.sleep(_SAMPLE_SECONDS)

    def is_gapless(self) -> bool:
        """Whether the sink has every timestamp once and in order, from the first to the last."""
        following = self.first
        for message in read_partition(self._kafka, self.application.sink, 0):
            if json.loads(message.value() or b"")["timestamp"] != following:
                return False
            following += 1
        return following > self.first

    def _sample(self) -> None:
        while not self._done.wait(_SAMPLE_SECONDS):
            memory = _memory(self._worker)
            if memory:
                self.samples.append(
                    Sample(time.monotonic() - self._begun, self.released, memory, self._changelog_bytes())
                )

    def _changelog_bytes(self) -> int:
        return sum(
            _size(file)
            for topic, partition in self._places()
            for file in self._folder_of(topic, partition).glob("*.log")
        )

    def _produce(self) -> None:
        """Send the events of every tenth timestamp, before the worker's clock can close it."""
        producer = Producer(
            {"bootstrap.servers": self.application.bootstrap, "partitioner": "murmur2_random", "linger.ms": 5}
        )
        following = self.first + _TRAFFIC_EVERY - self.first % _TRAFFIC_EVERY
        while not self._done.wait(0.05):
            ahead = self._speed * _LEAD_SECONDS * 1000
            while start_of(self._timeline, following) <= accelerated(self._anchor, self._speed) + ahead:
                time_of_events = start_of(self._timeline, following)
                for number in range(_USERS):
                    user = f"user {following % 1000} {number}"
                    event = {"user": user, "place": COLUMNS[number % len(COLUMNS)], "time": time_of_events}
                    producer.produce(self.application.source, json.dumps(event), user)
                    producer.poll(0)
                following += _TRAFFIC_EVERY
        assert producer.flush(30) == 0


class _Tail:
    """The last timestamp in a sink."""

    def __init__(self, bootstrap: str, sink: str) -> None:
        self._place = TopicPartition(sink, 0)
        self._lock = threading.Lock()
        self._last = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": unique("tail"),
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
            }
        )

    def last(self) -> int:
        """The highest timestamp, 0 if there is none."""
        with self._lock:
            low, high = self._consumer.get_watermark_offsets(self._place, timeout=30)
            # The last offsets may be control markers.
            self._consumer.assign([TopicPartition(self._place.topic, 0, max(low, high - 20))])
            for message in self._consumer.consume(20, 0.2):
                if message.error() is None:
                    self._last = max(self._last, json.loads(message.value() or b"")["timestamp"])
            return self._last


def _memory(worker: WorkerProcess) -> int:
    """Resident memory of a process in bytes, 0 if it has ended (Linux only)."""
    try:
        status = Path(f"/proc/{worker.process.pid}/status").read_text()
    except FileNotFoundError:
        return 0
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # cleaned away meanwhile
        return 0


def live_bytes(records: Iterable[tuple[bytes | None, bytes | None]]) -> int:
    """Bytes of what compaction leaves of a partition, by keys and values in the order of its offsets.

    That is the last record of each key, even if its value is null: what a broker deletes in the end it keeps
    for a day by default. It is the same before, while and after the broker cleans.
    """
    last = dict(records)
    return sum(len(key or b"") + len(value or b"") for key, value in last.items())


def halves(samples: list[Sample], first: int, last: int) -> tuple[list[Sample], list[Sample]]:
    """The samples between two numbers of released timestamps, the early and the late half of them."""
    middle = (first + last) // 2
    chosen = [sample for sample in samples if first <= sample.released <= last]
    return (
        [sample for sample in chosen if sample.released < middle],
        [sample for sample in chosen if sample.released >= middle],
    )


def median_memory(samples: list[Sample]) -> float:
    """The median of the resident memory in bytes."""
    return statistics.median(sample.memory for sample in samples)


def hasten_cleaner(bootstrap: str) -> None:
    """Let the broker's log cleaner look for work every second, not every 15 s."""
    entry = ConfigEntry("log.cleaner.backoff.ms", "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)
