"""What a busy machine takes long for is waited for."""

from __future__ import annotations

import pytest

from eventveil.live import following


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first who looks waits until the sinks were read, however long that takes."""
    monkeypatch.setattr(following, "_FIRST_SECONDS", 60.0)
