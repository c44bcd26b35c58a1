"""A second broker beside a single-node Apache Kafka: partitions on it have no leader while it is down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eventveil.kafka.admin import Admin
from tests.kafka.broker import START_SECONDS, LocalBroker
from tests.kafka.ports import HOST

NODE = 2


class SecondBroker(LocalBroker):
    """A broker without a controller of its own, which joins the cluster of ``first``."""

    def __init__(self, directory: Path, first: LocalBroker) -> None:
        super().__init__(directory)
        self._first = first

    def start(self) -> None:
        """Return once the cluster knows it."""
        super().start()
        admin = Admin({"bootstrap.servers": self._first.bootstrap, "log_level": 0})
        deadline = time.monotonic() + START_SECONDS
        while NODE not in admin.list_topics(timeout=5).brokers:
            if time.monotonic() > deadline:
                raise TimeoutError("the second broker did not join")
            time.sleep(0.1)

    def _write_settings(self) -> None:
        super()._write_settings()
        theirs = _properties(self._first.directory / "server.properties")
        mine = _properties(self._settings) | {
            "process.roles": "broker",
            "node.id": str(NODE),
            "controller.quorum.voters": theirs["controller.quorum.voters"],
            "listeners": f"PLAINTEXT://{HOST}:{self.port}",
        }
        self._settings.write_text("".join(f"{key}={value}\n" for key, value in mine.items()))

    def _cluster_id(self) -> str:
        return _properties(self._first.directory / "data" / "meta.properties")["cluster.id"]


def _properties(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


@contextmanager
def second_broker(directory: Path, first: LocalBroker) -> Iterator[SecondBroker]:
    """A running second broker; stopped at the end."""
    broker = SecondBroker(directory, first)
    try:
        broker.start()
        yield broker
    finally:
        broker.release()
