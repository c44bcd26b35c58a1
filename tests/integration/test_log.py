"""Apache Kafka does what the log in memory does: ``tests/unit/replay/test_log.py`` asks the same of that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.behaviours import LogBehaviours
from tests.conformance.histories import HISTORIES, PARTITIONS, answers, history
from tests.conformance.logs import InMemory, OnBroker, on_broker
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
