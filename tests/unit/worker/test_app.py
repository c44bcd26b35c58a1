"""What a worker asks of its consumer group."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from eventveil.model.records import TopicPartition
from eventveil.worker import app
from eventveil.worker.observe.observation import Hold, PartitionView
from tests.unit.support import topology


@pytest.mark.parametrize(("member", "seconds"), [(None, 10.0), ("a", 30.0)])
def test_a_worker_with_a_name_has_longer_to_come_back(
    member: str | None, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("Cluster", "Owners"):
        monkeypatch.setattr(app, name, MagicMock())
    worker = app.Worker(topology(), member=member)
    assert (worker.member, worker.session_timeout) == (member, seconds)


def test_a_clock_that_is_behind_is_one_line_however_many_partitions_there_are(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("Cluster", "Owners"):
        monkeypatch.setattr(app, name, MagicMock())
    worker = app.Worker(topology())
    caplog.set_level("INFO", "eventveil.worker.app")

    def look(behind: int, untimed: bool = False) -> None:
        views = {
            TopicPartition("raw", number): PartitionView(5, 5, False, {}, behind=behind, untimed=untimed)
            for number in range(3)
        }
        worker.observation.look(views, 1.0, 0)

    holds: dict[TopicPartition, Hold] = {}
    for behind in (0, 3_600_000, 3_600_000, 0):
        look(behind)
        holds = worker._tell_holds(holds)
    behind_it, right = caplog.messages
    assert behind_it.startswith("the clock of this machine is at least 1h behind the brokers'")
    assert "NTP" in behind_it
    assert right == "the clock of this machine is no longer behind the brokers'"
    look(0, untimed=True)
    worker._tell_holds({})
    assert len(caplog.messages) == 5, "one for each partition"
