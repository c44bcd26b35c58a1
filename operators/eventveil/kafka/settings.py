"""One description of the cluster, translated for librdkafka and for aiokafka."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import faust
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import KafkaException, Producer

from eventveil.kafka.certificates import Renewing
from eventveil.kafka.tokens import NoToken, Tokens, tokens
from eventveil.model.errors import EventveilError
from eventveil.model.topology import Kafka, Security

#: Errors reach the caller as exceptions; a broker that is away would fill the log with one line per attempt.
_QUIET = {"log_level": 2, "reconnect.backoff.ms": 250, "reconnect.backoff.max.ms": 5000}
#: A topic that is asked about and does not exist is not to be created by the question, with any settings.
_CREATING_NOTHING = {"allow.auto.create.topics": False}
_BEARER = "OAUTHBEARER"
#: The mechanism of SASL that Kerberos has.
KERBEROS = "GSSAPI"


def librdkafka(kafka: Kafka) -> dict[str, Any]:
    """The connection settings of a confluent-kafka client."""
    security, clients = kafka.security, kafka.clients
    source = tokens(security)
    kerberos = security.mechanism == KERBEROS
    if kerberos:
        require_kerberos()
    settings = {
        "bootstrap.servers": kafka.bootstrap,
        "security.protocol": security.protocol,
        "sasl.mechanism": security.mechanism if source is None else _BEARER,
        "sasl.username": security.username,
        "sasl.password": security.password,
        "ssl.ca.location": security.ca,
        "ssl.certificate.location": security.certificate,
        "ssl.key.location": security.key,
        "ssl.key.password": security.key_password,
        # Left to its own means, it would ask for a token for every client.
        "oauth_cb": None if source is None else lambda _: (*source.token(), "", security.extension_values),
        "sasl.kerberos.service.name": security.service_name,
        # Tickets are those of the environment, as for aiokafka; it would call kinit.
        "sasl.kerberos.min.time.before.relogin": 0 if kerberos else None,
        "client.id": clients.client_id,
        "connections.max.idle.ms": clients.idle,
        "ssl.cipher.suites": clients.ciphers,
    }
    known = {name: value for name, value in settings.items() if value is not None}
    return {**_QUIET, **_CREATING_NOTHING, **known}


def aiokafka(kafka: Kafka) -> dict[str, Any]:
    """The connection settings of an aiokafka client. Raises EventveilError if certificates do not fit."""
    security, clients = kafka.security, kafka.clients
    handed_on = {"client_id": clients.client_id, "connections_max_idle_ms": clients.idle}
    return {
        "bootstrap_servers": kafka.bootstrap.split(","),
        "security_protocol": security.protocol,
        "ssl_context": _ssl_context(kafka),
        **_sasl(security),
        **{name: value for name, value in handed_on.items() if value is not None},
    }


def _sasl(security: Security) -> dict[str, Any]:
    if (source := tokens(security)) is not None:
        return {"sasl_mechanism": _BEARER, "sasl_oauth_token_provider": _provider(source, security)}
    if not security.mechanism:
        return {}
    if security.mechanism == KERBEROS:
        require_kerberos()
        return {"sasl_mechanism": KERBEROS, "sasl_kerberos_service_name": security.service_name}
    return {
        "sasl_mechanism": security.mechanism,
        "sasl_plain_username": security.username,
        "sasl_plain_password": security.password,
    }


class Provider(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """The tokens, and what goes with each of them, as aiokafka asks for them."""

    def __init__(self, source: Tokens, extensions: Mapping[str, str] | None = None) -> None:
        self.source, self._extensions = source, dict(extensions or {})

    def extensions(self) -> dict[str, str]:
        """What a broker is told beside the token, by name (RFC 7628, section 3.1)."""
        return self._extensions

    async def token(self) -> str:
        """A token. Raises NoToken, or what aiokafka takes for a broker that cannot be reached now."""
        try:
            return (await asyncio.to_thread(self.source.token)).text
        except NoToken as error:
            if not error.passes:
                raise
            # Anything else would end the task that asked, and the worker with it.
            raise KafkaConnectionError(str(error)) from error


def _provider(source: Tokens, security: Security) -> Provider:
    return Provider(source, security.extension_values)


def faust_credentials(kafka: Kafka) -> Any:
    """The credentials of a Faust app, for the producer that Faust insists on; None without security."""
    security = kafka.security
    context = _ssl_context(kafka)
    if security.mechanism == KERBEROS:
        return faust.GSSAPICredentials(kerberos_service_name=security.service_name or "", ssl_context=context)
    if (source := tokens(security)) is not None:
        return faust.OAuthCredentials(oauth_cb=_provider(source, security), ssl_context=context)
    if security.mechanism:
        return faust.SASLCredentials(
            username=security.username,
            password=security.password,
            mechanism=security.mechanism,
            ssl_context=context,
        )
    return faust.SSLCredentials(context) if context else None


@cache
def require_kerberos() -> None:
    """Raises EventveilError if one of the client libraries cannot do GSSAPI here."""
    place = f"kafka.security.mechanism {KERBEROS}"
    if find_spec("gssapi") is None:
        raise EventveilError(
            f"{place}: the Python package gssapi is missing; pip install 'eventveil[kerberos]'"
        )
    probe = {"bootstrap.servers": "localhost:9", "security.protocol": "SASL_PLAINTEXT", "log_level": 0}
    try:
        Producer({**probe, "sasl.mechanism": KERBEROS, "sasl.kerberos.min.time.before.relogin": 0})
    except KafkaException as error:
        raise EventveilError(
            f"{place}: this librdkafka was built without Kerberos ({error.args[0].str()}). Install "
            "confluent-kafka from source, over a librdkafka with GSSAPI: docs/deploy.md, Kerberos"
        ) from None


def _ssl_context(kafka: Kafka) -> Renewing | None:
    """None without TLS. Raises EventveilError if certificates cannot be used."""
    security = kafka.security
    if not security.protocol.endswith("SSL"):
        return None
    files = [path for path in (security.ca, security.certificate, security.key) if path]
    return Renewing(partial(_made_context, kafka), files)


def _made_context(kafka: Kafka) -> ssl.SSLContext:
    """Of the files as they are. Raises as ``_ssl_context`` does."""
    security, ciphers = kafka.security, kafka.clients.ciphers
    try:
        context = ssl.create_default_context(cafile=security.ca)
    except (OSError, ValueError) as error:
        raise _unreadable("ca", security.ca, error) from None
    if security.certificate:
        # Without a password OpenSSL would ask for one at the terminal.
        try:
            context.load_cert_chain(security.certificate, security.key, security.key_password or "")
        except (OSError, ValueError) as error:
            raise _unreadable("certificate", f"{security.certificate}, key {security.key}", error) from None
    if ciphers:
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError:
            raise EventveilError(
                f"kafka.clients.ssl.cipher.suites {ciphers}: OpenSSL supports none of these. `openssl"
                " ciphers` lists the names"
            ) from None
    return context


def _unreadable(setting: str, path: str | None, error: Exception) -> EventveilError:
    if isinstance(error, ssl.SSLError):
        told = "not PEM, a certificate and a key that do not belong together, or a wrong key_password"
        told = f"{error.reason or error}: {told}"
    else:
        told = getattr(error, "strerror", None) or str(error)
    return EventveilError(
        f"kafka.security.{setting} {path}: it cannot be used ({told}). Check the files and their rights"
    )
