"""What a worker does before it works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from confluent_kafka import KafkaError, KafkaException

from eventveil.cli import run
from eventveil.model.errors import EventveilError, Unsettled
from eventveil.model.topology import Topology
from tests.unit.support import topology

MISSING = Unsettled("topics", "topic raw (source) does not exist", EventveilError("topic raw is missing"))


def looks(monkeypatch: pytest.MonkeyPatch, found: list[Unsettled | None]) -> list[float]:
    """Let looks at the topics find this, one after the other; returns the pauses, none of which lasts."""
    pauses: list[float] = []

    def look(_: Topology) -> Unsettled | None:
        return found.pop(0)

    monkeypatch.setattr(run, "check_surroundings", look)
    monkeypatch.setattr(run.time, "sleep", pauses.append)
    return pauses


def test_a_worker_waits_for_topics_that_a_broker_does_not_know_yet(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    pauses = looks(monkeypatch, [MISSING, MISSING, None])
    assert run._mistakes_that_stay(topology(), 30.0) is None
    assert pauses == [0.5, 1.0]
    assert (
        caplog.text.count("start delayed, retrying for up to 30 s: topics: topic raw (source) does not exist")
        == 1
    )
    assert caplog.text.count("start still delayed after 0 s, for the same reason") == 1


def test_a_worker_does_not_wait_for_topics_that_stay_away(monkeypatch: pytest.MonkeyPatch) -> None:
    looks(monkeypatch, [MISSING] * 3)
    assert run._mistakes_that_stay(topology(), 0.0) is MISSING.refusal


def inspecting(monkeypatch: pytest.MonkeyPatch, *answers: int | None) -> None:
    """Let inspections of the topics end with these errors of Kafka, one after the other; None is no error."""
    left = list(answers)

    def mistakes(_: Topology, __: object) -> list[str]:
        if (code := left.pop(0)) is not None:
            raise KafkaException(KafkaError(code))
        return []

    monkeypatch.setattr(run, "Cluster", lambda _: None)
    monkeypatch.setattr(run, "mistakes_of_topics", mistakes)
    monkeypatch.setattr(run.time, "sleep", lambda _: None)


def test_a_connection_that_is_lost_while_topics_are_inspected_stops_no_worker(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    inspecting(monkeypatch, KafkaError._DESTROY_BROKER, KafkaError._TIMED_OUT, None)
    assert run._mistakes_that_stay(topology(), 30.0) is None
    assert "retrying for up to 30 s: topics: they cannot be inspected" in caplog.text
    assert "_DESTROY_BROKER" in caplog.text
    inspecting(monkeypatch, *[KafkaError._TRANSPORT] * 3)
    assert "Are all brokers up?" in str(run._mistakes_that_stay(topology(), 0.0))


def test_a_missing_right_stops_a_worker_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    inspecting(monkeypatch, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        run._mistakes_that_stay(topology(), 30.0)


#: A worker that takes itself for the first process of a container, and waits for its topics for good.
WAITING = """
import os, time
from eventveil.cli import run
from tests.unit.support import topology
os.getpid = lambda: 1
run._mistakes_that_stay = lambda *_: (print("waiting", flush=True), time.sleep(60))
run.run_worker(topology(), lambda _: None)
"""


def test_the_first_process_of_a_container_ends_when_asked_before_it_works() -> None:
    with subprocess.Popen([sys.executable, "-c", WAITING], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waiting\n"
        begun = time.monotonic()
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(30) == 0
        assert time.monotonic() - begun < 30


def test_commands_that_are_logged_have_the_path_of_the_file() -> None:
    text = (
        "import logging; from eventveil.cli.run import configure_logging, log;"
        " configure_logging('info', 2, 'our shop.yaml');"
        " log.error('stopped: %s', 'run `eventveil migrate TOPOLOGY --apply`')"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stderr.endswith(
        " ERROR eventveil[2]: stopped: run `eventveil migrate 'our shop.yaml' --apply`\n"
    )
