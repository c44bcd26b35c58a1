"""kill -9, again and again: one release per timestamp, one draw, every count the truth."""

from __future__ import annotations

import random
import time
from pathlib import Path

from tests.kafka.topics import read
from tests.worker.application import Application, Traffic
from tests.worker.process import WorkerProcess
from tests.worker.waiting import settle

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
        settle(application)
        assert worker.running, log.read_text()

    report = application.verify()
    assert report.violations == []
    assert report.timestamps >= TIMESTAMPS
    assert report.produced == traffic.produced
    assert report.counted > 1000
    letters = [dict(message.headers() or []) for message in read(application.bootstrap, application.dead)]
    reasons = {letter["eventveil.reason"] for letter in letters}
    expected = (
        "tombstone not-json missing-field unknown-column time-unreadable wrong-partition late too-large"
    )
    assert reasons >= {reason.encode() for reason in (*expected.split(), "too-far-ahead")}
