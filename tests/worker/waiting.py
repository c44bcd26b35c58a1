"""Waiting for what a worker does."""

from __future__ import annotations

import time

from tests.worker.application import Application


def wait_for_releases(
    application: Application, count: int, seconds: float = 60, sink: str | None = None
) -> int:
    """Wait until ``count`` timestamps are in the sink; the last one is returned."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        releases = application.releases(sink=sink)
        if len(releases) >= count:
            return max(releases)
        time.sleep(0.3)
    raise TimeoutError(f"only {len(releases)} of {count} releases")
