"""What a worker does before it works."""

from __future__ import annotations

import pytest

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
    pauses = looks(monkeypatch, [MISSING, MISSING, None])
    assert run._mistakes_that_stay(topology(), 30.0) is None
    assert pauses == [0.5, 1.0]
    assert caplog.text.count("not started yet: topics: topic raw (source) does not exist") == 2


def test_a_worker_does_not_wait_for_topics_that_stay_away(monkeypatch: pytest.MonkeyPatch) -> None:
    looks(monkeypatch, [MISSING] * 3)
    assert run._mistakes_that_stay(topology(), 0.0) is MISSING.refusal
