"""Three brokers and a controller of their own on this machine, whose links can be cut.

Every server stands behind a proxy (``tests.kafka.links``), and clients, brokers and controller know only the
proxies. Nothing is shared by two clusters: ports are free ones, and everything is in one directory.
"""

from __future__ import annotations

import resource
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from confluent_kafka import ElectionType
from confluent_kafka.admin import NewTopic

from eventveil.kafka.admin import Admin
from tests.kafka.asking import Metadata, metadata
from tests.kafka.broker import LocalBroker
from tests.kafka.jars import BrokerError, at_least
from tests.kafka.links import CLIENT, Link, Links, Way
from tests.kafka.ports import HOST, reserve
from tests.kafka.settings import single_node

BROKERS = (1, 2, 3)
CONTROLLER = 100
#: What a broker can be cut off from.
Others = Literal["controller", "brokers", "clients"]
#: Four Javas start at once, perhaps on a busy machine.
_START_SECONDS = 240.0
_HEAP = {"broker": "320m", "controller": "160m"}
#: A broker that the controller has not heard of for so long is no leader any more.
SESSION_SECONDS = 3.0


_REPLICATED = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "6",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": str(int(1000 * SESSION_SECONDS)),
    "replica.lag.time.max.ms": "5000",
    "log.cleaner.dedupe.buffer.size": str(4 * 1024 * 1024),
}


class Node(LocalBroker):
    """A broker or the controller: a process with a directory, and ``listeners`` beside that for brokers."""

    def __init__(self, directory: Path, number: int, cluster: str, listeners: int) -> None:
        super().__init__(directory)
        self.number, self._cluster = number, cluster
        self.heap = _HEAP["controller" if number == CONTROLLER else "broker"]
        self._ports = [reserve() for _ in range(1 + listeners)]

    @property
    def client_ports(self) -> list[int]:
        """Where its clients' proxies find it."""
        return [port.port for port in self._ports[1:]]

    @property
    def name(self) -> str:
        """What its links are known by."""
        return "controller" if self.number == CONTROLLER else f"broker-{self.number}"

    def configure(self, settings: Mapping[str, str]) -> None:
        """Say with what settings it starts from now on."""
        self.directory.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        self._settings.write_text(text, encoding="utf-8")

    def _write_settings(self) -> None:
        """They are there, by ``configure``."""

    def _cluster_id(self) -> str:
        return self._cluster

    def _wait_until_it_serves(self) -> None:
        """The cluster waits, which may be without a controller for now."""

    def processes(self) -> list[int]:
        """The shell that watches Java, and Java (Linux)."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [self.pid, *map(int, children)]

    def check(self) -> None:
        """Raise BrokerError if the process has ended."""
        if not self.running():
            self._give_up("ended by itself")


class Cluster:
    """Brokers 1, 2 and 3, and the controller, by number. Use ``three_brokers``.

    Topics have three replicas and need two in sync, transactions and groups too. ``settings`` are further
    ones of all processes. Leaders stay where they are unless something moves them. Each of ``clients`` has
    addresses of its own, so that its links alone can be cut.
    """

    def __init__(
        self,
        directory: Path,
        links: Links,
        settings: Mapping[str, str] | None = None,
        clients: Sequence[str] = (),
    ) -> None:
        self.links = links
        self._clients = (CLIENT, *clients)
        first = LocalBroker(directory)._cluster_id()
        self.nodes = {
            number: Node(
                directory / str(number), number, first, 0 if number == CONTROLLER else len(self._clients)
            )
            for number in (CONTROLLER, *BROKERS)
        }
        self._ports = {number: links.before(node.name, node.port) for number, node in self.nodes.items()}
        self._client_ports = {
            (client, node.number): links.before(node.name, port, client)
            for node in self.nodes.values()
            for client, port in zip(self._clients, node.client_ports, strict=False)
        }
        for node in self.nodes.values():
            node.configure(self._settings(node) | dict(settings or {}))

    @property
    def bootstrap(self) -> str:
        """``host:port`` of all brokers, for Kafka clients."""
        return self.bootstrap_of(*BROKERS)

    def bootstrap_of(self, *brokers: int, client: str = CLIENT) -> str:
        """``host:port`` of these brokers, for a client."""
        return ",".join(f"{HOST}:{self._client_ports[client, broker]}" for broker in brokers)

    def start_all(self) -> None:
        """Start what is not running, and return once all brokers serve. Raises BrokerError."""
        self.start(*(number for number, node in self.nodes.items() if not node.running()))

    def start(self, *numbers: int, wait: bool = True) -> None:
        """Start processes; ``wait`` until the brokers among them serve. Raises BrokerError."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda number: self.nodes[number].start(), numbers))
        if wait:
            self.wait_for(*(number for number in numbers if number != CONTROLLER))

    def stop(self, number: int) -> None:
        """Stop cleanly: a broker gives its leaderships away first."""
        self.nodes[number].stop()

    def kill(self, number: int) -> None:
        """SIGKILL, also to a process that is paused."""
        self.nodes[number].kill()

    def pause(self, number: int) -> None:
        """SIGSTOP."""
        self.nodes[number].pause()

    def resume(self, number: int) -> None:
        """SIGCONT."""
        self.nodes[number].resume()

    def fill_disk(self, broker: int) -> None:
        """From now on the running broker can make no file longer: its log fails, as on a full disk.

        It shuts down when it next writes. It has room again when it is restarted.
        """
        for process in self.nodes[broker].processes():
            # EFBIG instead of ENOSPC: to the broker both are an I/O error of its log directory.
            resource.prlimit(process, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))

    def lose_log(self, broker: int) -> None:
        """Delete all records of a broker that does not run; it remains who it is."""
        assert not self.nodes[broker].running()
        for folder in (self.nodes[broker].directory / "data").iterdir():
            if folder.is_dir() and folder.name != "__cluster_metadata-0":
                shutil.rmtree(folder)

    def cut(self, broker: int, from_: Others, way: Way = "both") -> None:
        """Cut a broker off; ``way`` as the broker sees it, ``in`` for what comes to it."""
        for link, way_of_link in self._links(broker, from_, way):
            self.links.cut([link], way_of_link)

    def heal(self, broker: int | None = None) -> None:
        """End all cuts of a broker, by default those of all brokers."""
        for one in BROKERS if broker is None else (broker,):
            for from_ in ("controller", "brokers", "clients"):
                self.links.heal(link for link, _ in self._links(one, from_, "both"))

    def _links(self, broker: int, from_: str, way: Way) -> list[tuple[Link, Way]]:
        """The links of a broker, and the way as the server of each sees it."""
        name = self.nodes[broker].name
        others = [self.nodes[other].name for other in BROKERS if other != broker]
        turned: dict[Way, Way] = {"in": "out", "out": "in", "both": "both"}
        if from_ == "controller":
            return [(Link(name, "controller"), turned[way])]
        if from_ == "clients":
            return [(Link(client, name), way) for client in self._clients]
        return [(Link(other, name), way) for other in others] + [
            (Link(name, other), turned[way]) for other in others
        ]

    def repair(self) -> None:
        """End everything that was done to it: all run, none is cut, every replica is in sync."""
        self.heal()
        for node in self.nodes.values():
            node.resume()
        self.start_all()
        self.wait_until_in_sync()

    def wait_for(self, *brokers: int, seconds: float = _START_SECONDS) -> None:
        """Wait until each of these brokers says of itself that it serves. Raises BrokerError."""
        deadline = time.monotonic() + seconds
        for broker in brokers:
            while broker not in self.asked(broker).brokers:
                self.nodes[broker].check()
                if time.monotonic() > deadline:
                    raise BrokerError(f"broker {broker} did not serve within {seconds:.0f} s")
                time.sleep(0.1)

    def wait_until_in_sync(self, seconds: float = _START_SECONDS) -> None:
        """Wait until each partition has a leader, and all of its replicas. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while lacking := self._out_of_sync():
            if time.monotonic() > deadline:
                raise TimeoutError(f"replicas are out of sync after {seconds:.0f} s: {lacking[:5]}")
            time.sleep(0.2)

    def _out_of_sync(self) -> list[object]:
        views = [self.asked(broker) for broker in BROKERS]
        return [
            (place, view.leaders[place], sorted(view.in_sync[place]))
            for view in views
            for place, replicas in view.replicas.items()
            if view.leaders[place] < 0 or view.in_sync[place] != replicas
        ] + [view for view in views if not view.brokers]

    def asked(self, broker: int, topic: str | None = None) -> Metadata:
        """What that very broker answers now, right or wrong; nothing if it does not answer."""
        with suppress(OSError):
            return metadata(self.nodes[broker].port, None if topic is None else [topic])
        return Metadata(frozenset(), {}, {}, {})

    def leader(self, topic: str, partition: int = 0) -> int:
        """The broker that most of those that answer take for the leader, -1 for none."""
        answers = [self.asked(broker, topic).leaders.get((topic, partition), -1) for broker in BROKERS]
        leaders = Counter(answer for answer in answers if answer >= 0)
        return leaders.most_common(1)[0][0] if leaders else -1

    def counted_on(self, broker: int) -> list[tuple[str, int]]:
        """The partitions that have a broker among their replicas in sync, as the other brokers know."""
        views = [self.asked(other) for other in BROKERS if other != broker]
        return sorted({place for view in views for place, found in view.in_sync.items() if broker in found})

    def elect_preferred(self) -> None:
        """Every partition gets its first replica as leader; those that have it, keep it."""
        admin = Admin({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.elect_leaders(ElectionType.PREFERRED).result(60)

    def place_topic(
        self, name: str, replicas: Sequence[Sequence[int]], settings: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic; ``replicas`` are the brokers of each partition, its first leader first."""
        admin = Admin({"bootstrap.servers": self.bootstrap, "log_level": 0})
        topic = NewTopic(
            name,
            num_partitions=len(replicas),
            replica_assignment=list(map(list, replicas)),
            config=dict(settings or {}),
        )
        admin.create_topics([topic])[name].result(30)
        self.wait_until_in_sync()
        return name

    def release(self) -> None:
        """End all processes and give the ports back."""
        for node in self.nodes.values():
            node.kill()
            node.release()

    def _settings(self, node: Node) -> dict[str, str]:
        listener = "CONTROLLER" if node.number == CONTROLLER else "PLAINTEXT"
        own = f"{HOST}:{node.port}"
        listeners, advertised = {listener: own}, {listener: f"{HOST}:{self._ports[node.number]}"}
        for number, (client, port) in enumerate(zip(self._clients, node.client_ports, strict=False)):
            listeners[f"CLIENT{number}"] = f"{HOST}:{port}"
            advertised[f"CLIENT{number}"] = f"{HOST}:{self._client_ports[client, node.number]}"
        controller = own if node.number == CONTROLLER else f"{HOST}:{self._ports[CONTROLLER]}"
        settings = single_node(listeners, advertised, controller, str(node.directory / "data")) | {
            "process.roles": "controller" if node.number == CONTROLLER else "broker",
            "node.id": str(node.number),
            "controller.quorum.voters": f"{CONTROLLER}@{controller}",
            "listener.security.protocol.map": ",".join(
                f"{name}:PLAINTEXT" for name in dict.fromkeys((*listeners, "CONTROLLER", "PLAINTEXT"))
            ),
        }
        if node.number == CONTROLLER:
            del settings["inter.broker.listener.name"]
            if not at_least("3.9.0"):
                # Until then it tells nobody where it is, and refuses to be told what to say: brokers go by
                # the voters, through the proxy. Later brokers ask it, too:
                # https://cwiki.apache.org/confluence/
                # display/KAFKA/KIP-853:+KRaft+Controller+Membership+Changes
                del settings["advertised.listeners"]
        else:
            settings["broker.rack"] = f"rack-{node.number}"
        return settings | _REPLICATED


@contextmanager
def three_brokers(
    directory: Path | None = None, settings: Mapping[str, str] | None = None, clients: Sequence[str] = ()
) -> Iterator[Cluster]:
    """A running cluster, ``settings`` and ``clients`` as for ``Cluster``; stopped at the end.

    ``directory`` None means a temporary one that is removed at the end.
    """
    if directory is None:
        temporary = Path(tempfile.mkdtemp(prefix="eventveil-cluster-"))
        try:
            with three_brokers(temporary, settings, clients) as cluster:
                yield cluster
        finally:
            shutil.rmtree(temporary)
        return
    with Links() as links:
        cluster = Cluster(directory, links, settings, clients)
        try:
            cluster.start_all()
            yield cluster
        finally:
            cluster.release()
