"""Apache Kafka does what the log in memory does: ``tests/unit/replay/test_log.py`` asks the same of that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eventveil.kafka.links import links
from eventveil.kafka.log import read_partition
from eventveil.model.topology import Kafka
from tests.conformance.behaviours import LogBehaviours, begun, records
from tests.conformance.histories import HISTORIES, PARTITIONS, answers, history
from tests.conformance.logs import _LATEST, SECONDS, InMemory, OnBroker, _told_offsets, on_broker
from tests.kafka.topics import unique


@pytest.fixture(scope="module")
def broker(kafka: str) -> Iterator[OnBroker]:
    with on_broker(kafka) as made:
        yield made


class TestLogOnBroker(LogBehaviours):
    @pytest.fixture
    def log(self, broker: OnBroker) -> OnBroker:
        return broker


def test_a_broker_and_the_log_in_memory_give_the_same_answers_to_random_histories(broker: OnBroker) -> None:
    topic, prefix = broker.topic(HISTORIES * PARTITIONS), unique("history")
    memory = InMemory()
    memory.log.create(topic, HISTORIES * PARTITIONS)
    for seed in range(HISTORIES):
        steps = history(seed)
        told = [answers(log, topic, seed * PARTITIONS, f"{prefix}-{seed}", steps) for log in (broker, memory)]
        for number, (on_broker_, in_memory) in enumerate(zip(*told, strict=True)):
            assert in_memory == on_broker_, f"history {seed}, step {number} of {steps[: number + 1]}"


def test_a_broker_may_tell_a_committed_end_before_the_first_offset(broker: OnBroker) -> None:
    place = broker.topic(), 0
    writer = begun(broker)
    writer.write(records(place, "a", "b", "c"))
    broker.delete_before(place, 2)
    with links(Kafka(broker.bootstrap)).borrowed() as link:
        told = _told_offsets(link, broker.address, 1, place[0], {0: _LATEST})
    assert broker.start(place) == 2
    assert told in ([0], [2])  # Brokers of some versions are exact.
    assert list(read_partition(Kafka(broker.bootstrap), *place)) == []
    writer.commit(SECONDS)
    assert [one.value() for one in read_partition(Kafka(broker.bootstrap), *place)] == [b"c"]
