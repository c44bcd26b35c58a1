"""A worker that holds as much as it may stops as a whole; the next one counts what it held."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

from confluent_kafka import Producer

from eventveil.process.memory import format_size
from tests.worker.application import COLUMNS, ORIGIN, Application
from tests.worker.checks import SILENT
from tests.worker.process import WorkerProcess
from tests.worker.waiting import settle

USERS, LENGTH, ROOM = 100_000, 1_900, 128 * 2**20


def test_a_worker_stops_at_its_memory_limit_and_the_next_one_counts_every_event_once(
    kafka: str, tmp_path: Path
) -> None:
    # So late that a busy machine has time to write all events.
    application = Application(kafka, tmp_path, interval=2_000, lateness=40_000, max_ahead=6_000, partitions=1)
    application.create()
    limit = resident_when_idle(application, tmp_path) + ROOM
    produce(application)
    for number in range(2):
        with limited(application, tmp_path, f"small-{number}", limit) as small:
            assert small.wait() == 75
        told = small.log.read_text()
        assert f"the memory limit of {format_size(limit)} (--memory-limit) is reached" in told
        # How much of it was counted by then, and how much on its way, is a matter of time.
        assert re.search(r"Held: places: .* open contributions, .* distinct users", told)
        assert "Raise the limit" in told
    assert not any(counts_by_timestamp(application).values())
    with limited(application, tmp_path, "large", 20 * limit):
        settle(application, 150)
    found = counts_by_timestamp(application)
    assert list(found) == list(range(min(found), max(found) + 1))
    assert [counts for counts in found.values() if counts] == [dict.fromkeys(COLUMNS, USERS // 4)]


def counts_by_timestamp(application: Application) -> dict[int, dict[str, int]]:
    """What was released, zeros left out; every timestamp at most once."""
    found: dict[int, dict[str, int]] = {}
    for timestamp, (record,) in application.releases().items():
        counts = json.loads(record)["counts"]
        found[timestamp] = {column: count for column, count in counts.items() if count}
    return found


def resident_when_idle(application: Application, tmp_path: Path) -> int:
    """Bytes that a worker takes which owns everything and has nothing to do."""
    with limited(application, tmp_path, "idle", 2**50) as idle:
        while idle.wait_for_log("owns").count("owns") < application.partitions + 1:
            time.sleep(0.1)
        time.sleep(1)
        pages = Path(f"/proc/{idle.process.pid}/statm").read_text().split()[1]
    return int(pages) * 4096


def limited(application: Application, tmp_path: Path, name: str, limit: int) -> WorkerProcess:
    return WorkerProcess(SILENT, application.path, tmp_path / f"{name}.log", "3", str(limit))


def produce(application: Application) -> None:
    """One event each of users with long names, all at a timestamp that is still to come."""
    producer = Producer(
        {
            "bootstrap.servers": application.bootstrap,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "compression.type": "zstd",
            "queue.buffering.max.messages": USERS,
            "log_level": 0,
        }
    )
    at = time.time_ns() // 1_000_000
    timestamp_start = at - (at - ORIGIN) % application.interval + application.interval
    for number in range(USERS):
        user = f"user {number} ".ljust(LENGTH, "x")
        event = {"user": user, "place": COLUMNS[number % 4], "time": timestamp_start}
        producer.produce(application.source, json.dumps(event), user)
    assert producer.flush(60) == 0
