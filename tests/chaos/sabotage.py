"""What happens to the brokers of a cluster, one thing after another, while workers suffer on their own."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import KafkaException
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from eventveil.kafka.admin import Admin
from tests.chaos.schedule import ClusterFault
from tests.kafka.cluster import BROKERS, CONTROLLER, SESSION_SECONDS, Cluster, Others
from tests.kafka.links import Way

_UNCLEAN = "unclean.leader.election.enable"
_WHOLE_SECONDS = 120.0
_ASK_SECONDS = 10.0


class Sabotage:
    """Does each fault and ends it, and waits until all replicas are in sync before the next one.

    So no record that was acknowledged is ever lost by what happens here: of three replicas, at least one of
    those that were in sync keeps its log. ``prefix`` is how the names of the application's topics begin.
    """

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.faults: Counter[str] = Counter()
        self.failure: str | None = None
        self._cluster, self._prefix = cluster, prefix
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, faults: Iterator[ClusterFault], say: Callable[[object], None]) -> None:
        """Let them happen, in a thread."""

        def run() -> None:
            try:
                while not self._stop.wait(0.5):
                    fault = next(faults)
                    say(fault)
                    self.perform(fault)
            except Exception as error:
                self.failure = f"{fault}: {type(error).__name__}: {error}"

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Finish what is happening, and repair the cluster. Raises RuntimeError if that was not possible."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self.failure is not None:
            raise RuntimeError(f"the cluster could not be made to suffer as planned: {self.failure}")
        self._cluster.repair()

    def perform(self, fault: ClusterFault) -> None:
        """One fault from its beginning to its end."""
        getattr(self, "_" + fault.kind.replace("-", "_"))(fault)
        self._cluster.wait_until_in_sync(_WHOLE_SECONDS)
        self.faults[fault.kind] += 1

    def _topics(self) -> list[tuple[str, int]]:
        """The partitions of the application."""
        known = {place for broker in BROKERS for place in self._cluster.asked(broker).leaders}
        return sorted(place for place in known if place[0].startswith(self._prefix))

    def _leader(self, fault: ClusterFault) -> int:
        """A broker that leads something of the application."""
        topics = self._topics()
        topic, partition = topics[int(fault.place * len(topics))]
        leader = self._cluster.leader(topic, partition)
        return leader if leader in BROKERS else BROKERS[0]

    def _hold(self, least: float, most: float, fault: ClusterFault) -> None:
        time.sleep(least + (most - least) * fault.share)

    # Ends of processes

    def _leader_kill(self, fault: ClusterFault) -> None:
        leader = self._leader(fault)
        self._cluster.kill(leader)
        self._hold(0, 2 * SESSION_SECONDS, fault)
        self._cluster.start(leader)

    def _two_kill(self, fault: ClusterFault) -> None:
        """Two of three, at once: nothing can be committed until one is back."""
        spared = self._leader(fault)
        others = [broker for broker in BROKERS if broker != spared]
        for broker in others:
            self._cluster.kill(broker)
        self._hold(0, 2 * SESSION_SECONDS, fault)
        self._cluster.start(*others)

    def _controller_kill(self, fault: ClusterFault) -> None:
        self._cluster.kill(CONTROLLER)
        self._hold(0, 3 * SESSION_SECONDS, fault)
        self._cluster.start(CONTROLLER)

    def _rolling_restart(self, fault: ClusterFault) -> None:
        for broker in BROKERS:
            self._restart(broker)

    def _restart(self, broker: int) -> None:
        self._cluster.stop(broker)
        self._cluster.start(broker)
        self._cluster.wait_until_in_sync(_WHOLE_SECONDS)

    def _leader_pause(self, fault: ClusterFault) -> None:
        leader = self._leader(fault)
        self._cluster.pause(leader)
        self._hold(1, 4 * SESSION_SECONDS, fault)
        self._cluster.resume(leader)

    # Cuts

    def _cut(self, fault: ClusterFault, from_: Others) -> None:
        ways: tuple[Way, ...] = ("both", "in", "out")
        leader = self._leader(fault)
        self._cluster.cut(leader, from_, ways[fault.way])
        self._hold(1, 4 * SESSION_SECONDS, fault)
        self._cluster.heal(leader)

    def _cut_from_controller(self, fault: ClusterFault) -> None:
        self._cut(fault, "controller")

    def _cut_from_brokers(self, fault: ClusterFault) -> None:
        self._cut(fault, "brokers")

    def _cut_from_clients(self, fault: ClusterFault) -> None:
        self._cut(fault, "clients")

    def _cut_from_all(self, fault: ClusterFault) -> None:
        """From controller and brokers, but not from clients: what it answers them is old."""
        leader = self._leader(fault)
        self._cluster.cut(leader, "controller")
        self._cluster.cut(leader, "brokers")
        self._hold(2 * SESSION_SECONDS, 5 * SESSION_SECONDS, fault)
        self._cluster.heal(leader)

    # Moves

    def _transaction_coordinator_moved(self, fault: ClusterFault) -> None:
        self._move("__transaction_state", fault)

    def _group_coordinator_moved(self, fault: ClusterFault) -> None:
        self._move("__consumer_offsets", fault)

    def _move(self, topic: str, fault: ClusterFault) -> None:
        """Away by a restart of the leader, and back by an election, of every partition it led."""
        partitions = len([one for one, _ in self._cluster.asked(BROKERS[0]).leaders if one == topic])
        leader = self._cluster.leader(topic, int(fault.place * partitions))
        self._restart(leader if leader in BROKERS else BROKERS[0])
        self._cluster.elect_preferred()

    # Losses

    def _unclean_moment(self, fault: ClusterFault) -> None:
        """Unclean elections are allowed while a leader dies and the others are in sync: none happens."""
        leader = self._leader(fault)
        with unclean_allowed(self._cluster, sorted({topic for topic, _ in self._topics()})):
            self._cluster.kill(leader)
            self._hold(0, 2 * SESSION_SECONDS, fault)
        self._cluster.start(leader)

    def _disk_full(self, fault: ClusterFault) -> None:
        leader = self._leader(fault)
        self._cluster.fill_disk(leader)
        deadline = time.monotonic() + _WHOLE_SECONDS
        while self._cluster.nodes[leader].running():
            if time.monotonic() > deadline:
                raise TimeoutError(f"broker {leader} lives with a full disk")
            time.sleep(0.2)
        self._hold(0, SESSION_SECONDS, fault)
        self._cluster.start(leader)

    def _log_lost(self, fault: ClusterFault) -> None:
        """A broker comes back without its log, once no partition counts on it."""
        leader = self._leader(fault)
        self._cluster.kill(leader)
        deadline = time.monotonic() + _WHOLE_SECONDS
        while self._cluster.counted_on(leader):
            if time.monotonic() > deadline:
                raise TimeoutError(f"broker {leader} is dead and still in sync")
            time.sleep(0.2)
        self._cluster.lose_log(leader)
        self._cluster.start(leader)


@contextmanager
def unclean_allowed(cluster: Cluster, topics: Sequence[str]) -> Iterator[None]:
    """Unclean elections are allowed in these topics meanwhile."""
    _alter(cluster, topics, "true")
    try:
        yield
    finally:
        _alter(cluster, topics, "false")


def _alter(cluster: Cluster, topics: Sequence[str], value: str) -> None:
    """Asks again through a new client: one that was told of a broker that died since waits for it in vain."""
    entry = ConfigEntry(_UNCLEAN, value, incremental_operation=AlterConfigOpType.SET)
    resources = [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry]) for topic in topics]
    deadline = time.monotonic() + _WHOLE_SECONDS
    while True:
        admin = Admin({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        futures = admin.incremental_alter_configs(resources, request_timeout=_ASK_SECONDS).values()
        try:
            for future in futures:
                future.result(2 * _ASK_SECONDS)
            return
        except (KafkaException, TimeoutError):
            if time.monotonic() > deadline:
                raise
