"""What a worker asks of its consumer group."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from eventveil.worker import app
from tests.unit.support import topology


@pytest.mark.parametrize(("member", "seconds"), [(None, 10.0), ("a", 30.0)])
def test_a_worker_with_a_name_has_longer_to_come_back(
    member: str | None, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("Cluster", "Owners"):
        monkeypatch.setattr(app, name, MagicMock())
    worker = app.Worker(topology(), member=member)
    assert (worker.member, worker.session_timeout) == (member, seconds)
