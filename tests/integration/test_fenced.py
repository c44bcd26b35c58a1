"""The table with one writer: what a writer that was shut out learns."""

from __future__ import annotations

import pytest

from operators.kafka.fenced import FencedTable, OwnerClosed, TransactionFailed
from operators.records import Outgoing
from operators.topology.model import Kafka
from tests.integration.conftest import NewTopic
from tests.kafka.topics import COMPACTED, read, unique

ATTEMPTS = 10


def test_a_writer_that_is_shut_out_while_it_writes_is_told_so_and_nothing_else(
    kafka: str, new_topic: NewTopic
) -> None:
    # Whether confluent-kafka raises the fatal error by itself or among delivery reports, where Python makes a
    # SystemError of it, is chance; ten attempts meet both.
    topic, owner = new_topic("changelog", settings=COMPACTED), unique("owner")
    records = [Outgoing(topic, b"of a zombie", b"key", 0)] * 5
    for _ in range(ATTEMPTS):
        older, newer = (FencedTable(Kafka(kafka), owner, topic, 0) for _ in range(2))
        older.fence()
        newer.fence()
        with pytest.raises(TransactionFailed) as caught:
            older.transact("close", records)
        assert caught.value.fenced
        with pytest.raises(OwnerClosed):
            older.transact("close", records)
    assert read(kafka, topic, "read_uncommitted") == []
