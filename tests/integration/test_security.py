"""Every client of ours through every door of a secured broker, and what is said at a door that stays shut.

Real TLS, certificates of an authority made for the test, passwords, and tokens of a real token endpoint.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka.errors import KafkaError
from click.testing import CliRunner
from confluent_kafka import KafkaException
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from eventveil.cli.main import main
from eventveil.kafka import cluster, settings, tokens
from eventveil.kafka.admin import Admin
from eventveil.kafka.cluster import Cluster
from eventveil.kafka.diagnosis import NotReached
from eventveil.kafka.log import committed_ends, read_partition
from eventveil.kafka.writer import Writer
from eventveil.model.errors import EventveilError
from eventveil.model.records import Outgoing
from eventveil.model.topology import Kafka, Security
from eventveil.topology.loading import load
from tests.kafka.jars import missing_tools
from tests.kafka.secured import (
    CLIENT,
    EXTENSIONS,
    KEY_PASSWORD,
    NO_COMPILER,
    PASSWORD,
    SECRET,
    STRANGER,
    USER,
    SecuredBroker,
    secured_broker,
)
from tests.kafka.topics import create_topic, unique
from tests.worker.application import Application
from tests.worker.process import WorkerProcess
from tests.worker.waiting import wait_for_releases

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    if missing := missing_tools():
        pytest.skip("; ".join(missing))
    with secured_broker(tmp_path_factory.mktemp("security") / "files") as one:
        admin = Admin({"bootstrap.servers": one.bootstrap, "log_level": 0})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(30)
        yield one


def ways(broker: SecuredBroker) -> dict[str, Kafka]:
    """By name, each way to come in."""
    tls = Security("SSL", ca=str(broker.authority.file))
    certificate, key = map(str, broker.client)
    sasl = replace(tls, protocol="SASL_SSL", username=USER, password=PASSWORD)
    bearer = replace(
        tls, protocol="SASL_SSL", mechanism="OAUTHBEARER", token_url=broker.provider.url, client_id=CLIENT,
        client_secret=SECRET, scope="kafka", token_ca=str(broker.authority.file),
    )  # fmt: skip
    return {
        "TLS": Kafka(broker.door("TLS"), tls),
        "mutual TLS": Kafka(
            broker.door("MUTUAL"), replace(tls, certificate=certificate, key=key, key_password=KEY_PASSWORD)
        ),
        "PLAIN": Kafka(broker.door("SASL"), replace(sasl, mechanism="PLAIN")),
        "SCRAM": Kafka(broker.door("SASL"), replace(sasl, mechanism="SCRAM-SHA-512")),
        "OAUTHBEARER": Kafka(broker.door("SASL"), bearer),
    }


async def fetched(kafka: Kafka, topic: str) -> bytes | None:
    """The first record of a topic, as the worker's way of fetching sees it."""
    consumer = aiokafka.AIOKafkaConsumer(
        **settings.aiokafka(kafka), isolation_level="read_committed", auto_offset_reset="earliest"
    )
    consumer.assign([aiokafka.TopicPartition(topic, 0)])
    await consumer.start()
    try:
        value: bytes | None = (await asyncio.wait_for(consumer.getone(), 60)).value
        return value
    finally:
        await consumer.stop()


def come_in(broker: SecuredBroker, name: str, kafka: Kafka) -> None:
    """Every client of ours does something there."""
    topic = create_topic(broker.bootstrap, unique("door"))
    writer = Writer(kafka, unique("owner"), 20)
    writer.initialise(60)
    writer.begin(60)
    writer.write([Outgoing(topic, name.encode(), None, 0)])
    writer.commit(60)
    found = Cluster(kafka)
    assert found.topic(topic).partitions == 1
    assert found.settings([topic])[topic]["cleanup.policy"] == "delete"
    assert committed_ends(kafka, topic, [0]) == {0: 2}
    assert [message.value() for message in read_partition(kafka, topic, 0)] == [name.encode()]
    assert asyncio.run(fetched(kafka, topic)) == name.encode()


def test_every_client_comes_in_by_every_door_and_one_token_is_enough(broker: SecuredBroker) -> None:
    for name, kafka in ways(broker).items():
        come_in(broker, name, kafka)
    # Half a dozen clients of three kinds have come in with it.
    assert broker.provider.given == 1


def shut(kafka: Kafka) -> str:
    """What is said at a door that stays shut, at once."""
    with pytest.raises(EventveilError) as caught:
        Cluster(kafka)
    assert isinstance(caught.value, NotReached)
    assert caught.value.is_final
    told = str(caught.value)
    for secret in (PASSWORD, SECRET, KEY_PASSWORD, "wrong"):
        assert secret not in told
    return told


def cloud(broker: SecuredBroker, extensions: str | None = EXTENSIONS) -> Kafka:
    """The door of tokens that are taken beside extensions alone."""
    bearer = ways(broker)["OAUTHBEARER"].security
    return Kafka(broker.door("CLOUD"), replace(bearer, extensions=extensions))


@pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)
def test_every_client_tells_the_extensions_that_are_wanted_beside_a_token(broker: SecuredBroker) -> None:
    come_in(broker, "cloud", cloud(broker))
    for extensions in (None, "logicalCluster=lkc-12345", "logicalCluster=lkc-1,identityPoolId=pool-12345"):
        told = shut(cloud(broker, extensions))
        assert "the broker does not accept the token" in told
        assert "kafka.security.extensions" in told
    unheard = asyncio.run(producing(cloud(broker, None)))
    assert isinstance(unheard, KafkaError), "aiokafka's door is as shut as the others"


async def producing(kafka: Kafka) -> Exception | None:
    """What keeps the producer of Faust's library out."""
    producer = aiokafka.AIOKafkaProducer(**settings.aiokafka(kafka))
    try:
        await producer.start()
    except KafkaError as error:
        return error
    finally:
        await producer.stop()
    return None


def test_each_door_that_stays_shut_says_why_and_what_to_do(
    broker: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ways(broker)

    def other(name: str, **changes: Any) -> Kafka:
        return replace(found[name], security=replace(found[name].security, **changes))

    for name in ("PLAIN", "SCRAM"):
        told = shut(other(name, password="wrong"))
        assert told.startswith(f"{broker.door('SASL')}: the broker does not accept user name and password")
        assert told.endswith("Check username and password of kafka.security")
    told = shut(other("SCRAM", mechanism="SCRAM-SHA-256"))
    assert "the broker offers" in told
    assert "not SCRAM-SHA-256 (SASL). Set kafka.security.mechanism to one that it offers" in told
    for name in found:
        told = shut(other(name, ca=str(broker.other.file)))
        assert "the broker's certificate is signed by an unknown authority" in told
        assert told.endswith("Name the file of the authority that signed it in kafka.security.ca")
    told = shut(other("mutual TLS", certificate=None, key=None, key_password=None))
    assert "the broker requires a client certificate, and there is none" in told
    assert told.endswith("Name its files in kafka.security.certificate and key")
    certificate, key = map(str, broker.other.certificate("foreign"))
    told = shut(other("mutual TLS", certificate=certificate, key=key, key_password=None))
    assert "the broker does not accept the client certificate" in told
    with pytest.raises(EventveilError, match="a wrong key_password") as caught:
        Cluster(other("mutual TLS", key_password="wrong"))
    assert "wrong)" not in str(caught.value)

    told = shut(other("OAUTHBEARER", client_secret="wrong"))
    assert f"kafka.security.token_url {broker.provider.url}: the identity provider does not accept" in told
    assert told.endswith("Check client_id and client_secret of kafka.security")
    assert told in shut(other("OAUTHBEARER", client_secret="wrong")), "a second time as the first"
    told = shut(other("OAUTHBEARER", scope="everything"))
    assert told.endswith("Check scope of kafka.security")
    told = shut(other("OAUTHBEARER", token_ca=str(broker.other.file)))
    assert "the certificate of the identity provider is not trusted" in told
    file = tmp_path / "token"
    file.write_text("no.token.atall")
    by_file = {"token_url": None, "client_id": None, "client_secret": None, "scope": None, "token_ca": None}
    told = shut(other("OAUTHBEARER", **by_file, token_file=str(file)))
    assert "the broker does not accept the token" in told
    assert "Check issuer, audience and scope" in told
    source = tokens.tokens(found["OAUTHBEARER"].security)
    assert source is not None
    file.write_text(source.token().text)
    assert Cluster(other("OAUTHBEARER", **by_file, token_file=str(file))).brokers() == 1

    # What may pass is no final word, and librdkafka has tried as well.
    monkeypatch.setattr(cluster, "_REACH_SECONDS", 0.5)
    plain = Kafka(broker.door("TLS"))
    with pytest.raises(
        EventveilError, match=r"does not answer as a Kafka broker does\..* a listener with TLS"
    ):
        Cluster(plain)
    with pytest.raises(EventveilError, match="Is that a listener without TLS"):
        Cluster(replace(found["TLS"], bootstrap=broker.bootstrap))


def test_who_has_no_right_hears_which_and_on_what(broker: SecuredBroker) -> None:
    topic = create_topic(broker.bootstrap, unique("shut"))
    kafka = replace(
        ways(broker)["PLAIN"], security=replace(ways(broker)["PLAIN"].security, username=STRANGER)
    )
    admitted_anyway = Cluster(kafka)
    no_right = "authorization failed: the user of kafka.security has no right to"
    attempts = {
        f"topic {topic}: Broker: Topic {no_right} Describe there": lambda: admitted_anyway.topic(topic),
        f"topic {topic}: Broker: Topic {no_right} DescribeConfigs": lambda: admitted_anyway.settings([topic]),
        f"transactional id owner: Broker: Transactional Id {no_right} Write": (
            lambda: Writer(kafka, "owner", 20).initialise(30)
        ),
        f"topic {topic}: Broker: Topic {no_right} Describe ": lambda: committed_ends(kafka, topic, [0]),
    }
    for told, attempt in attempts.items():
        with pytest.raises(KafkaException) as caught:
            attempt()
        assert told in str(caught.value)
        assert "docs/deploy.md" in str(caught.value)


def test_a_worker_that_comes_in_by_tokens_releases_and_all_commands_read_what_it_wrote(
    broker: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    began = datetime.now(UTC).isoformat(timespec="seconds")
    monkeypatch.setenv("CLIENT_SECRET", SECRET)
    # As few partitions as can be: with tokens, the binding of librdkafka takes a second for every client.
    application = Application(broker.bootstrap, tmp_path, partitions=1)
    application.document["topics"]["partials"] = 1
    application.write()
    application.create()
    application.document["kafka"] = {
        "bootstrap": broker.door("SASL"),
        "security": {
            "protocol": "SASL_SSL",
            "mechanism": "OAUTHBEARER",
            "ca": str(broker.authority.file),
            "token_url": broker.provider.url,
            "token_ca": str(broker.authority.file),
            "client_id": CLIENT,
            "client_secret": "${CLIENT_SECRET}",
            "scope": "kafka",
        },
    }
    application.write()
    path = str(application.path)
    assert load(path, os.environ).kafka == replace(ways(broker)["OAUTHBEARER"], bootstrap=broker.door("SASL"))
    told = application.command("check", path) + application.command("topics", path)
    # So short that its clients come in with the next one while it works, and so long that what is left of one
    # is enough to come in by, on a machine where that takes a second or two.
    broker.provider.life = 20
    given = broker.provider.given
    with WorkerProcess("tests.worker.silent", application.path, tmp_path / "worker.log", "2") as worker:
        wait_for_releases(application, 5)
        deadline = time.monotonic() + 120
        while broker.provider.given < given + 2:
            assert worker.running
            assert time.monotonic() < deadline
            time.sleep(0.3)
        # The provider is away for longer than the newest token holds, and the broker ends its sessions.
        expired = time.monotonic() + broker.provider.life
        broker.provider.trouble = True
        deadline = time.monotonic() + 120
        while time.monotonic() < expired or broker.provider.refused < 3:
            assert worker.running
            assert time.monotonic() < deadline
            time.sleep(0.3)
        broker.provider.trouble = False
        wait_for_releases(application, len(application.releases()) + 5)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    broker.provider.life = 300
    output, table = tmp_path / "replayed.jsonl", tmp_path / "table.csv"
    told += application.command("ledger", path)
    source = ("--input", f"topic:{application.source}", "--from", began, "--to", "last")
    # Nobody has sent an event, so there is none to count.
    told += application.command("replay", path, *source, "--output", str(output), status=3)
    told += application.command("export", path, "--output", str(table))
    assert "of epsilon 1" in told
    assert len(table.read_text().splitlines()) > 5
    log = (tmp_path / "worker.log").read_text() + caplog.text + told
    assert SECRET not in log
    assert "eyJ" not in log, "a token"


def test_a_worker_goes_on_with_a_certificate_that_was_renewed_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of its clients: those that write, the consumer and that of librdkafka."""
    if missing := missing_tools():
        pytest.skip("; ".join(missing))
    with secured_broker(tmp_path / "files") as broker:
        application = Application(broker.bootstrap, tmp_path, partitions=1)
        application.create()
        certificate, key = map(str, broker.client)
        security = {
            "protocol": "SSL", "ca": str(broker.authority.file), "certificate": certificate, "key": key,
            "key_password": "${KEY_PASSWORD}",
        }  # fmt: skip
        application.document["kafka"] = {"bootstrap": broker.door("MUTUAL"), "security": security}
        application.write()
        monkeypatch.setenv("KEY_PASSWORD", KEY_PASSWORD)
        log = tmp_path / "worker.log"
        with WorkerProcess("tests.worker.silent", application.path, log, "2") as worker:
            wait_for_releases(application, 5)
            # From now on the broker takes no certificate like the one that the worker began with.
            broker.stop()
            broker.clients.write_bytes(broker.other.file.read_bytes())
            broker.other.certificate(USER, KEY_PASSWORD)
            broker.start()
            wait_for_releases(application, len(application.releases()) + 20)
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0


@pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)
def test_topics_are_created_under_the_limits_of_a_managed_service(
    broker: SecuredBroker, tmp_path: Path
) -> None:
    """The topology for a managed cluster among the examples, on a topic with the defaults of Kafka."""
    text = (ROOT / "topologies" / "managed.yaml").read_text()
    path = tmp_path / "managed.yaml"
    environ = {"KAFKA_BOOTSTRAP": broker.bootstrap, "KAFKA_REPLICATION": "1", "KAFKA_MIN_INSYNC": "1"}
    runner = CliRunner(env=environ)
    path.write_text(text.replace("managed: true", "managed: false"))
    refused = runner.invoke(main, ["topics", str(path), "--create", "--sources"])
    assert refused.exit_code == 1
    assert "POLICY_VIOLATION" in refused.output
    path.write_text(text)
    made = runner.invoke(main, ["topics", str(path), "--create", "--sources"])
    assert made.exit_code == 0, made.output
    found = Cluster(Kafka(broker.bootstrap)).settings(["managed-ledger-changelog", "managed.views"])
    assert found["managed.views"]["message.timestamp.type"] == "CreateTime"
    changelog = found["managed-ledger-changelog"]
    assert (changelog["max.message.bytes"], changelog["segment.bytes"]) == ("8388608", "52428800")
    assert changelog["unclean.leader.election.enable"] == "false", "by default"
    checked = runner.invoke(main, ["topics", str(path)])
    assert checked.exit_code == 0, checked.output
