"""One description of the cluster, as each of the clients gets it."""

from __future__ import annotations

import logging
from dataclasses import fields, replace
from inspect import signature

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.conn import SaslGSSAPIAuthenticator
from confluent_kafka import KafkaError, KafkaException, Producer

from eventveil.kafka import connection, diagnosis, settings
from eventveil.kafka.connection import NoTicket
from eventveil.model.errors import EventveilError
from eventveil.model.topology import Clients, Kafka, Security
from eventveil.topology.clients import CLIENTS, REFUSED

TLS = Kafka("localhost:9092", Security("SSL"), Clients("shop", "ECDHE+AESGCM", 120_000))
SILENT = logging.Logger("silent", logging.CRITICAL)
KERBEROS = Kafka("localhost:9092", Security("SASL_SSL", "GSSAPI", service_name="kafka"))


def test_what_is_handed_on_reaches_the_clients_of_both_libraries() -> None:
    made = settings.librdkafka(TLS)
    handed_on = {"client.id": "shop", "ssl.cipher.suites": "ECDHE+AESGCM", "connections.max.idle.ms": 120_000}
    assert {name: made.get(name) for name in handed_on} == handed_on
    Producer(made)
    made = settings.aiokafka(TLS)
    assert (made["client_id"], made["connections_max_idle_ms"]) == ("shop", 120_000)
    old = {one["name"] for one in made["ssl_context"].current.get_ciphers() if one["protocol"] != "TLSv1.3"}
    assert old
    assert all("GCM" in one for one in old)
    plain = settings.aiokafka(Kafka("localhost:9092"))
    assert "client_id" not in plain
    assert "connections_max_idle_ms" not in plain
    with pytest.raises(EventveilError, match=r"kafka.clients.ssl.cipher.suites NONE: OpenSSL supports none"):
        settings.aiokafka(replace(TLS, clients=Clients(ciphers="NONE")))


def test_no_client_creates_a_topic_by_asking_for_it() -> None:
    assert settings.librdkafka(Kafka("localhost:9092"))["allow.auto.create.topics"] is False


def test_what_can_be_handed_on_is_a_closed_list_and_nothing_in_it_is_refused() -> None:
    assert set(CLIENTS.keys).isdisjoint(REFUSED)
    assert len(CLIENTS.keys) == len(fields(Clients))
    # The libraries would have taken these: nothing but the list keeps them out.
    weaker = {
        "acks": "1",
        "enable.idempotence": "false",
        "transactional.id": "another",
        "isolation.level": "read_uncommitted",
        "auto.offset.reset": "latest",
        "group.id": "another",
        "enable.ssl.certificate.verification": "false",
        "debug": "all",
    }
    for name, value in weaker.items():
        assert name in REFUSED
        Producer({"bootstrap.servers": "localhost:9", "log_level": 0, "logger": SILENT, name: value})
    known = {name.replace("_", ".") for name in signature(AIOKafkaConsumer).parameters}
    assert {"isolation.level", "auto.offset.reset", "group.id", "check.crcs"} <= known & set(REFUSED)


def test_kerberos_is_refused_where_a_library_lacks_it_and_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def told() -> str:
        settings.require_kerberos.cache_clear()
        with pytest.raises(EventveilError) as caught:
            settings.aiokafka(KERBEROS)
        settings.require_kerberos.cache_clear()
        return str(caught.value)

    monkeypatch.setattr(settings, "find_spec", lambda name: None)
    assert told().endswith("the Python package gssapi is missing; pip install 'eventveil[kerberos]'")
    monkeypatch.setattr(settings, "find_spec", lambda name: object())

    def without(configuration: object) -> None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "No provider for GSSAPI"))

    monkeypatch.setattr(settings, "Producer", without)
    assert "this librdkafka was built without Kerberos (No provider for GSSAPI). Install" in told()


def test_with_kerberos_both_libraries_take_the_tickets_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "require_kerberos", lambda: None)
    made = settings.librdkafka(KERBEROS)
    assert made["sasl.mechanism"] == "GSSAPI"
    assert made["sasl.kerberos.service.name"] == "kafka"
    assert made["sasl.kerberos.min.time.before.relogin"] == 0, "it would call kinit"
    made = settings.aiokafka(KERBEROS)
    assert (made["sasl_mechanism"], made["sasl_kerberos_service_name"]) == ("GSSAPI", "kafka")
    assert settings.faust_credentials(KERBEROS).kerberos_service_name == "kafka"


def test_a_ticket_that_kerberos_does_not_give_is_named_with_its_remedy() -> None:
    class Refused(SaslGSSAPIAuthenticator):  # type: ignore[misc]
        def __init__(self) -> None:
            self._authenticator = iter(())

        def _step(self, told: bytes | None) -> None:
            raise RuntimeError("Server kafka/localhost@EV.TEST\nnot found")

    with pytest.raises(NoTicket, match=r"^Server kafka/localhost@EV.TEST not found$") as caught:
        connection._stepped(Refused(), None)
    what, remedy = diagnosis._not_admitted(caught.value, KERBEROS.security)
    assert what == "Kerberos has no ticket for it (Server kafka/localhost@EV.TEST not found)"
    assert "KRB5_CLIENT_KTNAME" in remedy
    what, remedy = diagnosis._not_admitted(connection.NotAdmitted("no"), KERBEROS.security)
    assert what == "the broker does not accept the ticket (no)"
