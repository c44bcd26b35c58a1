"""Apache Kafka in a container, for machines with a Docker engine and no Java."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from tests.kafka.jars import kafka_version
from tests.kafka.ports import HOST, reserve
from tests.kafka.settings import single_node

_INSIDE = 9092


@contextmanager
def container_broker() -> Iterator[str]:
    """A running broker's ``host:port``; the container is removed at the end.

    The image is Apache's own, of the version of the jars. Its port on this machine is chosen beforehand,
    because a broker must know the address that it tells its clients.
    """
    port = reserve()
    listeners = {"PLAINTEXT": f"0.0.0.0:{_INSIDE}", "CONTROLLER": "localhost:9093"}
    advertised = {"PLAINTEXT": f"{HOST}:{port.port}"}
    settings = single_node(listeners, advertised, "localhost:9093", "/tmp/kraft-combined-logs")
    container = DockerContainer(f"apache/kafka:{kafka_version()}").with_bind_ports(_INSIDE, port.port)
    for key, value in settings.items():
        container.with_env("KAFKA_" + key.upper().replace(".", "_"), value)
    container.waiting_for(LogMessageWaitStrategy("Kafka Server started").with_startup_timeout(120))
    try:
        with container:
            yield f"{HOST}:{port.port}"
    finally:
        port.release()
