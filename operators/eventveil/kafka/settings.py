"""One description of the cluster, translated for librdkafka and for aiokafka."""

from __future__ import annotations

import ssl
from typing import Any

import faust

from eventveil.model.topology import Kafka, Security

#: Errors reach the caller as exceptions; a broker that is away would fill the log with one line per attempt.
_QUIET = {"log_level": 2, "reconnect.backoff.ms": 250, "reconnect.backoff.max.ms": 5000}


def librdkafka(kafka: Kafka) -> dict[str, Any]:
    """The connection settings of a confluent-kafka client."""
    security = kafka.security
    settings = {
        "bootstrap.servers": kafka.bootstrap,
        "security.protocol": security.protocol,
        "sasl.mechanism": security.mechanism,
        "sasl.username": security.username,
        "sasl.password": security.password,
        "ssl.ca.location": security.ca,
        "ssl.certificate.location": security.certificate,
        "ssl.key.location": security.key,
    }
    return {**_QUIET, **{name: value for name, value in settings.items() if value is not None}}


def aiokafka(kafka: Kafka) -> dict[str, Any]:
    """The connection settings of an aiokafka client."""
    security = kafka.security
    return {
        "bootstrap_servers": kafka.bootstrap.split(","),
        "security_protocol": security.protocol,
        "ssl_context": _ssl_context(security),
        **(
            {
                "sasl_mechanism": security.mechanism,
                "sasl_plain_username": security.username,
                "sasl_plain_password": security.password,
            }
            if security.mechanism
            else {}
        ),
    }


def faust_credentials(kafka: Kafka) -> Any:
    """The credentials of a Faust app, for the producer that Faust insists on; None without security."""
    security = kafka.security
    context = _ssl_context(security)
    if security.mechanism:
        return faust.SASLCredentials(
            username=security.username,
            password=security.password,
            mechanism=security.mechanism,
            ssl_context=context,
        )
    return faust.SSLCredentials(context) if context else None


def _ssl_context(security: Security) -> ssl.SSLContext | None:
    if not security.protocol.endswith("SSL"):
        return None
    context = ssl.create_default_context(cafile=security.ca)
    if security.certificate:
        context.load_cert_chain(security.certificate, security.key)
    return context
