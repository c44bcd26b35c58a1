"""What workers stand on: one broker, or three and a controller; and the network up to each worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from tests.chaos.proxy import Proxy
from tests.kafka.broker import LocalBroker
from tests.kafka.cluster import BROKERS, Cluster, three_brokers
from tests.kafka.links import Link
from tests.kafka.ports import HOST


class Ground(Protocol):
    """One or more brokers. Workers are numbered."""

    replication: int

    @property
    def bootstrap(self) -> str:
        """``host:port`` for those who are not to suffer from the network of a worker."""

    def bootstrap_for(self, worker: int) -> str:
        """``host:port`` for a worker."""

    def cut(self, worker: int) -> None:
        """Break the connections of a worker and refuse new ones."""

    def delay(self, worker: int, seconds: float) -> None:
        """Let what travels to and from a worker arrive so much later."""

    def heal(self, worker: int) -> None:
        """End that."""


class OneBroker:
    """A broker, and a proxy for each worker."""

    replication = 1

    def __init__(self, broker: LocalBroker, proxies: Sequence[Proxy]) -> None:
        self.broker, self._proxies = broker, proxies

    @property
    def bootstrap(self) -> str:
        """See ``Ground``."""
        return self.broker.bootstrap

    def bootstrap_for(self, worker: int) -> str:
        """See ``Ground``."""
        return f"{HOST}:{self._proxies[worker].port}"

    def cut(self, worker: int) -> None:
        """See ``Ground``."""
        self._proxies[worker].cut()

    def delay(self, worker: int, seconds: float) -> None:
        """See ``Ground``."""
        self._proxies[worker].delay(seconds)

    def heal(self, worker: int) -> None:
        """See ``Ground``."""
        self._proxies[worker].heal()


class ThreeBrokers:
    """A cluster, where each worker has addresses of its own."""

    replication = 3

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @property
    def bootstrap(self) -> str:
        """See ``Ground``."""
        return self.cluster.bootstrap

    def bootstrap_for(self, worker: int) -> str:
        """See ``Ground``."""
        return self.cluster.bootstrap_of(*BROKERS, client=_name(worker))

    def cut(self, worker: int) -> None:
        """See ``Ground``."""
        self.cluster.links.cut(self._links(worker))

    def delay(self, worker: int, seconds: float) -> None:
        """See ``Ground``."""
        self.cluster.links.delay(_name(worker), seconds)

    def heal(self, worker: int) -> None:
        """See ``Ground``. A broker that was cut from its clients meanwhile has this one back too."""
        self.cluster.links.delay(_name(worker), 0)
        self.cluster.links.heal(self._links(worker))

    def _links(self, worker: int) -> list[Link]:
        return [Link(_name(worker), self.cluster.nodes[broker].name) for broker in BROKERS]


def _name(worker: int) -> str:
    return f"worker-{worker}"


@contextmanager
def one_broker(folder: Path, workers: int) -> Iterator[OneBroker]:
    """A broker that runs, and its proxies; stopped at the end."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy()) for _ in range(workers)]
        broker = LocalBroker(folder / "broker", proxies=[proxy.port for proxy in proxies])
        stack.callback(broker.release)
        broker.start()
        for proxy, port in zip(proxies, broker.proxied_ports, strict=True):
            proxy.target = port
        yield OneBroker(broker, proxies)


@contextmanager
def ground(brokers: int, folder: Path, workers: int) -> Iterator[OneBroker | ThreeBrokers]:
    """One broker or three, running; stopped at the end."""
    if brokers == 1:
        with one_broker(folder, workers) as one:
            yield one
    else:
        clients = [_name(worker) for worker in range(workers)]
        with three_brokers(folder / "cluster", clients=clients) as cluster:
            yield ThreeBrokers(cluster)
