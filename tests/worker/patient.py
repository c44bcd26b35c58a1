"""``eventveil run`` with a long session: ``python -m tests.worker.patient [OPTION]... TOPOLOGY``.

On a busy machine a restart may take longer than the session of 30 seconds that a worker with a name has,
after which the group rightly gives its partitions to others. All else is the program's own, heartbeats too.
"""

from __future__ import annotations

import sys
from typing import Any
from unittest.mock import patch

import aiokafka

from eventveil.cli.main import main

_SESSION_MS = 180_000


class Patient(aiokafka.AIOKafkaConsumer):  # type: ignore[misc]
    """A consumer that the group waits for."""

    def __init__(self, **settings: Any) -> None:
        longer = {"session_timeout_ms": _SESSION_MS, "rebalance_timeout_ms": _SESSION_MS}
        super().__init__(**settings | longer)


if __name__ == "__main__":
    with patch.object(aiokafka, "AIOKafkaConsumer", Patient):
        main(["run", *sys.argv[1:]])
