"""kill -9, again and again: one release per timestamp, one draw, every count the truth."""

from __future__ import annotations

import json
import random
import time
from itertools import cycle
from pathlib import Path

import pytest

from eventveil.process import kernel
from tests.kafka.topics import read
from tests.worker.application import Application, Traffic
from tests.worker.process import WorkerProcess
from tests.worker.waiting import settle, wait_for_releases

TIMESTAMPS = 300
KILLS = 10
SEED = 20130101
SUBSTITUTE = {"kind": "uniform", "epsilon": 1, "window": 10, "adjacency": "substitute"}


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


@pytest.mark.parametrize("switches", ["on", "off on off on"])
def test_several_contributions_and_substitute_survive_kills_with_their_sensitivity(
    kafka: str, tmp_path: Path, switches: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the compiled kernel, and with workers that have it and have it not in turns."""
    turns = cycle(switches.split())
    monkeypatch.setenv(kernel.SWITCH, next(turns))
    application = Application(kafka, tmp_path, mechanism=SUBSTITUTE)
    application.document["streams"]["places"]["counts"]["contributions"] = 3
    application.write()
    application.create()
    with WorkerProcess("tests.worker.silent", application.path, tmp_path / "worker.log", "2") as worker:
        with Traffic(application, SEED):
            for seconds in (5, 4, 3):
                time.sleep(seconds)
                worker.kill()
                monkeypatch.setenv(kernel.SWITCH, next(turns))
                worker.start()
            time.sleep(3)
        last = wait_for_releases(application, 60)
    log = (tmp_path / "worker.log").read_text()
    off = 4 if kernel.NATIVE is None else 2 * ("off" in switches)
    assert log.count("events are read in plain Python") == off
    assert log.count("events are read by the compiled kernel") == 4 - off
    draws = application.releases("read_uncommitted").values()
    assert all(len(set(records)) == 1 for records in draws)
    releases = application.releases()
    assert sorted(releases) == list(range(min(releases), max(releases) + 1))
    truth = application.truth(first=min(releases), contributions=3)
    for timestamp in range(min(releases), last + 1):
        counts = json.loads(releases[timestamp][0])["counts"]
        assert {name: count for name, count in counts.items() if count} == truth.get(timestamp, {}), timestamp
    assert truth != application.truth(first=min(releases))
    assert settings_of_the_mechanism(application)["sensitivity"] == 6


def settings_of_the_mechanism(application: Application) -> dict[str, object]:
    """What the worker's budget state says that its noise was made for."""
    states = [
        json.loads(message.value() or b"")
        for partition in range(2)
        for message in read(
            application.bootstrap, f"{application.name}-ledger-changelog", partition=partition
        )
        if message.key() == b"places"
    ]
    settings = json.loads(states[-1]["mechanism"])["settings"]
    assert isinstance(settings, dict)
    return settings


def test_a_bound_of_each_column_survives_kills_with_its_sensitivity(kafka: str, tmp_path: Path) -> None:
    mechanism = {**SUBSTITUTE, "noise": "gaussian", "delta": 1e-6}
    application = Application(kafka, tmp_path, mechanism=mechanism)
    application.document["streams"]["places"]["counts"].update(contributions=3, per_column=2)
    application.write()
    application.create()
    with WorkerProcess("tests.worker.silent", application.path, tmp_path / "worker.log", "2") as worker:
        with Traffic(application, SEED):
            for seconds in (4, 3):
                time.sleep(seconds)
                worker.kill()
                worker.start()
            time.sleep(3)
        last = wait_for_releases(application, 40)
    releases = application.releases()
    truth = application.truth(first=min(releases), contributions=3, per_column=2)
    for timestamp in range(min(releases), last + 1):
        counts = json.loads(releases[timestamp][0])["counts"]
        assert {name: count for name, count in counts.items() if count} == truth.get(timestamp, {}), timestamp
    assert truth != application.truth(first=min(releases), contributions=3)
    # 2 (2^2 + 1^2), for two histories.
    assert settings_of_the_mechanism(application)["squared_sensitivity"] == 10
