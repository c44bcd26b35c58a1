"""Where the demo's Kafka comes from, and its topics there."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.kafka.broker import local_broker
from tests.kafka.jars import missing_tools

_SECONDS = 20.0


class NoKafka(Exception):
    """There is no Kafka for the demo; the message says what to do."""


def choose(wanted: str | None) -> str:
    """What is wanted, else ``local`` or ``docker``, whatever this machine can do. Raises NoKafka."""
    if wanted == "docker" and not _docker_engine():
        raise NoKafka("KAFKA=docker: no Docker engine answers; see `docker info`")
    if wanted:
        if wanted in {"local", "docker"} or re.fullmatch(r"[^\s:]+:\d+", wanted):
            return wanted
        raise NoKafka(f"KAFKA={wanted}: say local, docker or host:port")
    missing = missing_tools()
    if not missing:
        return "local"
    if _docker_engine():
        return "docker"
    raise NoKafka(
        "The demo needs Apache Kafka, in one of three ways:\n"
        + "".join(f"  {remedy}\n" for remedy in missing)
        + "  or start a Docker engine\n  or name a cluster to try it on: make demo KAFKA=host:port"
    )


@contextmanager
def running_kafka(choice: str, directory: Path, name: str) -> Iterator[str]:
    """The bootstrap address of a Kafka in which names that begin with ``name`` are the demo's own.

    Its own broker or container ends with the demo; on another's, the demo's topics are deleted.
    """
    if choice == "local":
        with local_broker(directory=directory / "kafka") as broker:
            yield broker.bootstrap
    elif choice == "docker":
        # Only here, so that a machine without Docker needs nothing of it.
        from tests.kafka.container import container_broker

        with container_broker() as bootstrap:
            yield bootstrap
    else:
        _expect_broker(choice)
        try:
            yield choice
        finally:
            _delete_topics(choice, name)


def _docker_engine() -> bool:
    if shutil.which("docker") is None:
        return False
    asked = subprocess.run(["docker", "info"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return asked.returncode == 0


def _expect_broker(bootstrap: str) -> None:
    try:
        _admin(bootstrap).list_topics(timeout=_SECONDS)
    except KafkaException as error:
        raise NoKafka(f"no Kafka answers at {bootstrap}: {error}") from None


def _delete_topics(bootstrap: str, name: str) -> None:
    admin = _admin(bootstrap)
    topics = [topic for topic in admin.list_topics(timeout=_SECONDS).topics if topic.startswith(name)]
    if topics:
        for deleted in admin.delete_topics(topics, operation_timeout=_SECONDS).values():
            deleted.result()


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
