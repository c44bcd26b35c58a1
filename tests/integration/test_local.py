"""Local reports on a real broker: one threshold, asked for once, and every report counted once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from eventveil.local import Control, Hybrid
from eventveil.local.control import purpose, reports
from eventveil.model.timeline import start_of
from eventveil.replay.inputs import TopicInput
from eventveil.replay.run import replay
from eventveil.topology.loading import load
from tests.kafka.topics import produce, read
from tests.unit.local.streams import SeededRandomness
from tests.worker.application import ORIGIN, Application
from tests.worker.process import WorkerProcess
from tests.worker.silent import Silence
from tests.worker.taking_over import refusals
from tests.worker.waiting import wait_for_releases

EPSILON, MAXIMUM, AFTER = Fraction(2), 200, 400
INTERVAL, LATENESS = 500, 5000
GRID = frozenset(reports(EPSILON, MAXIMUM))
ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "docs" / "examples" / "stays.py")


class Reports(Application):
    """An application with one stream of local reports, ``stays``, and its producers."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        super().__init__(bootstrap, folder, interval=INTERVAL, lateness=LATENESS, max_ahead=2000)
        stream = self.stream(
            self.source, self.sink, {"kind": "topl", "epsilon": "2", "estimate_after": AFTER, "range": 5000}
        )
        del stream["counts"], stream["source"]["column"]
        stream["source"] |= {"user": "/device", "report": "/report", "time": "/at"}
        stream["values"] = {"maximum": MAXIMUM}
        self.document["streams"] = {"stays": stream}
        self.write()
        created = self.command("topics", str(self.path), "--create", "--sources")
        self.first = int(created.rpartition("it begins with timestamp ")[2].split()[0])
        self.control = f"{self.name}-control"
        self._users, self._randomness = count(), SeededRandomness(1)
        self._producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})

    def asked(self, **isolation: Any) -> list[bytes]:
        """What producers were asked for, the last word at the end."""
        return [one.value() or b"" for one in read(self.bootstrap, self.control, **isolation)]

    def wait_until_asked_for(self, phase: str, seconds: float = 180) -> Control:
        """What a producer finds once it is asked for reports of this phase."""
        deadline = time.monotonic() + seconds
        while not (asked := self.asked()) or json.loads(asked[-1])["phase"] != phase:
            assert time.monotonic() < deadline, asked
            time.sleep(0.2)
        return Control.read(asked[-1], EPSILON)

    def send(self, reports: Iterable[str], timestamp: int | None = None, copies: int = 1) -> None:
        """Each of a user who has sent none before; by default in the timestamp of now."""
        for report in reports:
            device = f"device{next(self._users)}"
            now = time.time_ns() // 1_000_000
            at = now if timestamp is None else ORIGIN + (timestamp - 1) * INTERVAL
            event = json.dumps({"device": device, "report": report, "at": at}).encode()
            for _ in range(copies):
                self._producer.produce(self.source, value=event, key=device.encode())
        assert self._producer.flush(30) == 0

    def let_the_example_send(self, minutes: Iterable[int]) -> None:
        """A report of each, by docs/examples/stays.py, in a process of its own."""
        lines = "".join(f"visitor{number} {one}\n" for number, one in enumerate(minutes))
        subprocess.run(
            [sys.executable, EXAMPLE, str(EPSILON), self.control, "stays", self.source],
            input=lines.encode(),
            env={**os.environ, "KAFKA_BOOTSTRAP": self.bootstrap, "PYTHONPATH": str(ROOT)},
            check=True,
            timeout=180,
        )

    def sent(self) -> dict[int, list[str]]:
        """The reports that must count, by timestamp: one per device, of those on the public grid."""
        found: defaultdict[int, dict[str, str]] = defaultdict(dict)
        for record in self.raw():
            event = json.loads(record.value or b"")
            if event["report"] in GRID:
                found[(milliseconds(event["at"]) - ORIGIN) // INTERVAL + 1][event["device"]] = event["report"]
        return {timestamp: list(devices.values()) for timestamp, devices in found.items()}

    def made(self, asked: Control, values: Iterable[int]) -> Iterator[str]:
        return (asked.report(value, self._randomness) for value in values)


def milliseconds(at: int | str) -> int:
    return at if isinstance(at, int) else round(datetime.fromisoformat(at).timestamp() * 1000)


#: In turn: before the threshold is durable, before and within the transaction that makes it public.
DEATHS = ("decide:before-commit:1", "decide:committed:1", "publish:before-commit:1", "publish:produced:3")


def test_killed_around_the_threshold_a_stream_has_one_and_counts_every_report_once(
    kafka: str, tmp_path: Path
) -> None:
    application, log = Reports(kafka, tmp_path), tmp_path / "worker.log"
    begins = (ORIGIN + (application.first - 1) * INTERVAL) / 1000
    time.sleep(max(0.0, begins - time.time()))
    # All in the first timestamp, so that the first thing to be decided is the threshold.
    first = Control("stays", EPSILON, MAXIMUM)
    values = [10 + value % 40 for value in range(AFTER + 20)]
    application.send(application.made(first, values), application.first)
    for death in DEATHS:
        with WorkerProcess("tests.worker.quick", application.path, log, "2", death) as worker:
            assert worker.wait() == -9, log.read_text()
    with WorkerProcess("tests.worker.quick", application.path, log, "2") as worker:
        asked = application.wait_until_asked_for("sums")
        for _ in range(3):
            application.send(application.made(asked, range(60)))
            time.sleep(INTERVAL / 1000)
        worker.kill()
        worker.start()
        # A producer that has not looked, one that looked elsewhere, one that was asked twice, and others.
        application.send(application.made(first, [1, 2, 3]))
        other = next(one for one in (12, 13) if one != asked.threshold)
        application.send(application.made(Control("stays", EPSILON, MAXIMUM, other), [1, 2]))
        application.send(application.made(asked, [7]), copies=2)
        application.send(
            [
                f"{purpose(EPSILON, MAXIMUM, 17)}/0",
                f"{purpose(EPSILON, MAXIMUM, asked.threshold)}/9999",
                f"{purpose(EPSILON / 2, MAXIMUM, None)}/1",
                "",
            ]
        )
        application.let_the_example_send(range(60))
        last = max(sent := application.sent())
        wait_for_releases(application, last - application.first + 1)
        assert worker.running, log.read_text()

    # One threshold, also for readers of records of aborted transactions, of which there were some.
    asked_for = Counter(application.asked(isolation="read_uncommitted"))
    assert set(asked_for) == {first.encode(), asked.encode()}
    assert asked_for[asked.encode()] >= 2, "no transaction with the threshold was aborted"
    assert Counter(application.asked()) == {first.encode(): 1, asked.encode(): 1}
    assert 40 <= (asked.threshold or 0) <= 64

    releases = {timestamp: json.loads(one) for timestamp, (one,) in application.releases().items()}
    assert sum(map(len, sent.values())) == AFTER + 20 + 3 * 60 + 3 + 2 + 1 + 60
    for timestamp in range(application.first, last + 1):
        check_release(
            releases[timestamp], sent.get(timestamp, []), asked, is_first=timestamp == application.first
        )
    letters = [dict(one.headers() or [])["eventveil.reason"] for one in read(kafka, application.dead)]
    assert letters == [b"unknown-column"] * 4

    replayed_is_released(application, last)
    audit = application.audit()
    assert f"threshold: {asked.threshold}, the only one" in audit
    assert "violation" not in audit
    a_second_threshold_is_found(application, Control("stays", EPSILON, MAXIMUM, other))


def check_release(release: dict[str, Any], sent: list[str], asked: Control, *, is_first: bool) -> None:
    """Against what was sent, worked out from the texts of the reports."""
    phase = "distribution" if is_first else "sums"
    kind = f"{purpose(EPSILON, MAXIMUM, None if is_first else asked.threshold)}/"
    own = [int(one.removeprefix(kind)) for one in sent if one.startswith(kind)]
    hybrid = asked.mechanism
    assert isinstance(hybrid, Hybrid)
    total = 0 if is_first else round(sum(map(hybrid.estimate, own), Fraction(0)))
    assert release["counts"] == {"sum": total, "reports": len(own), "unused": len(sent) - len(own)}
    assert (release["phase"], release["threshold"]) == (phase, asked.threshold)


def replayed_is_released(application: Reports, last: int) -> None:
    topology = load(str(application.path), os.environ)
    (stream,) = topology.streams
    replayed = replay(
        topology,
        TopicInput(topology.kafka, application.source),
        start=start_of(stream.timeline, application.first),
        end=start_of(stream.timeline, last + 1),
        noise=lambda _: Silence(),
    )
    records = {one.timestamp: [one.record] for one in replayed}
    live = application.releases()
    assert records == {timestamp: live[timestamp] for timestamp in range(application.first, last + 1)}


def a_second_threshold_is_found(application: Reports, second: Control) -> None:
    assert refusals(application.path) == []
    produce(application.bootstrap, application.control, [second.encode()], key=b"stays")
    assert "it is a second threshold of the stream" in application.failing_command(
        "ledger", str(application.path)
    )
    (refusal,) = refusals(application.path)
    assert "producers of stream stays were asked for" in refusal
    assert "rewound" in refusal
