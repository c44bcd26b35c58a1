"""What a busy machine takes long for is waited for."""

from __future__ import annotations

import pytest

from eventveil.live import sink_tail


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first who looks waits until the sinks were read, however long that takes."""
    monkeypatch.setattr(sink_tail, "_FIRST_SECONDS", 60.0)
