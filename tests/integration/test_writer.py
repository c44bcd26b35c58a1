"""The writer against a broker: it and librdkafka's producer shut each other out, and write the same log."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from eventveil.kafka.admin import Admin
from eventveil.kafka.writer import Appended, Writer
from eventveil.model.records import Outgoing
from eventveil.model.topology import Kafka, Security
from tests.conformance.logs import SettledWriter
from tests.integration.conftest import NewTopic
from tests.integration.test_rights import SecuredBroker
from tests.kafka.broker import local_broker
from tests.kafka.jars import missing_tools
from tests.kafka.topics import (
    COMPACTED,
    LOG_APPEND_TIME,
    abandon,
    create_topic,
    delete_topic,
    end_offset,
    read,
    transact,
    transactional_producer,
    unique,
)
from tests.worker.waiting import until

FENCED = {KafkaError.INVALID_PRODUCER_EPOCH, KafkaError._FENCED, KafkaError.PRODUCER_FENCED}


def writer(bootstrap: str, identity: str, lasts: float = 20) -> Writer:
    made = SettledWriter(Kafka(bootstrap), identity, lasts)
    made.initialise(30)
    return made


def write(one: Writer, *records: Outgoing) -> list[Appended]:
    """In a transaction of their own."""
    one.begin(19)
    appended = one.write(records)
    one.commit(30)
    return appended


def error_of(call: object) -> int:
    with pytest.raises(KafkaException) as caught:
        call()  # type: ignore[operator]
    return cast(int, caught.value.args[0].code())


def values(bootstrap: str, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value() for record in read(bootstrap, topic, partition=partition)]


# Fencing


def test_it_shuts_out_a_producer_of_librdkafka(kafka: str, new_topic: NewTopic) -> None:
    topic, identity = new_topic(), unique("owner")
    idle, frozen = (transactional_producer(kafka, name) for name in (identity, f"{identity}-frozen"))
    transact(idle, topic, ["before"])
    abandon(frozen, topic, ["frozen"])
    write(writer(kafka, identity), Outgoing(topic, b"after", None, 0))
    write(writer(kafka, f"{identity}-frozen"), Outgoing(topic, b"after the frozen", None, 0))
    for zombie in (idle, frozen):
        if zombie is idle:
            zombie.begin_transaction()
        zombie.produce(topic, "zombie")
        assert error_of(lambda zombie=zombie: zombie.commit_transaction(30)) in FENCED
    assert values(kafka, topic) == [b"before", b"after", b"after the frozen"]


@pytest.mark.parametrize("by", ["librdkafka", "itself"])
@pytest.mark.parametrize("at", ["idle", "begun", "written"])
def test_it_is_shut_out_wherever_it_stands(kafka: str, new_topic: NewTopic, by: str, at: str) -> None:
    topic, identity = new_topic(), unique("owner")
    zombie = writer(kafka, identity)
    write(zombie, Outgoing(topic, b"before", None, 0))
    zombie.begin(19)
    if at != "idle":
        zombie.write([Outgoing(topic, b"zombie", None, 0)])
    if by == "librdkafka":
        transact(transactional_producer(kafka, identity), topic, ["after"])
    else:
        write(writer(kafka, identity), Outgoing(topic, b"after", None, 0))
    if at == "written":
        assert error_of(lambda: zombie.commit(30)) in FENCED
    else:
        assert error_of(lambda: zombie.write([Outgoing(topic, b"too late", None, 0)])) in FENCED
    assert values(kafka, topic) == [b"before", b"after"]
    assert b"too late" not in [one.value() for one in read(kafka, topic, "read_uncommitted")]


def test_initialised_it_has_aborted_what_its_predecessor_left_open(kafka: str, new_topic: NewTopic) -> None:
    topic, identity = new_topic(), unique("owner")
    zombie = writer(kafka, identity)
    zombie.begin(19)
    zombie.write([Outgoing(topic, b"undecided", None, 0)])
    assert end_offset(kafka, topic, "read_committed") == 0
    writer(kafka, identity)
    assert end_offset(kafka, topic, "read_committed") == end_offset(kafka, topic) == 2
    assert values(kafka, topic) == []


def test_a_transaction_that_outlived_its_time_is_refused_as_if_shut_out(
    kafka: str, new_topic: NewTopic
) -> None:
    topic = new_topic()
    slow = writer(kafka, unique("owner"), lasts=5)
    slow.begin(19)
    slow.write([Outgoing(topic, b"slow", None, 0)])
    until(lambda: end_offset(kafka, topic, "read_committed") >= 2)  # the broker has aborted the transaction
    assert error_of(lambda: slow.commit(30)) in FENCED
    assert values(kafka, topic) == []


# What is written


def test_it_tells_where_and_when_records_were_appended(kafka: str, new_topic: NewTopic) -> None:
    topic, other = new_topic(partitions=2, settings=LOG_APPEND_TIME), new_topic()
    one = writer(kafka, unique("owner"))
    write(one, Outgoing(topic, b"first", None, 1))
    appended = write(
        one,
        Outgoing(topic, b"second", b"key", 1, (("name", b"x"),)),
        Outgoing(topic, None, b"key", 1),
        Outgoing(other, b"elsewhere", None, 0),
    )
    by_topic = {batch.topic: batch for batch in appended}
    found = read(kafka, topic, partition=1)
    assert [(record.offset(), record.key(), record.value()) for record in found] == [
        (0, None, b"first"),
        (2, b"key", b"second"),
        (3, b"key", None),
    ]
    assert found[1].headers() == [("name", b"x")]
    told = by_topic[topic]
    assert (told.partition, told.offset, told.count, told.time) == (1, 2, 2, found[1].timestamp()[1])
    assert by_topic[other] == Appended(other, 0, 0, 1, None)


def test_what_is_aborted_is_told_where_it_is_and_met_by_no_reader(kafka: str, new_topic: NewTopic) -> None:
    topic = new_topic()
    one = writer(kafka, unique("owner"))
    one.begin(19)
    assert one.write([Outgoing(topic, b"aborted", None, 0)])[0].offset == 0
    one.abort(30)
    write(one, Outgoing(topic, b"committed", None, 0))
    assert values(kafka, topic) == [b"committed"]


def test_keys_choose_the_partitions_that_they_choose_with_librdkafka(kafka: str, new_topic: NewTopic) -> None:
    topics = new_topic(partitions=7), new_topic(partitions=7)
    keys = [b"", b"k", b"key", "ключ".encode(), *(f"user-{number}".encode() for number in range(300))]
    write(writer(kafka, unique("owner")), *(Outgoing(topics[0], key, key) for key in keys))
    theirs = Producer({"bootstrap.servers": kafka, "partitioner": "murmur2_random"})
    for key in keys:
        theirs.produce(topics[1], key, key)
    assert theirs.flush(30) == 0
    mine, librdkafkas = ([values(kafka, topic, partition) for partition in range(7)] for topic in topics)
    assert mine == librdkafkas


def test_more_than_is_held_at_once_arrives_in_order(kafka: str, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3, settings={"max.message.bytes": "16777216"})
    large = [os.urandom(12 * 1024 * 1024)]
    records = [
        Outgoing(topic, b"%d" % number + bytes(200), b"key", number % 3) for number in range(60_000)
    ] + [Outgoing(topic, value, b"key", 0) for value in large]
    appended = write(writer(kafka, unique("owner")), *records)
    counts = Counter[int]()
    for batch in appended:
        assert batch.offset == counts[batch.partition]
        counts[batch.partition] += batch.count
    assert counts == {0: 20_001, 1: 20_000, 2: 20_000}
    for partition in range(3):
        expected = [record.value for record in records if record.partition == partition]
        assert values(kafka, topic, partition) == expected


def test_a_record_that_the_topic_does_not_take_ends_it(kafka: str, new_topic: NewTopic) -> None:
    topic = new_topic(settings={"max.message.bytes": "1000"})
    one = writer(kafka, unique("owner"))
    one.begin(19)
    record = Outgoing(topic, os.urandom(5000), None, 0)
    assert error_of(lambda: one.write([record])) == KafkaError.MSG_SIZE_TOO_LARGE
    assert values(kafka, topic) == []


@pytest.mark.parametrize("partition", [0, None])
def test_a_topic_that_is_gone_is_missed_and_not_made_anew(
    kafka: str, new_topic: NewTopic, partition: int | None
) -> None:
    topic = new_topic()
    one = writer(kafka, unique("owner"))
    write(one, Outgoing(topic, b"before", b"key", partition))
    admin = Admin({"bootstrap.servers": kafka, "log_level": 0})
    delete_topic(kafka, topic)
    one.begin(2)
    record = Outgoing(topic, b"after", b"key", partition)
    assert error_of(lambda: one.write([record])) == KafkaError._TIMED_OUT
    assert topic not in admin.list_topics(timeout=60).topics


# At rest


def test_writers_at_rest_cost_no_threads_and_few_descriptors(kafka: str, new_topic: NewTopic) -> None:
    topic = new_topic(settings=COMPACTED)
    write(writer(kafka, unique("first")), Outgoing(topic, b"state", b"key", 0))
    threads, descriptors = resources()
    writers = [writer(kafka, unique("owner")) for _ in range(50)]
    for number, one in enumerate(writers):
        write(one, Outgoing(topic, b"state", b"%d" % number, 0))
    now = resources()
    assert now[0] <= threads
    assert now[1] <= descriptors
    assert len(values(kafka, topic)) == 51


def resources() -> tuple[int, int]:
    """Threads and descriptors of this process."""
    own = Path("/proc/self")
    return len(list((own / "task").iterdir())), len(list((own / "fd").iterdir()))


def test_a_broker_that_was_restarted_is_found_again(tmp_path: Path) -> None:
    if lacking := missing_tools():
        pytest.skip("; ".join(lacking))
    with local_broker(directory=tmp_path) as broker:
        topic = create_topic(broker.bootstrap, unique("changelog"))
        one, cut_off = (writer(broker.bootstrap, unique("owner"), lasts=300) for _ in range(2))
        write(one, Outgoing(topic, b"before", None, 0))
        cut_off.begin(300)
        cut_off.write([Outgoing(topic, b"undecided", None, 0)])
        broker.stop()
        broker.start()
        write(one, Outgoing(topic, b"after", None, 0))
        # Its transaction is the coordinator's, which remembers it: the commit finds it again.
        cut_off.commit(30)
        assert values(broker.bootstrap, topic) == [b"before", b"undecided", b"after"]
        broker.stop()
        one.begin(1)
        assert error_of(lambda: one.write([Outgoing(topic, b"lost", None, 0)])) == KafkaError._TIMED_OUT
        broker.start()


# Admission


class ScramBroker(SecuredBroker):
    """A secured broker that admits by SCRAM, too; its user of that is a super user."""

    def _write_settings(self) -> None:
        super()._write_settings()
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        settings = {
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.secured.scram-sha-512.sasl.jaas.config": module,
            "super.users": "User:ANONYMOUS;User:owner",
        }
        with self._settings.open("a", encoding="utf-8") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())


def test_it_is_admitted_by_scram_and_told_when_it_is_not(tmp_path: Path) -> None:
    if lacking := missing_tools():
        pytest.skip("; ".join(lacking))
    broker = ScramBroker(tmp_path)
    broker.start()
    try:
        topic = create_topic(broker.bootstrap, unique("changelog"))
        admin = Admin({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion("owner", info, b"secret, of the owner")
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(30)

        def owner(password: str) -> Writer:
            security = Security("SASL_PLAINTEXT", "SCRAM-SHA-512", username="owner", password=password)
            made = SettledWriter(Kafka(broker.secured, security), unique("owner"), 20)
            made.initialise(30)
            return made

        # The broker hears of the new user a moment after the controller has answered.
        give_up = time.monotonic() + 180
        while True:
            try:
                admitted = owner("secret, of the owner")
                break
            except KafkaException:
                assert time.monotonic() < give_up
                time.sleep(0.5)
        write(admitted, Outgoing(topic, b"state", None, 0))
        assert values(broker.bootstrap, topic) == [b"state"]
        assert error_of(lambda: owner("another")) == KafkaError._AUTHENTICATION
    finally:
        broker.stop()
