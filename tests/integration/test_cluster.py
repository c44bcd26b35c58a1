"""The cluster of the tests: what is cut is cut, and nothing else is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer

from tests.kafka.cluster import BROKERS, CONTROLLER, Cluster, three_brokers
from tests.kafka.jars import missing_tools
from tests.kafka.links import Way
from tests.kafka.topics import produce, read, unique, values
from tests.worker.waiting import until

pytestmark = pytest.mark.skipif(bool(missing_tools()), reason="; ".join(missing_tools()))


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """One partition, led by broker 1."""
    name = cluster.place_topic(unique("topic"), [[1, 2, 3]], {"min.insync.replicas": "2"})
    produce(cluster.bootstrap, name, ["before"])
    return name


def in_sync(cluster: Cluster, topic: str, asked: int) -> set[int]:
    return set(cluster.asked(asked, topic).in_sync.get((topic, 0), ()))


def believes(cluster: Cluster, topic: str, asked: int) -> int:
    """Who leads the topic, as one broker has it."""
    return cluster.asked(asked, topic).leaders.get((topic, 0), -1)


def logged(cluster: Cluster, topic: str, broker: int) -> int:
    """The bytes that a broker has of the topic, on its disk."""
    folder = cluster.nodes[broker].directory / "data" / f"{topic}-0"
    return sum(file.stat().st_size for file in folder.glob("*.log"))


class Writing:
    """A producer with an open connection to the leader, and what came of its next record."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._topic = topic
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "log_level": 0,
                "acks": "all",
                "message.timeout.ms": 4000,
                "reconnect.backoff.max.ms": 200,
            }
        )
        until(lambda: self.write() == "written")

    def write(self) -> str:
        outcome: list[str] = []

        def delivered(error: object, _: Message) -> None:
            outcome.append("written" if error is None else str(error))

        self._producer.produce(self._topic, value="after", on_delivery=delivered)
        self._producer.flush(15)
        return outcome[0]


@pytest.mark.parametrize("way", ["both", "in", "out"])
def test_a_broker_without_its_controller_goes_on_as_leader_of_its_old_epoch_beside_the_new_one(
    cluster: Cluster, topic: str, way: Way
) -> None:
    cluster.cut(1, from_="controller", way=way)
    until(lambda: all(believes(cluster, topic, other) not in (1, -1) for other in (2, 3)))
    assert believes(cluster, topic, 1) == 1
    produce(cluster.bootstrap_of(2, 3), topic, ["with the new leader"])
    # Its answers are old, and nothing tells a client so.
    assert values(read(cluster.bootstrap_of(1), topic)) == [b"before"]
    assert len(read(cluster.bootstrap_of(2, 3), topic)) == 2
    cluster.heal(1)
    until(lambda: believes(cluster, topic, 1) == believes(cluster, topic, 2))
    until(lambda: in_sync(cluster, topic, 1) == set(BROKERS))
    assert len(read(cluster.bootstrap_of(1), topic)) == 2


def test_a_broker_without_the_others_stays_leader_and_takes_no_record_for_which_all_must_agree(
    cluster: Cluster, topic: str
) -> None:
    writing = Writing(cluster, topic)
    cluster.cut(1, from_="brokers")
    assert writing.write() != "written"
    # They are behind by this record now.
    until(lambda: in_sync(cluster, topic, 2) == {1})
    assert believes(cluster, topic, 2) == 1
    assert writing.write() != "written"
    cluster.heal(1)
    until(lambda: in_sync(cluster, topic, 2) == set(BROKERS))
    until(lambda: writing.write() == "written")


def test_a_broker_without_clients_is_a_good_leader_that_no_client_reaches(
    cluster: Cluster, topic: str
) -> None:
    writing = Writing(cluster, topic)
    cluster.cut(1, from_="clients")
    assert "timed out" in writing.write()
    assert believes(cluster, topic, 2) == 1
    assert in_sync(cluster, topic, 2) == set(BROKERS)
    cluster.heal(1)
    until(lambda: writing.write() == "written")


@pytest.mark.parametrize(("way", "arrives"), [("in", False), ("out", True)])
def test_of_a_link_that_is_cut_one_way_the_other_way_goes_on(
    cluster: Cluster, topic: str, way: Way, arrives: bool
) -> None:
    writing = Writing(cluster, topic)
    before = logged(cluster, topic, 1)
    cluster.cut(1, from_="clients", way=way)
    assert "timed out" in writing.write()
    if arrives:
        until(lambda: logged(cluster, topic, 1) > before)
    assert (logged(cluster, topic, 1) > before) == arrives
    cluster.heal(1)
    # What was held back comes late.
    until(lambda: logged(cluster, topic, 1) > before)


def test_what_is_done_to_processes_has_its_effect_and_repair_ends_it(cluster: Cluster, topic: str) -> None:
    cluster.kill(CONTROLLER)
    produce(cluster.bootstrap, topic, ["without a controller"])
    cluster.start(CONTROLLER)
    cluster.pause(1)
    until(lambda: believes(cluster, topic, 2) not in (1, -1))
    cluster.resume(1)
    until(lambda: in_sync(cluster, topic, 2) == set(BROKERS))
    leader = cluster.leader(topic)
    cluster.kill(leader)
    until(lambda: cluster.leader(topic) not in (leader, -1))
    cluster.repair()
    assert values(read(cluster.bootstrap, topic)) == [b"before", b"without a controller"]


def test_a_broker_whose_disk_is_full_ends_and_one_that_lost_its_log_gets_it_from_the_others(
    cluster: Cluster, topic: str
) -> None:
    cluster.fill_disk(1)
    produce(cluster.bootstrap, topic, ["after"])
    until(lambda: not cluster.nodes[1].running())
    written = len(read(cluster.bootstrap, topic))
    cluster.lose_log(1)
    assert logged(cluster, topic, 1) == 0
    cluster.repair()
    # A replica is in sync a moment before it has the last bytes.
    until(lambda: logged(cluster, topic, 1) == logged(cluster, topic, 2) > 0)
    assert len(read(cluster.bootstrap, topic)) == written


def test_two_clusters_at_once_are_apart_and_leave_nothing_behind(cluster: Cluster) -> None:
    with three_brokers() as other:
        assert not set(other.bootstrap.split(",")) & set(cluster.bootstrap.split(","))
        other.place_topic("only-here", [[1, 2, 3]])
        assert ("only-here", 0) not in cluster.asked(1).leaders
        directory = other.nodes[1].directory.parent
        assert processes_naming(directory)
    assert not directory.exists()
    until(lambda: processes_naming(directory) == [])


def processes_naming(directory: Path) -> list[str]:
    listing = subprocess.run(["ps", "-ww", "-eo", "pid,args"], stdout=subprocess.PIPE, text=True, check=True)
    return [line for line in listing.stdout.splitlines() if str(directory) in line]
