"""A broker that is cut off keeps answering as leader of its old epoch: nothing is concluded from that."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException

from eventveil.kafka import log, reader
from eventveil.kafka.changelog import FencedTable, TransactionFailed
from eventveil.kafka.links import Links
from eventveil.model.errors import Unsettled
from eventveil.model.records import Outgoing
from eventveil.model.topology import Kafka
from tests.chaos.mutants import take_over_without_barrier
from tests.kafka.cluster import Cluster
from tests.kafka.jars import missing_tools
from tests.kafka.links import MISLED, Link
from tests.kafka.topics import COMPACTED, unique
from tests.worker.waiting import until

pytestmark = pytest.mark.skipif(bool(missing_tools()), reason="; ".join(missing_tools()))

TAKE_OVERS = 4
DEPOSED, OTHERS = 1, (2, 3)
links_of = reader.links


def believes(cluster: Cluster, topic: str, asked: int) -> int:
    """Who leads the topic, as one broker has it."""
    return cluster.asked(asked, topic).leaders.get((topic, 0), -1)


def depose(cluster: Cluster, topic: str) -> None:
    """Cut the leader off from the controller and the other brokers, and wait for another one."""
    cluster.cut(DEPOSED, "controller")
    cluster.cut(DEPOSED, "brokers")
    until(lambda: believes(cluster, topic, OTHERS[0]) in OTHERS)
    until(lambda: believes(cluster, topic, DEPOSED) == DEPOSED)


class Readers:
    """Links of which the first of each take-over learn of the leader from the broker that is cut off."""

    def __init__(self, cluster: Cluster, misled: int) -> None:
        self._deposed = Kafka(cluster.bootstrap_of(DEPOSED, client=MISLED))
        # Another broker would tell them the truth.
        cluster.links.cut([Link(MISLED, cluster.nodes[other].name) for other in OTHERS], "both")
        self._misled, self.left = misled, misled

    def __call__(self, kafka: Kafka) -> Links:
        self.left -= 1
        return links_of(self._deposed if self.left >= 0 else kafka)

    def again(self) -> None:
        self.left = self._misled


def insist(action: Callable[[], object], seconds: float = 120) -> None:
    """Do it again until it succeeds; the brokers that are left may take a while to agree."""
    give_up = time.monotonic() + seconds
    while True:
        try:
            action()
            return
        except (TransactionFailed, Unsettled, KafkaException):
            assert time.monotonic() < give_up
            time.sleep(0.5)


def test_no_take_over_returns_what_a_deposed_leader_shows(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.place_topic(
        unique("changelog"), [[DEPOSED, *OTHERS]], COMPACTED | {"min.insync.replicas": "2"}
    )
    everybody, owner = Kafka(cluster.bootstrap), unique("owner")

    def begin() -> None:
        table = FencedTable(everybody, owner, topic, 0)
        table.take_over()
        table.transact("close", [Outgoing(topic, b"old", b"next", 0)])

    insist(begin)
    until(lambda: log.read_table(everybody, topic, 0).get(b"next") == b"old")
    depose(cluster, topic)

    def go_on() -> None:
        other = FencedTable(Kafka(cluster.bootstrap_of(*OTHERS)), owner, topic, 0)
        other.fence()
        other.transact("close", [Outgoing(topic, b"new", b"next", 0)])

    insist(go_on)
    readers = Readers(cluster, misled=2)
    monkeypatch.setattr(reader, "links", readers)
    found: Counter[bytes] = Counter()
    for _ in range(TAKE_OVERS):

        def take_over() -> None:
            readers.again()
            found[FencedTable(everybody, owner, topic, 0).take_over()[b"next"]] += 1

        insist(take_over)
        # The broker that was cut off was asked each time.
        assert readers.left < 0
    assert found == {b"new": TAKE_OVERS}

    # The same without the barrier: an old state, and the next transaction on top of it is committed.
    def draw_again() -> None:
        readers.again()
        broken = FencedTable(everybody, owner, topic, 0)
        assert take_over_without_barrier(broken) == {b"next": b"old"}
        broken.transact("close", [Outgoing(topic, b"a second draw", b"next", 0)])

    insist(draw_again)


def test_a_take_over_that_meets_the_deposed_leader_only_is_a_doubt_until_the_cut_is_healed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = cluster.place_topic(
        unique("changelog"), [[DEPOSED, *OTHERS]], COMPACTED | {"min.insync.replicas": "2"}
    )
    everybody, owner = Kafka(cluster.bootstrap), unique("owner")
    monkeypatch.setattr(reader, "BARRIER_SECONDS", 2.0)
    monkeypatch.setattr(reader, "links", Readers(cluster, misled=10_000))
    insist(lambda: FencedTable(everybody, owner, topic, 0).take_over())
    depose(cluster, topic)

    def is_doubted() -> bool:
        try:
            FencedTable(everybody, owner, topic, 0).take_over()
        except Unsettled:
            return True
        except (TransactionFailed, KafkaException):
            return False
        raise AssertionError("it was believed")

    until(is_doubted)
    cluster.heal()
    insist(lambda: FencedTable(everybody, owner, topic, 0).take_over())
