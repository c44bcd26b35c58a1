"""kill -9, again and again: one release per timestamp, one draw, every count the truth."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

from tests.kafka.topics import read
from tests.worker.application import Application, Traffic
from tests.worker.process import WorkerProcess
from tests.worker.waiting import wait_for_releases

TIMESTAMPS = 300
KILLS = 10
SEED = 20130101


def test_ten_kills_in_300_timestamps_lose_nothing_double_nothing_and_draw_once(
    kafka: str, tmp_path: Path
) -> None:
    application = Application(kafka, tmp_path)
    application.create()
    chance = random.Random(SEED)
    length = TIMESTAMPS * application.interval / 1000
    moments = sorted(chance.uniform(2, length - 5) for _ in range(KILLS))
    log = tmp_path / "worker.log"
    with WorkerProcess("tests.worker.silent", application.path, log, "2") as worker:
        begin = time.monotonic()
        with Traffic(application, SEED) as traffic:
            for moment in moments:
                time.sleep(max(0.0, begin + moment - time.monotonic()))
                worker.kill()
                worker.start()
            time.sleep(max(0.0, begin + length - time.monotonic()))
        last = wait_for_releases(application, TIMESTAMPS, seconds=60)
        assert worker.running, log.read_text()

    assert_one_draw_each(application)
    releases = application.releases()
    first = min(releases)
    assert sorted(releases) == list(range(first, first + len(releases)))
    assert len(releases) >= TIMESTAMPS
    assert all(len(records) == 1 for records in releases.values())
    truth = application.truth(first=first)
    for timestamp in range(first, last + 1):
        counts = json.loads(releases[timestamp][0])["counts"]
        assert {column: count for column, count in counts.items() if count} == truth.get(timestamp, {}), (
            timestamp
        )
    assert sum(sum(counts.values()) for counts in truth.values()) > 1000
    assert_every_record_is_accounted_for(application, traffic.produced, truth, last)


def assert_one_draw_each(application: Application) -> None:
    """Also a reader that sees aborted records finds one value per timestamp only."""
    for records in application.releases("read_uncommitted").values():
        assert len(set(records)) == 1


def assert_every_record_is_accounted_for(
    application: Application, produced: int, truth: dict[int, object], last: int
) -> None:
    """Each dead letter once, with its reason; and no record both dead and counted."""
    letters = [dict(message.headers() or []) for message in read(application.bootstrap, application.dead)]
    places = [(letter["eventveil.partition"], letter["eventveil.offset"]) for letter in letters]
    assert len(places) == len(set(places))
    raw = application.raw()
    assert len(raw) == produced
    reasons = {letter["eventveil.reason"] for letter in letters}
    expected = "tombstone not-json missing-field unknown-column time-unreadable wrong-partition late"
    assert reasons >= {reason.encode() for reason in (*expected.split(), "too-far-ahead")}
